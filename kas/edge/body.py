"""What a client sends behind the head of its request, and whether it is still there.

ASGI has one ``receive`` for both: pieces of the body, then ``http.disconnect``. ``Inlet`` is the one that calls it, so that reading,
draining and watching for a client that leaves do not take one another's messages.
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
# How long a client that cancels may take to be seen, where nothing else tells a body that was cancelled from a whole one.
CANCEL_SEEN_S = 0.005
# Of a body nobody reads yet, so that the end of a client behind a small one is seen.
AHEAD_BYTES = 64 << 10

Receive = Callable[[], Awaitable[dict[str, Any]]]


class Bounds:
    """What the bodies of one worker share, its answers that are whole (to reads, and to writes), and its WebSockets. ``leaving`` are
    answers on their way in pieces, but for those of requests that run long. All whose body is there pass ``onward``: what is done with one
    that is small is done on the loop, and bodies come by the hundred at once."""

    def __init__(self) -> None:
        self.onward = Throttle()
        self.budget, self.pace, self.answers, self.written, self.gathered = Budget(), Pace(), Budget(), Budget(), MessageLimit()
        self.leaving = set[Response]()


class Inlet:
    """The receiving side of one exchange. ``length`` is the body's by its Content-Length, -1 when that is not known; ``multiplexed``
    whether it is one stream of several on its connection (HTTP/2). ``ended`` is set when nothing is left of the body."""

    __slots__ = ("_ahead", "_arrived", "_bounds", "_gone", "_held", "_left", "_look_task", "_pieces", "_receive", "_taken", "_user",
                 "_waiter", "ended", "length", "multiplexed", "reading")  # fmt: skip

    def __init__(self, receive: Receive, length: int = 0, multiplexed: bool = False, bounds: Bounds | None = None) -> None:
        self._receive, self.length, self.multiplexed, self._bounds = receive, length, multiplexed, bounds
        self._taken = self._held = 0
        self._user: UserInfo | None = None
        self._pieces: deque[bytes] = deque()  # received while nobody read
        self._ahead = 0  # their bytes
        self._look_task: asyncio.Future[dict[str, Any]] | None = None
        self._waiter: asyncio.Future[None] | None = None  # who waits for it
        self._left: Callable[[], None] | None = None
        self.reading = self._gone = False
        self.ended = self._arrived = length == 0

    @property
    def arrived_bytes(self) -> int:
        """How much of the body has come."""
        return self._taken + self._ahead

    async def read(self, user: UserInfo | None = None) -> bytes:
        """The whole body; what is large of it counts as the user's until ``release``. Raises 400 when it breaks off: half a body is none,
        and an empty one would delete what its preconditions protect. Raises 413 beyond ``MAX_BODY_BYTES``, before anything is read where
        the length was told; 429 beyond the budget, or where the
        user has not taken the answers to its writes before; 408 when it comes too slowly."""
        if self.length > MAX_BODY_BYTES:
            raise too_large()
        task, bounds = asyncio.current_task(), self._bounds
        self._user = user
        if task is None or bounds is None:
            return await self._read()
        bounds.written.check(user)
        bounds.pace.add(task, self)
        whole = 0 < self.length <= FREE_BYTES and not (self.multiplexed or self._look_task or self._arrived or self._pieces or self._gone)
        try:
            if whole:  # as nearly every body comes: in one piece
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
            self.ended = True  # whatever else comes
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
        """Counts what was taken and is not small."""
        if self._taken > FREE_BYTES and self._bounds is not None:
            self._bounds.budget.take(self._user, self._taken - self._held)
            self._held = self._taken

    def release(self) -> None:
        """The request is over: its body is held no longer."""
        if self._held and self._bounds is not None:
            self._bounds.budget.give_back(self._user, self._held)
            self._held = 0

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body as it comes, however long: for whoever hands it on. Raises 400 when it breaks off."""
        while not self.ended:
            piece = await self._take()
            if piece:
                yield piece
        if self._taken != self.length and (self.length >= 0 or self.multiplexed):
            await self._check_whole()
        if self._left is not None:
            self.watch(self._left)  # nobody could look while somebody read

    async def _take(self) -> bytes:
        """The next piece: every byte of every body passes here on its way to who wants it."""
        while not self._pieces and not self._arrived:
            if self._gone:
                self.ended = True
                raise broken_off()
            if self._look_task is not None:
                await self._looked_at()
                continue
            self.reading = True
            try:
                message = await self._receive()
            finally:
                self.reading = False
            if message["type"] == "http.disconnect":
                self._gone = True
                continue
            # Handed on at once, as nearly every body is one piece: nobody else receives while somebody reads, so none lies before it.
            piece: bytes = message.get("body", b"")
            self._taken += len(piece)
            # granian says that there is no more in a message of its own, which costs another change of threads. HTTP/1 says it by the
            # length; a stream of HTTP/2 is better answered after its end, or the server resets it.
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
            self._gone = True
        elif not self._arrived:
            piece: bytes = message.get("body", b"")
            if piece:
                self._pieces.append(piece)
                self._ahead += len(piece)
            self._arrived = not message.get("more_body")

    async def _check_whole(self) -> None:
        """A stream of HTTP/2 that its client cancels ends like a whole one. Where a length was told it is not reached; else the client is
        gone at once."""
        if self.length >= 0:
            raise broken_off()
        self._look()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CANCEL_SEEN_S):
                await self._looked_at()
        if self._gone:
            raise broken_off()

    async def drain(self) -> None:
        """Lets a client finish sending a body that nobody wants, within bounds: one that is cut off may not read its answer, and a
        connection with the rest of a body in it cannot carry another request."""
        try:
            async with asyncio.timeout(DRAIN_S):
                while not self.ended and self._taken < DRAIN_BYTES:
                    await self._take()
        except (TimeoutError, ApiError):
            return

    def watch(self, left: Callable[[], None]) -> None:
        """Calls ``left`` (and nobody else) when the client goes away while nobody reads. At most ``AHEAD_BYTES`` and a piece of a body
        are received ahead of who wants it: a client with more to send is not seen to leave before it is read."""
        self._left = left
        if not self.reading and self._look_task is None and (self._arrived or self._ahead < AHEAD_BYTES):
            self._look()

    def _look(self) -> None:
        if self._look_task is None:
            self._look_task = asyncio.ensure_future(self._receive())
            self._look_task.add_done_callback(self._looked)

    async def _looked_at(self) -> None:
        """Waits for what was looked for. Not by ``asyncio.wait``: the future that granian gives has room for one callback."""
        waiter = self._waiter = asyncio.get_running_loop().create_future()
        try:
            await waiter
        finally:
            self._waiter = None

    def _looked(self, done: asyncio.Future[dict[str, Any]]) -> None:
        if done is not self._look_task:
            return
        self._look_task = None
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        if done.cancelled() or done.exception() is not None:
            return
        self._received(done.result())
        if self._gone:
            if self._left is not None:
                self._left()
        elif self._left is not None:
            self.watch(self._left)

    def close(self) -> None:
        """Stops watching; the request is over."""
        self.release()
        self._left = None
        if self._look_task is not None:
            self._look_task.cancel()
            self._look_task = None


