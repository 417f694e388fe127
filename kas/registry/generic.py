"""The generic registry: what every stored kind does on create, update and delete (upstream's ``registry.Store``).

One ``Registry`` per stored resource, shared by the versions it is served in. Objects are dicts in the storage version;
what comes back is a ``Record`` whose JSON is the stored object, or for a dry run an ``Unstored`` of the same shape.
Writes are computed outside of the store against a revision and committed under that revision as precondition; a lost race
starts over with the newer object. Nothing here knows HTTP.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import orjson

from kas._fast_types import RawJSON
from kas._fastpath import Draft, Op, build_record
from kas.api import errors
from kas.api.fieldlabels import selectable_fields
from kas.api.scalars import parse_uint64
from kas.api.scheme import EncodeError, encode_json, encode_stored
from kas.api.validation.names import is_valid_path_segment_name
from kas.registry import pipeline
from kas.registry.strategy import Context, Obj, strategy_of
from kas.store import Conflict

MAX_GENERATE_NAME_ATTEMPTS = 8
MAX_UPDATE_ATTEMPTS = 64  # a writer that loses this often meets a bug, not a race
# Upstream's bound is etcd's, 1.5 MiB of protobuf. Here what is stored can be sent again: the bound of a request body.
MAX_OBJECT_BYTES = 3 << 20
MAX_ALLOCATION_ATTEMPTS = 64  # each lost one means that somebody else got what was chosen
STORE_PREFIX = "/registry"
DOTS = (".", "..")  # with "/" and "%" all that path segments may not be or hold
ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"

# (current object or None, attempt) -> the object wanted; may raise ApiError.
Mutate = Callable[[Obj | None], Obj | Awaitable[Obj]]
Encoded = tuple[bytes, bytes, int, int, bytes | None]  # see encode_stored
Validate = Callable[[Obj, Obj | None], Awaitable[None] | None]


class Allocator(Protocol):
    """What a kind takes from a shared pool (Services: addresses and ports). All of it happens through the store:

    ``prepare_*`` fills in what is free, before validation, and may raise ``ApiError``; ``ops`` gives the writes that belong to the
    change from ``old`` to ``new``, which are committed with it or not at all. When one of them meets a Conflict, because another
    writer took the same, the whole operation starts over.
    """

    def prepare_create(self, ctx: Context, obj: Obj) -> None: ...

    def prepare_update(self, ctx: Context, obj: Obj, old: Obj) -> None: ...

    def ops(self, ctx: Context, new: Obj | None, old: Obj | None) -> list[Op]: ...


class Unstored:
    """What a dry run would have stored; looks like a Record to whoever answers."""

    __slots__ = ("json", "revision", "type_prefix_len")

    protobuf = None  # made from the JSON when it is asked for

    @property
    def json_line(self) -> bytes:
        return self.json + b"\n"

    def __init__(self, json: bytes, revision: int, type_prefix_len: int) -> None:
        self.json, self.revision, self.type_prefix_len = json, revision, type_prefix_len


class Registry:
    """Create, update and delete of one stored resource. Reads go to ``store`` directly by ``key``."""

    def __init__(self, resource, store, now: Callable[[], str], event_ttl_s: int = 0) -> None:
        """``resource`` is the record of the storage version; ``now`` gives the time as Context wants it."""
        self.resource, self.store, self.now = resource, store, now
        self.type = pipeline.stored_type(resource)
        self.root = resource.etcd_prefix + "/"
        self.lease_s = event_ttl_s
        # Set by the kinds that allocate (Service).
        self.allocator: Allocator | None = None
        # Called after a delete that removed the object (kinds with dependants of their own).
        self.after_delete: Callable[[Obj, Context], Awaitable[None]] | None = None

    @functools.cached_property
    def strategy(self):
        """Made on first use: a kind's module is loaded by its first write, or in the background after the start."""
        return strategy_of(self.resource)

    # --- keys and reading

    def key(self, namespace: str, name: str) -> str:
        """The store's key. Raises 400 for a name that is no path segment."""
        if not name:
            raise errors.bad_request("Name parameter required.")
        if "/" in name or "%" in name or name in DOTS:
            found = is_valid_path_segment_name(name)
            raise errors.bad_request(f'Name parameter invalid: "{name}": {";".join(found)}')
        return f"{self.root}{namespace}/{name}" if self.resource.namespaced else self.root + name

    def prefix(self, namespace: str = "") -> str:
        return f"{self.root}{namespace}/" if namespace and self.resource.namespaced else self.root

    def find(self, namespace: str, name: str):
        """The record, or None."""
        return self.store.get(self.key(namespace, name))

    def get(self, namespace: str, name: str):
        """The record; raises 404."""
        rec = self.store.get(self.key(namespace, name))
        if rec is None:
            raise self.not_found(name)
        return rec

    @staticmethod
    def object(rec) -> Obj:
        """The stored object as a new dict, resourceVersion included."""
        return orjson.loads(rec.json)

    def not_found(self, name: str) -> errors.ApiError:
        return errors.not_found(self.resource.group, self.resource.resource, name)

    # --- create

    async def create(self, ctx: Context, obj: Obj, validate: Validate | None = None):
        """Stores a new object. ``obj`` is decoded, defaulted, admitted; it is used up. Returns (record, warnings)."""
        generated = bool(obj.get("metadata", {}).get("generateName")) and not obj["metadata"].get("name")
        template = _template(obj) if generated else b""
        for attempt in range(MAX_GENERATE_NAME_ATTEMPTS):
            if attempt:
                obj = orjson.loads(template)
            try:
                return await self._create_once(ctx, obj, validate)
            except Conflict as e:
                name = e.key.rpartition("/")[2]
                if not generated:
                    raise self._exists(e.key, name) from None
        raise errors.generate_name_conflict(self.resource.group, self.resource.resource, name, 1)

    def _exists(self, key: str, name: str) -> errors.ApiError:
        e = errors.already_exists(self.resource.group, self.resource.resource, name)
        rec = self.store.get(key)
        if rec is not None and self.object(rec)["metadata"].get("deletionTimestamp"):
            e.message = f"object is being deleted: {e.message}"
        return e

    async def _create_once(self, ctx: Context, obj: Obj, validate: Validate | None):
        if self.allocator is None:
            return await self._try_create(ctx, obj, validate)
        template = _template(obj)
        for _ in range(MAX_ALLOCATION_ATTEMPTS):
            try:
                return await self._try_create(ctx, orjson.loads(template), validate)
            except Conflict as e:
                if not self._lost_allocation(e):
                    raise
        raise errors.internal("what was allocated was taken by others again and again")

    def _lost_allocation(self, e: Conflict) -> bool:
        """Did not the object but something allocated for it exist already?"""
        return bool(e.key) and not e.key.startswith(self.root)

    async def _try_create(self, ctx: Context, obj: Obj, validate: Validate | None):
        given = obj["metadata"].pop("resourceVersion", None)
        allocator = self.allocator
        begin = (lambda obj: allocator.prepare_create(ctx, obj)) if allocator is not None else None
        obj, warnings = pipeline.build_create(self.resource, obj, ctx, begin)
        if validate is not None:
            pending = validate(obj, None)
            if pending is not None:
                await pending
        meta = obj["metadata"]
        key = self.key(meta.get("namespace", ""), meta["name"])
        if ctx.dry_run:
            if self.store.get(key) is not None:
                raise Conflict(None, key)
            return self._unstored(obj, 0), warnings
        if given and given.isascii() and given.isdigit() and int(given):
            # The storage's complaint, after everything else was found right. What is no number passes, as upstream.
            raise errors.ApiError(500, "", "resourceVersion should not be set on objects to be created")
        encoded = self._bounded(ctx, obj, self._encoded(obj), 0)
        more = allocator.ops(ctx, obj, None) if allocator is not None else []
        return await self._commit(key, obj, 0, more, encoded), warnings

    # --- update

    async def update(
        self,
        ctx: Context,
        name: str,
        mutate: Mutate,
        validate: Validate | None = None,
        subresource: str = "",
        allow_create: bool = False,
        on_create: Callable[[Obj], Awaitable[Any] | None] | None = None,
        unconditional: bool = True,
        settle: Callable[[Obj, Obj], Obj] | None = None,
        uid: str = "",
    ):
        """``GuaranteedUpdate``: computes the new object from the current one until it can be committed.

        ``mutate(current)`` gets a dict of its own (None when absent and ``allow_create``) and returns the object wanted;
        its ``metadata.resourceVersion``, when set, must be the current one (409), when empty ``unconditional`` must hold
        (422); what is no number is a 500, as upstream. ``uid``, when set, must be the current object's (409), which is found out
        first of all. ``settle(old, new)`` may give a form of the new object that makes a write without effect visible
        as one. Returns (record, warnings, created). A result equal to what is stored is not written.
        """
        r = self.resource
        key = self.key(ctx.namespace, name)
        rec = self.store.get(key)
        for _ in range(MAX_UPDATE_ATTEMPTS):
            if rec is None and not allow_create:
                raise self.not_found(name)
            old = orjson.loads(rec.json) if rec is not None else None
            if uid:
                self._check_uid(ctx, key, name, uid, old)
            wanted = mutate(old)
            if not isinstance(wanted, dict):
                wanted = await wanted
            meta = wanted.setdefault("metadata", {})
            given = revision_of(meta.pop("resourceVersion", ""))
            if rec is None:  # a revision says nothing about an object that is not there
                if on_create is not None:
                    pending = on_create(wanted)
                    if pending is not None:
                        await pending
                try:
                    rec, warnings = await self._create_once(ctx, wanted, validate)
                    return rec, warnings, True
                except Conflict as e:
                    rec = e.current or self.store.get(key)
                    continue
            assert old is not None  # there is a record
            if given == 0:
                if not unconditional:
                    from kas.api import field

                    # Upstream fills in the resource where the kind belongs.
                    problem = field.invalid("metadata.resourceVersion", 0, "must be specified for an update")
                    raise errors.invalid(r.group, r.resource, name, [problem])
            elif given != rec.revision:
                raise errors.conflict(r.group, r.resource, name, errors.OBJECT_MODIFIED)
            meta["resourceVersion"] = str(rec.revision)
            allocator = self.allocator if not subresource else None
            begin = (lambda obj, old, a=allocator: a.prepare_update(ctx, obj, old)) if allocator is not None else None
            try:
                obj, warnings = pipeline.build_update(r, wanted, old, ctx, subresource, begin)
                if settle is not None:
                    obj = settle(old, obj)
                if validate is not None:
                    pending = validate(obj, old)
                    if pending is not None:
                        await pending
                meta = obj["metadata"]
                meta.pop("resourceVersion", None)
                meta.pop("selfLink", None)
                if self._delete_instead(obj, old):
                    return await self._remove_after_update(ctx, key, obj, rec, warnings)
                encoded = self._encoded(obj)
                if _same(encoded, rec):
                    return rec, warnings, False
                if ctx.dry_run:
                    return self._unstored(obj, rec.revision), warnings, False
                encoded = self._bounded(ctx, obj, encoded, len(rec.json))
                more = allocator.ops(ctx, obj, old) if allocator is not None else []
                return await self._commit(key, obj, rec.revision, more, encoded, old), warnings, False
            except Conflict as e:
                if self._lost_allocation(e):
                    rec = self.store.get(key)
                    continue
                # A PUT that named a revision meets its 409 in the next turn; a patch is computed anew from the newer object.
                rec = e.current
        raise errors.conflict(r.group, r.resource, name, errors.OBJECT_MODIFIED)

    def _check_uid(self, ctx: Context, key: str, name: str, uid: str, old: Obj | None) -> None:
        have = old["metadata"].get("uid", "") if old is not None else ""
        if uid != have:
            why = precondition_failed(key, "UID", uid, have, ctx.dry_run)
            raise errors.conflict(self.resource.group, self.resource.resource, name, why)

    def _delete_instead(self, obj: Obj, old: Obj) -> bool:
        """``ShouldDeleteDuringUpdate``: the object was being deleted, and nothing holds it any more."""
        was = old["metadata"]
        return bool(was.get("deletionTimestamp")) and not obj["metadata"].get("finalizers") and not was.get("deletionGracePeriodSeconds")

    async def _remove_after_update(self, ctx: Context, key: str, obj: Obj, rec, warnings: list[str]):
        """The update took away the last finalizer of an object being deleted: it goes instead of being written."""
        if ctx.dry_run:
            return self._unstored(obj, rec.revision), warnings, False
        done = await self._remove(ctx, key, obj, rec.revision)
        return self._unstored(obj, done.revision), warnings, False

    # --- delete

    async def delete(
        self,
        ctx: Context,
        name: str,
        options: dict[str, Any],
        validate: Validate | None = None,
        matcher: Any = None,
    ) -> tuple[Any, bool]:
        """``Store.Delete``: (the object as it was last, whether it is gone now). Raises 404 and 409 (preconditions).

        ``options`` are metav1.DeleteOptions; propagation and grace follow upstream's BeforeDelete and the finalizer rules.
        """
        key = self.key(ctx.namespace, name)
        rec = self.store.get(key)
        for _ in range(MAX_UPDATE_ATTEMPTS):
            if rec is None:
                raise self.not_found(name)
            obj = orjson.loads(rec.json)
            self.check_preconditions(name, obj, options)
            if validate is not None:
                pending = validate(obj, obj)
                if pending is not None:
                    await pending
            try:
                return await self._delete_once(ctx, key, rec, obj, dict(options))
            except Conflict as e:
                rec = self.store.get(key) if self._lost_allocation(e) else e.current
        raise errors.conflict(self.resource.group, self.resource.resource, name, errors.OBJECT_MODIFIED)

    def check_preconditions(self, name: str, obj: Obj, options: dict[str, Any]) -> None:
        pre = options.get("preconditions") or {}
        # As in rest.BeforeDelete the kind stands where a resource is expected.
        meta, r = obj["metadata"], self.resource
        if pre.get("uid") is not None and pre["uid"] != meta.get("uid"):
            why = (
                f"the UID in the precondition ({pre['uid']}) does not match the UID in record ({meta.get('uid', '')}). "
                "The object might have been deleted and then recreated"
            )
            raise errors.conflict(r.storage_gvk[0], r.kind, name, why)
        if pre.get("resourceVersion") is not None and pre["resourceVersion"] != meta.get("resourceVersion"):
            why = (
                f"the ResourceVersion in the precondition ({pre['resourceVersion']}) does not match the ResourceVersion in record "
                f"({meta.get('resourceVersion', '')}). The object might have been modified"
            )
            raise errors.conflict(r.storage_gvk[0], r.kind, name, why)

    async def _delete_once(self, ctx: Context, key: str, rec, obj: Obj, options: dict[str, Any]) -> tuple[Any, bool]:
        graceful, pending = self._before_delete(ctx, obj, options)
        if pending:
            return rec, False
        meta = obj["metadata"]
        finalizers = self._deletion_finalizers(obj, options)
        had = meta.get("finalizers") or []
        if finalizers != had:
            if finalizers:
                meta["finalizers"] = finalizers
            else:
                meta.pop("finalizers", None)
        if finalizers and not graceful:
            # markAsDeleting: held by finalizers, with no time to wait for.
            if not meta.get("deletionTimestamp"):
                meta["deletionTimestamp"] = ctx.now
                if meta.get("generation", 0) > 0:
                    meta["generation"] += 1
            meta["deletionGracePeriodSeconds"] = 0
        if finalizers or (graceful and options.get("gracePeriodSeconds") != 0):
            meta.pop("resourceVersion", None)
            encoded = self._encoded(obj)
            if _same(encoded, rec):
                return rec, False
            if ctx.dry_run:
                return self._unstored(obj, rec.revision), False
            return await self._commit(key, obj, rec.revision, (), encoded), False
        if ctx.dry_run:
            # With a grace of zero upstream shows the object as it was marked before it would have gone.
            return (self._unstored(obj, rec.revision) if graceful else rec), True
        done = await self._remove(ctx, key, obj, rec.revision)
        meta["resourceVersion"] = str(done.revision)
        return Unstored(encode_json(self.type, obj), done.revision, rec.type_prefix_len), True

    def _before_delete(self, ctx: Context, obj: Obj, options: dict[str, Any]) -> tuple[bool, bool]:
        """rest.BeforeDelete: (graceful, already being deleted gracefully and nothing new asked)."""
        grace = options.get("gracePeriodSeconds")
        if grace is not None and grace < 0:
            options["gracePeriodSeconds"] = grace = 1
        meta = obj["metadata"]
        if not self.resource.graceful_delete:
            return False, False
        if meta.get("deletionTimestamp"):
            period = meta.get("deletionGracePeriodSeconds")
            if period is None:
                return False, False
            if period == 0:
                return False, False  # only finalizers hold it
            if grace is None or grace >= period:
                return False, True
            self._shorten(ctx, meta, grace)
            return True, False
        if not self.strategy.check_graceful_delete(ctx, obj, options):
            return False, False
        grace = options["gracePeriodSeconds"]
        meta["deletionTimestamp"] = _plus(ctx.now, grace)
        meta["deletionGracePeriodSeconds"] = grace
        if meta.get("generation", 0) > 0:
            meta["generation"] += 1
        return True, False

    @staticmethod
    def _shorten(ctx: Context, meta: Obj, grace: int) -> None:
        """A second, shorter grace moves the deadline forward, never past the first request's start."""
        started = _plus(meta["deletionTimestamp"], -meta["deletionGracePeriodSeconds"])
        meta["deletionTimestamp"] = max(ctx.now, _plus(started, grace))
        meta["deletionGracePeriodSeconds"] = grace

    def _deletion_finalizers(self, obj: Obj, options: dict[str, Any]) -> list[str]:
        had = obj["metadata"].get("finalizers") or []
        default = self.resource.gc_default
        if default == "unsupported":
            return had
        policy, orphan_dependents = options.get("propagationPolicy"), options.get("orphanDependents")
        if orphan_dependents is not None:
            orphan, foreground = bool(orphan_dependents), False
        elif policy is not None:
            orphan, foreground = policy == "Orphan", policy == "Foreground"
        elif ORPHAN in had or FOREGROUND in had:
            return had
        else:
            orphan, foreground = default == "orphan", default == "foreground"
        kept = [f for f in had if f not in (ORPHAN, FOREGROUND)]
        if orphan:
            kept.append(ORPHAN)
        if foreground:
            kept.append(FOREGROUND)
        return had if set(kept) == set(had) else kept

    # --- committing

    async def _remove(self, ctx: Context, key: str, obj: Obj, expected: int) -> Op:
        """The object goes, with what was allocated for it. Raises Conflict."""
        op = Op(key, None, expected)
        more = self.allocator.ops(ctx, None, obj) if self.allocator is not None else []
        if more:
            await self.store.commit_many([op, *more])
        else:
            await self.store.commit(op)
        if self.after_delete is not None:
            await self.after_delete(obj, ctx)
        return op

    def _encoded(self, obj: Obj) -> Encoded:
        """The stored form, with what reading it back would default anew. Raises 400 for what is nested deeper than can be written."""
        self.strategy.as_read(obj)
        try:
            return encode_stored(self.type, obj)
        except EncodeError as e:
            if str(e) == "exceeded max depth":
                raise errors.bad_request(str(e)) from None
            raise

    def _bounded(self, ctx: Context, obj: Obj, encoded: Encoded, stored_bytes: int) -> Encoded:
        """``encoded`` when it is not too large, else without managed fields (apply cannot do without them). Raises 413, and 400 for
        what is nested too deep.

        What is too large already may still shrink: its finalizers can go.
        """
        if len(encoded[0]) + len(encoded[1]) <= MAX_OBJECT_BYTES:
            return encoded
        if not ctx.apply and obj["metadata"].pop("managedFields", None) is not None:
            encoded = self._encoded(obj)
        if len(encoded[0]) + len(encoded[1]) > max(MAX_OBJECT_BYTES, stored_bytes):
            raise errors.request_entity_too_large(f"limit is {MAX_OBJECT_BYTES}")
        return encoded

    def put(self, key: str, obj: Obj, expected: int, encoded: Encoded | None = None) -> Op:
        """The operation that writes ``obj`` as it stands (no resourceVersion in it)."""
        return Op(key, self.draft(obj, encoded or self._encoded(obj)), expected)

    def draft(self, obj: Obj, encoded: Encoded | None = None) -> Draft:
        """What the store keeps of an object: JSON, protobuf, labels and selectable fields."""
        head, tail, prefix_len, metadata_tail, message = encoded or encode_stored(self.type, obj)
        labels = obj["metadata"].get("labels") or {}
        fields = selectable_fields(self.resource, obj)
        return build_record(head, tail, labels, fields, prefix_len, self.lease_s, metadata_tail, message)

    async def _commit(
        self, key: str, obj: Obj, expected: int, more: Sequence[Op] = (), encoded: Encoded | None = None, old: Obj | None = None
    ):
        op = self.put(key, obj, expected, encoded)
        # Many writers wait here at once, and those who called may hold on to the objects: gone now, their memory is at hand for
        # the next request instead of being visited once more when it has long left the caches.
        obj.clear()
        if old is not None:
            old.clear()
        if more:
            await self.store.commit_many([op, *more])
        else:
            await self.store.commit(op)
        return op.record

    def _unstored(self, obj: Obj, revision: int) -> Unstored:
        meta = obj["metadata"]
        if revision:
            meta["resourceVersion"] = str(revision)
        prefix_len = self._encoded(obj)[2]
        return Unstored(encode_json(self.type, obj), revision, prefix_len)


