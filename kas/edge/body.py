"""The body of a request, and whether its client is still connected.

ASGI delivers both with one ``receive``: pieces of the body, then ``http.disconnect``. ``Inlet`` is the only caller
of it, so that reading, draining and watching for a disconnect do not take one another's messages.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

from kas.auth.user import UserInfo
from kas.edge.budget import FREE_BYTES, Budget, Pace, too_slow
from kas.edge.messagelimit import MessageLimit
from kas.meta.errors import ApiError, bad_request, request_entity_too_large
from kas.meta.waiting import Throttle
from kas.request.http import MAX_BODY_BYTES, Request, Response

DRAIN_BYTES, DRAIN_S = 16 << 20, 5.0
# How long the disconnect of a client that cancels may take to arrive, where nothing else tells a cancelled body from a
# complete one.
CANCEL_SEEN_S = 0.005
# Bytes received of a body that nobody reads yet, so that a disconnect behind a small body is seen.
AHEAD_BYTES = 64 << 10

Receive = Callable[[], Awaitable[dict[str, Any]]]


class Bounds:
    """The bounds that the connections of one worker share: for request bodies, for complete responses (to reads and
    to writes), and for WebSockets.

    ``leaving`` are the responses that are being sent in pieces, other than those of long-running requests. Requests
    pass ``onward`` once their bodies are complete: a small body is processed on the event loop, and hundreds of
    bodies may arrive at once.
    """

    def __init__(self) -> None:
        self.onward = Throttle()
        self.budget, self.pace, self.answers, self.written, self.message_limit = Budget(), Pace(), Budget(), Budget(), MessageLimit()
        self.leaving = set[Response]()


class Inlet:
    """The receiving side of one exchange.

    ``length`` is the Content-Length, -1 if it is unknown. ``multiplexed`` is true for a stream of an HTTP/2
    connection. ``ended`` is set when nothing is left of the body.
    """

    __slots__ = ("_ahead", "_ahead_task", "_arrived", "_bounds", "_disconnected", "_held", "_on_disconnect", "_pieces", "_receive",
                 "_taken", "_user", "_waiter", "ended", "length", "multiplexed", "reading")  # fmt: skip

    def __init__(self, receive: Receive, length: int = 0, multiplexed: bool = False, bounds: Bounds | None = None) -> None:
        self._receive, self.length, self.multiplexed, self._bounds = receive, length, multiplexed, bounds
        self._taken = self._held = 0
        self._user: UserInfo | None = None
        self._pieces: deque[bytes] = deque()  # received while nobody read
        self._ahead = 0  # the number of bytes in them
        self._ahead_task: asyncio.Future[dict[str, Any]] | None = None
        self._waiter: asyncio.Future[None] | None = None  # of the task that waits for ``_ahead_task``
        self._on_disconnect: Callable[[], None] | None = None
        self.reading = self._disconnected = False
        self.ended = self._arrived = length == 0

    @property
    def arrived_bytes(self) -> int:
        """How many bytes of the body have arrived."""
        return self._taken + self._ahead

    async def read(self, user: UserInfo | None = None) -> bytes:
        """Returns the whole body. One of more than ``FREE_BYTES`` counts against the user's budget until ``release``.

        Raises 400 if the body breaks off: part of a body must not be processed, and an empty one would delete what
        its preconditions protect. Raises 413 beyond ``MAX_BODY_BYTES``, before anything is read if the length is
        known; 429 beyond the budget, or if the user has not taken the responses to earlier writes; 408 if the body
        arrives too slowly.
        """
        if self.length > MAX_BODY_BYTES:
            raise too_large()
        task, bounds = asyncio.current_task(), self._bounds
        self._user = user
        if task is None or bounds is None:
            return await self._read()
        bounds.written.check(user)
        bounds.pace.add(task, self)
        whole = 0 < self.length <= FREE_BYTES and not (
            self.multiplexed or self._ahead_task or self._arrived or self._pieces or self._disconnected
        )
        try:
            if whole:  # one piece, as nearly every body
                self.reading = True
                try:
                    message = await self._receive()
                finally:
                    self.reading = False
                body: bytes = message.get("body", b"")
                whole = len(body) == self.length
                if whole:
                    self._taken, self.ended, self._arrived = self.length, True, True
                else:
                    self._received(message)
            if not whole:
                body = await self._read()
        except asyncio.CancelledError:
            if not bounds.pace.drop(task):
                raise
            self.ended = True  # whatever else arrives
            raise too_slow(self.multiplexed) from None
        except BaseException:
            bounds.pace.drop(task)
            raise
        bounds.pace.drop(task)
        if bounds.onward.exhausted:
            await bounds.onward.wait()
        return body

    async def _read(self) -> bytes:
        body = await self._take()
        if not self.ended or len(body) > FREE_BYTES:
            pieces = [body]
            self._hold()
            while not self.ended:
                if self._taken > MAX_BODY_BYTES:
                    raise too_large()
                pieces.append(await self._take())
                self._hold()
            body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if self._taken > MAX_BODY_BYTES:
            raise too_large()
        if self._taken != self.length and (self.length >= 0 or self.multiplexed):
            await self._check_whole()
        return body

    def _hold(self) -> None:
        """Counts the bytes taken so far against the budget, unless they are few."""
        if self._taken > FREE_BYTES and self._bounds is not None:
            self._bounds.budget.take(self._user, self._taken - self._held)
            self._held = self._taken

    def release(self) -> None:
        """Ends the request's claim on the budget: its body is no longer held."""
        if self._held and self._bounds is not None:
            self._bounds.budget.give_back(self._user, self._held)
            self._held = 0

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yields the body as it arrives, whatever its length, for a handler that passes it on. Raises 400 if it
        breaks off."""
        while not self.ended:
            piece = await self._take()
            if piece:
                yield piece
        if self._taken != self.length and (self.length >= 0 or self.multiplexed):
            await self._check_whole()
        if self._on_disconnect is not None:
            self.watch(self._on_disconnect)  # a disconnect could not be watched for during the read

    async def _take(self) -> bytes:
        """Returns the next piece. Every byte of every body passes through here to its reader."""
        while not self._pieces and not self._arrived:
            if self._disconnected:
                self.ended = True
                raise broken_off()
            if self._ahead_task is not None:
                await self._wait_ahead()
                continue
            self.reading = True
            try:
                message = await self._receive()
            finally:
                self.reading = False
            if message["type"] == "http.disconnect":
                self._disconnected = True
                continue
            # Returned at once, as nearly every body is one piece. Nothing can be queued before it: only one coroutine
            # receives at a time.
            piece: bytes = message.get("body", b"")
            self._taken += len(piece)
            # granian announces the end in a message of its own, which costs another switch of threads. In HTTP/1 the
            # length shows the end. An HTTP/2 stream is better answered after its end, or the server resets it.
            whole = self._taken == self.length and not self.multiplexed
            self.ended = self._arrived = whole or not message.get("more_body")
            if piece or self.ended:
                return piece
        piece = self._pieces.popleft() if self._pieces else b""
        self._ahead -= len(piece)
        self._taken += len(piece)
        self.ended = self._arrived and not self._pieces
        return piece

    def _received(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.disconnect":
            self._disconnected = True
        elif not self._arrived:
            piece: bytes = message.get("body", b"")
            if piece:
                self._pieces.append(piece)
                self._ahead += len(piece)
            self._arrived = not message.get("more_body")

    async def _check_whole(self) -> None:
        """Raises 400 if the client has cancelled an HTTP/2 stream, which ends like a complete one. If the length was
        given it has not been reached; else the disconnect follows at once."""
        if self.length >= 0:
            raise broken_off()
        self._receive_ahead()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CANCEL_SEEN_S):
                await self._wait_ahead()
        if self._disconnected:
            raise broken_off()

    async def drain(self) -> None:
        """Reads and discards the rest of the body, within bounds. A client that is cut off may not read its
        response, and a connection with the rest of a body in it cannot carry another request."""
        try:
            async with asyncio.timeout(DRAIN_S):
                while not self.ended and self._taken < DRAIN_BYTES:
                    await self._take()
        except (TimeoutError, ApiError):
            return

    def watch(self, left: Callable[[], None]) -> None:
        """Calls ``left`` (and no earlier callback) when the client disconnects while nobody reads.

        At most ``AHEAD_BYTES`` and one piece are received ahead of the reader; the disconnect of a client with more
        to send is not seen before that is read.
        """
        self._on_disconnect = left
        if not self.reading and self._ahead_task is None and (self._arrived or self._ahead < AHEAD_BYTES):
            self._receive_ahead()

    def _receive_ahead(self) -> None:
        if self._ahead_task is None:
            self._ahead_task = asyncio.ensure_future(self._receive())
            self._ahead_task.add_done_callback(self._received_ahead)

    async def _wait_ahead(self) -> None:
        """Waits for ``_ahead_task``. ``asyncio.wait`` is not used: granian's future has room for one callback."""
        waiter = self._waiter = asyncio.get_running_loop().create_future()
        try:
            await waiter
        finally:
            self._waiter = None

    def _received_ahead(self, done: asyncio.Future[dict[str, Any]]) -> None:
        if done is not self._ahead_task:
            return
        self._ahead_task = None
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        if done.cancelled() or done.exception() is not None:
            return
        self._received(done.result())
        if self._disconnected:
            if self._on_disconnect is not None:
                self._on_disconnect()
        elif self._on_disconnect is not None:
            self.watch(self._on_disconnect)

    def close(self) -> None:
        """Stops watching for a disconnect; the request is over."""
        self.release()
        self._on_disconnect = None
        if self._ahead_task is not None:
            self._ahead_task.cancel()
            self._ahead_task = None


