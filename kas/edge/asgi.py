"""granian's ASGI calls to ``Request``/``Response``. The only module that knows ASGI, with ``body`` beside it.

ASGI and not RSGI: granian's RSGI streams queue without bound behind a client that does not read, its ASGI ``send`` waits
(measured: 300 MB against 50 chunks, see docs/architecture.md). The handler gets the head of a request; the body stays on the
connection until somebody wants it, and what nobody wanted is taken from it once the answer is on its way.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from kas._fastpath import FreshRead, ParkedRequest, request_of, send_at_once, sent, whole
from kas.auth.user import tenant
from kas.edge.body import Bounds, Departures, Inlet, Leaving, inlet
from kas.edge.largeresponses import LARGE_BYTES, UNCONVERTED_BYTES, bounded
from kas.edge.messagelimit import Messages
from kas.endpoints import respond
from kas.meta.errors import ApiError, bad_request
from kas.meta.fairqueue import works_for
from kas.request.http import Handler, Request, Response, Result, Stream
from kas.request.websocket import CLOSE_INTERNAL, Conversation, Socket, Upgrade, WebSocketRequest, told

if TYPE_CHECKING:
    from kas.edge.front.introduction import Introductions

log = logging.getLogger("kas.edge")

# Their bodies mean nothing here and are never read.
READ_METHODS = frozenset(("GET", "HEAD", "OPTIONS"))
# What granian's `send` gives, by name, where there is nothing to wait for; a class that it does not export.
TAKEN = "PyEmptyAwaitable"
send_at_once(LARGE_BYTES, TAKEN)
TUNNEL = "CONNECT"
# A line that a WebSocket is to get as one message; what is longer, and no event of a watch is, comes in parts.
LINE_BYTES = 8 << 20


def _unmet(req: Request, scope: dict[str, Any]) -> bool:
    """Whether a client expects what this server does not do: anything but being told to go on, over HTTP/1.1, as in Go."""
    said = req.header(b"expect")
    return bool(said) and scope["http_version"] == "1.1" and "100-continue" not in map(str.strip, said.lower().split(","))


def _no_tunnel(resp: Response) -> Response:
    """What a CONNECT is answered that would have been answered well. HTTP opens a tunnel with such an answer, which has no body, so that
    granian's library ends the connection instead of writing it (RFC 9110, 9.3.6; Go writes it)."""
    refused = Response(405, [(b"content-length", b"0"), (b"connection", b"close")])
    refused.finish = resp.finish
    return refused


class _EnoughError(Exception):
    """Nothing more of a stream is wanted."""


Spawn = Callable[[Coroutine[Any, Any, None], Any], None]
PARKED: Any = object()


