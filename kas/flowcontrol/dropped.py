"""After how many seconds a client that was sent away may come again (apiserver's ``dropped_requests_tracker.go``)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import monotonic

LONGEST_S = 32


class Dropped:
    """Of one level and worker: longer while much is dropped, shorter again when little is. Seconds are whole ones, of a ``clock`` that is
    never set: behind its own history it would keep all that follows."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self.clock = clock
        self.retry_after_s = 1
        self._history: deque[tuple[int, int]] = deque()  # (second, how many)
        self._second, self._count, self._raised = 0, 0, 0

    def note(self) -> None:
        """One more was dropped."""
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
