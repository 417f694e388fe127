"""The LMDB backend: reads straight from the map, writes through the committer, events through the hub.

One instance per process and data directory. Reads may come from any thread; ``commit``, ``watch`` and ``listen`` belong to the event
loop given to ``start``. What is on disk stands in ``kas/store/_engine.pxd``, and why, in the parts under ``kas/store/engine/``.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import NoReturn, TypeVar

from kas.meta.threads import Threads
from kas.observe.caches import Cache
from kas.store import _engine
from kas.store._engine import Event, Matcher, Op, RangeResult, Record
from kas.store.contract import EVENTS_BYTES, Store, Wrap
from kas.store.errors import (
    Busy,
    Closed,
    Compacted,
    Conflict,
    Corrupt,
    Failed,
    Full,
    FutureRevision,
    KeyTooLong,
    StoreError,
    TransformError,
)
from kas.store.hub import Hub, Watcher
from kas.store.lmdb.ballast import Ballast, no_room
from kas.store.lmdb.committed import Committed
from kas.store.lmdb.committer import BATCH_BYTES, BATCH_OPS, EACH, ONE, QUEUE_UNITS, Batch, Committer, Unit
from kas.store.lmdb.compaction import HistoryPolicy, trim
from kas.store.lmdb.preallocation import Preallocation
from kas.store.shared import Shared
from kas.store.transform import Transformers

_engine.bind_errors(Full, Failed, Corrupt, StoreError, KeyTooLong, TransformError)

_RECORDS, _JSON, _METADATA, _COUNT, _PROTOBUF = range(5)
T = TypeVar("T")
OUT_OF_SPACE = "database space exceeded"
# Fewer are counted about as fast as what was written since is looked through.
MANY_KEYS = 256
# Threads for transactions whose values somebody is asked to seal, and how many of them may wait for one.
SEALERS, SEALING_MOST = 16, 1024
COUNTED_BYTES, COUNTED_KEY_BYTES = 256 << 10, 1024


def _translate(error: LookupError) -> NoReturn:
    kind, requested, known = error.args
    raise (Compacted if kind == "compacted" else FutureRevision)(requested, known) from None


def _check_keys(ops: Sequence[Op]) -> None:
    if len({op.key for op in ops}) != len(ops) or not ops:
        raise ValueError("a transaction needs operations on different keys")


class LMDBStore(Store):
    """The store contract (``kas.store``) over one LMDB environment."""

    most_ops = BATCH_OPS
    fills = as_protobuf = False

    def __init__(
        self, path: str, *, max_size: int, sync: bool = True, shared: Shared | None = None, transformers: Transformers | None = None
    ) -> None:
        try:
            os.makedirs(path, mode=0o700, exist_ok=True)
        except OSError as e:
            raise StoreError(f"data directory {path}: {e.strerror}") from e
        self.shared = shared or Shared.private()
        self._committed = Committed(path)
        had = self._committed.check_present()
        self._env = _engine.Env(path, max_size, sync=sync)
        self._file = os.path.join(path, "data.mdb")
        self._opened = _identity(self._file)
        self.open_with(transformers)
        newest = self._env.revisions()[0]
        try:
            self._committed.check(had, newest)
            self._committed.open()
            self.ballast = Ballast(path)
            self._ahead = Preallocation(self._env, self._file) if sync else None
        except (Corrupt, OSError) as e:
            self._env.close()
            raise e if isinstance(e, Corrupt) else StoreError(f"data directory {path}: {e.strerror}") from e
        if newest > had:
            self._committed.note(newest)
        self._env.check_readers()
        self.shared.memory.publish(newest)
        self._counted: Cache[tuple[str, str], tuple[int, int]] = Cache(
            "counted_keys", "how many keys lists have counted, and when", COUNTED_BYTES, COUNTED_KEY_BYTES
        )
        self.hub = Hub(self.events, self._newest, self.shared.revision)
        note = self._committed.note
        self._committer = Committer(
            self._env, self.shared, self._deliver, note, lambda: trim(self), self.ballast, self._no_room, self._ahead
        )
        self._history = HistoryPolicy()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._gathered: list[Unit] = []
        self._being_sealed = 0  # transactions in the sealers' threads, which begin with the first one
        self._sealers = Threads(SEALERS, "kas-sealing")
        self._started = False
        self._closed = False

    def open_with(self, transformers: Transformers | None) -> None:
        """From now on values are sealed and opened so."""
        self._env.transformer_for = self._transformers = transformers

    def start(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Starts the committer, and on the loop the watches and the reader of wake-ups. Without a loop only ``commit_now`` writes."""
        if not self._started:
            self._started = True
            self._committer.start()
        if loop is not None and self._loop is None:
            self._loop = loop
            self.hub.later, self.hub.put_off = loop.call_soon, loop.call_later
            if self.shared.wake_fd >= 0:
                loop.add_reader(self.shared.wake_fd, self._woken)
            self.hub.catch_up()

    def close(self) -> None:
        """Commits what is queued, resolves it, closes the file. Later calls raise ``Closed`` or ``StoreError``. Idempotent."""
        if self._closed:
            return
        self._flush()
        self._closed = True
        self.hub.close()
        self._sealers.shutdown(wait=False, cancel_futures=True)
        if self._started:
            self._committer.close()
        if self._loop is not None and self.shared.wake_fd >= 0 and not self._loop.is_closed():
            self._loop.remove_reader(self.shared.wake_fd)
        self._env.close()
        self._committed.close()
        self.ballast.close()
        if self._ahead is not None:
            self._ahead.close()

    # -- reads --------------------------------------------------------------------------------------------------------

    def get(self, key: str, revision: int = 0) -> Record | None:
        """The record of a key, or None: one transaction, two lookups. At an older revision the log is read from there on."""
        if revision:
            try:
                return _engine.record_at(self._env, key, revision)
            except LookupError as e:
                _translate(e)
        record = self._env.get(key)
        if record is not None:
            # Another worker's write can be read a moment before its revision is published (or for longer, when that worker
            # died in between). What has been shown to a client must not be newer than `revision`.
            self.shared.memory.publish(record.revision)
            return record
        self._absent(key)
        return None

    def _absent(self, key: str) -> None:
        """Raises for a key that stands somewhere, and not here."""

    def range(
        self, prefix: str, start: str = "", limit: int = 0, revision: int = 0, matcher: Matcher | None = None, count: bool = False,
        *, max_bytes: int = 0,
    ) -> RangeResult:
        """A page of records."""
        return self._scan(prefix, start, limit, revision, matcher, count, _RECORDS, b"{", None, max_bytes)

    def range_json(
        self,
        prefix: str,
        start: str = "",
        limit: int = 0,
        revision: int = 0,
        matcher: Matcher | None = None,
        count: bool = False,
        *,
        lead: bytes = b"{",
        metadata_only: bool = False,
        wrap: Wrap | None = None,
        max_bytes: int = 0,
    ) -> RangeResult:
        """A page as the bytes of JSON items; without the GIL when it is large."""
        mode = _METADATA if metadata_only else _JSON
        return self._scan(prefix, start, limit, revision, matcher, count, mode, lead, wrap, max_bytes)

    def range_protobuf(
        self,
        prefix: str,
        start: str = "",
        limit: int = 0,
        revision: int = 0,
        matcher: Matcher | None = None,
        count: bool = False,
        *,
        wrap: Wrap | None = None,
        max_bytes: int = 0,
    ) -> RangeResult:
        """A page as field 2 of a protobuf list."""
        return self._scan(prefix, start, limit, revision, matcher, count, _PROTOBUF, b"", wrap, max_bytes)

    def count(self, prefix: str, most: int = 0) -> int:
        """How many keys stand under a prefix: what was counted before, and what was written since, where that is little; with ``most`` no
        more than that, and no more are looked at."""
        result = self._scan(prefix, "", most, 0, None, False, _COUNT, b"", None, 0)
        if not most and result.count >= MANY_KEYS:
            self._counted.put((prefix, ""), (result.revision, result.count), len(prefix))
        return result.count

    def stale(self, record: Record) -> bool:
        """Whether a write would store the record otherwise than it is stored."""
        if record.sealed or self._transformers is None:
            return record.stale
        transformer = self._transformers(record.key)
        return transformer is not None and not transformer.plain

    def bare(self, key: str, revision: int) -> bytes | None:
        """None: what is read is what was written."""
        return None

    def _scan(
        self,
        prefix: str,
        start: str,
        limit: int,
        revision: int,
        matcher: Matcher | None,
        count: bool,
        mode: int,
        lead: bytes,
        wrap: Wrap | None,
        max_bytes: int,
    ) -> RangeResult:
        counted = count and matcher is None
        known = self._counted.entries.get((prefix, start)) if counted or mode == _COUNT else None
        try:
            result = _engine.scan(self._env, prefix, start, limit, revision, matcher, count, mode, lead, wrap, max_bytes, known)
        except LookupError as e:
            _translate(e)
        self.shared.memory.publish(result.revision)
        if counted and result.remaining >= MANY_KEYS:
            self._note(prefix, start, known, result)
        return result

    def _note(self, prefix: str, start: str, known: tuple[int, int] | None, result: RangeResult) -> None:
        """Remembers how many keys there are from this page on and from the next one on: for lists of the same and for those that go on."""
        if known is None or known[0] < result.revision:
            self._counted.put((prefix, start), (result.revision, result.count + result.remaining), len(prefix) + len(start))
        self._counted.put((prefix, result.next_key), (result.revision, result.remaining), len(prefix) + len(result.next_key))

    # -- writes -------------------------------------------------------------------------------------------------------

    def commit(self, op: Op) -> asyncio.Future[Op]:
        """Queues one write; see the contract."""
        return self._gather([op], op, EACH)

    def commit_many(self, ops: list[Op], one_revision: bool = False) -> asyncio.Future[list[Op]]:
        """Queues a transaction: all when all preconditions hold, nothing otherwise. Keys must differ. With ``one_revision`` all
        writes have the same, else consecutive ones."""
        _check_keys(ops)
        return self._gather(list(ops), ops, ONE if one_revision else EACH)

    def _gather(self, ops: list[Op], outcome: T, at: int) -> asyncio.Future[T]:
        """What one turn of the loop writes is handed over at its end: one batch and one change of threads instead of many."""
        loop = self._loop
        if loop is None or self._closed:
            loop = self._require_loop()  # which says why not
        if len(self._gathered) + self._committer.queued >= QUEUE_UNITS:
            raise Busy(f"{QUEUE_UNITS} writes are waiting")
        if self._transformers is not None:
            if any(self._waits(op) for op in ops):
                return loop.create_task(self._gather_sealed(ops, outcome, at))
            self._seal(ops)
        return self._gather_now(loop, ops, outcome, at)

    def _waits(self, op: Op) -> bool:
        """Whether somebody is asked to seal it."""
        found = self._transformers(op.key) if op.draft is not None and self._transformers is not None else None
        return found is not None and found.waits and not found.plain

    async def _gather_sealed(self, ops: list[Op], outcome: T, at: int) -> T:
        """``_gather`` for what takes its time to be sealed: in a thread, before the transaction it stands in."""
        if self._being_sealed >= SEALING_MOST:
            raise Busy(f"{SEALING_MOST} writes are being sealed")
        loop = self._require_loop()
        self._being_sealed += 1
        try:
            await loop.run_in_executor(self._sealers, self._seal, ops)
        finally:
            self._being_sealed -= 1
        return await self._gather_now(self._require_loop(), ops, outcome, at)

    def _gather_now(self, loop: asyncio.AbstractEventLoop, ops: list[Op], outcome: T, at: int) -> asyncio.Future[T]:
        future: asyncio.Future[T] = loop.create_future()

        def done(error: StoreError | None) -> None:
            if future.done():
                return  # cancelled; the write stands
            if error is None:
                future.set_result(outcome)
            else:
                future.set_exception(error)

        if not self._gathered:
            loop.call_soon(self._flush)
        self._gathered.append(Unit(ops, done, at))
        return future

    def _seal(self, ops: list[Op]) -> None:
        """Seals what is to be sealed, before the committer has it, which never waits for it."""
        if self._transformers is not None:
            for op in ops:
                op.seal(self._transformers(op.key))

    def _flush(self) -> None:
        """Hands what was gathered to the committer, in order."""
        units, self._gathered = self._gathered, []
        for unit in units:
            try:
                self._committer.submit(unit)
            except StoreError as e:
                unit.done(e)

    def commit_now(self, *ops: Op, one_revision: bool = False) -> None:
        """Commits one operation or a transaction and waits: for start-up, tools and tests, not for the loop's thread."""
        _check_keys(ops)
        self._commit_now(list(ops), ONE if one_revision else EACH)

    def apply(self, revision: int, ops: list[Op]) -> None:
        """Takes in, and waits for, what another source of revisions has decided: ``ops``, on different keys, all at ``revision``; without
        any it says that nothing else happened up to it.

        Revisions may leave gaps; one that is not newer than ``self.revision`` raises ``StoreError``, unless it brings nothing. The
        operations' own preconditions count. For the thread that follows the other source.
        """
        if revision <= 0:
            raise ValueError("a revision is greater than 0")
        if ops:
            _check_keys(ops)
        self._seal(ops)
        self.start()
        outcome: list[StoreError | None] = []
        self._committer.commit_together([Unit(ops, outcome.append, revision, direct=True)])
        if outcome[0] is not None:
            raise outcome[0]

    def apply_many(self, revisions: Sequence[tuple[int, list[Op]]]) -> None:
        """``apply`` of several revisions, ascending, as few transactions; a delete of a key that is not there is passed over. Raises what
        the first that failed met; those after it are not applied then."""
        self.start()
        known: dict[str, bool] = {}  # whether a key is there after the revisions before this one, which may not be committed yet
        ended: SimpleQueue[StoreError | None] = SimpleQueue()
        units: list[Unit] = []
        for revision, ops in revisions:
            there = []
            for op in ops:
                if op.draft is not None or (known[op.key] if op.key in known else self._env.has(op.key)):
                    there.append(op)
                known[op.key] = op.draft is not None
            if self._transformers is not None:
                self._seal(there)
            units.append(Unit(there, ended.put, revision, direct=True))
        while units:
            # One transaction after the other: a revision must not be taken in when one before it was not.
            n, size = 1, units[0].size
            while n < len(units) and n < BATCH_OPS and size + units[n].size < BATCH_BYTES:
                size += units[n].size
                n += 1
            self._committer.commit_together(units[:n])
            for error in [ended.get_nowait() for _ in units[:n]]:
                if error is not None:
                    raise error
            units = units[n:]

    def load(self, ops: list[Op], states: list[tuple[int, int, int]]) -> None:
        """Takes in records as they stand elsewhere, before anybody reads: ``states`` has the mod revision, the create revision and the
        version of each; what was loaded before is replaced. ``loaded`` ends it."""
        self._seal(ops)
        try:
            _engine.load_batch(self._env, ops, states, int(self.shared.lease_clock()))
        except Failed:
            if self._no_room():
                raise Full("loading: No space left on device") from None
            raise
        self._counted.clear()  # no history tells of it

    def loaded(self, revision: int) -> None:
        """What was loaded is everything as of ``revision``; nothing before it can be read."""
        self.apply(revision, [])
        while not self.compact(revision):
            pass

    def _commit_now(self, ops: list[Op], at: int) -> None:
        self._seal(ops)
        self.start()
        ready = threading.Event()
        outcome: list[StoreError | None] = []

        def done(error: StoreError | None) -> None:
            outcome.append(error)
            ready.set()

        self._committer.submit(Unit(ops, done, at, direct=True))
        ready.wait()
        if outcome[0] is not None:
            raise outcome[0]

    def _require_loop(self) -> asyncio.AbstractEventLoop:
        if self._closed:
            raise Closed("the store is closed")
        if self._loop is None:
            raise StoreError("start(loop) comes before commit")
        return self._loop

    def _deliver(self, batch: Batch) -> None:
        """In the committer's thread: brings the outcome to the loop, in one call."""
        batch.resolve(direct=True)
        if self._loop is not None:
            if batch.reached > batch.after:
                self.hub.land(batch.events, batch.after, batch.reached)
            try:
                self._loop.call_soon_threadsafe(self._arrived, batch)
            except RuntimeError:  # the loop was closed before the store: nobody waits any more
                return

    def _arrived(self, batch: Batch) -> None:
        # The futures first, so that the writers are answered before a thousand watchers are served; they only wake up after this
        # call, so who has a write acknowledged finds its event dispatched all the same.
        batch.resolve(direct=False)
        if batch.reached > batch.after:
            self.hub.publish(batch.events, batch.after, batch.reached)

    def _woken(self) -> None:
        self.shared.drain()
        self._catch_up()

    def _catch_up(self) -> None:
        self.hub.catch_up()
        for look in self.shared.woken:
            look()

    # -- events and history -------------------------------------------------------------------------------------------

    def events(self, prefix: str, after: int, limit: int = 1000, max_bytes: int = EVENTS_BYTES) -> tuple[list[Event], int]:
        """Events of the log, whole revisions, and the revision they reach up to."""
        try:
            events, reached = _engine.read_events(self._env, prefix, after, limit, max_bytes)
        except LookupError as e:
            _translate(e)
        self.shared.memory.publish(reached)
        return events, reached

    def watch(
        self, prefix: str, after: int, on_ready: Callable[[], None], key: str | None = None, limit: int = 1024,
        trigger: tuple[str, str] | None = None,
    ) -> Watcher:  # fmt: skip
        """See ``Hub.watch``."""
        return self.hub.watch(prefix, after, on_ready, key, limit, trigger)

    def listen(self, prefix: str, callback: Callable[[list[Event]], None], reset: Callable[[], None] | None = None) -> Callable[[], None]:
        """See ``Hub.listen``."""
        return self.hub.listen(prefix, callback, reset)

    def catch_up(self, revision: int = 0) -> None:
        """See ``Hub.catch_up``."""
        self.hub.catch_up(revision)

    def _newest(self) -> int:
        return self.shared.memory.revision

    @property
    def revision(self) -> int:
        """The newest durable revision. One atomic load."""
        return self.shared.memory.revision

    @property
    def compacted_revision(self) -> int:
        """The oldest revision that can be read. One transaction."""
        return self._env.revisions()[1]

    def compact(self, revision: int, max_entries: int = 2000) -> bool:
        """Forgets history up to ``revision`` in one transaction of at most ``max_entries``; True when nothing is left to do.

        Blocks for the transaction: call it in a thread. From the first step on older revisions are refused.
        """
        try:
            return _engine.compact_step(self._env, revision, max_entries)[1]
        except Full:  # it copies pages before it frees them
            self.ballast.give_up()
            return _engine.compact_step(self._env, revision, max_entries)[1]

    def maintain(self, now_s: float, window_s: int = 600, max_history_bytes: int = 1 << 30) -> int:
        """Forgets history that is older than ``window_s`` seconds or takes more than ``max_history_bytes``, and what dead processes hold;
        returns the compacted revision. ``now_s`` is of a clock that is never set. Blocks: call it in a thread, one at a time."""
        self.ballast.keep()
        self._history.window_s, self._history.max_bytes = window_s, max_history_bytes
        return self._history.run(self, now_s)

    def leased(self) -> list[tuple[str, int]]:
        """All keys that end by themselves with the revisions they were written at, the next first. For tools."""
        return _engine.due(self._env, (1 << 64) - 1, 1 << 62)

    def refresh(self) -> None:
        """Publishes the newest durable revision and wakes everyone when nobody did: a writer was killed right after its commit.
        ``expire`` does it too, so the leading worker's loop heals such a gap within a second. Any thread.
        """
        newest = self._env.revisions()[0]
        # A reader may have published it since, which wakes nobody.
        if newest > min(self.shared.revision, self.hub.revision):
            self.shared.publish(newest)
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._catch_up)

    def check_readers(self) -> int:
        """Lets go of pages that readers of dead processes hold; returns how many such readers there were."""
        return self._env.check_readers()

    def expire(self, now_s: int | None = None, limit: int = 500) -> int:
        """Deletes keys whose lease has ended (by ``now_s``, or by now), at most ``limit``, and waits for it: call it in a thread. Returns
        how many were due.

        Each delete is a write of its own, with a precondition: a key that was renewed meanwhile stays. Raises ``Full``.
        """
        self.refresh()
        due = _engine.due(self._env, int(self.shared.lease_clock()) if now_s is None else now_s, limit)
        if not due:
            return 0
        self.start()
        ended: SimpleQueue[StoreError | None] = SimpleQueue()
        for key, revision in due:
            self._committer.submit(Unit([Op(key, None, revision)], ended.put, EACH, direct=True))
        for error in [ended.get() for _ in due]:
            # Renewed meanwhile, also when it cannot be opened to be shown: it is not due any more.
            if error is not None and not isinstance(error, (Conflict, TransformError)):
                raise error
        return len(due)

    def full(self) -> str:
        """See the contract."""
        if self._committer.refused_lately() or self._committer.left_to_deletes():
            return OUT_OF_SPACE
        s = self._env.statistics() if self._env.nearly_full() else None
        if s is None:
            return ""
        kept = s["file_bytes"] - s["free_bytes"] - s["log_bytes"]  # history gives way to what is written
        return OUT_OF_SPACE if kept + _engine.margin(s["limit"]) > s["limit"] else ""

    def lost(self) -> str:
        """See the contract: a file that was deleted or replaced is written to as if nothing were, until it is closed."""
        if _identity(self._file) != self._opened:
            return f"{self._file} is not the file that was opened"
        return self._committer.failed_lately()

    def _no_room(self) -> bool:
        return no_room(self._env, self._file)

    def size(self) -> tuple[str, int]:
        """See the contract."""
        stats = self._env.statistics()
        return "lmdb", stats["file_bytes"] - stats["free_bytes"]

    def statistics(self) -> dict[str, int]:
        """Numbers for metrics and tests: revisions, sizes in bytes, entries, readers, queue and batches."""
        newest, compacted = self._env.revisions()
        committer = self._committer
        return {
            "revision": newest,
            "published_revision": self.shared.revision,
            "compacted_revision": compacted,
            **self._env.statistics(),
            "queued": committer.queued,
            "batches": committer.batches,
            "operations": committer.operations,
            "largest_batch": committer.largest_batch,
            "watchers": self.hub.watchers,
            "watchers_fallen_behind": self.hub.fallen_behind,
            "hub_revision": self.hub.revision,
        }


def _identity(path: str) -> tuple[int, int] | None:
    """What tells a file from another of its name, None where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