class App:
    """The ASGI application of one listener. ``handler`` answers a request, now or awaitable. ``introductions`` say whom connections speak
    for when a TLS front relays them."""

    def __init__(
        self, handler: Handler, read_only: bool = False, introductions: Introductions | None = None,
        spoke: Callable[[int], None] = lambda port: None, bounds: Bounds | None = None,
        gives: Callable[[], Awaitable[None] | None] = lambda: None,
    ) -> None:  # fmt: skip
        """``spoke`` is told the client's port of each request; ``bounds`` are those of what clients send and are sent, the app's own where
        none are given; ``gives()`` is asked what a task has to wait for before it gives a large answer."""
        self.handler, self.read_only, self.introductions, self._spoke = handler, read_only, introductions, spoke
        self._departures, self._bounds, self._gives = Departures(), bounds or Bounds(), gives

    async def __call__(self, scope: dict, receive, send) -> None:
        rest = self.begin(scope, receive, send)
        if rest is not None:
            await rest

    def begin(self, scope: dict, receive, send, watcher: Any = None, spawn: Spawn | None = None) -> Coroutine[Any, Any, None] | None:
        """Answers what can be answered at once, and never waits; returns what is left to do, for a task to run, or None. With ``spawn``
        a request may be parked instead: ``PARKED`` is returned, and ``watcher`` told of its end, or ``spawn`` what is left to do."""
        if scope["type"] != "http":
            return self._websocket(scope, receive, send)
        req = request_of(scope, self.read_only)
        client = scope["client"]
        if client:
            req.client = client[0]
            self._spoke(int(client[1]))  # granian gives a text
        if self.introductions is not None:
            _introduce(req, self.introductions)
        source, tunnel = None, False
        if req.method not in READ_METHODS:
            source, tunnel = inlet(req, receive, self._bounds), req.method == TUNNEL
            req.incoming = None if source.ended else source
        unmet = source is not None and _unmet(req, scope)
        resp = Response(417, [(b"connection", b"close")]) if unmet else self.handler(req)
        left = None if tunnel else sent(req, resp, send)
        if left is None:
            if spawn is not None and source is None and isinstance(resp, FreshRead):
                resp.park(ParkedRequest(self, req, resp, receive, send, watcher, spawn))
                return PARKED
            return self._later(req, resp, source or Inlet(receive), send)
        if source is not None and not source.ended and not req.has_header(b"expect"):
            return _all((*left, source.drain()))
        return _all(left) if left else None

    def answer_later(self, parked: ParkedRequest, result: Result) -> None:
        """Has a task answer a request that was put down."""
        parked.spawn(self._later(parked.req, result, Inlet(parked.receive), parked.send), parked.watcher)

    def send_later(self, parked: ParkedRequest, left: Iterable[Awaitable[None]]) -> None:
        """Has a task await what is left of its answer."""
        parked.spawn(_all(left), parked.watcher)

    @staticmethod
    def refuse(send) -> Coroutine[Any, Any, None] | None:
        """Answers 429, whatever is asked, before anybody has looked at it. Returns what is left to do, as ``begin``."""
        resp = respond.too_many_requests(1)
        left = (
            send({"type": "http.response.start", "status": resp.status, "headers": resp.headers}),
            send({"type": "http.response.body", "body": resp.body}),
        )
        return None if all(type(one).__name__ == TAKEN for one in left) else _all(left)

    async def _later(self, req: Request, result: Result, source: Inlet, send) -> None:
        _works_for(req)
        if isinstance(result, Response):
            resp = result
        else:
            task = asyncio.current_task()
            assert task is not None
            self._departures.add(task, source)
            left = False
            try:
                try:
                    resp = await result
                finally:
                    left = self._departures.drop(task)
            except asyncio.CancelledError:
                if not left:
                    raise
                # There is nobody to answer; the chain has given back what was taken.
                task.uncancel()
                source.close()
                return
        resp = bounded(req, resp, self._bounds.answers, self._bounds.written)
        if req.method == TUNNEL and resp.status < 300:
            resp = _no_tunnel(resp)
        try:
            if resp.stream is None:
                await _all(_whole(req, resp, send))
            else:
                if not req.long_running and (others := self._gives()) is not None:
                    await others
                started = send({"type": "http.response.start", "status": resp.status, "headers": resp.headers})
                await started
                if not req.long_running:
                    self._bounds.leaving.add(resp)
                await _stream(resp, source, _Pieces(send, started, resp), self._departures.leaving)
        finally:
            self._bounds.leaving.discard(resp)
            if resp.finish is not None:
                resp.finish()
        if not source.ended and not req.has_header(b"expect"):
            source.release()  # what nobody reads any more must not wait for the rest of it
            await source.drain()
        source.close()

    def _websocket(self, scope: dict, receive, send) -> Coroutine[Any, Any, None]:
        """A WebSocket handshake goes through the same chain as a GET, and as far as that goes at once, in the same turn: it is as long a
        head. Returns what is left to do."""
        query = scope["query_string"]
        req = WebSocketRequest(scope["path"], query.decode("latin-1") if query else "", scope["headers"], scope.get("subprotocols") or ())
        req.raw_path = scope["raw_path"].decode("latin-1")
        client = scope["client"]
        if client:
            req.client = client[0]
            self._spoke(int(client[1]))
        req.scheme = "https" if scope["scheme"] == "wss" else "http"
        if self.introductions is not None:
            _introduce(req, self.introductions)
        req.read_only_port = self.read_only
        return self._shaken(req, self.handler(req), client, receive, send)

    async def _shaken(self, req: WebSocketRequest, result: Result, client: Any, receive, send) -> None:
        """What is no upgrade is answered as HTTP, so that the client sees the Status it would have seen; a stream (a watch) is sent as one
        text message a line."""
        _works_for(req)
        resp: Any = result if isinstance(result, Response) else await result
        task = asyncio.current_task()
        assert task is not None
        messages, whose = Messages(req.peer, task.cancel), (client[0], 0 if req.peer is not None else int(client[1])) if client else None
        if whose is not None:
            self._bounds.gathered.open[whose] = messages
        try:
            await receive()  # that there is a handshake
            if isinstance(resp, Upgrade):
                await _converse(resp, _Socket(receive, send, messages))
            else:
                await _unconverted(req, resp, _Socket(receive, send, messages), send)
        finally:
            if whose is not None:
                self._bounds.gathered.open.pop(whose, None)
            if resp.finish is not None:
                resp.finish()


