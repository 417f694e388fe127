"""Limits the event loop's time for unauthenticated requests while authenticated ones are served.

Refusing a request costs next to nothing. Round robin alone would therefore give a flood of such requests as much of
a worker as it can send, and other clients would wait for it again and again: in the event loop, in the thread that
reads and writes, and for a processor. (Measured with repeated bursts of 6,000 requests with bad tokens: 99 of 100
GETs took 15 to 30 ms instead of 4, and 6 to 9 ms with this limit.)

Requests over connections that recently carried unauthenticated requests are therefore kept in queues of their own,
and while other clients are served they get a small share of the event loop's time. A connection is judged by the
results of its requests: one that has shown no valid credential yet has not been found unauthenticated either, and is
not held up.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

LATELY_S = 1.0
MANY = 64  # unauthenticated requests within LATELY_S, before connections are told apart: that costs every request some microseconds
RESTS = 7  # times what beginning some of them took
CONNECTIONS = 16_384  # at most so many connections are remembered


class UnauthenticatedShare:
    """Queues and paces unauthenticated requests.

    ``count()`` is the total number of unauthenticated requests so far. Connections are numbers; a queued request is
    a tuple that ends with its connection's number.
    """

    def __init__(self, count: Callable[[], int], clock: Callable[[], float]) -> None:
        self.count, self._clock = count, clock
        self._counted, self._since = 0, 0.0  # the count at the beginning of this second
        self._until = 0.0  # until when connections are told apart
        self._lately: OrderedDict[int, float] = OrderedDict()  # by connection: until when its requests count as unauthenticated
        self.waiting: OrderedDict[int, deque[Any]] = OrderedDict()  # their requests by connection; the next one to serve is first
        self._served = -LATELY_S  # when an authenticated request was begun last
        self._rests = 0.0  # until then none of the queued requests is begun

    def many(self, now: float) -> bool:
        """Whether there are so many unauthenticated requests that connections must be told apart."""
        if self.waiting or now < self._until:
            return True
        count = self.count()
        if now - self._since > LATELY_S:
            self._counted, self._since = count, now
        elif count - self._counted > MANY:
            self._until = now + LATELY_S
        return now < self._until

    def began(self, connection: int, before: int) -> None:
        """Records the result of a request over ``connection``. ``before`` is what ``count()`` was before it was
        begun."""
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
        """Whether the requests of a connection count as unauthenticated."""
        return connection in self.waiting or self._lately.get(connection, 0.0) > self._clock()

    def add(self, connection: int, request: Any) -> None:
        """Queues a request over such a connection."""
        waiting = self.waiting.get(connection)
        if waiting is None:
            waiting = self.waiting[connection] = deque()
        waiting.append(request)

    def next(self) -> Any:
        """The next request to begin, one per connection in turn."""
        connection, waiting = self.waiting.popitem(last=False)
        request = waiting.popleft()
        if waiting:
            self.waiting[connection] = waiting
        return request

    def rests(self) -> float:
        """The seconds for which none of the queued requests is to be begun."""
        return max(0.0, self._rests - self._clock())

    def took(self, seconds: float) -> None:
        """Records that beginning some of them took ``seconds``."""
        now = self._clock()
        if now - self._served < LATELY_S:
            self._rests = now + RESTS * seconds
