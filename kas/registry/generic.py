"""The generic registry: how the objects of one resource are stored (upstream's ``registry.Store``).

There is one ``Registry`` per stored resource, shared by the versions it is served in. It has the keys, reads, stored forms
and commits. Objects are dicts in the storage version. The steps of a write are in ``kas.registry.write``; ``create``,
``update`` and ``delete`` here run them for the server's own writes, without admission. Nothing here knows HTTP.
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

# Upstream's bound is etcd's, 1.5 MiB of protobuf. Here every stored object can be sent back: the bound is that of a request body.
MAX_OBJECT_BYTES = 3 << 20
DOTS = (".", "..")  # with "/" and "%", everything a path segment may not be or contain

AfterDelete = Callable[[Obj, Context], Awaitable[None]]


class Allocator(Protocol):
    """Allocates values from a pool shared by all objects of a kind (Services: addresses and ports). All of it happens through
    the store.

    ``prepare_*`` fills in free values before validation, and may raise ``ApiError``; ``ops`` returns the writes that belong
    to the change from ``old`` to ``new``, which are committed together with it. If one of them fails with a Conflict because
    another writer took the same value, the whole operation starts over.
    """

    def prepare_create(self, ctx: Context, obj: Obj) -> None:
        """Allocates values for a new object and writes them into it."""

    def prepare_update(self, ctx: Context, obj: Obj, old: Obj) -> None:
        """Allocates the values that an update needs beyond those of ``old``."""

    def ops(self, ctx: Context, new: Obj | None, old: Obj | None) -> list[Op]:
        """Returns the operations that persist the allocations, for the same commit as the object; ``new`` is None for a delete."""

    def turn(self, new: Obj | None, old: Obj | None) -> AbstractAsyncContextManager[object]:
        """Returns a lock to hold from ``ops`` to the end of the commit: it serializes the writes of this process to the same
        record."""


class Registry:
    """Create, update and delete of one stored resource. Reads go to ``store`` directly by ``key``."""

    def __init__(self, resource: Resource, store: Store, now: Callable[[], str], event_ttl_s: int = 0) -> None:
        """``resource`` is the record of the storage version; ``now`` returns the time in the form of ``Context.now``."""
        self.resource, self.now = resource, now
        self.root = f"{resource.etcd_prefix}/"
        self.whole, self.store = store, store.part(self.root) if store is not None else store  # ``whole`` also has the other resources
        self.requests: Requests = UNCOUNTED
        self.pages = Pages(self.store, self.requests)  # for lists
        self.type = pipeline.stored_type(resource)
        self.parse: Callable[[Record], Obj] = object_of if self.type.custom else object_to_replace  # for rewriting or deleting
        self.lease_s = event_ttl_s
        self.lines = Lines()  # of writers that lost a race
        # Set by the kinds that allocate (Service).
        self.allocator: Allocator | None = None
        # Called after a delete that removed the object (kinds with dependants of their own).
        self.after_delete: AfterDelete | None = None

    def measure(self, metrics: StorageMetrics) -> None:
        """Starts counting the requests to the store."""
        self.requests = metrics.of(self.resource.group, self.resource.resource)
        self.pages = Pages(self.store, self.requests)

    @functools.cached_property
    def strategy(self) -> Strategy:
        """Created on first use: a kind's module is loaded by its first write, or in the background after the start."""
        return strategy_of(self.resource)

    @functools.cached_property
    def shown_forms(self) -> Forms | None:
        """``forms`` if validating plug-ins see objects exactly as stored (``Strategy.as_read`` is not overridden); otherwise
        None."""
        return self.forms if type(self.strategy).as_read is Strategy.as_read else None

    # --- keys and reading

    def key(self, namespace: str, name: str) -> str:
        """Returns the store's key. Raises 400 for a name that is no path segment."""
        if not name or "/" in name or "%" in name or name in DOTS:
            check_name(name)
        return f"{self.root}{namespace}/{name}" if self.resource.namespaced else self.root + name

    def prefix(self, namespace: str = "") -> str:
        """Returns the common prefix of the keys in a namespace; of all keys without a namespace, or for a cluster-scoped kind."""
        return f"{self.root}{namespace}/" if namespace and self.resource.namespaced else self.root

    def find(self, namespace: str, name: str) -> Record | None:
        """Returns the record, or None."""
        key, began = self.key(namespace, name), monotonic()
        rec = self.store.get(key)
        self.requests.get.add(monotonic() - began)
        return rec

    def get(self, namespace: str, name: str) -> Record:
        """Returns the record; raises 404."""
        rec = self.find(namespace, name)
        if rec is None:
            raise self.not_found(name)
        return rec

    @staticmethod
    def object(rec: Shown) -> Obj:
        """Returns the stored object as a new dict, including its resourceVersion."""
        return object_of(rec)

    def not_found(self, name: str) -> errors.ApiError:
        """Returns the 404 error for an object of this kind."""
        return errors.not_found(self.resource.group, self.resource.resource, name)

    def conflict(self, name: str, why: str = errors.OBJECT_MODIFIED) -> errors.ApiError:
        """Returns the 409 error for a write to an object of this kind that lost a race."""
        return errors.conflict(self.resource.group, self.resource.resource, name, why)

    # --- the server's own writes

    async def create(self, ctx: Context, obj: Obj) -> Shown:
        """Stores a new object, decoded and defaulted, without admission. The dict is consumed."""
        return await Create(self, ctx).run(obj)

    async def update(
        self, ctx: Context, name: str, change: Change, subresource: str = "", in_thread: bool = False
    ) -> Shown:
        """Stores the result of ``change`` applied to the current object, without admission.

        ``change`` must not modify the dict it gets, and may raise; it is called again after a lost race. With ``in_thread`` it is
        called in a thread, because it takes long. Returns the stored object; raises 404.
        """
        write = UpdateWith(self, ctx, name, change, subresource)
        write.large = write.pure = in_thread
        return await write.run()

    async def delete(self, ctx: Context, name: str, options: Obj, admission: Admission | None = None) -> None:
        """Deletes with metav1.DeleteOptions. ``admission``, if given, sees the object in the storage version. Raises 404, 409, and the
        error with which admission refuses."""
        await Delete(self, ctx, name, options, None, admission).run()

    # --- hooks for kinds with deletion rules of their own

    def check_preconditions(self, name: str, obj: Obj, options: Obj) -> None:
        """Raises 409 if the preconditions of DeleteOptions name another object."""
        deletion.check_preconditions(self.resource, name, obj, options)

    def delete_pending(self, obj: Obj, options: Obj) -> bool:
        """Returns whether there is nothing to do: the object is already being deleted, and not later than ``options`` request."""
        return deletion.pending(self.resource, obj, options)

    def begin_delete(self, ctx: Context, obj: Obj, options: Obj) -> Deletion:
        """Marks ``obj`` for deletion; returns what is to be done with it."""
        return deletion.begin(self.strategy, ctx, obj, options)

    def gone_with_update(self, obj: Obj, old: Obj) -> bool:
        """Returns whether an update to ``obj`` completes the deletion of ``old``, which has begun."""
        return deletion.gone_with_update(obj, old)

    # --- stored forms

    def encoded(self, obj: Obj) -> Encoded:
        """Returns the stored form, with the defaults that reading it back would set. Raises 400 for an object nested too deep
        to be encoded."""
        self.strategy.as_read(obj)
        try:
            found: Encoded = encode_stored(self.type, obj, least=0) if self.store.as_protobuf else encode_stored(self.type, obj)
        except EncodeError as e:
            raise not_written(e) from None
        return found

    def forms(self, obj: Obj) -> Made:
        """Returns ``encoded``, and the object as JSON if that is a by-product: it is then encoded once for both. The object
        may have its resourceVersion, which the stored form does not contain."""
        self.strategy.as_read(obj)
        try:
            found: Made = encode_both(self.type, obj)
        except EncodeError as e:
            raise not_written(e) from None
        return found

    def bounded(self, ctx: Context, obj: Obj, encoded: Encoded, stored_bytes: int) -> Encoded:
        """Returns ``encoded`` if it is not too large; otherwise encodes without managed fields (except for apply, which needs
        them). Raises 413 if that is too large, and 400 for an object nested too deep.

        An object that is already too large may still shrink: its finalizers can be removed.
        """
        if len(encoded[0]) + len(encoded[1]) <= MAX_OBJECT_BYTES:
            return encoded
        if not ctx.apply and obj["metadata"].pop("managedFields", None) is not None:
            encoded = self.encoded(obj)
        if len(encoded[0]) + len(encoded[1]) > max(MAX_OBJECT_BYTES, stored_bytes):
            raise errors.request_entity_too_large(f"limit is {MAX_OBJECT_BYTES}")
        return encoded

    def not_stored(self, obj: Obj, revision: int, made: Made | None = None) -> Decoded:
        """Returns ``obj`` as the response to a write that does not store it, with ``revision`` as its resourceVersion if not
        0; ``made`` are its ``forms``, if already computed. Like a stored object it has passed through the storage codec
        (``DryRunnableStorage.copyInto``), which turns an empty list that is always written into null. Raises 400 for an object nested too
        deep."""
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
        """Returns the operation that writes ``obj`` as it is (without a resourceVersion)."""
        return Op(key, self.draft(obj, encoded or self.encoded(obj)), expected)

    def draft(self, obj: Obj, encoded: Encoded | None = None) -> Draft:
        """Returns what the store keeps of an object: JSON, protobuf, labels and selectable fields."""
        head, tail, prefix_len, metadata_tail, message = encoded or encode_stored(self.type, obj)
        labels = obj["metadata"].get("labels") or {}
        fields = selectable_fields(self.resource, obj)
        return build_record(head, tail, labels, fields, prefix_len, self.lease_s, metadata_tail, message)

    def commit(
        self, key: str, obj: Obj, expected: int, encoded: Encoded | None = None, old: Obj | None = None, ctx: Context | None = None
    ) -> Awaitable[Shown]:
        """Writes ``obj`` over revision ``expected``; with ``ctx``, together with the allocations for the change from ``old``.
        Both dicts are consumed. Raises Conflict."""
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
        """Commits the operations, counted as ``operation``; returns the record of the first one, None if that is a delete.
        Raises Conflict, which is a valid answer of the store, and other StoreErrors, which count as failures."""
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
        """Removes the object together with its allocations; returns the revision of the removal. Raises Conflict."""
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
        """Returns whether a Conflict on ``key`` concerns an allocation and not the object itself."""
        return bool(key) and not key.startswith(self.root)

    def is_stored(self, encoded: Encoded, rec: Record) -> bool:
        """Returns whether the record already has this content in the form in which a write would store it today. A record
        sealed with an older key is rewritten even if nothing changed."""
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
    """Returns the client's error for an object that cannot be encoded."""
    return errors.bad_request(str(e)) if str(e) == "exceeded max depth" else e


def _use_up(obj: Obj, old: Obj | None, large: bool) -> None:
    """Clears the objects of a write that is about to wait for its commit. Many writers wait at once, and their callers may
    keep references: if the objects are freed now, the next request reuses memory that is still in the CPU caches. ``large``
    objects are freed in a thread."""
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
