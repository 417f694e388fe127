"""How far the thread that reads and writes for everybody is behind with what it was given.

An answer is given to granian in no time, and written by a thread of its own, which takes what came from here in the order in which it came,
but one of it for thirty-one connections that have sent something. So while many have, thousands of answers to a flood lay before
whatever was answered next, in a queue that nobody could look into: measured with 6,000 requests of HTTP/2 at once, 350 ms of the 400 that
somebody else's answer took. What can be asked is whether all that was given until now has been taken: an exchange that is over is asked for
what its client says next, which that thread answers when it comes by.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

BATCH = 16  # answers, after which it is asked; as many more are given until the answer is there
MOST = 16 * BATCH  # where it answers at once, since to ask costs as much as two answers
AT_ONCE_S, LATE_S = 0.001, 0.003  # until then it does, and from then on it does not: twice as many the next time, and half
LONGEST_S = 0.25  # after which it is taken to have come by, whatever became of the exchange


class Exchange(Protocol):
    """One of granian's."""

    def receive(self) -> Awaitable[dict[str, Any]]:
        """ASGI's."""


class WriteLag:
    """``given`` is how much was since it was asked last, ``over`` an exchange that is over; whoever gives something says so. ``resume()``
    is called when it has come by."""

    def __init__(self, loop: asyncio.AbstractEventLoop, resume: Callable[[], object], clock: Callable[[], float]) -> None:
        self._loop, self._resume, self._clock = loop, resume, clock
        self._batch, self._began = BATCH, 0.0
        self.over: Exchange | None = None
        self._asked: asyncio.Future[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.given = 0

    def far(self, more: int = 0) -> bool:
        """Whether nothing else should be given to it for now, but for so many beyond what is usual."""
        if self.given < self._batch + more or self.over is None:
            return False
        if self._asked is None:
            self.given, self._began = 0, self._clock()
            self._asked = asyncio.ensure_future(self.over.receive(), loop=self._loop)
            self._asked.add_done_callback(self._came_by)
            self._timer = self._loop.call_later(LONGEST_S, self._come_by)
            return False
        return True

    def _came_by(self, asked: asyncio.Future[Any]) -> None:
        if asked is self._asked:
            self._come_by()
        if not asked.cancelled():
            asked.exception()  # a client that is gone has nothing to say, which is an answer as well

    def _come_by(self) -> None:
        assert self._timer is not None
        self._timer.cancel()
        self._asked = self._timer = None
        took = self._clock() - self._began
        if took < AT_ONCE_S:
            self._batch = min(2 * self._batch, MOST)
        elif took > LATE_S:
            self._batch = max(self._batch // 2, BATCH)
        self._resume()
