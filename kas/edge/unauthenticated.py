"""How much of the loop is for requests of nobody known while others are served.

To refuse one takes next to nothing, so by turns alone a flood of them gets as much of a worker as it can send, and whoever is served
meanwhile waits for it again and again: in the loop, in the thread that reads and writes, and for a processor. (Measured with 6,000 requests
with bad tokens at once, again and again: 99 of 100 GETs within 15 to 30 ms instead of 4, and within 6 to 9 with this.) So what comes over
connections of whom nobody was known lately is kept apart, and while others are served it has a small part of the loop's time. That goes by
what became of their requests: who has shown no good credential yet was not found to be nobody either, and waits for none of them.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

LATELY_S = 1.0
MANY = 64  # such requests within that, before it is asked whose they are: to ask costs every request some microseconds
RESTS = 7  # times what they took
CONNECTIONS = 16_384  # of which it is known


class UnauthenticatedShare:
    """``count()`` is how many requests were nobody's so far. Connections are numbers; what comes over one is a tuple that ends with it."""

    def __init__(self, count: Callable[[], int], clock: Callable[[], float]) -> None:
        self.count, self._clock = count, clock
        self._counted, self._since = 0, 0.0  # how many there were at the beginning of this second
        self._until = 0.0  # how long it is asked whose they are
        self._lately: OrderedDict[int, float] = OrderedDict()  # by connection, until when its requests count as nobody's
        self.waiting: OrderedDict[int, deque[Any]] = OrderedDict()  # what came over these, who is next first
        self._served = -LATELY_S  # when somebody was who is known
        self._rests = 0.0  # until then nothing of theirs is begun

    def many(self, now: float) -> bool:
        """Whether there are so many that it has to be known whose they are."""
        if self.waiting or now < self._until:
            return True
        count = self.count()
        if now - self._since > LATELY_S:
            self._counted, self._since = count, now
        elif count - self._counted > MANY:
            self._until = now + LATELY_S
        return now < self._until

    def began(self, connection: int, before: int) -> None:
        """Something was that came over it, with so many in ``count`` before."""
        now = self._clock()
        if self.count() == before:
            self._served = now
            return
        lately = self._lately
        lately[connection] = self._until = now + LATELY_S
        lately.move_to_end(connection)
        while len(lately) > CONNECTIONS or next(iter(lately.values())) <= now:
            lately.popitem(last=False)

    def knows(self, connection: int) -> bool:
        """Whether nobody was known over it lately."""
        return connection in self.waiting or self._lately.get(connection, 0.0) > self._clock()

    def add(self, connection: int, request: Any) -> None:
        """What came over one of these."""
        waiting = self.waiting.get(connection)
        if waiting is None:
            waiting = self.waiting[connection] = deque()
        waiting.append(request)

    def next(self) -> Any:
        """What is to be begun, of each in turn."""
        connection, waiting = self.waiting.popitem(last=False)
        request = waiting.popleft()
        if waiting:
            self.waiting[connection] = waiting
        return request

    def rests(self) -> float:
        """For how many seconds nothing of theirs is to be begun."""
        return max(0.0, self._rests - self._clock())

    def took(self, seconds: float) -> None:
        """So long was some of it begun."""
        now = self._clock()
        if now - self._served < LATELY_S:
            self._rests = now + RESTS * seconds
