"""The interface between a write and admission: implemented by a request's chain of plug-ins, and by tests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from kas.meta.field import FieldError
from kas.meta.stored import Stored
from kas.registry.strategy import Obj

Encoded = tuple[bytes, bytes, int, int, bytes | None]  # see encode_stored
Made = tuple[Encoded, bytes | None]  # see encode_both
Forms = Callable[[Obj], Made]  # ``kas.registry.generic.Registry.forms``


class Admission(Protocol):
    """The plug-ins, bound to one request. Objects are in the request's version; a denial is an ApiError."""

    @property
    def obj(self) -> Obj:
        """The object after the mutating plug-ins."""
        ...

    @property
    def grown(self) -> bool:
        """Whether a plug-in has added so much to the object that further work on it takes long."""
        ...

    def admit(self, operation: str, obj: Obj | None, old: Obj | None) -> Awaitable[None] | None:
        """Runs the mutating plug-ins in order; returns an awaitable for the rest if one waits. The result is ``obj``."""
        ...

    def reinvoke(self) -> bool:
        """Returns whether a plug-in that wants to see later changes must be called again (reinvocationPolicy IfNeeded). If
        not, the mutating step of this attempt is over: the next attempt starts anew."""
        ...

    def validate(
        self, operation: str, obj: Obj | None, old: Obj | None, forms: Forms | None = None, replaced: Stored | None = None
    ) -> Awaitable[None] | None:
        """Runs the validating plug-ins in order; returns an awaitable for the rest if one waits. ``forms`` encodes ``obj``,
        passed if the object is small and is what will be stored; ``replaced`` holds ``old`` as JSON."""
        ...

    @property
    def made(self) -> Made | None:
        """The result of ``forms`` for the object validated last, if a plug-in needed it."""
        ...

    async def found_by_storage(self, operation: str, obj: Obj, old: Obj | None) -> list[FieldError]:
        """Returns the errors that plug-ins which are part of upstream's storage find in an object that the kind's own
        validation refuses; they are reported first."""
        ...

    async def authorize_create(self, name: str) -> None:
        """Raises 403 if the user, who updates or patches, may not create (upstream's ``withAuthorization``)."""
        ...

    def warn(self, text: str) -> None:
        """Sends the client a warning in addition to the strategy's."""


OWNER_TEXTS = ("apiVersion", "kind", "name", "uid")


def dedup_owner_references(meta: Obj, warn: Callable[[str], None], when: str = "") -> None:
    """Drops repeated ownerReferences (equal in all fields) with upstream's warning; ``when`` is added to its text to say
    where they came from."""
    refs = meta.get("ownerReferences")
    if not refs or len(refs) < 2:
        return
    kept: dict[tuple[Any, ...], Any] = {}
    repeated = []
    for ref in refs:
        # Upstream compares each pair; a dict lookup by all fields of the type gives the same result in linear time.
        said = (*(ref.get(name) or "" for name in OWNER_TEXTS), ref.get("controller"), ref.get("blockOwnerDeletion"))
        if said in kept:
            repeated.append(ref.get("uid") or "")
        else:
            kept[said] = ref
    if repeated:
        meta["ownerReferences"] = list(kept.values())
        warn(
            f".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, "
            f"and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {', '.join(repeated)}"
        )
