"""Detects a stuck event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic


class Heartbeat:
    """A timer on the event loop that runs every ``EVERY_S`` seconds once started and calls ``tell`` each time. ``why`` reports the loop as
    stuck when the timer has not run for ``LATE_S``.
    """

    EVERY_S, LATE_S = 1.0, 30.0

    def __init__(self, clock: Callable[[], float] = monotonic, tell: Callable[[], None] = lambda: None) -> None:
        self._clock, self._tell = clock, tell
        self._at: float | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Records the time now and every ``EVERY_S`` seconds from now on."""
        self._at = self._clock()
        self._tell()
        loop.call_later(self.EVERY_S, self.start, loop)

    def why(self) -> str:
        """Why the loop counts as stuck; "" while its timers run."""
        if self._at is None:
            return "not started"
        late = self._clock() - self._at
        return f"no timer has run for {late:.0f} s" if late > self.LATE_S else ""
