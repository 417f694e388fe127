"""Maps granian's ASGI calls to ``Request`` and ``Response``. Only this module and ``body`` know ASGI.

ASGI is used and not RSGI because granian's RSGI streams queue without bound for a client that does not read, while
its ASGI ``send`` waits (measured: 300 MB against 50 chunks, see docs/architecture.md). The handler gets the head of
a request. The body stays on the connection until the handler reads it; what it has not read is drained once the
response is on its way.
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
from kas.edge.body import Bounds, CallbackQueue, Disconnects, Inlet, inlet
from kas.edge.largeresponses import LARGE_BYTES, UNCONVERTED_BYTES, bounded
from kas.edge.messagelimit import Messages
from kas.endpoints import respond
from kas.meta.errors import ApiError, bad_request
from kas.meta.fairqueue import works_for
from kas.request.http import Handler, Request, Response, Result, Stream
from kas.request.websocket import CLOSE_INTERNAL, Conversation, Socket, Upgrade, WebSocketRequest, send_until_closed

if TYPE_CHECKING:
    from kas.edge.front.introduction import Introductions

log = logging.getLogger("kas.edge")

# Methods whose request bodies have no meaning here and are never read.
READ_METHODS = frozenset(("GET", "HEAD", "OPTIONS"))
# The class, by name, of what granian's ``send`` returns if there is nothing to wait for. granian does not export it.
TAKEN = "PyEmptyAwaitable"
send_at_once(LARGE_BYTES, TAKEN)
TUNNEL = "CONNECT"
# The longest line that a WebSocket gets as one message. A longer line, which no watch event is, is split.
LINE_BYTES = 8 << 20


def _unmet_expectation(req: Request, scope: dict[str, Any]) -> bool:
    """Whether a client expects what this server does not do: anything but 100-continue, over HTTP/1.1, as in Go."""
    said = req.header(b"expect")
    return bool(said) and scope["http_version"] == "1.1" and "100-continue" not in map(str.strip, said.lower().split(","))


def _no_tunnel(resp: Response) -> Response:
    """The response to a CONNECT whose own response would be a success. In HTTP such a response opens a tunnel and
    has no body, so granian's library would close the connection without writing it (RFC 9110, 9.3.6; Go writes it)."""
    refused = Response(405, [(b"content-length", b"0"), (b"connection", b"close")])
    refused.finish = resp.finish
    return refused


class _TooLarge(Exception):
    """Nothing more of a stream is needed."""


Spawn = Callable[[Coroutine[Any, Any, None], Any], None]
PARKED: Any = object()