def inlet(req: Request, receive: Receive, bounds: Bounds | None = None) -> Inlet:
    """The receiving side of a request that may have a body. An HTTP/1 request with neither a length nor chunks has
    none."""
    length = req.raw_header(b"content-length")
    multiplexed = req.http_version[:1] != "1"
    if length:
        # The HTTP server only passes numbers. One with more digits than any limit need not be parsed.
        return Inlet(receive, int(length) if len(length) < 19 and length.isdigit() else 1 << 62, multiplexed, bounds)
    return Inlet(receive, -1 if multiplexed or req.has_header(b"transfer-encoding") else 0, multiplexed, bounds)


def too_large() -> ApiError:
    """413 with the limit in bytes."""
    return request_entity_too_large(f"limit is {MAX_BODY_BYTES}")


def broken_off() -> ApiError:
    """400: the client disconnected or broke its framing."""
    return bad_request("unexpected EOF")


class CallbackQueue:
    """Calls queued callbacks, ``AT_ONCE`` in a loop iteration: when a client dies, thousands of streams end
    at the same moment."""

    AT_ONCE = 64

    def __init__(self) -> None:
        self._queue: deque[Callable[[], None]] = deque()

    def put(self, callback: Callable[[], None]) -> None:
        """Queues ``callback``, which must do nothing if what it ends is over by then."""
        self._queue.append(callback)
        if len(self._queue) == 1:
            self._schedule()

    def _schedule(self) -> None:
        asyncio.get_running_loop().call_soon(self._call_some)

    def _call_some(self) -> None:
        try:
            for _ in range(min(self.AT_ONCE, len(self._queue))):
                self._queue.popleft()()
        finally:  # even if one of them fails: nothing else calls the others
            if self._queue:
                self._schedule()


