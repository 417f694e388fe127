"""The LMDB backend: reads directly from the map, writes through the committer, delivers events through the hub.

One instance per process and data directory. Reads may come from any thread; ``commit``, ``watch`` and ``listen`` belong to
the event loop given to ``start``. ``kas/store/_engine.pxd`` describes the layout on disk; the parts under
``kas/store/engine/`` give the reasons.
"""

from __future__ import annotations

import asyncio
import itertools
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
# Counting fewer keys takes about as long as checking what was written since they were counted.
MANY_KEYS = 256
# Threads that seal transactions with a slow transformer, and the bound of transactions waiting for them.
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
        _check_files(path, self.shared)
        had = self._committed.check_present()
        self._env = _engine.Env(path, max_size, sync=sync)
        self._file, _ = _files(path)
        self._opened = {file: _identity(file) for file in _files(path)}
        self.shared.files = tuple(itertools.chain(*self._opened.values()))
        self.open_with(transformers)
        newest = self._env.revisions()[0]
        try:
            self._committed.check(had, newest)
            self._committed.open()
            self.ballast = Ballast(path)
            self._preallocation = Preallocation(self._env, self._file) if sync else None
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
            self._env, self.shared, self._deliver, note, lambda: trim(self), self.ballast, self._no_room, self._preallocation
        )
        self._history = HistoryPolicy()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pending: list[Unit] = []
        self._being_sealed = 0  # transactions in the sealing threads, which start on first use
        self._sealers = Threads(SEALERS, "kas-sealing")
        self._started = False
        self._closed = False

    def open_with(self, transformers: Transformers | None) -> None:
        """Sets the transformers for all later seals and opens."""
        self._env.transformer_for = self._transformers = transformers

    def start(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Starts the committer, and on the loop watches and the reader of wake-ups. Without a loop only ``commit_now`` writes."""
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
        """Commits the queued writes, resolves their futures, closes the file. Later calls raise ``Closed`` or ``StoreError``.
        Idempotent."""
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
        if self._preallocation is not None:
            self._preallocation.close()

    # -- reads --------------------------------------------------------------------------------------------------------

    def get(self, key: str, revision: int = 0) -> Record | None:
        """Returns the record of a key, or None: one transaction, two lookups. For an older revision the log is read back from
        the present."""
        if revision:
            try:
                return _engine.record_at(self._env, key, revision)
            except LookupError as e:
                _translate(e)
        record = self._env.get(key)
        if record is not None:
            # Another worker's write can be read a moment before its revision is published (or longer, if that worker died in
            # between). A state shown to a client must not be newer than `revision`.
            self.shared.memory.publish(record.revision)
            return record
        self._absent(key)
        return None

    def _absent(self, key: str) -> None:
        """Called for a missing key; a subclass raises if the key exists elsewhere but could not be stored here."""

    def range(
        self, prefix: str, start: str = "", limit: int = 0, revision: int = 0, matcher: Matcher | None = None, count: bool = False,
        *, max_bytes: int = 0,
    ) -> RangeResult:
        """Returns a page of records."""
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
        """Returns a page as the bytes of JSON items; releases the GIL for a large one."""
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
        """Returns a page as field 2 of a protobuf list."""
        return self._scan(prefix, start, limit, revision, matcher, count, _PROTOBUF, b"", wrap, max_bytes)

    def count(self, prefix: str, most: int = 0) -> int:
        """Returns the number of keys under a prefix. It is computed from an earlier count and the writes since, if these are
        few. With ``most``, at most that number is returned and no more keys are visited."""
        result = self._scan(prefix, "", most, 0, None, False, _COUNT, b"", None, 0)
        if not most and result.count >= MANY_KEYS:
            self._counted.put((prefix, ""), (result.revision, result.count), len(prefix))
        return result.count

    def stale(self, record: Record) -> bool:
        """Returns whether a write would store the record in another form."""
        if record.sealed or self._transformers is None:
            return record.stale
        transformer = self._transformers(record.key)
        return transformer is not None and not transformer.plain

    def bare(self, key: str, revision: int) -> bytes | None:
        """Returns None: objects are read as they were written."""
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
        """Caches the number of keys from this page on and from the next page on, for the same list and for its continuation."""
        if known is None or known[0] < result.revision:
            self._counted.put((prefix, start), (result.revision, result.count + result.remaining), len(prefix) + len(start))
        self._counted.put((prefix, result.next_key), (result.revision, result.remaining), len(prefix) + len(result.next_key))

    # -- writes -------------------------------------------------------------------------------------------------------

    def commit(self, op: Op) -> asyncio.Future[Op]:
        """Queues one write; see the contract."""
        return self._gather([op], op, EACH)

    def commit_many(self, ops: list[Op], one_revision: bool = False) -> asyncio.Future[list[Op]]:
        """Queues a transaction: it is applied if all preconditions hold, otherwise not at all. Keys must differ. With
        ``one_revision`` all writes get the same revision, otherwise consecutive ones."""
        _check_keys(ops)
        return self._gather(list(ops), ops, ONE if one_revision else EACH)

    def _gather(self, ops: list[Op], outcome: T, at: int) -> asyncio.Future[T]:
        """Collects the writes of one loop iteration, which go to the committer at its end: one batch and one thread switch
        instead of many."""
        loop = self._loop
        if loop is None or self._closed:
            loop = self._require_loop()  # raises with the reason
        if len(self._pending) + self._committer.queued >= QUEUE_UNITS:
            raise Busy(f"{QUEUE_UNITS} writes are waiting")
        if self._transformers is not None:
            if any(self._waits(op) for op in ops):
                return loop.create_task(self._gather_sealed(ops, outcome, at))
            self._seal(ops)
        return self._gather_now(loop, ops, outcome, at)

    def _waits(self, op: Op) -> bool:
        """Returns whether sealing the operation calls a slow external service."""
        found = self._transformers(op.key) if op.draft is not None and self._transformers is not None else None
        return found is not None and found.waits and not found.plain

    async def _gather_sealed(self, ops: list[Op], outcome: T, at: int) -> T:
        """``_gather`` for writes that take long to seal: they are sealed in a thread before they are queued."""
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
                return  # cancelled; the write is made all the same
            if error is None:
                future.set_result(outcome)
            else:
                future.set_exception(error)

        if not self._pending:
            loop.call_soon(self._flush)
        self._pending.append(Unit(ops, done, at))
        return future

    def _seal(self, ops: list[Op]) -> None:
        """Seals the drafts that need it before they reach the committer, which must not wait for this."""
        if self._transformers is not None:
            for op in ops:
                op.seal(self._transformers(op.key))

    def _flush(self) -> None:
        """Hands the collected writes to the committer, in order."""
        units, self._pending = self._pending, []
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
        """Applies a decision of another source of revisions, and waits: ``ops``, on different keys, all at ``revision``.
        Without operations it records that nothing else happened up to that revision.

        Revisions may leave gaps; one that is not newer than ``self.revision`` raises ``StoreError``, unless it has no
        operations. The operations' own preconditions apply. For the thread that follows the other source.
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
        """``apply`` for several ascending revisions, in as few transactions as possible; deletes of absent keys are skipped.
        Raises the first error; later revisions are not applied then."""
        self.start()
        known: dict[str, bool] = {}  # whether a key exists after the previous revisions, which may not be committed yet
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
            # One transaction after the other: a revision must not be applied if an earlier one was not.
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
        """Loads records with their states from elsewhere, before there are readers: ``states`` has the mod revision, the
        create revision and the version of each; records loaded earlier are replaced. ``loaded`` completes the load."""
        self._seal(ops)
        try:
            _engine.load_batch(self._env, ops, states, int(self.shared.lease_clock()))
        except Failed:
            if self._no_room():
                raise Full("loading: No space left on device") from None
            raise
        self._counted.clear()  # the history does not contain these records

    def loaded(self, revision: int) -> None:
        """Completes a load: the loaded records are the whole state as of ``revision``; nothing before it can be read."""
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
        """Called in the committer's thread: passes the outcome to the loop in one call."""
        batch.resolve(direct=True)
        if self._loop is not None:
            if batch.reached > batch.after:
                self.hub.land(batch.events, batch.after, batch.reached)
            try:
                self._loop.call_soon_threadsafe(self._arrived, batch)
            except RuntimeError:  # the loop was closed before the store: nothing waits any more
                return

    def _arrived(self, batch: Batch) -> None:
        # The futures come first, so that writers are answered before a thousand watchers are served. They only resume after
        # this call, so a writer whose write is acknowledged finds its event dispatched all the same.
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
        """Returns events of the log, in whole revisions, and the revision up to which they are complete."""
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
        """The newest durable revision. Costs one atomic load."""
        return self.shared.memory.revision

    @property
    def compacted_revision(self) -> int:
        """The oldest revision that can be read. Costs one transaction."""
        return self._env.revisions()[1]

    def compact(self, revision: int, max_entries: int = 2000) -> bool:
        """Removes history up to ``revision`` in one transaction of at most ``max_entries``; returns True when nothing is left
        to do.

        Blocks for the transaction: call it in a thread. From the first step on older revisions are refused.
        """
        try:
            return _engine.compact_step(self._env, revision, max_entries)[1]
        except Full:  # LMDB copies pages before it frees them
            self.ballast.give_up()
            return _engine.compact_step(self._env, revision, max_entries)[1]

    def maintain(self, now_s: float, window_s: int = 600, max_history_bytes: int = 1 << 30) -> int:
        """Removes history that is older than ``window_s`` seconds or larger than ``max_history_bytes``, releases pages held by
        readers of dead processes, and maintains the ballast; returns the compacted revision. ``now_s`` is the time of a monotonic
        clock. Blocks: call it in a thread, one call at a time."""
        self.ballast.keep()
        self._history.window_s, self._history.max_bytes = window_s, max_history_bytes
        return self._history.run(self, now_s)

    def leased(self) -> list[tuple[str, int]]:
        """Returns all keys with a lease and the revisions they were written at, the next to expire first. For tools."""
        return _engine.due(self._env, (1 << 64) - 1, 1 << 62)

    def refresh(self) -> None:
        """Publishes the newest durable revision and wakes all workers if a writer was killed right after its commit and
        before it did so. ``expire`` does it too, so the leading worker's loop closes such a gap within a second. Any
        thread."""
        newest = self._env.revisions()[0]
        # A reader may have published it since, without waking anyone.
        if newest > min(self.shared.revision, self.hub.revision):
            self.shared.publish(newest)
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._catch_up)

    def check_readers(self) -> int:
        """Releases pages held by readers of dead processes; returns how many such readers there were."""
        return self._env.check_readers()

    def expire(self, now_s: int | None = None, limit: int = 500) -> int:
        """Deletes at most ``limit`` keys whose lease has ended (by ``now_s``, or the current time) and waits for it: call it
        in a thread. Returns how many were due.

        Each delete is a separate write with a precondition: a key that was renewed meanwhile stays. Raises ``Full``.
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
            # Renewed meanwhile, or renewed with a value that cannot be decrypted for the Conflict: no longer due.
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
        kept = s["file_bytes"] - s["free_bytes"] - s["log_bytes"]  # history can be dropped for new writes
        return OUT_OF_SPACE if kept + _engine.margin(s["limit"]) > s["limit"] else ""

    def lost(self) -> str:
        """See the contract: writes to a deleted or replaced file succeed until it is closed. With another lock file the next
        process that opens the store would write at the same time as this one."""
        return self.replaced() or self._committer.failed_lately()

    def replaced(self) -> str:
        """Returns which of the files was deleted or replaced; otherwise ""."""
        return next((f"{file} is not the file that was opened" for file, had in self._opened.items() if _identity(file) != had), "")

    def _no_room(self) -> bool:
        return no_room(self._env, self._file)

    def size(self) -> tuple[str, int]:
        """See the contract."""
        stats = self._env.statistics()
        return "lmdb", stats["file_bytes"] - stats["free_bytes"]

    def statistics(self) -> dict[str, int]:
        """Returns numbers for metrics and tests: revisions, sizes in bytes, entries, readers, queue and batches."""
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


def _files(path: str) -> tuple[str, str]:
    """Returns the data file and the lock file of the store in a directory."""
    return os.path.join(path, "data.mdb"), os.path.join(path, "lock.mdb")


def _identity(path: str) -> tuple[int, int]:
    """Returns what distinguishes a file from others of its name; zeros if there is no file."""
    try:
        found = os.stat(path)
    except OSError:
        return 0, 0
    return found.st_dev, found.st_ino


def _check_files(path: str, shared: Shared) -> None:
    """Raises Corrupt if the files in a directory are not those that other workers have open. With a lock file of its own, this process
    would write at the same time as another, or over what others read."""
    if all(shared.files) and shared.files != tuple(itertools.chain(*map(_identity, _files(path)))):
        raise Corrupt(f"a file of the store in {path} was removed or replaced while the server used it")
