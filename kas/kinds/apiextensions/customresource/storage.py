"""How the objects of a definition are kept."""

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

MAX_CHECKS = 16  # in a row a definition's status changed while an object of it was being written

NO_CREATE = "create not allowed while custom resource definition is terminating"


class Guard(NamedTuple):
    """The key of a definition, the revision at which it is what a registry was made for, and whether it takes new objects."""

    key: str
    revision: int
    takes_new: bool


class CustomRegistry(Registry):
    """``selectable`` are the paths that any version can be selected by: records are found by all of them, whichever version asks.
    ``guard()`` tells what the definition is now, None when it is something else: every write is committed only while it is that, so that
    nothing is written under an old schema, and nothing new once the definition is being deleted, whichever worker changed it."""

    def __init__(
        self, resource: Resource, store: Store, now: Callable[[], str], selectable: Sequence[str], guard: Callable[[], Guard | None]
    ) -> None:
        super().__init__(resource, store, now)
        self.selectable, self.guard = tuple(selectable), guard

    def encoded(self, obj: Obj) -> Encoded:
        """As it was written, where reading fills in what is missing; else filled in. Raises 400 for what is nested too deep."""
        if not self.store.fills:
            return super().encoded(obj)
        try:
            found: Encoded = encode_stored(self.type, obj)
        except EncodeError as e:
            raise not_written(e) from None
        return found

    def not_stored(self, obj: Obj, revision: int, made: Made | None = None) -> Decoded:
        """As of any registry, read as it would be."""
        customtypes.decode(self.type, obj)
        return super().not_stored(obj, revision, made)

    def is_stored(self, encoded: Encoded, rec: Record) -> bool:
        """As of any registry; where the record was filled in, what was written counts."""
        value = self.store.bare(rec.key, rec.revision)
        if value is None:
            return super().is_stored(encoded, rec)
        return build_record(*encoded[:2]).json == value.rstrip() and not self.store.stale(rec)

    def draft(self, obj: Obj, encoded: Encoded | None = None) -> Draft:
        """What the store keeps of an object: JSON, labels and selectable fields."""
        head, tail, prefix_len, metadata_tail, message = encoded or encode_stored(self.type, obj)
        labels = obj["metadata"].get("labels") or {}
        fields = custom_selectable_fields(obj, self.resource.namespaced, self.selectable)
        return build_record(head, tail, labels, fields, prefix_len, self.lease_s, metadata_tail, message)

    async def commit(
        self, key: str, obj: Obj, expected: int, encoded: Encoded | None = None, old: Obj | None = None, ctx: Context | None = None
    ) -> Shown:
        """Writes ``obj`` over revision ``expected`` while the definition is what it was when the write began. Raises Conflict, 429 for a
        definition that has changed, and 403 for a new object of one that is being deleted."""
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
                rec = definitions.get(guard.key)  # it may be committed and not be told yet
                definitions.catch_up(rec.revision if rec is not None else 0)
                continue
            obj.clear()
            if old is not None:
                old.clear()
            assert op.record is not None  # committed
            return op.record
        raise errors.too_many_requests("storage is (re)initializing", 1)