class Disconnects:
    """Cancels the tasks of requests whose client has disconnected. Nearly every request is answered at once, so only
    those that wait for longer than ``LOOK_S`` are watched."""

    LOOK_S = 0.1

    def __init__(self) -> None:
        self.leaving = CallbackQueue()
        self._waiting: dict[asyncio.Task[Any], Inlet] = {}
        self._long_waiting: set[asyncio.Task[Any]] = set()  # the tasks that waited at the last look
        self._cancelled: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, task: asyncio.Task[Any], client: Inlet) -> None:
        """Cancels ``task`` when ``client`` disconnects, unless ``drop`` is called first."""
        self._waiting[task] = client
        if self._timer is None:
            self._arm()

    def drop(self, task: asyncio.Task[Any]) -> bool:
        """Ends the watch; returns whether the task was cancelled because its client is gone."""
        self._waiting.pop(task, None)
        if self._cancelled and task in self._cancelled:
            self._cancelled.discard(task)
            return True
        return False

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self.LOOK_S, self._look)

    def _look(self) -> None:
        self._timer = None
        for task in self._long_waiting:
            client = self._waiting.get(task)
            if client is not None:
                client.watch(partial(self.leaving.put, partial(self._gone, task)))
        self._long_waiting = set(self._waiting)
        if self._waiting:
            self._arm()

    def _gone(self, task: asyncio.Task[Any]) -> None:
        if task in self._waiting and task not in self._cancelled:
            self._cancelled.add(task)
            task.cancel()