def _works_for(req: Request) -> None:
    """This task: for the user, or while nobody knows who that is, the credential."""
    works_for(tenant(req.user.name) if req.user is not None else hash(req.raw_header(b"authorization")))


async def _unconverted(req: WebSocketRequest, resp: Response, socket: _Socket, send) -> None:
    """The answer to a handshake that is none to a handshake; 400 for one that is large, as lists may be."""
    headers = [h for h in resp.headers if h[0] != b"content-length"]
    body = resp.body
    if resp.stream is not None:
        if resp.status == 200 and len(headers) == len(resp.headers) and req.info.verb != "list":  # it goes on and on
            # Browsers end a handshake that has asked for a subprotocol and is granted none; where there is one there is no choice.
            chosen = req.subprotocols[0] if len(req.subprotocols) == 1 else ""
            await _converse(Upgrade(chosen, _lines(resp.stream), lambda: None), socket)
            return
        body = await _collected(resp.stream)
        resp.sent = len(body)
    if len(body) > UNCONVERTED_BYTES:
        refused = respond.status(req, bad_request(f"what is answered to a handshake has {UNCONVERTED_BYTES} bytes at most"))
        resp.status, headers, body = refused.status, refused.headers, refused.body
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "websocket.http.response.start", "status": resp.status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body})


async def _collected(stream: Stream) -> bytes:
    """A stream's bytes, no more of them than show that they are too many."""
    pieces: list[bytes] = []
    size = 0

    async def keep(piece: bytes) -> None:
        nonlocal size
        pieces.append(piece)
        size += len(piece)
        if size > UNCONVERTED_BYTES:
            raise _EnoughError

    with contextlib.suppress(_EnoughError):
        await stream(keep)
    return b"".join(pieces)


def _introduce(req: Request, introductions: Introductions) -> None:
    """Puts the client in the place of the relay that speaks for it. An address that stands for nobody has shown nothing."""
    who = introductions.of(req.client)
    req.scheme = "https"
    if who is None:
        req.client = ""
    else:
        req.client, req.peer = who.client, who


def _whole(req: Request, resp: Response, send) -> Sequence[Awaitable[None]]:
    """Sends an answer; returns what is still to be awaited, in order."""
    head, body = whole(req, resp, send)
    return () if type(head) is type(body) and type(body).__name__ == TAKEN else (head, body)


async def _all(left: Iterable[Awaitable[None]]) -> None:
    for one in left:
        await one