def inlet(req: Request, receive: Receive, bounds: Bounds | None = None) -> Inlet:
    """The receiving side of a request that may bring a body; in HTTP/1 one that names no length and no chunks has none."""
    length = req.raw_header(b"content-length")
    multiplexed = req.http_version[:1] != "1"
    if length:
        # What the HTTP server has let through is a number; one of more digits than any limit need not be read as one.
        return Inlet(receive, int(length) if len(length) < 19 and length.isdigit() else 1 << 62, multiplexed, bounds)
    return Inlet(receive, -1 if multiplexed or req.has_header(b"transfer-encoding") else 0, multiplexed, bounds)


def too_large() -> ApiError:
    """413 that names the limit, in bytes."""
    return request_entity_too_large(f"limit is {MAX_BODY_BYTES}")


def broken_off() -> ApiError:
    """The client hung up or broke its framing."""
    return bad_request("unexpected EOF")


class Leaving:
    """Calls what is put down, ``AT_ONCE`` in a turn of the loop: where a client dies thousands of streams end at the same moment."""

    AT_ONCE = 64

    def __init__(self) -> None:
        self._left: deque[Callable[[], None]] = deque()

    def put(self, leave: Callable[[], None]) -> None:
        """``leave`` does nothing any more where what it ends is over by itself."""
        self._left.append(leave)
        if len(self._left) == 1:
            self._some_next()

    def _some_next(self) -> None:
        asyncio.get_running_loop().call_soon(self._some)

    def _some(self) -> None:
        try:
            for _ in range(min(self.AT_ONCE, len(self._left))):
                self._left.popleft()()
        finally:  # also where one of them fails: nobody calls the others otherwise
            if self._left:
                self._some_next()


class Departures:
    """Cancels the tasks of requests whose client has gone away. Nearly every request is answered at once, so only those are looked at
    that wait for longer than ``LOOK_S``.
    """

    LOOK_S = 0.1

    def __init__(self) -> None:
        self.leaving = Leaving()
        self._waiting: dict[asyncio.Task[Any], Inlet] = {}
        self._before: set[asyncio.Task[Any]] = set()  # what waited when the last look was taken
        self._left: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, task: asyncio.Task[Any], client: Inlet) -> None:
        """Cancels ``task`` when ``client`` is gone, unless ``drop`` comes first."""
        self._waiting[task] = client
        if self._timer is None:
            self._arm()

    def drop(self, task: asyncio.Task[Any]) -> bool:
        """Whether the task was cancelled because its client is gone."""
        self._waiting.pop(task, None)
        if self._left and task in self._left:
            self._left.discard(task)
            return True
        return False

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self.LOOK_S, self._look)

    def _look(self) -> None:
        self._timer = None
        for task in self._before:
            client = self._waiting.get(task)
            if client is not None:
                client.watch(partial(self.leaving.put, partial(self._gone, task)))
        self._before = set(self._waiting)
        if self._waiting:
            self._arm()

    def _gone(self, task: asyncio.Task[Any]) -> None:
        if task in self._waiting and task not in self._left:
            self._left.add(task)
            task.cancel()
