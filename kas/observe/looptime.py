"""How long the event loop keeps others waiting, and who makes it.

A timer of the loop notes how late it runs: every stretch of ``TICK_S`` and more in which the loop did nothing else is seen. A thread
looks at the loop's own stack once the timer is overdue, because afterwards nobody knows what ran.

How late is one thing, whose doing another: what the loop's thread computed is the worker's, and so is the time in which it stood while
others of the worker's threads computed, since they have the interpreter's lock then. The time in which the system let it wait for a
processor (Linux's ``schedstat``) is not, whatever other threads did meanwhile.
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
HELD_S = 1.0  # a stretch as long is logged, with whose it was
BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

# What a frame of the stack says about whose work it does; "" when it says nothing.
Whose = Callable[[FrameType], str]


class Used(NamedTuple):
    """Seconds since the start, as of now: what the loop's thread computed, what others of the worker did, and what it waited for a
    processor."""

    own: float
    others: float
    queued: float

    def held(self, late: float, before: Used) -> float:
        """How much of ``late`` seconds, which end now, is the worker's doing. ``before`` is from before they began."""
        own, others, queued = (max(0.0, now - then) for now, then in zip(self, before, strict=True))
        return min(late, own + min(others, max(0.0, late - own - queued)))


class LoopTime:
    """``start`` is called in the loop's thread. ``whose`` is asked about the frames of what holds the loop, innermost first; ``ticks`` are
    called at each turn of the timer."""

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
        self._loop_code: Any = None  # of the function that runs the loop

    def start(self) -> None:
        """Begin, in the running loop."""
        self._thread_id = threading.get_ident()
        with contextlib.suppress(OSError):  # a kernel that does not tell
            self._schedstat = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        loop = asyncio.get_running_loop()
        self._arm(loop, time.monotonic(), self._now())
        threading.Thread(target=self._look_on, args=(loop,), name="kas-loop-time", daemon=True).start()

    def _now(self) -> Used:
        queued = 0.0
        if self._schedstat >= 0:
            queued = int(os.pread(self._schedstat, 100, 0).split()[1]) * 1e-9
        own = time.thread_time()
        return Used(own, time.process_time() - own, queued)

    def _arm(self, loop: asyncio.AbstractEventLoop, now: float, used: Used) -> None:
        self._due, self._used = now + TICK_S, used
        loop.call_later(TICK_S, self._turn, loop)

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        now, used = time.monotonic(), self._now()
        late = max(0.0, now - self._due)
        caller = sys._getframe().f_back
        self._loop_code = caller.f_code if caller is not None else None
        self._delay.observe((), late)
        held = used.held(late, self._used)
        self._held.observe((), held)
        if late >= HELD_S:
            # The rest it waited: for the processor, where others have it, or for what blocks.
            log.warning("the loop was held for %.1f s, %.1f of them at work%s", late, held, f" by {self._seen}" if self._seen else "")
        self._seen = ""
        for tick in self._ticks:
            tick()
        self._arm(loop, now, used)

    def _look_on(self, loop: asyncio.AbstractEventLoop) -> None:
        said = 0.0
        while not loop.is_closed():
            time.sleep(HELD_S / 4)
            due, late = self._due, time.monotonic() - self._due
            if late < HELD_S / 2:
                continue
            self._seen = self._describe() or self._seen
            if late > 5 * HELD_S and due != said:
                said = due  # should it never end
                log.warning("the loop has been held for %.1f s%s", late, f" by {self._seen}" if self._seen else "")

    def _describe(self) -> str:
        """The request and the place in the source that hold the loop; "" while nothing of ours runs."""
        frame: FrameType | None = sys._current_frames().get(self._thread_id)
        if frame is None or frame.f_code is self._loop_code:
            return ""
        place = f"{frame.f_code.co_filename.rpartition('/kas/')[2]}:{frame.f_lineno}"
        whose = ""
        while frame is not None and not whose:
            whose = self._whose(frame)
            frame = frame.f_back
        return f"{whose} at {place}" if whose else place