class App:
    """The ASGI application of one listener.

    ``handler`` answers a request with a response or an awaitable. If a TLS front relays connections,
    ``introductions`` tell which client a relay speaks for.
    """

    def __init__(
        self, handler: Handler, read_only: bool = False, introductions: Introductions | None = None,
        spoke: Callable[[int], None] = lambda port: None, bounds: Bounds | None = None,
        gives: Callable[[], Awaitable[None] | None] = lambda: None,
    ) -> None:  # fmt: skip
        """``spoke`` is called with the client's port of each request. ``bounds`` limit what clients send and are
        sent; without them the application has its own. ``gives()`` returns what a task has to await before it sends
        a large response."""
        self.handler, self.read_only, self.introductions, self._spoke = handler, read_only, introductions, spoke
        self._disconnects, self._bounds, self._before_large = Disconnects(), bounds or Bounds(), gives

    async def __call__(self, scope: dict, receive, send) -> None:
        rest = self.begin(scope, receive, send)
        if rest is not None:
            await rest

    def begin(self, scope: dict, receive, send, watcher: Any = None, spawn: Spawn | None = None) -> Coroutine[Any, Any, None] | None:
        """Answers what can be answered at once, without waiting. Returns the rest of the work for a task to run, or None.

        With ``spawn``, a request may be parked instead: ``PARKED`` is returned, and later ``watcher`` is told of the
        end of the request, or ``spawn`` is called with the rest of the work.
        """
        if scope["type"] != "http":
            return self._websocket(scope, receive, send)
        req = request_of(scope, self.read_only)
        client = scope["client"]
        if client:
            req.client = client[0]
            self._spoke(int(client[1]))  # granian gives the port as text
        if self.introductions is not None:
            _introduce(req, self.introductions)
        source, tunnel = None, False
        if req.method not in READ_METHODS:
            source, tunnel = inlet(req, receive, self._bounds), req.method == TUNNEL
            req.incoming = None if source.ended else source
        unmet = source is not None and _unmet_expectation(req, scope)
        resp = Response(417, [(b"connection", b"close")]) if unmet else self.handler(req)
        left = None if tunnel else sent(req, resp, send)
        if left is None:
            if spawn is not None and source is None and isinstance(resp, FreshRead):
                resp.park(ParkedRequest(self, req, resp, receive, send, watcher, spawn))
                return PARKED
            return self._later(req, resp, source or Inlet(receive), send)
        if source is not None and not source.ended and not req.has_header(b"expect"):
            return _await_all((*left, source.drain()))
        return _await_all(left) if left else None

    def answer_later(self, parked: ParkedRequest, result: Result) -> None:
        """Starts a task that answers a parked request."""
        parked.spawn(self._later(parked.req, result, Inlet(parked.receive), parked.send), parked.watcher)

    def send_later(self, parked: ParkedRequest, left: Iterable[Awaitable[None]]) -> None:
        """Starts a task that awaits the rest of a parked request's response."""
        parked.spawn(_await_all(left), parked.watcher)

    @staticmethod
    def refuse(send) -> Coroutine[Any, Any, None] | None:
        """Answers 429 without looking at the request. Returns the rest of the work, as ``begin`` does."""
        resp = respond.too_many_requests(1)
        left = (
            send({"type": "http.response.start", "status": resp.status, "headers": resp.headers}),
            send({"type": "http.response.body", "body": resp.body}),
        )
        return None if all(type(one).__name__ == TAKEN for one in left) else _await_all(left)

    async def _later(self, req: Request, result: Result, source: Inlet, send) -> None:
        _set_tenant(req)
        if isinstance(result, Response):
            resp = result
        else:
            task = asyncio.current_task()
            assert task is not None
            self._disconnects.add(task, source)
            left = False
            try:
                try:
                    resp = await result
                finally:
                    left = self._disconnects.drop(task)
            except asyncio.CancelledError:
                if not left:
                    raise
                # The client is gone; the filter chain has released what the request held.
                task.uncancel()
                source.close()
                return
        resp = bounded(req, resp, self._bounds.answers, self._bounds.written)
        if req.method == TUNNEL and resp.status < 300:
            resp = _no_tunnel(resp)
        try:
            if resp.stream is None:
                await _await_all(_send_whole(req, resp, send))
            else:
                if not req.long_running and (others := self._before_large()) is not None:
                    await others
                started = send({"type": "http.response.start", "status": resp.status, "headers": resp.headers})
                await started
                if not req.long_running:
                    self._bounds.leaving.add(resp)
                await _stream(resp, source, _Pieces(send, started, resp), self._disconnects.leaving)
        finally:
            self._bounds.leaving.discard(resp)
            if resp.finish is not None:
                resp.finish()
        if not source.ended and not req.has_header(b"expect"):
            source.release()  # a body that nobody reads any more must not count while the rest of it arrives
            await source.drain()
        source.close()

    def _websocket(self, scope: dict, receive, send) -> Coroutine[Any, Any, None]:
        """Runs a WebSocket handshake through the same filter chain as a GET, as far as it goes at once, in this
        turn: its head may be as long. Returns the rest of the work."""
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
        return self._answer_handshake(req, self.handler(req), client, receive, send)

    async def _answer_handshake(self, req: WebSocketRequest, result: Result, client: Any, receive, send) -> None:
        """Answers a handshake that is not upgraded as HTTP, so that the client sees the same Status as over HTTP. A
        stream (a watch) is sent as one text message per line."""
        _set_tenant(req)
        resp: Any = result if isinstance(result, Response) else await result
        task = asyncio.current_task()
        assert task is not None
        messages = Messages(req.peer, task.cancel)
        client_key = (client[0], 0 if req.peer is not None else int(client[1])) if client else None
        if client_key is not None:
            self._bounds.message_limit.open[client_key] = messages
        try:
            await receive()  # the message that announces the handshake
            if isinstance(resp, Upgrade):
                await _converse(resp, _Socket(receive, send, messages))
            else:
                await _answer_unupgraded(req, resp, _Socket(receive, send, messages), send)
        finally:
            if client_key is not None:
                self._bounds.message_limit.open.pop(client_key, None)
            if resp.finish is not None:
                resp.finish()


