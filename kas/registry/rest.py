"""What may stand behind a resource that is not kept in the store (upstream: apiserver ``pkg/registry/rest``).

A storage has some of the methods below, and the resource the verbs that they make: ``get``, ``list``, ``watch``, ``create``, ``update``
(which makes ``patch``, too) and ``delete`` (with ``deletecollection``, where it lists). All but ``watch`` may be plain functions or
coroutine functions. The server decodes, defaults, validates, admits and converts as for any resource; a storage sees whole objects, dicts
with ``metadata``, and says what is there now.

``metadata.resourceVersion`` is a decimal number above 0 that changes with each write, or is left out by storages that know none. Plain
functions run on the event loop of a worker: what takes longer than some milliseconds is a coroutine function that waits elsewhere
(``asyncio.to_thread``). Each worker has its own copy of a storage, and calls it from its loop's thread only.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from kas.meta.records import NamedTuple
from kas.registry.strategy import Context, Obj

__all__ = [
    "EVENTS", "AlreadyExists", "Conflict", "Context", "Creater", "Deleter", "Event", "Getter", "Lister", "Obj", "ObjectList", "Updater",
    "VirtualResource", "Watcher", "event_of", "listing_of",
]  # fmt: skip


EVENTS = ("ADDED", "MODIFIED", "DELETED", "BOOKMARK")


class AlreadyExists(Exception):
    """There is an object of that name already: the client gets 409."""


class Conflict(Exception):
    """What is there is not what the write stands on. A write that names no resourceVersion is computed anew, one that does meets its 409.
    """


class ObjectList(NamedTuple):
    """Objects, in any order, and the resourceVersion of all of them ("" for none)."""

    items: Sequence[Obj]
    resource_version: str = ""


def listing_of(resource: VirtualResource, given: Any) -> ObjectList:
    """What a storage's ``list`` gave. Raises TypeError, which says what is wanted."""
    if isinstance(given, ObjectList):
        return given
    raise TypeError(f"list() of {resource.resource}.{resource.group} gave a {type(given).__name__}, not a kas.registry.rest.ObjectList")


class Event(NamedTuple):
    """``type`` is ADDED, MODIFIED, DELETED or BOOKMARK; ``object`` is as it was last for DELETED, and of a BOOKMARK only its
    metadata.resourceVersion counts."""

    type: str
    object: Obj


def event_of(resource: VirtualResource, given: Any) -> Event:
    """What a storage's ``watch`` tells. Raises TypeError, which says what is wanted."""
    if isinstance(given, tuple) and len(given) == 2 and given[0] in EVENTS and isinstance(given[1], dict):
        return Event(*given)
    said = f"{given[0]!r}, ..." if isinstance(given, tuple) and given else type(given).__name__
    raise TypeError(f"watch() of {resource.resource}.{resource.group} told ({said}), not a kas.registry.rest.Event of {', '.join(EVENTS)}")


class Getter(Protocol):
    """Finds one object."""

    def get(self, ctx: Context, name: str) -> Obj | Awaitable[Obj | None] | None:
        """The object of ``ctx.namespace`` with this name; None, or an ApiError of 404, when there is none. It is the caller's own, as those
        of a list are."""
        ...


class Lister(Protocol):
    """Finds all objects."""

    def list(self, ctx: Context) -> ObjectList | Awaitable[ObjectList]:
        """Those of ``ctx.namespace``, of all namespaces when it is "". Selectors are the server's matter. The objects are the caller's own,
        which reads them in another thread: a storage that changes its objects in place gives copies."""
        ...


class Watcher(Protocol):
    """Tells what becomes of objects."""

    def watch(self, ctx: Context, resource_version: str) -> AsyncIterator[Event]:
        """What happens after that version, without an end; from "" on what is there now, too, as ADDED. It is closed (``aclose``) when
        nobody wants it any more. May raise ApiError, which ends the watch with an ERROR event."""
        ...


class Creater(Protocol):
    """Keeps new objects."""

    def create(self, ctx: Context, obj: Obj) -> Obj | Awaitable[Obj]:
        """Keep ``obj``, and give it as it is kept, with its resourceVersion. Raises AlreadyExists, or ApiError."""
        ...


class Updater(Getter, Protocol):
    """Keeps other objects in the place of those there are."""

    def update(self, ctx: Context, obj: Obj, old: Obj) -> Obj | Awaitable[Obj]:
        """Keep ``obj`` in the place of ``old``, which ``get`` gave. Raises Conflict when that is not there any more, or ApiError."""
        ...


class Deleter(Getter, Protocol):
    """Lets objects go."""

    def delete(self, ctx: Context, obj: Obj) -> Awaitable[None] | None:
        """``obj``, which ``get`` gave, is gone. Raises Conflict when it is another by now, or ApiError."""
        ...


@dataclass(frozen=True)
class VirtualResource:
    """A resource whose objects are kept by ``storage``, which has the methods of a ``Getter``, ``Lister``, ``Watcher``, ``Creater``,
    ``Updater`` or ``Deleter``. The rest is said as a CustomResourceDefinition says it: ``schema`` is a structural schema
    (openAPIV3Schema), ``columns`` are additionalPrinterColumns, ``status`` says that there is a status subresource.

    The group must not be one of Kubernetes' own; other group versions of it may be those of definitions.
    """

    group: str
    version: str
    resource: str
    kind: str
    storage: Any
    namespaced: bool = True
    schema: Obj = field(default_factory=lambda: {"type": "object", "x-kubernetes-preserve-unknown-fields": True})
    status: bool = False
    columns: Sequence[Obj] = ()
    singular: str = ""
    short_names: Sequence[str] = ()
    categories: Sequence[str] = ()

    def verbs(self) -> tuple[str, ...]:
        """What can be done with its objects, in the order in which upstream names the verbs of custom resources."""
        has = {name for name in ("get", "list", "watch", "create", "update", "delete") if callable(getattr(self.storage, name, None))}
        if "get" not in has:
            has -= {"update", "delete"}
        if "update" in has:
            has.add("patch")
        if {"delete", "list"} <= has:
            has.add("deletecollection")
        order = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
        return tuple(verb for verb in order if verb in has)

    def definition(self) -> Obj:
        """The CustomResourceDefinition that describes it."""
        version: Obj = {"name": self.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": self.schema}}
        if self.status:
            version["subresources"] = {"status": {}}
        if self.columns:
            version["additionalPrinterColumns"] = list(self.columns)
        names: Obj = {
            "plural": self.resource, "singular": self.singular or self.kind.lower(), "kind": self.kind, "listKind": f"{self.kind}List"
        }  # fmt: skip
        names |= {key: list(value) for key, value in (("shortNames", self.short_names), ("categories", self.categories)) if value}
        spec = {
            "group": self.group, "scope": "Namespaced" if self.namespaced else "Cluster", "names": names, "versions": [version],
            "conversion": {"strategy": "None"},
        }  # fmt: skip
        return {
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{self.resource}.{self.group}"}, "spec": spec,
        }  # fmt: skip
