"""The store contract on etcd: reads from the machine's replica, writes by etcd's transactions.

A write is one Txn on the mod revisions of its keys; it is answered when the replica has its revision, so that a client reads its own
writes here, and derived state is as new. Revisions are etcd's.
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

# Writes of one worker that wait for etcd; the limits of requests in flight are far below.
MOST_WRITES = 4096
WRITE_TIMEOUT_S = 10.0
LEAST_S = 0.05  # for a second attempt, whatever the first has left of that
CATCH_UP_S = 10.0  # how long a write waits for the replica
LAGS_S = 6.0  # from when on a revision that somebody waited for says that the replica does not follow
NUDGE_S = 0.1  # upstream's conditional progress requester
PROBE_S = 10.0
ORDER_S = 60.0  # how often the servers are asked anew whether their progress can be believed: they are replaced one by one

log = logging.getLogger("kas.store.etcd")

T = TypeVar("T")
Q = TypeVar("Q", bound=Any)
A = TypeVar("A", bound=Any)


class Write:
    """One transaction on its way: begun with the loop's other writes, answered by etcd, and then by the replica. No task of its own where
    nothing has to be asked before it: what its ``future`` comes to is ``outcome``, or an error. Whoever leaves the future leaves the write
    as it is. ``had`` is the revision before it was begun, ``before`` what stood at its keys. ``revision`` is that of etcd's answer,
    ``refused`` the answer itself where a precondition did not hold.

    A write that is over lets go of its future: an error leads to the write by its traceback, and the future to the error, and the megabytes
    that a request may have brought would stay until somebody looks for cycles."""

    __slots__ = ("_future", "_store", "before", "had", "ops", "outcome", "refused", "revision", "task", "until")

    def __init__(
        self, store: EtcdStore, ops: list[Op], outcome: Any, future: asyncio.Future[Any], had: int, before: list[Record | None]
    ) -> None:
        self._store, self.ops, self.outcome, self.had, self.before = store, ops, outcome, had, before
        self._future: asyncio.Future[Any] | None = future
        self.revision = 0
        self.refused: pb.TxnResponse | None = None
        self.until = time.monotonic() + WRITE_TIMEOUT_S  # of all attempts together
        self.task: asyncio.Task[None] | None = None  # what asks etcd, where that takes more than one question

    def done(self) -> bool:
        """See ``Waiter``."""
        return self not in self._store._writes

    def reached(self) -> None:
        """See ``Waiter``."""
        try:
            self._store._resolve(self.ops, self.before, self.revision, self.refused)
        except Exception as e:  # whoever made the write is told
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
        """It ends with an error."""
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
    """One worker's handle. The replica in ``path`` is complete and followed by a replicator, here or in another process."""

    most_ops = 128  # etcd's --max-txn-ops, unless somebody changed it
    fills = True
    as_protobuf = False  # who knows what the values are says so

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
        """Only servers are asked of the cluster that the replica is of. ``ask_progress()`` lets the replicator ask etcd how far it is;
        unless ``ordered_progress()``, which blocks, that answer may come too early, and a read that must be new writes a key and waits
        for it instead."""
        self._sealing = Sealing(transformers, keys)
        super().__init__(path, max_size=max_size, sync=False, shared=shared)
        note = read_note(Path(path))
        config = replace(config, cluster_id=note.cluster_id if note is not None else 0)
        self._config, self._values, self._keys = config, values(self), keys
        self.open_with(self._sealing.replica(self._values))
        self._ask_progress, self._in_order = ask_progress, ordered_progress
        self._ordered, self._order_at = ordered_progress(), time.monotonic()
        self._client = Client(config)
        self._beside = AtRevision(self._client, keys, self._values, self._sealing, path)
        self._called: tuple[AsyncClient, Leases] | None = None  # once the loop runs
        self._writes: set[Write] = set()
        self._waiting: list[tuple[int, int, float, Waiter]] = []  # a revision, an order, when it is too late, who waits
        self._order = itertools.count()
        self._nudging: asyncio.Task[None] | None = None
        self._last: list[asyncio.Task[None]] = []  # what is left to do when the store is closed
        self._freshness: Freshness | None = None  # once somebody waits for it
        self.park: Callable[[Parked], None] = self._park_first  # as ``fresh``, for who needs no task while etcd answers soon
        self._probed_at, self._probe_took_s, self._probe_failed = 0.0, 0.0, ""
        self._full, self._damaged, self._size = "", "", -1
        self.lease_used_up: Callable[[int], object] = lambda keys: None  # told how many keys a lease has got when the next is made

    def close(self) -> None:
        """See the contract; writes that wait for etcd are let go: their outcome is not known."""
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
            loop.call_soon_threadsafe(lambda: self._last.append(loop.create_task(client.close())))
        super().close()

    def _absent(self, key: str) -> None:
        """``TransformError`` for a value that nobody can decode."""
        try:
            note = self._env.get(note_key(key))
        except KeyTooLong:  # of so long a key none could be made
            return
        if note is not None:
            raise error_of(key, note)

    def bare(self, key: str, revision: int) -> bytes | None:
        """See the contract. Raises ``TransformError``."""
        note = self._newer(key, revision)
        return self._sealing.opened(key, originals.value_of(note)) if note is not None else None

    def _newer(self, key: str, revision: int) -> Record | None:
        """The note on what stands at ``key`` since ``revision``."""
        try:
            note = self._env.get(originals.note_key(key))
        except KeyTooLong:  # of so long a key none could be made
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
        later = any(map(lease_of, ops)) or self._asks_to_seal(ops)
        request = None if later else self._transaction(ops, [0] * len(ops))
        self._writes.add(write)
        if request is None or not client.begin(TXN, request, WRITE_TIMEOUT_S, partial(self._answered, write)):
            write.task = loop.create_task(self._ask(write))
        return future

    def _calls(self) -> tuple[AsyncClient, Leases]:
        """What asks etcd on the loop's thread; made by the first call."""
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
                self._follow(write, *_said(answer))
            elif not self._closed:
                write.task = self._require_loop().create_task(self._ask(write))
        except Exception as e:  # whoever made the write is told, not the connection
            write.fail(e)

    async def _ask(self, write: Write) -> None:
        """Where there are leases to be had first, or a server to be found."""
        try:
            self._follow(write, *_said(await self._carry_out(write.ops, write.until)))
        except Exception as e:  # whoever made the write is told
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
        """etcd has answered: the write ends when the replica has its revision. Raises ``StoreError``."""
        _went_on(write.had, write.ops, revision, refused)
        write.revision, write.refused = revision, refused
        if not self._wait(revision, write):
            write.reached()

    def commit_now(self, *ops: Op, one_revision: bool = False) -> None:
        """See the contract."""
        _check_keys(ops)
        given = list(ops)
        had, before = self.shared.revision, [self._now(op) for op in ops]
        leases = [self._client.call(GRANT, pb.LeaseGrantRequest(TTL=lease_of(op))).ID if lease_of(op) else 0 for op in ops]
        revision, refused = _said(self._client.call(TXN, self._transaction(given, leases), WRITE_TIMEOUT_S))
        _went_on(had, given, revision, refused)
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
        """What stands at the key of an operation that says what it expects there."""
        if not op.expected or op.check:
            return None
        with contextlib.suppress(TransformError):  # writing over it needs no opening
            return self.get(op.key)
        return None

    def _asks_to_seal(self, ops: Sequence[Op]) -> bool:
        """Whether a value is sealed by somebody who may take his time."""
        return self._transformers is not None and any(op.draft is not None and self._sealing.waits(op.key) for op in ops)

    async def _built(self, ops: list[Op], leases: list[int]) -> pb.TxnRequest | PutIf:
        if not self._asks_to_seal(ops):
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
            if not op.check and op.draft is None and not op.expected:  # what is deleted must be there
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
        """What etcd is given to hold. Raises ``TransformError``."""
        value = self._values.encode(op.key, draft)
        if op.expected:
            value = self._handed_on(op.key, op.expected, value)
        return self._sealing.seal(op.key, value)

    def _handed_on(self, key: str, revision: int, value: bytes) -> bytes:
        """The value, with the fields of a newer version that the one of ``revision``, which it takes the place of, has."""
        note = self._newer(key, revision)
        if note is None:
            return value
        return self._values.handed_on(key, self._sealing.opened(key, originals.value_of(note)), value)

    def _resolve(self, ops: Sequence[Op], before: Sequence[Record | None], revision: int, refused: pb.TxnResponse | None) -> None:
        """Tells the operations what became of them. Raises ``Conflict``."""
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
        """What a key held at a revision; None when that is forgotten already."""
        record = self.get(key)
        if record is not None and record.revision <= revision:
            return record
        try:
            return self.get(key, revision)
        except Compacted:
            return None

    # -- as new as etcd

    def _wait(self, revision: int, waiter: Waiter) -> bool:
        """Whether ``waiter`` has to wait until everything up to ``revision`` was dispatched here; it will be told."""
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
        """While somebody waits: etcd is asked again and again how far it is. A question may be lost with the watch it was asked on, and a
        revision that only wrote what is not ours is told by nothing else."""
        try:
            while True:
                await asyncio.sleep(NUDGE_S)
                self.hub.catch_up()
                self._release()
                self._look_at_waiting(time.monotonic())
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
            with contextlib.suppress(StoreError):  # those who wait have their own time
                await self._calls()[0].call(PUT, pb.PutRequest(key=self._keys.fence), FRESH_S)

    def _look_at_waiting(self, now: float) -> None:
        """Tells those for whom it is too late, and lets go of those who do not wait any more, once it is known whether what they waited
        for came late."""
        left = []
        for one in self._waiting:
            revision, _, until, waiter = one
            lags = now >= until - CATCH_UP_S + LAGS_S
            if lags:
                self.shared.missed = max(self.shared.missed, revision)  # of every worker: readiness is asked of any
            if now >= until and not waiter.done():
                waiter.late()
            if not (lags and waiter.done()):
                left.append(one)
        if len(left) < len(self._waiting):
            heapq.heapify(left)
            self._waiting = left

    def _release(self) -> None:
        """Wakes those whose revision has been reached."""
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
        """Waits until reads see everything that any server had been acknowledged before this call: one question to etcd for all who wait
        at the moment. Raises ``Unavailable`` when that takes more than ``FRESH_S``, ``Behind`` when etcd has answered meanwhile."""
        if self._freshness is None:
            self._freshness = self._rounds()
            self.park = self._freshness.park
        await self._freshness.join()

    def _park_first(self, parked: Parked) -> None:
        parked.wait(self.fresh())  # the making of what is asked may fail

    def _rounds(self) -> Freshness:
        client, request = self._calls()[0], pb.RangeRequest(key=self._keys.root, limit=1, keys_only=True)
        question = SharedCall(client, RANGE, request, FRESH_S / client.servers)  # so that there is time for the others
        return Freshness(
            self._require_loop(), client, question, self._keys.fence, self.shared.memory, self.hub, self._wait, self._ask_progress,
            lambda: self._ordered,
        )  # fmt: skip

    def beside(self, prefix: str, one: bool, revision: int) -> LMDBStore:
        """What etcd itself holds; see ``AtRevision.read``."""
        return self._beside.read(prefix, one, revision)

    async def behind(self, revision: int) -> bool:
        """See the contract."""
        await self.fresh()
        try:
            return bool(self.events("", revision, 1)[0])
        except Compacted:
            return True

    # -- upkeep

    async def probe(self, least_s: float = 0.0) -> None:
        """Asks etcd whether it answers, for ``least_s`` or longer; ``unreachable`` tells. For a loop of the worker's, every few seconds."""
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
        """Which alarms there are, in etcd's words. A member tells them with its ``status``; to be asked for them alone is a proposal to the
        cluster, which every member syncs to its disk as it does a write."""
        if status is not None:
            return " ".join(status.errors)
        alarms = await self._if_allowed(ALARM, pb.AlarmRequest())
        return str(alarms) if alarms is not None else ""

    async def _if_allowed(self, call: Call[Q, A], request: Q) -> A | None:
        """The answer; None where etcd's user may not ask that, which is no failure of etcd."""
        try:
            return await self._calls()[0].call(call, request, PROBE_S)
        except Denied:
            return None

    def unreachable(self, limit_s: float) -> str:
        """Why etcd does not answer, as the last probe found; one that took, or takes, longer than ``limit_s`` counts as failed."""
        if self._probe_took_s > limit_s or (self._probed_at and time.monotonic() - self._probed_at > limit_s):
            return "error getting data from etcd: context deadline exceeded"
        return self._probe_failed

    def expire(self, now_s: int | None = None, limit: int = 500) -> int:
        """etcd ends what has a lease."""
        self.refresh()
        return 0

    def full(self) -> str:
        """See the contract: etcd's NOSPACE alarm, as the last probe found it."""
        return self._full

    def lost(self) -> str:
        """See the contract: the file here is a replica, but one that does not follow shows nothing of what is written."""
        return self._lags() or self._damaged

    def _lags(self) -> str:
        here, missed = self.shared.revision, self.shared.missed
        return f"the replica is at revision {here} and does not follow etcd to {missed}" if here < missed else ""

    def size(self) -> tuple[str, int]:
        """See the contract: what a member told the last probe."""
        return "etcd", self._size


def _said(answer: pb.TxnResponse) -> tuple[int, pb.TxnResponse | None]:
    """Its revision, and itself unless it succeeded."""
    return answer.header.revision, None if answer.succeeded else answer


def _went_on(had: int, ops: Sequence[Op], revision: int, refused: pb.TxnResponse | None) -> None:
    """Raises when etcd answers with a revision that the replica had passed before it was asked: it was restored from a backup, and what it
    says has nothing to do with what is here."""
    if refused is None and revision <= had and any(not op.check for op in ops):
        raise Unknown(WENT_BACK)
    if revision < had:
        raise Unavailable(WENT_BACK)


def lease_of(op: Op) -> int:
    """How many seconds what the operation writes is to live; 0: for ever."""
    return op.draft.lease_s if op.draft is not None else 0


def _holds(op: Op, mod_revision: int) -> bool:
    """Whether an operation's precondition holds for a key at this revision (0: it is not there)."""
    if not op.check and op.draft is None and not (mod_revision and op.expected != 0):
        return False
    return op.expected is None or op.expected == mod_revision
