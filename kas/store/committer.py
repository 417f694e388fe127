"""The group commit: one thread per worker that turns queued operations into durable transactions.

It takes everything that has queued (bounded by count and bytes), lets ``apply_batch`` write it without the GIL, publishes the
new revision, and hands the outcome to the event loop with one call. While it waits for the disk, the next batch gathers:
the busier the worker, the larger the groups. Operations of other workers come in between whole batches (LMDB has one writer),
never inside.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue

from kas._fastpath import Env, Event, Op, apply_batch
from kas.store import Busy, Closed, Conflict, Full, StoreError
from kas.store.shared import Shared

# A transaction holds at most 131,072 dirty pages (512 MiB); a batch stays far below, and its latency bounded.
BATCH_OPS = 1024
BATCH_BYTES = 32 << 20
# Above these bounds commit() refuses. In-flight limits keep a worker far away from them.
QUEUE_UNITS = 16384

Outcome = Callable[[StoreError | None], None]


class Unit:
    """What is applied or refused as a whole: one operation, or a group. ``done`` is called once, with the error or None."""

    __slots__ = ("direct", "done", "ops", "size")

    def __init__(self, ops: list[Op], done: Outcome, direct: bool = False) -> None:
        # direct: `done` may be called in the committer's thread, without the loop.
        self.ops, self.done, self.direct = ops, done, direct
        self.size = ops[0].size if len(ops) == 1 else sum(op.size for op in ops)

    def error(self) -> StoreError | None:
        """The precondition that failed, after the unit was applied."""
        for op in self.ops:
            if op.status == 1:
                return Conflict(op.previous, op.key)
        return None


class Committer:
    """Owns the thread and its queue. ``deliver(batch)`` is called in the thread and must see to it that the batch is resolved."""

    def __init__(self, env: Env, shared: Shared, deliver: Callable[[Batch], None], clock: Callable[[], float] = time.time) -> None:
        self._env, self._shared, self._deliver, self._clock = env, shared, deliver, clock
        self._queue: SimpleQueue[Unit | None] = SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="kas-committer", daemon=True)
        self.batches = 0
        self.operations = 0
        self.largest_batch = 0

    def start(self) -> None:
        self._thread.start()

    @property
    def queued(self) -> int:
        return self._queue.qsize()

    def submit(self, unit: Unit) -> None:
        """Queues a unit. Raises ``Closed`` or ``Busy``; otherwise ``unit.done`` will be called."""
        if self._closed:
            raise Closed("the store is closed")
        if self._queue.qsize() >= QUEUE_UNITS:
            raise Busy(f"{QUEUE_UNITS} writes are waiting")
        self._queue.put(unit)

    def close(self) -> None:
        """Commits what is queued, then ends the thread. Idempotent; not to be called from the thread itself."""
        if not self._closed:
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
        last = False
        while not last:
            units, last = self._take()
            if units:
                self.batches += 1
                self.largest_batch = max(self.largest_batch, len(units))
                self._commit(units)
        # A unit that slipped in between the flag and the mark.
        while True:
            try:
                unit = self._queue.get_nowait()
            except Empty:
                return
            if unit is not None:
                self._deliver(Batch([unit], [], Closed("the store is closed")))

    def _commit(self, units: list[Unit]) -> None:
        deletes = [u for u in units if all(op.draft is None for op in u.ops)]
        error = self._apply(units, len(deletes) == len(units))
        if isinstance(error, Full) and deletes and len(deletes) < len(units):
            # Deletes make room: they do not share the fate of the writes they queued with.
            self._deliver(Batch([u for u in units if u not in deletes], [], error))
            units = deletes
            error = self._apply(units, True)
        events = [op.event for u in units for op in u.ops if op.event is not None] if error is None else []
        self.operations += len(events)
        self._deliver(Batch(units, events, error))

    def _apply(self, units: list[Unit], only_deletes: bool) -> StoreError | None:
        try:
            newest = apply_batch(self._env, [u.ops for u in units], int(self._clock()), only_deletes)
        except StoreError as e:
            return e
        self._shared.publish(newest)
        return None


class Batch:
    """The outcome of one transaction, on its way to the event loop."""

    __slots__ = ("error", "events", "units")

    def __init__(self, units: list[Unit], events: list[Event], error: StoreError | None) -> None:
        self.units, self.events, self.error = units, events, error

    def resolve(self, direct: bool) -> None:
        for unit in self.units:
            if unit.direct is direct:
                unit.done(self.error or unit.error())
