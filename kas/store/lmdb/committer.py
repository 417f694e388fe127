"""The group commit: one thread per worker that turns queued operations into durable transactions.

The thread takes all queued units (bounded by count and bytes), writes them with ``apply_batch`` without the GIL, publishes
the new revision, and passes the outcome to the event loop in one call. While it waits for the disk, the next batch gathers:
the busier the worker, the larger the groups. Operations of other workers come between whole batches (LMDB has one writer),
never inside one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue

from kas.observe.process import shorten_time_slice
from kas.store._engine import Env, Event, Op, apply_batch
from kas.store.errors import Busy, Closed, Conflict, Failed, Full, StoreError, Unknown
from kas.store.lmdb import ballast
from kas.store.lmdb.preallocation import Preallocation
from kas.store.shared import Shared

log = logging.getLogger("kas.store")

# A transaction holds at most 131,072 dirty pages (512 MiB); a batch stays far below, and its latency bounded.
BATCH_OPS = 1024
BATCH_BYTES = 32 << 20
# commit() refuses above this bound. In-flight limits keep a worker far below it.
QUEUE_UNITS = 16384
# Seconds for which a write refused for lack of space counts as the state of the store.
REFUSED_S = 30.0

Outcome = Callable[[StoreError | None], None]

# Which revisions a unit gets (a number greater than 0: that revision, assigned externally).
EACH = 0  # consecutive revisions, one for each write
ONE = -1  # one revision for all its writes


class Unit:
    """The unit of a commit: one operation, or a transaction; it is applied or refused as a whole. ``done`` is called once,
    with the error or None."""

    __slots__ = ("at", "deletes", "direct", "done", "ops", "size")

    def __init__(self, ops: list[Op], done: Outcome, at: int = EACH, direct: bool = False) -> None:
        # direct: `done` may be called in the committer's thread, without the loop.
        # deletes: the unit only frees space.
        self.ops, self.done, self.at, self.direct = ops, done, at, direct
        if len(ops) == 1:
            op = ops[0]
            self.size, self.deletes = op.size, op.draft is None
        else:
            self.size, self.deletes = sum(op.size for op in ops), all(op.draft is None for op in ops)

    def error(self) -> StoreError | None:
        """Returns why the unit was not applied, after its batch was; None if it was."""
        for op in self.ops:
            if op.status == 1:
                return op.error if op.error is not None else Conflict(op.previous, op.key)
            if op.status == 3:
                return StoreError(f"revision {self.at} is not newer than what is stored")
        return None


class Committer:
    """Owns the thread and its queue. ``deliver(batch)`` is called in the thread and must ensure that the batch is resolved."""

    def __init__(
        self, env: Env, shared: Shared, deliver: Callable[[Batch], None], note: Callable[[int], None], trim: Callable[[], bool],
        spare: ballast.Ballast, no_room: Callable[[], bool], preallocation: Preallocation | None = None,
    ) -> None:  # fmt: skip
        """``note(revision)`` is called with each durable revision; ``trim()`` frees space by dropping history, and returns
        whether there was any; ``spare`` reserves disk space for deletes; ``no_room()`` returns whether a failed write failed
        for lack of space; ``preallocation`` writes free space behind the data between commits, where commits are synced."""
        self._env, self._shared, self._deliver = env, shared, deliver
        self._note, self._trim, self._spare, self._preallocation = note, trim, spare, preallocation
        self._no_room, self._failed, self._failed_at = no_room, "", 0.0
        self._queue: SimpleQueue[Unit | None] = SimpleQueue()
        self._closed = False
        self._lock = threading.Lock()  # one batch at a time until it is delivered: the hub needs them in order
        self._thread = threading.Thread(target=self._run, name="kas-committer", daemon=True)
        self.batches = 0
        self.operations = 0
        self.largest_batch = 0

    def start(self) -> None:
        """Starts the thread; once."""
        self._thread.start()

    @property
    def queued(self) -> int:
        """The number of waiting units."""
        return self._queue.qsize()

    def submit(self, unit: Unit) -> None:
        """Queues a unit. Raises ``Closed`` or ``Busy``; otherwise ``unit.done`` will be called."""
        if self._closed:
            raise Closed("the store is closed")
        if self._queue.qsize() >= QUEUE_UNITS:
            raise Busy(f"{QUEUE_UNITS} writes are waiting")
        self._queue.put(unit)

    def commit_together(self, units: list[Unit]) -> None:
        """Commits units in one transaction, in order, in the caller's thread: the thread that follows another source has
        nothing else to do meanwhile, and two thread switches cost more than the transaction. Raises ``Closed``."""
        with self._lock:
            if self._closed:
                raise Closed("the store is closed")
            self._commit(units)

    def close(self) -> None:
        """Commits the queued units, then ends the thread. Idempotent; must not be called from the thread itself."""
        if not self._closed:
            with self._lock:
                self._closed = True
            self._queue.put(None)
        if self._thread.is_alive():
            self._thread.join()

    def _take(self) -> tuple[list[Unit], bool]:
        unit = self._queue.get()
        units: list[Unit] = []
        size = 0
        while unit is not None:
            units.append(unit)
            size += unit.size
            if len(units) >= BATCH_OPS or size >= BATCH_BYTES:
                return units, False
            try:
                unit = self._queue.get_nowait()
            except Empty:
                return units, False
        return units, True

    def _run(self) -> None:
        shorten_time_slice()  # the disk wakes the thread several times per commit, while a busy loop competes for the CPU
        last = False
        while not last:
            units, last = self._take()
            if units:
                with self._lock:
                    self._commit(units)
                if self._preallocation is not None:
                    self._preallocation.keep(self._queue.qsize() > 0)
        # A unit that was queued between the flag and the end mark.
        while True:
            try:
                unit = self._queue.get_nowait()
            except Empty:
                return
            if unit is not None:
                self._deliver(Batch([unit], error=Closed("the store is closed")))

    def _commit(self, units: list[Unit]) -> None:
        self.batches += 1
        self.largest_batch = max(self.largest_batch, len(units))
        deletes = [u for u in units if u.deletes]
        batch = self._apply_in_room(units, len(deletes) == len(units))
        if isinstance(batch.error, Full) and deletes and len(deletes) < len(units) and all(u.at <= 0 for u in units):
            # Deletes free space: they must not fail with the writes they queued with. (Externally assigned revisions keep
            # their order.)
            self._deliver(Batch([u for u in units if not u.deletes], error=batch.error))
            batch = self._apply_in_room(deletes, True)
        self.operations += len(batch.events)
        self._deliver(batch)

    def refused_lately(self) -> bool:
        """Returns whether a write of any worker was refused for lack of space within the last ``REFUSED_S`` seconds, and none
        has succeeded since."""
        at = self._shared.refused_at
        return at > 0 and time.monotonic() - at < REFUSED_S

    def failed_lately(self) -> str:
        """Returns the disk's error for a write of this worker within the last ``REFUSED_S`` seconds; "" if a later write
        succeeded."""
        return self._failed if self._failed and time.monotonic() - self._failed_at < REFUSED_S else ""

    def _apply_in_room(self, units: list[Unit], only_deletes: bool) -> Batch:
        """Drops history before it refuses a write, and gives up the ballast before it refuses a delete."""
        batch = self._apply(units, only_deletes)
        try:
            if only_deletes and isinstance(batch.error, Full):
                self._spare.give_up()
                batch = self._apply(units, only_deletes)
            while isinstance(batch.error, Full) and self._trim():
                batch = self._apply(units, only_deletes)
        except Exception as e:  # for example, no space to make space: the disk is full
            batch.error = _store_error(e)
        if isinstance(batch.error, Full):
            self._shared.refused_at = time.monotonic()
        elif not only_deletes and self._shared.refused_at:
            self._shared.refused_at = 0.0
        return batch

    def left_to_deletes(self) -> bool:
        """Returns whether the remaining disk space is reserved for deletes: the ballast is gone, and less than its size is
        free inside the file."""
        return self._spare.given_up and self._env.statistics()["free_bytes"] < ballast.BYTES

    def _apply(self, units: list[Unit], only_deletes: bool) -> Batch:
        given = units[0].at > 0  # externally assigned revisions must be followed
        if not (only_deletes or given) and self.left_to_deletes() and all(u.at <= 0 for u in units):
            return Batch(units, error=Full("writing: No space left on device"))
        try:
            now_s = int(self._shared.lease_clock())
            after, reached = apply_batch(self._env, [u.ops for u in units], [u.at for u in units], now_s, only_deletes)
        except Failed as e:
            if self._no_room():
                return Batch(units, error=Full("writing: No space left on device"))
            if not self._failed:
                log.error("writing to the store's disk failed: %s", e)
            self._failed, self._failed_at = str(e), time.monotonic()
            return Batch(units, error=e)
        except Exception as e:
            return Batch(units, error=_store_error(e))
        self._failed = ""
        self._note(reached)
        self._shared.publish(reached)
        return Batch(units, [op.event for u in units for op in u.ops if op.event is not None], after, reached)


def _store_error(e: Exception) -> StoreError:
    """Converts an exception to the error for the waiting clients: a store's error, or ``Unknown``. Any error, such as lack of
    memory, is caught: if the thread ended, every later write of the worker would wait for ever."""
    if isinstance(e, StoreError):
        return e
    log.exception("a batch of writes failed")
    return Unknown(f"the write may have been made: {type(e).__name__}: {e}")


class Batch:
    """The outcome of one group commit, on its way to the event loop: the events of the revisions greater than ``after``, up
    to ``reached``."""

    __slots__ = ("after", "error", "events", "reached", "units")

    def __init__(
        self, units: list[Unit], events: Sequence[Event] = (), after: int = 0, reached: int = 0, error: StoreError | None = None
    ) -> None:
        self.units, self.events, self.after, self.reached, self.error = units, events, after, reached, error

    def resolve(self, direct: bool) -> None:
        """Answers the units that may be answered in any thread (``direct``), or those that belong to the loop."""
        for unit in self.units:
            if unit.direct is direct:
                unit.done(self.error or unit.error())
