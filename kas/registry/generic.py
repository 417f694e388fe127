"""The generic registry: how the objects of one resource are kept (upstream's ``registry.Store``).

One ``Registry`` per stored resource, shared by the versions it is served in: keys, reading, the stored forms, committing. Objects are
dicts in the storage version. The steps of a write are in ``kas.registry.write``; ``create``, ``update`` and ``delete`` here run them for
the server's own writes, which no admission sees. Nothing here knows HTTP.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from time import monotonic
from typing import Any, Protocol

from kas._fastpath import go_quote
from kas.meta import errors
from kas.meta.largejson import WHOLE, let_go
from kas.meta.names import is_valid_path_segment_name
from kas.meta.offload import POOL
from kas.meta.stored import object_of, object_to_replace
from kas.registry import deletion, pipeline
from kas.registry.admission import Admission, Encoded, Forms, Made
from kas.registry.deletion import Deletion
from kas.registry.lines import Lines
from kas.registry.requests import UNCOUNTED, Pages, Requests, StorageMetrics
from kas.registry.strategy import Context, Obj, Strategy, strategy_of
from kas.registry.versions import Decoded, Shown
from kas.registry.write import Change, Create, Delete, UpdateWith
from kas.store import Conflict, Draft, Op, Record, Store, StoreError, build_record
from kas.types.fieldlabels import selectable_fields
from kas.types.scheme import EncodeError, Resource, encode_both, encode_stored

# Upstream's bound is etcd's, 1.5 MiB of protobuf. Here what is stored can be sent again: the bound of a request body.
MAX_OBJECT_BYTES = 3 << 20
DOTS = (".", "..")  # with "/" and "%" all that path segments may not be or hold

AfterDelete = Callable[[Obj, Context], Awaitable[None]]


class Allocator(Protocol):
    """What a kind takes from a shared pool (Services: addresses and ports). All of it happens through the store:

    ``prepare_*`` fills in what is free, before validation, and may raise ``ApiError``; ``ops`` gives the writes that belong to the
    change from ``old`` to ``new``, which are committed with it or not at all. When one of them meets a Conflict, because another
    writer took the same, the whole operation starts over.
    """

    def prepare_create(self, ctx: Context, obj: Obj) -> None:
        """Allocate for a new object and write into it what was allocated."""

    def prepare_update(self, ctx: Context, obj: Obj, old: Obj) -> None:
        """Allocate what an update asks for beyond what ``old`` has."""

    def ops(self, ctx: Context, new: Obj | None, old: Obj | None) -> list[Op]:
        """The operations that make the allocations last, for the same commit as the object; ``new`` is None for a delete."""

    def turn(self, new: Obj | None, old: Obj | None) -> AbstractAsyncContextManager[object]:
        """What is held from ``ops`` to the end of the commit: writes of this process that change one record wait for one another."""


class Registry:
    """Create, update and delete of one stored resource. Reads go to ``store`` directly by ``key``."""

    def __init__(self, resource: Resource, store: Store, now: Callable[[], str], event_ttl_s: int = 0) -> None:
        """``resource`` is the record of the storage version; ``now`` gives the time as Context wants it."""
        self.resource, self.now = resource, now
        self.root = f"{resource.etcd_prefix}/"
        self.whole, self.store = store, store.part(self.root) if store is not None else store  # where other resources are, too
        self.requests: Requests = UNCOUNTED
        self.pages = Pages(self.store, self.requests)  # for lists
        self.type = pipeline.stored_type(resource)
        self.parse: Callable[[Record], Obj] = object_of if self.type.custom else object_to_replace  # of what is written again, or deleted
        self.lease_s = event_ttl_s
        self.lines = Lines()  # of those who lost a race
        # Set by the kinds that allocate (Service).
        self.allocator: Allocator | None = None
        # Called after a delete that removed the object (kinds with dependants of their own).
        self.after_delete: AfterDelete | None = None

    def measure(self, metrics: StorageMetrics) -> None:
        """Has what is asked of the store counted."""
        self.requests = metrics.of(self.resource.group, self.resource.resource)
        self.pages = Pages(self.store, self.requests)

    @functools.cached_property
    def strategy(self) -> Strategy:
        """Made on first use: a kind's module is loaded by its first write, or in the background after the start."""
        return strategy_of(self.resource)

    @functools.cached_property
    def shown_forms(self) -> Forms | None:
        """``forms``, where what is stored is what validating plug-ins are shown: where nothing is filled in between."""
        return self.forms if type(self.strategy).as_read is Strategy.as_read else None

    # --- keys and reading

    def key(self, namespace: str, name: str) -> str:
        """The store's key. Raises 400 for a name that is no path segment."""
        if not name or "/" in name or "%" in name or name in DOTS:
            check_name(name)
        return f"{self.root}{namespace}/{name}" if self.resource.namespaced else self.root + name

    def prefix(self, namespace: str = "") -> str:
        """What the keys of the namespace's objects begin with; of all objects without a namespace, or for a kind that has none."""
        return f"{self.root}{namespace}/" if namespace and self.resource.namespaced else self.root

    def find(self, namespace: str, name: str) -> Record | None:
        """The record, or None."""
        key, began = self.key(namespace, name), monotonic()
        rec = self.store.get(key)
        self.requests.get.add(monotonic() - began)
        return rec

    def get(self, namespace: str, name: str) -> Record:
        """The record; raises 404."""
        rec = self.find(namespace, name)
        if rec is None:
            raise self.not_found(name)
        return rec

    @staticmethod
    def object(rec: Shown) -> Obj:
        """The stored object as a new dict, resourceVersion included."""
        return object_of(rec)

    def not_found(self, name: str) -> errors.ApiError:
        """The 404 to raise for an object of this kind."""
        return errors.not_found(self.resource.group, self.resource.resource, name)

    def conflict(self, name: str, why: str = errors.OBJECT_MODIFIED) -> errors.ApiError:
        """The 409 to raise for a write to an object of this kind that lost a race."""
        return errors.conflict(self.resource.group, self.resource.resource, name, why)

    # --- the server's own writes

    async def create(self, ctx: Context, obj: Obj) -> Shown:
        """Stores a new object, decoded and defaulted, which is used up; without admission."""
        return await Create(self, ctx).run(obj)

    async def update(
        self, ctx: Context, name: str, change: Change, subresource: str = "", aside: bool = False
    ) -> Shown:
        """Stores what ``change`` makes of the current object, called again after a lost race; without admission.

        ``change`` leaves the dict it gets as it is, and may raise; with ``aside`` it is called beside the loop, because it takes long.
        Returns (record, warnings, False); raises 404.
        """
        write = UpdateWith(self, ctx, name, change, subresource)
        write.large = write.pure = aside
        return await write.run()

    async def delete(self, ctx: Context, name: str, options: Obj, admission: Admission | None = None) -> None:
        """Deletes with metav1.DeleteOptions; ``admission`` sees the object in the storage version. Raises 404 and 409, and what admission
        refuses with."""
        await Delete(self, ctx, name, options, None, admission).run()

    # --- what kinds may do in their own way on delete

    def check_preconditions(self, name: str, obj: Obj, options: Obj) -> None:
        """Raises 409 for another object than DeleteOptions ask for."""
        deletion.check_preconditions(self.resource, name, obj, options)

    def delete_pending(self, obj: Obj, options: Obj) -> bool:
        """Whether there is nothing to do: the object goes already, and not later than ``options`` ask."""
        return deletion.pending(self.resource, obj, options)

    def begin_delete(self, ctx: Context, obj: Obj, options: Obj) -> Deletion:
        """Marks ``obj`` for the delete and says what is to be done with it."""
        return deletion.begin(self.strategy, ctx, obj, options)

    def gone_with_update(self, obj: Obj, old: Obj) -> bool:
        """Whether an update that leaves ``obj`` ends the deletion of ``old``, which has begun."""
        return deletion.gone_with_update(obj, old)

    # --- stored forms

    def encoded(self, obj: Obj) -> Encoded:
        """The stored form, with what reading it back would default anew. Raises 400 for what is nested deeper than can be written."""
        self.strategy.as_read(obj)
        try:
            found: Encoded = encode_stored(self.type, obj, least=0) if self.store.as_protobuf else encode_stored(self.type, obj)
        except EncodeError as e:
            raise not_written(e) from None
        return found

    def forms(self, obj: Obj) -> Made:
        """``encoded``, and the object as JSON where that is found by the way: then it is made once for both. The object may have its
        resourceVersion, which is not in what is stored."""
        self.strategy.as_read(obj)
        try:
            found: Made = encode_both(self.type, obj)
        except EncodeError as e:
            raise not_written(e) from None
        return found

    def bounded(self, ctx: Context, obj: Obj, encoded: Encoded, stored_bytes: int) -> Encoded:
        """``encoded`` when it is not too large, else without managed fields (apply cannot do without them). Raises 413, and 400 for
        what is nested too deep.

        What is too large already may still shrink: its finalizers can go.
        """
        if len(encoded[0]) + len(encoded[1]) <= MAX_OBJECT_BYTES:
            return encoded
        if not ctx.apply and obj["metadata"].pop("managedFields", None) is not None:
            encoded = self.encoded(obj)
        if len(encoded[0]) + len(encoded[1]) > max(MAX_OBJECT_BYTES, stored_bytes):
            raise errors.request_entity_too_large(f"limit is {MAX_OBJECT_BYTES}")
        return encoded

    def not_stored(self, obj: Obj, revision: int, made: Made | None = None) -> Decoded:
        """``obj`` as the answer to a write that does not store it, under ``revision`` when it has one; ``made`` are its ``forms`` where
        they are there. As what was stored, it has been through the storage's codec (``DryRunnableStorage.copyInto``), which leaves
        null of an empty list that is always written. Raises 400 for what is nested too deep."""
        if revision:
            obj["metadata"]["resourceVersion"] = str(revision)
        encoded, text = made or self.forms(obj)
        if text is None and not self.type.custom:
            given = obj["metadata"].get("resourceVersion")
            obj = object_of(build_record(*encoded[:2]))
            if given:
                obj["metadata"]["resourceVersion"] = given
        return Decoded(self.type, obj, revision, text)

    # --- committing

    def put(self, key: str, obj: Obj, expected: int, encoded: Encoded | None = None) -> Op:
        """The operation that writes ``obj`` as it stands (no resourceVersion in it)."""
        return Op(key, self.draft(obj, encoded or self.encoded(obj)), expected)

    def draft(self, obj: Obj, encoded: Encoded | None = None) -> Draft:
        """What the store keeps of an object: JSON, protobuf, labels and selectable fields."""
        head, tail, prefix_len, metadata_tail, message = encoded or encode_stored(self.type, obj)
        labels = obj["metadata"].get("labels") or {}
        fields = selectable_fields(self.resource, obj)
        return build_record(head, tail, labels, fields, prefix_len, self.lease_s, metadata_tail, message)

    def commit(
        self, key: str, obj: Obj, expected: int, encoded: Encoded | None = None, old: Obj | None = None, ctx: Context | None = None
    ) -> Awaitable[Shown]:
        """Writes ``obj`` (used up, and ``old`` with it) over revision ``expected``; with ``ctx`` together with what is allocated for the
        change from ``old``. Raises Conflict."""
        encoded = encoded or self.encoded(obj)
        op = Op(key, self.draft(obj, encoded), expected)
        large = len(encoded[1]) > WHOLE
        operation = "update" if expected else "create"
        if self.allocator is not None and ctx is not None:
            return self._commit_allocated(self.allocator, ctx, op, obj, old, operation)
        _use_up(obj, old, large)
        return self.written([op], operation)

    async def _commit_allocated(self, allocator: Allocator, ctx: Context, op: Op, obj: Obj, old: Obj | None, operation: str) -> Shown:
        async with allocator.turn(obj, old):
            ops = [op, *allocator.ops(ctx, obj, old)]
            _use_up(obj, old, False)
            record: Record = await self.written(ops, operation)
            return record

    async def written(self, ops: list[Op], operation: str) -> Any:
        """Commits, and counts it as ``operation``; the record of the first, None where that deletes. Raises Conflict, which is an answer,
        and other StoreErrors, which are none."""
        began = monotonic()
        try:
            if len(ops) == 1:
                await self.store.commit(ops[0])
            else:
                await self.whole.commit_many(ops)
        except StoreError as e:
            if not isinstance(e, Conflict):
                self.requests.failed(operation)
            raise
        finally:
            getattr(self.requests, operation).add(monotonic() - began)
        return ops[0].record

    async def remove(self, ctx: Context, key: str, obj: Obj, expected: int) -> int:
        """The object goes, with what was allocated for it; returns the revision of that. Raises Conflict."""
        op = Op(key, None, expected)
        if self.allocator is None:
            await self.written([op], "delete")
        else:
            async with self.allocator.turn(None, obj):
                await self.written([op, *self.allocator.ops(ctx, None, obj)], "delete")
        if self.after_delete is not None:
            await self.after_delete(obj, ctx)
        revision: int = op.revision
        return revision

    def lost_allocation(self, key: str) -> bool:
        """Did not the object but something allocated for it meet the Conflict about ``key``?"""
        return bool(key) and not key.startswith(self.root)

    def is_stored(self, encoded: Encoded, rec: Record) -> bool:
        """Whether the record holds just this, in the form in which a write would store it today: what was sealed with an older key is
        written again though nothing changed."""
        head, tail = encoded[:2]
        stored = rec.json
        middle = b'"resourceVersion":"%d"%b' % (rec.revision, b"" if tail.startswith(b"}") else b",")
        return (
            len(stored) == len(head) + len(middle) + len(tail)
            and stored.endswith(tail)
            and stored.startswith(head)
            and stored.startswith(middle, len(head))
            and not self.store.stale(rec)
        )


def not_written(e: EncodeError) -> Exception:
    """What a client is told of an object that cannot be encoded."""
    return errors.bad_request(str(e)) if str(e) == "exceeded max depth" else e


def _use_up(obj: Obj, old: Obj | None, large: bool) -> None:
    """Many writers wait for their commits at once, and those who called may hold on to the objects: gone now, their memory is at hand for
    the next request instead of being visited once more when it has long left the caches. What is ``large`` goes beside the loop."""
    if large:
        POOL.soon(partial(let_go, [*obj.values(), *(old or {}).values()]))
    obj.clear()
    if old is not None:
        old.clear()


def check_name(name: str) -> None:
    """Raises 400 for the name of an object that is no path segment."""
    if not name:
        raise errors.bad_request("Name parameter required.")
    found = is_valid_path_segment_name(name)
    if found:
        raise errors.bad_request(f"Name parameter invalid: {go_quote(name)}: {';'.join(found)}")
