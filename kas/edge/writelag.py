"""How far granian's thread, which reads and writes for all connections, is behind with the responses it was given.

Giving granian a response takes no time; granian writes it in a thread of its own. That thread takes what the event
loop gives it in order, but only one item for every thirty-one connections that have received something. While many
connections have, thousands of responses to a flood are ahead of the next response, in a queue that cannot be
inspected. Measured with 6,000 HTTP/2 requests at once: 350 of the 400 ms that another client's response took.

What can be found out is whether everything given so far has been taken: ``receive`` is called on an exchange that is
over, and granian's thread resolves it when it gets there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

BATCH = 16  # responses, after which the thread is probed; as many more are given until the probe is answered
MOST = 16 * BATCH  # the largest batch, reached while probes are answered at once: a probe costs as much as two responses
AT_ONCE_S, LATE_S = 0.001, 0.003  # A probe answered within AT_ONCE_S doubles the batch; one that takes longer than LATE_S halves it.
LONGEST_S = 0.25  # after which a probe counts as answered, whatever became of the exchange


class Exchange(Protocol):
    """One of granian's exchanges."""

    def receive(self) -> Awaitable[dict[str, Any]]:
        """ASGI's ``receive``."""


class WriteLag:
    """Probes granian's thread and tells whether to hold back responses.

    ``given`` is the number of responses given since the last probe, ``over`` an exchange that is over; every caller
    that gives a response updates both. ``resume()`` is called when a probe has been answered.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, resume: Callable[[], object], clock: Callable[[], float]) -> None:
        self._loop, self._resume, self._clock = loop, resume, clock
        self._batch, self._began = BATCH, 0.0
        self.over: Exchange | None = None
        self._probe: asyncio.Future[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.given = 0

    def far(self, more: int = 0) -> bool:
        """Whether nothing else should be given to the thread for now, apart from ``more`` responses beyond the usual
        batch."""
        if self.given < self._batch + more or self.over is None:
            return False
        if self._probe is None:
            self.given, self._began = 0, self._clock()
            self._probe = asyncio.ensure_future(self.over.receive(), loop=self._loop)
            self._probe.add_done_callback(self._probe_answered)
            self._timer = self._loop.call_later(LONGEST_S, self._caught_up)
            return False
        return True

    def _probe_answered(self, probe: asyncio.Future[Any]) -> None:
        if probe is self._probe:
            self._caught_up()
        if not probe.cancelled():
            probe.exception()  # a client that is gone answers the probe as well

    def _caught_up(self) -> None:
        assert self._timer is not None
        self._timer.cancel()
        self._probe = self._timer = None
        took = self._clock() - self._began
        if took < AT_ONCE_S:
            self._batch = min(2 * self._batch, MOST)
        elif took > LATE_S:
            self._batch = max(self._batch // 2, BATCH)
        self._resume()