def _set_tenant(req: Request) -> None:
    """Makes this task work for the request's user, or for its credential while the user is unknown
    (``kas.meta.fairqueue``)."""
    works_for(tenant(req.user.name) if req.user is not None else hash(req.raw_header(b"authorization")))


async def _answer_unupgraded(req: WebSocketRequest, resp: Response, socket: _Socket, send) -> None:
    """Sends a response to a handshake that is not an upgrade; 400 in place of a response that is large, as lists may
    be."""
    headers = [h for h in resp.headers if h[0] != b"content-length"]
    body = resp.body
    if resp.stream is not None:
        if resp.status == 200 and len(headers) == len(resp.headers) and req.info.verb != "list":  # a watch
            # Browsers abort a handshake that requested a subprotocol and got none; if only one was requested it can
            # only be that one.
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
    """The bytes of a stream, read no further than shows that they are too many."""
    pieces: list[bytes] = []
    size = 0

    async def keep(piece: bytes) -> None:
        nonlocal size
        pieces.append(piece)
        size += len(piece)
        if size > UNCONVERTED_BYTES:
            raise _TooLarge

    with contextlib.suppress(_TooLarge):
        await stream(keep)
    return b"".join(pieces)


def _introduce(req: Request, introductions: Introductions) -> None:
    """Replaces a relay's address by the client that the relay speaks for. An unknown address counts as a client that
    has shown no certificate."""
    who = introductions.of(req.client)
    req.scheme = "https"
    if who is None:
        req.client = ""
    else:
        req.client, req.peer = who.client, who


def _send_whole(req: Request, resp: Response, send) -> Sequence[Awaitable[None]]:
    """Sends a response. Returns the awaitables that are still to be awaited, in order."""
    head, body = whole(req, resp, send)
    return () if type(head) is type(body) and type(body).__name__ == TAKEN else (head, body)


async def _await_all(left: Iterable[Awaitable[None]]) -> None:
    for one in left:
        await one


class _Pieces:
    """Writes the pieces of a response (``kas.request.http.Write``); ``begin`` behaves as ``begin_of`` says.

    ``started`` is what ``send`` returned for the head of ``resp``, which never has to wait. granian returns an
    object of the same type if it has taken a piece, and a future if it has to wait for the client; the future sends
    its piece once it is awaited.
    """

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


async def _stream(resp: Response, source: Inlet, pieces: _Pieces, leaving: CallbackQueue) -> None:
    """Runs the response's stream until it ends, or until the client is gone and the task's turn to be cancelled has
    come."""

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
        # The head has been sent: closing the connection is the only way to show that the response is incomplete.
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
        """Sends an ASGI message."""
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
        # The task is cancelled when the server ends or the client is gone. A close message might never be taken and
        # would delay the end. This is the root of the task, so it can simply return.
        return
    except BaseException:
        if not socket.closed:
            await socket.say({"type": "websocket.close", "code": CLOSE_INTERNAL})
        raise
    if not socket.closed:
        await socket.say({"type": "websocket.close", "code": code})


def _lines(stream: Stream) -> Conversation:
    """A stream of lines as a conversation: each line is a text message, until the stream ends or the client closes."""

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

        return await send_until_closed(socket, all_of_it())

    return talk
