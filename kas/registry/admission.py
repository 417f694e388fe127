"""What a write asks of admission, whoever it is: a request's chain of plug-ins, or a test's."""

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
    """The plug-ins, and the request they are asked about. Objects are in the request's version; a refusal is an ApiError."""

    @property
    def obj(self) -> Obj:
        """The object as the mutating plug-ins left it."""
        ...

    @property
    def grown(self) -> bool:
        """Whether a plug-in has added much to it, so that what is done with it from now on is long work."""
        ...

    def admit(self, operation: str, obj: Obj | None, old: Obj | None) -> Awaitable[None] | None:
        """Runs the mutating plug-ins in order; what is left when one waits. The outcome is ``obj``."""
        ...

    def reinvoke(self) -> bool:
        """Whether a plug-in that wants to see later changes has to be asked again (reinvocationPolicy IfNeeded). When not, the attempt's
        mutating step is over: the next one starts anew."""
        ...

    def validate(
        self, operation: str, obj: Obj | None, old: Obj | None, forms: Forms | None = None, replaced: Stored | None = None
    ) -> Awaitable[None] | None:
        """Runs the validating plug-ins in order; what is left when one waits. ``forms`` are those of ``obj`` where it is small and what
        will be stored, ``replaced`` holds ``old`` as JSON."""
        ...

    @property
    def made(self) -> Made | None:
        """What ``forms`` gave for what was validated last, where a plug-in needed that."""
        ...

    async def found_by_storage(self, operation: str, obj: Obj, old: Obj | None) -> list[FieldError]:
        """What plug-ins that are part of upstream's storage say of an object that the kind's own rules refuse, to be told first."""
        ...

    async def authorize_create(self, name: str) -> None:
        """Raises 403 when who updates or patches may not create (upstream's ``withAuthorization``)."""
        ...

    def warn(self, text: str) -> None:
        """Tell the client this, besides what the strategy has to say."""


OWNER_TEXTS = ("apiVersion", "kind", "name", "uid")


def dedup_owner_references(meta: Obj, warn: Callable[[str], None], when: str = "") -> None:
    """Drops ownerReferences that are there already, in all they say, with upstream's warning; ``when`` tells in it who brought them."""
    refs = meta.get("ownerReferences")
    if not refs or len(refs) < 2:
        return
    kept: dict[tuple[Any, ...], Any] = {}
    repeated = []
    for ref in refs:
        # Upstream compares each with each; what the type has in it, as a key, is the same and takes one look.
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
