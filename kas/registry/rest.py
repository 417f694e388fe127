"""The interface for resources that are not kept in the store (upstream: apiserver ``pkg/registry/rest``).

A storage implements some of the methods below, and the resource gets the corresponding verbs: ``get``, ``list``, ``watch``,
``create``, ``update`` (which also gives ``patch``) and ``delete`` (and ``deletecollection``, if it lists). All but ``watch``
may be plain functions or coroutine functions. The server decodes, defaults, validates, admits and converts as for any
resource; a storage handles whole objects, dicts with ``metadata``, and returns the current state.

``metadata.resourceVersion`` is a decimal number above 0 that changes with each write; storages without versions leave it out.
Plain functions run on the event loop of a worker: work that takes more than some milliseconds belongs in a coroutine function
that waits elsewhere (``asyncio.to_thread``). Each worker has its own copy of a storage, and calls it only from its loop's
thread.
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
    """An object of that name exists: the client gets 409."""


class Conflict(Exception):
    """The current object is not the one that the write is based on. A write that names no resourceVersion is recomputed; one
    that does gets 409."""


class ObjectList(NamedTuple):
    """Objects, in any order, and the resourceVersion of the list ("" for none)."""

    items: Sequence[Obj]
    resource_version: str = ""


def listing_of(resource: VirtualResource, given: Any) -> ObjectList:
    """Returns the result of a storage's ``list``. Raises TypeError with the expected type."""
    if isinstance(given, ObjectList):
        return given
    raise TypeError(f"list() of {resource.resource}.{resource.group} gave a {type(given).__name__}, not a kas.registry.rest.ObjectList")


class Event(NamedTuple):
    """``type`` is ADDED, MODIFIED, DELETED or BOOKMARK; ``object`` is the last state for DELETED; of a BOOKMARK only its
    metadata.resourceVersion is used."""

    type: str
    object: Obj


def event_of(resource: VirtualResource, given: Any) -> Event:
    """Returns an event of a storage's ``watch``. Raises TypeError with the expected type."""
    if isinstance(given, tuple) and len(given) == 2 and given[0] in EVENTS and isinstance(given[1], dict):
        return Event(*given)
    said = f"{given[0]!r}, ..." if isinstance(given, tuple) and given else type(given).__name__
    raise TypeError(f"watch() of {resource.resource}.{resource.group} told ({said}), not a kas.registry.rest.Event of {', '.join(EVENTS)}")


class Getter(Protocol):
    """Gets one object."""

    def get(self, ctx: Context, name: str) -> Obj | Awaitable[Obj | None] | None:
        """Returns the object of ``ctx.namespace`` with this name; None, or an ApiError of 404, if there is none. The caller
        owns the returned object, as it does those of a list."""
        ...


class Lister(Protocol):
    """Lists objects."""

    def list(self, ctx: Context) -> ObjectList | Awaitable[ObjectList]:
        """Returns the objects of ``ctx.namespace``, or of all namespaces if that is "". The server applies selectors. The
        caller owns the objects and reads them in another thread: a storage that changes its objects in place must return
        copies."""
        ...


class Watcher(Protocol):
    """Watches objects."""

    def watch(self, ctx: Context, resource_version: str) -> AsyncIterator[Event]:
        """Yields the events after that version, without end; from "", first the current objects as ADDED. The iterator is
        closed (``aclose``) when the watch is no longer needed. May raise ApiError, which ends the watch with an ERROR
        event."""
        ...


class Creater(Protocol):
    """Creates objects."""

    def create(self, ctx: Context, obj: Obj) -> Obj | Awaitable[Obj]:
        """Stores ``obj``; returns it as stored, with its resourceVersion. Raises AlreadyExists, or ApiError."""
        ...


class Updater(Getter, Protocol):
    """Replaces objects."""

    def update(self, ctx: Context, obj: Obj, old: Obj) -> Obj | Awaitable[Obj]:
        """Stores ``obj`` in the place of ``old``, which ``get`` returned; returns it as stored. Raises Conflict if ``old`` is
        not the current object, or ApiError."""
        ...


class Deleter(Getter, Protocol):
    """Deletes objects."""

    def delete(self, ctx: Context, obj: Obj) -> Awaitable[None] | None:
        """Deletes ``obj``, which ``get`` returned. Raises Conflict if it is not the current object, or ApiError."""
        ...


@dataclass(frozen=True)
class VirtualResource:
    """A resource whose objects are kept by ``storage``, which has the methods of a ``Getter``, ``Lister``, ``Watcher``,
    ``Creater``, ``Updater`` or ``Deleter``. The other fields are as in a CustomResourceDefinition: ``schema`` is a structural
    schema (openAPIV3Schema), ``columns`` are additionalPrinterColumns, ``status`` says whether there is a status subresource.

    The group must not be one of Kubernetes' own; other versions of the group may be served from definitions.
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
        """Returns the verbs of the resource, in the order in which upstream lists those of custom resources."""
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
        """Returns a CustomResourceDefinition that describes the resource."""
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