def revision_of(text: str | None) -> int:
    """``ObjectResourceVersion``: what metadata says of the revision, 0 for nothing. Raises 500, without a reason, for what is no number."""
    if not text:
        return 0
    try:
        return parse_uint64(text)
    except ValueError as e:
        raise errors.ApiError(500, "", str(e)) from None


def precondition_failed(key: str, label: str, wanted: str, have: str, dry_run: bool) -> str:
    """The storage's words for a write that asks for another object. A dry run does not get as far as to the path in the store."""
    shown = key.removeprefix(STORE_PREFIX) if dry_run else key
    return (
        f"StorageError: invalid object, Code: 4, Key: {shown}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: "
        f"{label} in precondition: {wanted}, {label} in object meta: {have}"
    )


def _fragment(value: Any) -> orjson.Fragment:
    if type(value) is RawJSON:
        return orjson.Fragment(bytes(value))
    raise TypeError


def _template(obj: Obj) -> bytes:
    """The object as it is tried first, to begin anew from."""
    return orjson.dumps(obj, default=_fragment)


def _same(encoded: Encoded, rec) -> bool:
    """Whether a record holds just this."""
    head, tail = encoded[:2]
    stored: bytes = rec.json
    middle = b'"resourceVersion":"%d"%b' % (rec.revision, b"" if tail.startswith(b"}") else b",")
    return (
        len(stored) == len(head) + len(middle) + len(tail)
        and stored.endswith(tail)
        and stored.startswith(head)
        and stored.startswith(middle, len(head))
    )


def _plus(stamp: str, seconds: int) -> str:
    import datetime

    t = datetime.datetime.strptime(stamp, "%Y-%m-%dT%H:%M:%SZ") + datetime.timedelta(seconds=seconds)
    return t.strftime("%Y-%m-%dT%H:%M:%SZ")
