"""After how many seconds a client whose request was rejected may retry (apiserver's ``dropped_requests_tracker.go``)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import monotonic

LONGEST_S = 32


class Dropped:
    """The retry delay of one level in one worker: it grows while many requests are dropped and shrinks when few are.
    Times are whole seconds of a ``clock`` that must not be set back, or the history would never expire."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.clock = clock
        self.retry_after_s = 1
        self._history: deque[tuple[int, int]] = deque()  # (second, count)
        self._second, self._count, self._raised = 0, 0, 0

    def note(self) -> None:
        """Records a dropped request."""
        second = int(self.clock())
        if second == self._second:
            self._count += 1
            return
        if self._count:
            self._history.append((self._second, self._count))
        while self._history and second - self._history[0][0] > LONGEST_S:
            self._history.popleft()
        self._second, self._count = second, 1
        wait = self.retry_after_s
        lately = sum(n for at, n in self._history if second - at <= wait)
        if second - self._raised >= wait and lately >= 3 * wait:
            self.retry_after_s, self._raised = min(2 * wait, LONGEST_S), second
        elif lately < wait and wait > 1:
            self.retry_after_s = wait - 1
