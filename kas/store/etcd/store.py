"""The store contract on etcd: reads from the machine's replica, writes as transactions of etcd.

A write is one Txn on the mod revisions of its keys. It is answered when the replica has its revision, so that a client reads
its own writes here, and derived state is as new. Revisions are etcd's.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from kas.store._engine import Draft, Op, Record
from kas.store.contract import Store
from kas.store.errors import Busy, Compacted, Conflict, KeyTooLong, StoreError, TransformError, Unavailable, Unknown
from kas.store.etcd import etcd_pb2 as pb
from kas.store.etcd import originals
from kas.store.etcd.atrevision import AtRevision
from kas.store.etcd.client import ALARM, GRANT, PUT, RANGE, STATUS, TXN, AsyncClient, Begun, Call, Client, Config, Denied, LeaseGone
from kas.store.etcd.freshness import FRESH_S, TIMED_OUT, WENT_BACK, Freshness, Parked, Waiter
from kas.store.etcd.layout import Keys, Values
from kas.store.etcd.leases import Leases
from kas.store.etcd.replica import read_note
from kas.store.etcd.rpc import PutIf, succeeded_at
from kas.store.etcd.sealing import Sealing
from kas.store.etcd.sharedcall import SharedCall
from kas.store.etcd.unreadable import error_of, note_key
from kas.store.lmdb.committer import Batch
from kas.store.lmdb.store import LMDBStore, _check_keys
from kas.store.shared import Shared
from kas.store.transform import Transformers

# Writes of one worker waiting for etcd; the limits of in-flight requests are far below.
MOST_WRITES = 4096
WRITE_TIMEOUT_S = 10.0
LEAST_S = 0.05  # minimum timeout of a second attempt, whatever the first has left
CATCH_UP_S = 10.0  # how long a write waits for the replica
LAGS_S = 6.0  # age from which an awaited revision shows that the replica does not follow
NUDGE_S = 0.1  # upstream's conditional progress requester
PROBE_S = 10.0
ORDER_S = 60.0  # how often the order of progress responses is checked anew: servers are replaced one by one

log = logging.getLogger("kas.store.etcd")

T = TypeVar("T")
Q = TypeVar("Q", bound=Any)
A = TypeVar("A", bound=Any)


class Write:
    """A transaction in progress: sent together with the loop's other writes, answered by etcd, then confirmed by the replica.
    It has a task only if something must be requested before it. The result of its ``future`` is ``outcome``, or an error.
    Abandoning the future does not undo the write. ``had`` is the revision before it was sent, ``before`` the records of its
    keys at that time. ``revision`` is that of etcd's answer, ``refused`` the answer itself if a precondition failed.

    A write that has ended drops its future: an error refers to the write by its traceback, and the future to the error, so
    the megabytes that a request may have brought would otherwise stay until the next garbage collection of cycles.
    """

    __slots__ = ("_future", "_store", "before", "had", "ops", "outcome", "refused", "revision", "task", "until")

    def __init__(
        self, store: EtcdStore, ops: list[Op], outcome: Any, future: asyncio.Future[Any], had: int, before: list[Record | None]
    ) -> None:
        self._store, self.ops, self.outcome, self.had, self.before = store, ops, outcome, had, before
        self._future: asyncio.Future[Any] | None = future
        self.revision = 0
        self.refused: pb.TxnResponse | None = None
        self.until = time.monotonic() + WRITE_TIMEOUT_S  # of all attempts together
        self.task: asyncio.Task[None] | None = None  # the task that calls etcd, if more than one call is needed

    def done(self) -> bool:
        """See ``Waiter``."""
        return self not in self._store._writes

    def reached(self) -> None:
        """See ``Waiter``."""
        try:
            self._store._resolve(self.ops, self.before, self.revision, self.refused)
        except Exception as e:  # the writer gets the error
            self.fail(e)
            return
        future = self._end()
        if future is not None and not future.done():
            future.set_result(self.outcome)

    def late(self) -> None:
        """See ``Waiter``."""
        made = self.refused is None
        self.fail(Unknown("etcdserver: committed, but the replica does not follow") if made else Unavailable(TIMED_OUT))

    def fail(self, error: Exception) -> None:
        """Ends the write with an error."""
        future = self._end()
        if future is not None and not future.done():
            future.set_exception(error)

    def _end(self) -> asyncio.Future[Any] | None:
        self._store._writes.discard(self)
        future, self._future = self._future, None
        return future

    def cancel(self) -> None:
        """See ``Waiter``."""
        if self._future is not None:
            self._future.cancel()
        if self.task is not None:
            self.task.cancel()


class EtcdStore(LMDBStore):
    """One worker's handle. The replica in ``path`` is complete and is followed by a replicator, in this or another process."""

    most_ops = 128  # etcd's default of --max-txn-ops
    fills = True
    as_protobuf = False  # set by the owner of ``values``

    def __init__(
        self,
        path: str,
        config: Config,
        values: Callable[[Store], Values],
        *,
        keys: Keys,
        max_size: int,
        shared: Shared | None = None,
        transformers: Transformers | None = None,
        ask_progress: Callable[[], None],
        ordered_progress: Callable[[], bool],
    ) -> None:
        """Only servers of the replica's cluster are used. ``ask_progress()`` makes the replicator ask etcd for its progress.
        Unless ``ordered_progress()``, which blocks, that answer may overtake events; a read that must be fresh then writes a
        key and waits for its event instead."""
        self._sealing = Sealing(transformers, keys)
        super().__init__(path, max_size=max_size, sync=False, shared=shared)
        note = read_note(Path(path))
        config = replace(config, cluster_id=note.cluster_id if note is not None else 0)
        self._config, self._values, self._keys = config, values(self), keys
        self.open_with(self._sealing.replica(self._values))
        self._ask_progress, self._in_order = ask_progress, ordered_progress
        self._ordered, self._order_at = ordered_progress(), time.monotonic()
        self._client = Client(config)
        self._at_revision = AtRevision(self._client, keys, self._values, self._sealing, path)
        self._called: tuple[AsyncClient, Leases] | None = None  # created on first use, once the loop runs
        self._writes: set[Write] = set()
        self._waiting: list[tuple[int, int, float, Waiter]] = []  # (revision, order, deadline, waiter)
        self._order = itertools.count()
        self._nudging: asyncio.Task[None] | None = None
        self._closing: list[asyncio.Task[None]] = []  # tasks started when the store is closed
        self._freshness: Freshness | None = None  # created on first use
        self.park: Callable[[Parked], None] = self._park_first  # as ``fresh``, for requests that need no task if etcd answers soon
        self._probed_at, self._probe_took_s, self._probe_failed = 0.0, 0.0, ""
        self._full, self._damaged, self._size = "", "", -1
        self.lease_used_up: Callable[[int], object] = lambda keys: None  # called with the keys of a lease that is replaced

    def close(self) -> None:
        """See the contract; writes that wait for etcd are abandoned: their outcome is unknown."""
        if self._closed:
            return
        for waiter in [*self._writes, *(waiter for *_, waiter in self._waiting)]:
            waiter.cancel()
        if self._freshness is not None:
            self._freshness.close()
        if self._nudging is not None:
            self._nudging.cancel()
        self._client.close()
        loop = self._loop
        if self._called is not None and loop is not None and loop.is_running():
            client = self._called[0]
            loop.call_soon_threadsafe(lambda: self._closing.append(loop.create_task(client.close())))
        super().close()

    def _absent(self, key: str) -> None:
        """Raises ``TransformError`` for a value that could not be decoded."""
        try:
            note = self._env.get(note_key(key))
        except KeyTooLong:  # keys of this length are never stored
            return
        if note is not None:
            raise error_of(key, note)

    def bare(self, key: str, revision: int) -> bytes | None:
        """See the contract. Raises ``TransformError``."""
        note = self._original_note(key, revision)
        return self._sealing.opened(key, originals.value_of(note)) if note is not None else None

    def _original_note(self, key: str, revision: int) -> Record | None:
        """Returns the note on the state of ``key`` since ``revision``."""
        try:
            note = self._env.get(originals.note_key(key))
        except KeyTooLong:  # keys of this length are never stored
            return None
        return note if note is not None and note.revision == revision else None

    # -- writes

    def commit(self, op: Op) -> asyncio.Future[Op]:
        """See the contract."""
        return self._begin([op], op)

    def commit_many(self, ops: list[Op], one_revision: bool = False) -> asyncio.Future[list[Op]]:
        """See the contract; all writes have one revision."""
        _check_keys(ops)
        return self._begin(list(ops), ops)

    def _begin(self, ops: list[Op], outcome: T) -> asyncio.Future[T]:
        loop = self._require_loop()
        if len(self._writes) >= MOST_WRITES:
            raise Busy(f"{MOST_WRITES} writes are waiting")
        future: asyncio.Future[T] = loop.create_future()
        write = Write(self, ops, outcome, future, self.shared.revision, [self._now(op) for op in ops])
        client = self._calls()[0]
        later = any(map(lease_of, ops)) or self._seals_slowly(ops)
        request = None if later else self._transaction(ops, [0] * len(ops))
        self._writes.add(write)
        if request is None or not client.begin(TXN, request, WRITE_TIMEOUT_S, partial(self._answered, write)):
            write.task = loop.create_task(self._ask(write))
        return future

    def _calls(self) -> tuple[AsyncClient, Leases]:
        """Returns the asynchronous client and the shared leases for the loop's thread; created by the first call."""
        if self._called is None:
            client = AsyncClient(self._config)
            self._called = client, Leases(client, self._config.lease_reuse_s, used_up=lambda keys: self.lease_used_up(keys))
        return self._called

    def _answered(self, write: Write, begun: Begun[pb.TxnResponse]) -> None:
        try:
            revision = succeeded_at(begun.stream)
            if revision:
                self._follow(write, revision, None)
                return
            answer = self._calls()[0].ended(begun)
            if answer is not None:
                self._follow(write, *_outcome(answer))
            elif not self._closed:
                write.task = self._require_loop().create_task(self._ask(write))
        except Exception as e:  # the writer gets the error, not the connection
            write.fail(e)

    async def _ask(self, write: Write) -> None:
        """Carries out a write that first needs leases, slow sealing, or a connection."""
        try:
            self._follow(write, *_outcome(await self._carry_out(write.ops, write.until)))
        except Exception as e:  # the writer gets the error
            write.fail(e)

    async def _carry_out(self, ops: list[Op], until: float) -> pb.TxnResponse:
        try:
            return await self._attempt(ops, until)
        except LeaseGone:
            return await self._attempt(ops, until)

    async def _attempt(self, ops: list[Op], until: float) -> pb.TxnResponse:
        client, shared_leases = self._calls()
        leases = [await shared_leases.lease(lease_of(op)) if lease_of(op) else 0 for op in ops]
        try:
            request = await self._built(ops, leases)
            return await client.call(TXN, request, max(LEAST_S, until - time.monotonic()))
        except LeaseGone:
            for lease in leases:
                shared_leases.forget(lease)
            raise

    def _follow(self, write: Write, revision: int, refused: pb.TxnResponse | None) -> None:
        """Handles etcd's answer: the write ends when the replica has its revision. Raises ``StoreError``."""
        _check_not_restored(write.had, write.ops, revision, refused)
        write.revision, write.refused = revision, refused
        if not self._wait(revision, write):
            write.reached()

    def commit_now(self, *ops: Op, one_revision: bool = False) -> None:
        """See the contract."""
        _check_keys(ops)
        given = list(ops)
        had, before = self.shared.revision, [self._now(op) for op in ops]
        leases = [self._client.call(GRANT, pb.LeaseGrantRequest(TTL=lease_of(op))).ID if lease_of(op) else 0 for op in ops]
        revision, refused = _outcome(self._client.call(TXN, self._transaction(given, leases), WRITE_TIMEOUT_S))
        _check_not_restored(had, given, revision, refused)
        until, nudge = time.monotonic() + CATCH_UP_S, time.monotonic() + NUDGE_S
        while self.shared.revision < revision:
            if time.monotonic() >= until:
                raise (Unknown if refused is None else Unavailable)("etcdserver: the replica does not follow")
            if time.monotonic() >= nudge:
                nudge += NUDGE_S
                self._ask_progress()
                if not self._ordered:
                    self._client.call(PUT, pb.PutRequest(key=self._keys.fence))
            time.sleep(0.0005)
        self._resolve(given, before, revision, refused)

    def _now(self, op: Op) -> Record | None:
        """Returns the record at the key of an operation with a precondition."""
        if not op.expected or op.check:
            return None
        with contextlib.suppress(TransformError):  # overwriting needs no opening
            return self.get(op.key)
        return None

    def _seals_slowly(self, ops: Sequence[Op]) -> bool:
        """Returns whether sealing a value calls a slow external service."""
        return self._transformers is not None and any(op.draft is not None and self._sealing.waits(op.key) for op in ops)

    async def _built(self, ops: list[Op], leases: list[int]) -> pb.TxnRequest | PutIf:
        if not self._seals_slowly(ops):
            return self._transaction(ops, leases)
        return await self._require_loop().run_in_executor(self._sealers, self._transaction, ops, leases)

    def _transaction(self, ops: Sequence[Op], leases: Sequence[int]) -> pb.TxnRequest | PutIf:
        if len(ops) == 1 and ops[0].draft is not None:
            return PutIf(self._keys.to_etcd(ops[0].key), self._value(ops[0], ops[0].draft), ops[0].expected, leases[0])
        txn = pb.TxnRequest()
        for op, lease in zip(ops, leases, strict=True):
            key = self._keys.to_etcd(op.key)
            if op.expected is not None:
                txn.compare.add(target=pb.Compare.MOD, key=key, mod_revision=op.expected)
            if not op.check and op.draft is None and not op.expected:  # a deleted key must exist
                txn.compare.add(target=pb.Compare.VERSION, result=pb.Compare.GREATER, key=key, version=0)
            if op.draft is not None:
                put = txn.success.add().request_put
                put.key, put.value, put.lease = key, self._value(op, op.draft), lease
            elif not op.check:
                txn.success.add().request_delete_range.key = key
            found = txn.failure.add().request_range
            found.key, found.keys_only = key, True
        return txn

    def _value(self, op: Op, draft: Draft) -> bytes:
        """Returns the value to store in etcd. Raises ``TransformError``."""
        value = self._values.encode(op.key, draft)
        if op.expected:
            value = self._handed_on(op.key, op.expected, value)
        return self._sealing.seal(op.key, value)

    def _handed_on(self, key: str, revision: int, value: bytes) -> bytes:
        """Returns the value with the fields of a newer version that the value of ``revision``, which it replaces, has."""
        note = self._original_note(key, revision)
        if note is None:
            return value
        return self._values.handed_on(key, self._sealing.opened(key, originals.value_of(note)), value)

    def _resolve(self, ops: Sequence[Op], before: Sequence[Record | None], revision: int, refused: pb.TxnResponse | None) -> None:
        """Sets the results of the operations. Raises ``Conflict``."""
        if refused is not None:
            for op, response in zip(ops, refused.responses, strict=True):
                kvs = response.response_range.kvs
                if not _holds(op, kvs[0].mod_revision if kvs else 0):
                    raise Conflict(None if op.check else self.get(op.key), op.key)
            raise Conflict(None, ops[0].key)
        for op, previous in zip(ops, before, strict=True):
            if op.check:
                op.resolve(0, None, None)
                continue
            if op.expected != 0 and (previous is None or previous.revision != op.expected):
                with contextlib.suppress(TransformError):
                    previous = self._at(op.key, revision - 1)
            record = None if op.draft is None else self._at(op.key, revision)
            if op.draft is not None and (record is None or record.revision != revision):
                raise Unknown("etcdserver: committed, but not found in the replica")
            op.resolve(revision, record, previous)

    def _at(self, key: str, revision: int) -> Record | None:
        """Returns the record of a key at a revision; None if that has been compacted."""
        record = self.get(key)
        if record is not None and record.revision <= revision:
            return record
        try:
            return self.get(key, revision)
        except Compacted:
            return None

    # -- freshness

    def _wait(self, revision: int, waiter: Waiter) -> bool:
        """Returns whether ``waiter`` has to wait until everything up to ``revision`` was dispatched here; it is notified then."""
        if self.hub.revision >= revision:
            return False
        self.hub.catch_up()
        if self.hub.revision >= revision:
            return False
        heapq.heappush(self._waiting, (revision, next(self._order), time.monotonic() + CATCH_UP_S, waiter))
        if self._nudging is None:
            self._nudging = asyncio.create_task(self._nudge())
        return True

    async def _nudge(self) -> None:
        """Repeatedly asks etcd for its progress while there are waiters. A request may be lost with its watch, and a revision
        that wrote only keys outside of the prefix is reported in no other way."""
        try:
            while True:
                await asyncio.sleep(NUDGE_S)
                self.hub.catch_up()
                self._release()
                self._expire_waiting(time.monotonic())
                if not self._waiting:
                    return
                if all(waiter.done() for *_, waiter in self._waiting):
                    continue
                await self._nudge_once()
        finally:
            self._nudging = None

    async def _nudge_once(self) -> None:
        self._ask_progress()
        if not self._ordered:
            with contextlib.suppress(StoreError):  # the waiters have deadlines of their own
                await self._calls()[0].call(PUT, pb.PutRequest(key=self._keys.fence), FRESH_S)

    def _expire_waiting(self, now: float) -> None:
        """Notifies waiters whose deadline has passed, and removes those that no longer wait, once it is known whether their
        revision was late."""
        left = []
        for one in self._waiting:
            revision, _, until, waiter = one
            lags = now >= until - CATCH_UP_S + LAGS_S
            if lags:
                self.shared.missed = max(self.shared.missed, revision)  # of all workers: any of them may be asked for readiness
            if now >= until and not waiter.done():
                waiter.late()
            if not (lags and waiter.done()):
                left.append(one)
        if len(left) < len(self._waiting):
            heapq.heapify(left)
            self._waiting = left

    def _release(self) -> None:
        """Wakes the waiters whose revision has been reached."""
        while self._waiting and self._waiting[0][0] <= self.hub.revision:
            waiter = heapq.heappop(self._waiting)[3]
            if not waiter.done():
                waiter.reached()

    def _woken(self) -> None:
        super()._woken()
        self._release()

    def _arrived(self, batch: Batch) -> None:
        super()._arrived(batch)
        self._release()

    async def fresh(self) -> None:
        """Waits until reads see everything that any server had acknowledged before this call: one request to etcd for all
        current callers. Raises ``Unavailable`` when that takes more than ``FRESH_S``, ``Behind`` if etcd has answered
        meanwhile."""
        if self._freshness is None:
            self._freshness = self._rounds()
            self.park = self._freshness.park
        await self._freshness.join()

    def _park_first(self, parked: Parked) -> None:
        parked.wait(self.fresh())  # creating the request may fail

    def _rounds(self) -> Freshness:
        client, request = self._calls()[0], pb.RangeRequest(key=self._keys.root, limit=1, keys_only=True)
        question = SharedCall(client, RANGE, request, FRESH_S / client.servers)  # leaves time for the other servers
        return Freshness(
            self._require_loop(), client, question, self._keys.fence, self.shared.memory, self.hub, self._wait, self._ask_progress,
            lambda: self._ordered,
        )  # fmt: skip

    def at_revision(self, prefix: str, one: bool, revision: int) -> LMDBStore:
        """Reads from etcd itself; see ``AtRevision.read``."""
        return self._at_revision.read(prefix, one, revision)

    async def behind(self, revision: int) -> bool:
        """See the contract."""
        await self.fresh()
        try:
            return bool(self.events("", revision, 1)[0])
        except Compacted:
            return True

    # -- upkeep

    async def probe(self, least_s: float = 0.0) -> None:
        """Checks whether etcd answers, within ``least_s`` or longer; ``unreachable`` has the result. Called by a loop of the
        worker, every few seconds."""
        began = self._probed_at = time.monotonic()
        try:
            await self._calls()[0].call(RANGE, pb.RangeRequest(key=self._keys.root + b"health", limit=1), max(PROBE_S, least_s))
            self._probe_took_s = time.monotonic() - began
            status = await self._if_allowed(STATUS, pb.StatusRequest())
            self._size = int(status.dbSize) if status is not None else -1
            raised = await self._raised(status)
            full = "NOSPACE" in raised
            if full and not self._full:
                log.warning("etcd is full: it refuses writes until it is compacted and defragmented and its NOSPACE alarm is disarmed")
            self._full = "database space exceeded" if full else ""
            damaged = "CORRUPT" in raised
            if damaged and not self._damaged:
                log.warning("members of etcd hold different data: etcd refuses writes until its CORRUPT alarm is disarmed")
            self._damaged = "etcdserver: corrupt cluster" if damaged else ""
            self._probe_failed = ""
            if self._lags():
                await self._nudge_once()
        except StoreError as e:
            self._probe_failed = f"error getting data from etcd: {e}"
        finally:
            self._probed_at = 0.0
        if not self._probe_failed and time.monotonic() - self._order_at >= ORDER_S:
            self._order_at = time.monotonic()
            self._ordered = await asyncio.to_thread(self._in_order)

    async def _raised(self, status: pb.StatusResponse | None) -> str:
        """Returns the names of the raised alarms in etcd's words. They come from a member's ``status``; a request for the
        alarms alone is a proposal to the cluster, which every member syncs to its disk like a write."""
        if status is not None:
            return " ".join(status.errors)
        alarms = await self._if_allowed(ALARM, pb.AlarmRequest())
        return str(alarms) if alarms is not None else ""

    async def _if_allowed(self, call: Call[Q, A], request: Q) -> A | None:
        """Returns the answer; None if the etcd user has no permission for the request, which is no failure of etcd."""
        try:
            return await self._calls()[0].call(call, request, PROBE_S)
        except Denied:
            return None

    def unreachable(self, limit_s: float) -> str:
        """Returns why etcd does not answer, as the last probe found; a probe that took, or takes, longer than ``limit_s``
        counts as failed."""
        if self._probe_took_s > limit_s or (self._probed_at and time.monotonic() - self._probed_at > limit_s):
            return "error getting data from etcd: context deadline exceeded"
        return self._probe_failed

    def expire(self, now_s: int | None = None, limit: int = 500) -> int:
        """etcd deletes keys with a lease itself."""
        self.refresh()
        return 0

    def full(self) -> str:
        """See the contract: etcd's NOSPACE alarm, as the last probe found it."""
        return self._full

    def lost(self) -> str:
        """See the contract: the local file is only a replica, but if it does not follow, reads do not see later writes."""
        return self._lags() or self._damaged or self.replaced()

    def _lags(self) -> str:
        here, missed = self.shared.revision, self.shared.missed
        return f"the replica is at revision {here} and does not follow etcd to {missed}" if here < missed else ""

    def size(self) -> tuple[str, int]:
        """See the contract: as a member reported it to the last probe."""
        return "etcd", self._size


def _outcome(answer: pb.TxnResponse) -> tuple[int, pb.TxnResponse | None]:
    """Returns the answer's revision, and the answer itself unless it succeeded."""
    return answer.header.revision, None if answer.succeeded else answer


def _check_not_restored(had: int, ops: Sequence[Op], revision: int, refused: pb.TxnResponse | None) -> None:
    """Raises if etcd answers with a revision that the replica had passed before the request: etcd was restored from a backup,
    and its answer does not relate to the local data."""
    if refused is None and revision <= had and any(not op.check for op in ops):
        raise Unknown(WENT_BACK)
    if revision < had:
        raise Unavailable(WENT_BACK)


def lease_of(op: Op) -> int:
    """Returns the lifetime in seconds of the value that the operation writes; 0: unlimited."""
    return op.draft.lease_s if op.draft is not None else 0


def _holds(op: Op, mod_revision: int) -> bool:
    """Returns whether an operation's precondition holds for a key at this revision (0: absent)."""
    if not op.check and op.draft is None and not (mod_revision and op.expected != 0):
        return False
    return op.expected is None or op.expected == mod_revision
