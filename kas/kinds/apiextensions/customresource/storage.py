"""Storage of the objects of a definition."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kas.apiextensions import customtypes
from kas.meta import errors
from kas.meta.records import NamedTuple
from kas.registry.admission import Encoded, Made
from kas.registry.generic import Registry, not_written
from kas.registry.strategy import Context, Obj
from kas.registry.versions import Decoded, Shown
from kas.store import Conflict, Draft, Op, Record, Store, build_record
from kas.types.fieldlabels import custom_selectable_fields
from kas.types.scheme import EncodeError, Resource, encode_stored

MAX_CHECKS = 16  # limit of retries after the definition's status changed during a write

NO_CREATE = "create not allowed while custom resource definition is terminating"


class Guard(NamedTuple):
    """The key of a definition, the revision at which it is what a registry was made for, and whether it accepts new objects."""

    key: str
    revision: int
    takes_new: bool


class CustomRegistry(Registry):
    """The registry of custom resources.

    ``selectable`` are the field paths of all versions' selectors: records are indexed by all of them, whichever version is requested.

    ``guard()`` returns the definition's current Guard, None if the definition is no longer the registry's. Every write is committed only
    while that holds, so that nothing is written under an old schema, and no new object while the definition is being deleted, whichever
    worker changed it.
    """

    def __init__(
        self, resource: Resource, store: Store, now: Callable[[], str], selectable: Sequence[str], guard: Callable[[], Guard | None]
    ) -> None:
        super().__init__(resource, store, now)
        self.selectable, self.guard = tuple(selectable), guard

    def encoded(self, obj: Obj) -> Encoded:
        """Encode as written if reading fills in defaults, else with defaults filled in. Raises 400 for too deep nesting."""
        if not self.store.fills:
            return super().encoded(obj)
        try:
            found: Encoded = encode_stored(self.type, obj)
        except EncodeError as e:
            raise not_written(e) from None
        return found

    def not_stored(self, obj: Obj, revision: int, made: Made | None = None) -> Decoded:
        """As in any registry, decoded as it would be read."""
        customtypes.decode(self.type, obj)
        return super().not_stored(obj, revision, made)

    def is_stored(self, encoded: Encoded, rec: Record) -> bool:
        """As in any registry; of a record with filled-in defaults, the written form counts."""
        value = self.store.bare(rec.key, rec.revision)
        if value is None:
            return super().is_stored(encoded, rec)
        return build_record(*encoded[:2]).json == value.rstrip() and not self.store.stale(rec)

    def draft(self, obj: Obj, encoded: Encoded | None = None) -> Draft:
        """Return what the store keeps of an object: JSON, labels and selectable fields."""
        head, tail, prefix_len, metadata_tail, message = encoded or encode_stored(self.type, obj)
        labels = obj["metadata"].get("labels") or {}
        fields = custom_selectable_fields(obj, self.resource.namespaced, self.selectable)
        return build_record(head, tail, labels, fields, prefix_len, self.lease_s, metadata_tail, message)

    async def commit(
        self, key: str, obj: Obj, expected: int, encoded: Encoded | None = None, old: Obj | None = None, ctx: Context | None = None
    ) -> Shown:
        """Write ``obj`` over revision ``expected`` if the definition is still what it was when the write began.

        Raises Conflict, 429 if the definition has changed, and 403 for a new object if it is being deleted.
        """
        op = self.put(key, obj, expected, encoded)
        for _ in range(MAX_CHECKS):
            guard = self.guard()
            if guard is None:
                break
            if not expected and not guard.takes_new:
                raise errors.forbidden(self.resource.group, self.resource.resource, key.rpartition("/")[2], NO_CREATE)
            try:
                check = Op(guard.key, None, guard.revision, check=True)
                await self.written([op, check], "update" if expected else "create")
            except Conflict as e:
                if e.key != guard.key:
                    raise
                definitions = self.whole.part(guard.key)
                rec = definitions.get(guard.key)  # the definition's change may be committed and not yet be delivered
                definitions.catch_up(rec.revision if rec is not None else 0)
                continue
            obj.clear()
            if old is not None:
                old.clear()
            assert op.record is not None  # committed
            return op.record
        raise errors.too_many_requests("storage is (re)initializing", 1)
