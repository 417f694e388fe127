"""Measures how long the event loop is blocked, and by which request.

A timer on the loop records how late it runs; this catches every stretch of ``TICK_S`` and more in which the loop ran something else. A
thread samples the loop's stack while the timer is overdue, because afterwards it cannot be told what ran.

Two durations are reported: the whole delay, and the part that the worker itself caused. The latter includes the time in which the loop's
thread computed, and the time in which it waited while other threads of the worker computed, since they hold the GIL then. It excludes the
time in which the thread was runnable but had no processor (Linux's ``schedstat``), whatever other threads did meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from kas.meta.records import NamedTuple
from kas.observe.metrics import Registry

log = logging.getLogger("kas.loop")

TICK_S = 0.05
HELD_S = 1.0  # a stretch of this length is logged, with the request that caused it
BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

# Describes the request that a stack frame belongs to; "" when the frame does not tell.
Whose = Callable[[FrameType], str]


class Used(NamedTuple):
    """Seconds since the thread or process started: processor time of the loop's thread, processor time of the worker's other threads, and
    the time the loop's thread waited for a processor.
    """

    own: float
    others: float
    queued: float

    def held(self, late: float, before: Used) -> float:
        """How much of a delay of ``late`` seconds, ending now, the worker itself caused. ``before`` was taken before the delay began."""
        own, others, queued = (max(0.0, now - then) for now, then in zip(self, before, strict=True))
        return min(late, own + min(others, max(0.0, late - own - queued)))


class LoopTime:
    """``whose`` is called with the frames of what blocks the loop, innermost first. ``ticks`` are called each time the timer runs.
    ``start`` must be called on the loop's thread.
    """

    def __init__(self, metrics: Registry, whose: Whose, ticks: Sequence[Callable[[], None]] = ()) -> None:
        self._delay = metrics.histogram(
            "apiserver_event_loop_delay_seconds", "How late a timer of a worker's event loop ran, whatever made it late.", (), BUCKETS
        )
        self._held = metrics.histogram(
            "apiserver_event_loop_held_seconds",
            "How late a timer of a worker's event loop ran, as far as its thread computed meanwhile or stood while others of it did.",
            (), BUCKETS,
        )  # fmt: skip
        self._whose, self._ticks = whose, ticks
        self._due = 0.0
        self._used = Used(0.0, 0.0, 0.0)
        self._schedstat = -1
        self._seen = ""
        self._thread_id = 0
        self._loop_code: Any = None  # code object of the function that runs the loop

    def start(self) -> None:
        """Starts measuring the running loop."""
        self._thread_id = threading.get_ident()
        with contextlib.suppress(OSError):  # a kernel without schedstat
            self._schedstat = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        loop = asyncio.get_running_loop()
        self._arm(loop, time.monotonic(), self._now())
        threading.Thread(target=self._watch, args=(loop,), name="kas-loop-time", daemon=True).start()

    def _now(self) -> Used:
        queued = 0.0
        if self._schedstat >= 0:
            queued = int(os.pread(self._schedstat, 100, 0).split()[1]) * 1e-9
        own = time.thread_time()
        return Used(own, time.process_time() - own, queued)

    def _arm(self, loop: asyncio.AbstractEventLoop, now: float, used: Used) -> None:
        self._due, self._used = now + TICK_S, used
        loop.call_later(TICK_S, self._tick, loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        now, used = time.monotonic(), self._now()
        late = max(0.0, now - self._due)
        caller = sys._getframe().f_back
        self._loop_code = caller.f_code if caller is not None else None
        self._delay.observe((), late)
        held = used.held(late, self._used)
        self._held.observe((), held)
        if late >= HELD_S:
            # For the rest of the time it waited: for a processor, or in a blocking call.
            by = f", by {self._seen}" if self._seen else ""
            log.warning("the event loop was blocked for %.1f s, of which %.1f s were processor time%s", late, held, by)
        self._seen = ""
        for tick in self._ticks:
            tick()
        self._arm(loop, now, used)

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        warned_due = 0.0
        while not loop.is_closed():
            time.sleep(HELD_S / 4)
            due, late = self._due, time.monotonic() - self._due
            if late < HELD_S / 2:
                continue
            self._seen = self._describe() or self._seen
            if late > 5 * HELD_S and due != warned_due:
                warned_due = due  # in case it never ends
                log.warning("the event loop has been blocked for %.1f s%s", late, f", by {self._seen}" if self._seen else "")

    def _describe(self) -> str:
        """The request and source position that block the loop; "" when no code of ours is running."""
        frame: FrameType | None = sys._current_frames().get(self._thread_id)
        if frame is None or frame.f_code is self._loop_code:
            return ""
        place = f"{frame.f_code.co_filename.rpartition('/kas/')[2]}:{frame.f_lineno}"
        whose = ""
        while frame is not None and not whose:
            whose = self._whose(frame)
            frame = frame.f_back
        return f"{whose} at {place}" if whose else place