class _Pieces:
    """Writes the pieces of an answer (``kas.request.http.Write``); ``begin`` is as ``begin_of`` says. ``started`` is what ``send`` gave for
    the head of the answer ``resp``, for which nobody ever waits: granian gives the like where it has taken a piece, and a future where it
    has to wait for the client. The future sends its piece once it is awaited."""

    __slots__ = ("_nothing", "_resp", "_send")

    def __init__(self, send: Callable[[dict[str, Any]], Awaitable[None]], started: Awaitable[None], resp: Response) -> None:
        self._send, self._resp = send, resp
        self._nothing = None if asyncio.isfuture(started) else type(started)

    def __call__(self, data: bytes) -> Awaitable[None]:
        self._resp.sent += len(data)
        return self._send({"type": "http.response.body", "body": data, "more_body": True})

    def begin(self, data: bytes) -> Awaitable[None] | None:
        self._resp.sent += len(data)
        left = self._send({"type": "http.response.body", "body": data, "more_body": True})
        return None if type(left) is self._nothing else left

    def end(self) -> Awaitable[None]:
        return self._send({"type": "http.response.body", "body": b"", "more_body": False})


async def _stream(resp: Response, source: Inlet, pieces: _Pieces, leaving: Leaving) -> None:
    """Runs the stream until it ends by itself or the client is gone, and its turn has come among all that are."""

    task = asyncio.current_task()
    assert task is not None and resp.stream is not None
    left = over = False

    def leave() -> None:
        nonlocal left
        if not over:
            left = True
            task.cancel()

    source.watch(partial(leaving.put, leave))
    try:
        await resp.stream(pieces)
        source.close()
        await pieces.end()
    except asyncio.CancelledError:
        if not left:
            raise
        task.uncancel()
    except ApiError as e:
        log.warning("a stream was cut: %s", e.message)
        raise
    except Exception:
        # The head has left: all that can be said is that the answer is not complete.
        log.exception("apiserver panic'd in the middle of an answer")
        raise
    finally:
        over = True
        source.close()


class _Socket:
    """The client's side of a WebSocket, as ``Upgrade.talk`` sees it."""

    __slots__ = ("_messages", "_receive", "_send", "closed")

    def __init__(self, receive, send, messages: Messages) -> None:
        self._receive, self._send, self._messages, self.closed = receive, send, messages, False

    async def receive(self) -> bytes | str | None:
        if self.closed:
            return None
        message = await self._receive()
        if message["type"] == "websocket.disconnect":
            self.closed = True
            return None
        data = message.get("bytes")
        if data is None:
            data = message.get("text") or ""
        self._messages.add(len(data))
        return data

    async def send(self, message: bytes | str) -> None:
        await self.say({"type": "websocket.send", "text" if isinstance(message, str) else "bytes": message})

    def say(self, message: dict[str, Any]) -> Awaitable[None]:
        """A message of ASGI."""
        return self._send(message)


async def _converse(upgrade: Upgrade, socket: _Socket) -> None:
    try:
        await socket.say({"type": "websocket.accept", "subprotocol": upgrade.subprotocol or None, "headers": []})
    except BaseException:
        upgrade.abandon()
        raise
    try:
        code = await upgrade.talk(socket)
    except asyncio.CancelledError:
        # The end of the server cancels, and that of the client. A goodbye may never be taken any more, and would hold up the end;
        # this is the root of its task, so returning is all there is to do.
        return
    except BaseException:
        if not socket.closed:
            await socket.say({"type": "websocket.close", "code": CLOSE_INTERNAL})
        raise
    if not socket.closed:
        await socket.say({"type": "websocket.close", "code": code})


def _lines(stream: Stream) -> Conversation:
    """A stream of lines as a conversation: every line a text message, until the stream ends or the client closes."""

    async def talk(socket: Socket) -> int:
        rest = b""

        async def write(data: bytes) -> None:
            nonlocal rest
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                await socket.send(line.decode("utf-8", "replace") + "\n")
            if len(rest) > LINE_BYTES:
                await socket.send(rest.decode("utf-8", "replace"))
                rest = b""

        async def all_of_it() -> None:
            await stream(write)
            if rest:
                await socket.send(rest.decode("utf-8", "replace"))

        return await told(socket, all_of_it())

    return talk
