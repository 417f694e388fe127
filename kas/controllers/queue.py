"""A work queue without duplicates that retries failed items with exponential back-off (client-go's ``workqueue``)."""

from __future__ import annotations

import asyncio
import bisect
import itertools
import logging
import operator
import weakref
from array import array
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from time import monotonic
from typing import Any

from kas.informers.reflector import Reflectors
from kas.meta.errors import ApiError
from kas.meta.waiting import TimeSlice
from kas.observe.metrics import Registry, row_of
from kas.observe.nativebuckets import bounds_of
from kas.store import StoreError

log = logging.getLogger("kas.controllers")

# Upstream multiplies step by step; the exact floating-point results are label values.
BUCKETS_S = tuple(itertools.accumulate([10.0] * 9, operator.mul, initial=1e-8))
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 60.0


_queues: weakref.WeakSet[WorkQueue] = weakref.WeakSet()


def collector(metrics: Registry) -> Callable[[], None]:
    """Return a function that copies the numbers of this process's queues (client-go's ``workqueue`` metrics) to ``metrics``, by queue
    name."""
    depth = metrics.gauge("workqueue_depth", "Current depth of workqueue", ("name",))
    adds = metrics.counter("workqueue_adds_total", "Total number of adds handled by workqueue", ("name",))
    retries = metrics.counter("workqueue_retries_total", "Total number of retries handled by workqueue", ("name",))

    waited = metrics.histogram(
        "workqueue_queue_duration_seconds", "How long in seconds an item stays in workqueue before being requested.", ("name",), BUCKETS_S
    )
    worked = metrics.histogram(
        "workqueue_work_duration_seconds", "How long in seconds processing an item from workqueue takes.", ("name",), BUCKETS_S
    )
    unfinished = metrics.gauge(
        "workqueue_unfinished_work_seconds",
        "How many seconds of work has done that is in progress and hasn't been observed by work_duration. Large values indicate stuck "
        "threads. One can deduce the number of stuck threads by observing the rate at which this increases.", ("name",),
    )  # fmt: skip
    longest = metrics.gauge(
        "workqueue_longest_running_processor_seconds", "How many seconds has the longest running processor for workqueue been running.",
        ("name",),
    )  # fmt: skip

    def collect() -> None:
        now = monotonic()
        for queue in list(_queues):
            name = (queue.name,)
            depth.set(name, len(queue))
            adds.values[name] = queue.adds
            retries.values[name] = queue.retries
            for family, times in ((waited, queue.waited), (worked, queue.worked)):
                row = family.values.setdefault(name, row_of(len(family.buckets)))
                row[:] = times
            running = [now - began for began in list(queue.running.values())]
            unfinished.set(name, sum(running))
            longest.set(name, max(running, default=0.0))

    return collect


async def follow(
    queue: WorkQueue, reflectors: Sequence[Reflectors], workers: int = 1, fill: Callable[[], Awaitable[None]] | None = None
) -> None:
    """Run the queue, fed by the ``reflectors``, until cancelled; the reflectors stop with it.

    Before any item is worked on, ``fill`` and the ``fill`` of the reflectors read initial state over several loop iterations; events are
    delivered meanwhile.
    """
    try:
        for reflector in reflectors:
            reflector.start()
        for each in (fill, *(reflector.fill for reflector in reflectors)):
            if each is not None:
                await each()
        await queue.run(workers)
    finally:
        for reflector in reflectors:
            reflector.stop()


class WorkQueue:
    """Items are keys: the work is determined when an item's turn comes, so that many events result in one piece of work.

    Bounded by the number of different keys. An item added while it is being worked on is queued again afterwards.
    """

    def __init__(self, work: Callable[[Any], Awaitable[float | None]], name: str) -> None:
        """``work(item)`` may return after how many seconds the item is to be queued again."""
        self._work, self.name = work, name
        self.adds = self.retries = 0
        # Histogram rows: queue duration and work duration of items.
        self._bounds = bounds_of(BUCKETS_S)
        self.waited, self.worked = row_of(len(self._bounds)), row_of(len(self._bounds))
        self.running: dict[Hashable, float] = {}  # start times
        _queues.add(self)
        self._order: deque[Hashable] = deque()
        self._waiting: dict[Hashable, float] = {}  # times of adding
        self._failures: dict[Hashable, int] = {}
        # With their times: uvloop returns a plain Handle, which has no ``when``, for a timer that is due at once.
        self._timers: dict[Hashable, tuple[asyncio.TimerHandle, float]] = {}
        self._ready = asyncio.Event()
        self._time_slice = TimeSlice()  # shared by all workers

    def _count(self, row: array[float], seconds: float) -> None:
        row[bisect.bisect_left(self._bounds, seconds)] += 1
        row[-1] += seconds

    def __len__(self) -> int:
        return len(self._waiting) + len(self.running)

    def add(self, item: Hashable) -> None:
        """Queue the item now, even if it was scheduled for later. An item in the queue is not added twice; one being worked on is queued
        again afterwards."""
        timer = self._timers.pop(item, None)
        if timer is not None:
            timer[0].cancel()
        if item in self._waiting:
            return
        self.adds += 1
        self._waiting[item] = monotonic()
        if item not in self.running:
            self._order.append(item)
            self._ready.set()

    def add_after(self, item: Hashable, seconds: float) -> None:
        """Queue the item in ``seconds`` at the latest; an earlier schedule is kept."""
        loop = asyncio.get_running_loop()
        timer, when = self._timers.get(item), loop.time() + seconds
        if item in self._waiting or (timer is not None and timer[1] <= when):
            return
        if timer is not None:
            timer[0].cancel()
        self._timers[item] = loop.call_later(seconds, self.add, item), when

    def clear(self) -> None:
        """Remove all waiting and scheduled items."""
        for timer, _ in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._waiting.clear()
        self._order.clear()
        self._failures.clear()

    async def run(self, workers: int = 1) -> None:
        """Work until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(workers):
                    group.create_task(self._loop())
        finally:
            self.clear()
            self.running.clear()

    async def _loop(self) -> None:
        while True:
            if not self._order:
                self._ready.clear()
                await self._ready.wait()
                continue
            item = self._order.popleft()
            began = self.running[item] = monotonic()
            self._count(self.waited, began - self._waiting.pop(item, began))
            try:
                again = await self._work(item)
                self._failures.pop(item, None)
                if again is not None:
                    self.add_after(item, again)
            except (ApiError, StoreError, RecursionError) as e:  # the last one where an object is nested too deeply
                n = self._failures[item] = self._failures.get(item, 0) + 1
                if n > 3:
                    log.warning("%s: %s: %s", self.name, item, e)
                self.retries += 1
                self.add_after(item, min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2**n))
            finally:
                self.running.pop(item, None)
                self._count(self.worked, monotonic() - began)
                if item in self._waiting:
                    self._order.append(item)
                    self._ready.set()
            if self._time_slice.over:  # much of the work never waits, and there may be 50,000 items at once
                await self._time_slice.pause()
