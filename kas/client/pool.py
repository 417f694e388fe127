"""Connections that stay open between requests to the same backend, like those of Go's ``http.Transport``.

HTTP/1.1 only: upstream calls webhooks that way too, because the streams of one HTTP/2 connection all reach the same
one of several backends (kubernetes#75791). Redirects are not followed. A request that was sent and not answered is
not repeated: only the caller knows whether it may be.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic

from kas.client._exchange import Kept
from kas.client.exchange import Exchange, exchange
from kas.client.http import CONNECTION_BYTES, Target
from kas.meta.records import NamedTuple
from kas.meta.waiting import LoopThrottle

MAX_IDLE = 25
IDLE_S = 90.0
LARGE = 64 << 10  # bytes of a question that are put together and sealed in a loop iteration of their own

# Where large questions pass, whoever asks them: 4 MiB of audit events take some 10 ms each, and 256 MiB may wait.
sending = LoopThrottle()

# Returns the address to connect to, called for each new connection. Raises BackendError.
Dial = Callable[[], Awaitable[tuple[str, int]]]


class Answer(NamedTuple):
    """The backend's response. ``body`` has at most one byte more than was asked for."""

    status: int
    content_type: str
    retry_after: str
    body: bytes
    encoding: str = ""


def said(connection: Exchange, body: bytes) -> Answer:
    """The last response on a connection; ``body`` is its body."""
    head = connection.head
    return Answer(head.status, head.text(b"content-type"), head.text(b"retry-after"), body, head.text(b"content-encoding").lower())


class Pool(Kept):
    """The connections to one backend, with one set of credentials. To be used in the event loop's thread only."""

    def __init__(self, dial: Dial | None = None, clock: Callable[[], float] = monotonic) -> None:
        super().__init__(MAX_IDLE, clock)
        self._clock = clock
        self._dial = dial

    async def post(self, target: Target, head: bytes, body: bytes, limit: int) -> Answer:
        """Sends a request whose head was made by ``request_head``; returns the response, with its body cut after
        ``limit + 1`` bytes. Raises BackendError. Cancelling it closes the connection; callers limit its time that
        way."""
        generation, large = self.generation, len(body) >= LARGE
        if large and (throttle := sending.throttle).exhausted:
            await throttle.wait()  # before a connection is taken, which may end meanwhile
        connection = self.take()
        made = connection is None
        if connection is None:
            connection = await exchange(target, address=await self._dial() if self._dial is not None else None)
        try:
            if made and large and (throttle := sending.throttle).exhausted:  # by now another turn
                await throttle.wait()
            found: bytes = await connection.post(head, body, limit + 1)
        except BaseException:
            connection.close()
            raise
        if len(found) <= limit and connection.persistent:
            self.keep(connection, generation)
        else:
            connection.close()
        return said(connection, found)

    def bytes_kept(self) -> int:
        """The memory that the idle connections take at most."""
        return len(self._idle) * CONNECTION_BYTES

    def renew(self) -> None:
        """Stops using the existing connections, which were made with other certificates than now."""
        self.outdate()
        self._expire(float("inf"))

    def close(self) -> None:
        """Closes the idle connections, and keeps none from now on."""
        self._closed = True
        self._expire(float("inf"))

    def _wait(self) -> None:
        """Starts the timer for the age of the kept connections."""
        self._timer = asyncio.get_running_loop().call_later(IDLE_S, self._sweep)

    def _sweep(self) -> None:
        self._timer = None
        self._expire(self._clock() - IDLE_S)
        if self._idle:
            self._wait()

    def _expire(self, before: float) -> None:
        for since, connection in self._idle:
            if since <= before:
                connection.close()
        self._idle = [(since, connection) for since, connection in self._idle if since > before]
