"""WebSocket handshakes below ASGI: the request that may be upgraded and the response that does it. Knows no HTTP server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from kas.request.http import Headers, Request, Response

CLOSE_NORMAL, CLOSE_GOING_AWAY, CLOSE_INTERNAL = 1000, 1001, 1011


# A browser's bearer token is one of its subprotocols. It is for authentication, which reads the header; nothing behind
# may see it.
BEARER_PREFIX = "base64url.bearer.authorization.k8s.io."
SUBPROTOCOLS = 100  # of which one may be chosen; a head has room for 100,000


class WebSocketRequest(Request):
    """A GET that asks for a WebSocket. ``subprotocols`` are the first ``SUBPROTOCOLS`` of the client's, in its
    order, without credentials."""

    __slots__ = ("subprotocols",)

    def __init__(self, path: str, query: str, headers: Headers, subprotocols: Sequence[str]) -> None:
        super().__init__("GET", path, query, headers)
        self.http_version = "1.1"
        self.subprotocols = [p for p in subprotocols[:SUBPROTOCOLS] if not p.startswith(BEARER_PREFIX)]


SPDY = b"SPDY/3.1"


class StreamRequest(Request):
    """A request to take over its connection as a stream of bytes, over which both ends speak SPDY."""

    __slots__ = ()

    def __init__(self, method: str, path: str, query: str, headers: Headers) -> None:
        super().__init__(method, path, query, headers)
        self.http_version = "1.1"


class Socket(Protocol):
    """The client's side of an open WebSocket, or of a stream of bytes, whose pieces then are messages."""

    async def receive(self) -> bytes | str | None:
        """The next message, None once the client has closed."""

    async def send(self, message: bytes | str) -> None:
        """Sends a message; returns when a bounded buffer has accepted it."""


async def send_until_closed(socket: Socket, sending: Awaitable[Any]) -> int:
    """Runs ``sending``, which sends to the client, until it ends or the client closes; drops what the client sends.
    Returns the close code."""

    async def until_closed() -> None:
        while await socket.receive() is not None:
            pass

    tasks = [asyncio.ensure_future(sending), asyncio.ensure_future(until_closed())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return CLOSE_NORMAL


# Runs the conversation; the socket is closed with the code that it returns. Cancelled when the server ends it.
Conversation = Callable[[Socket], Awaitable[int]]


class Upgrade(Response):
    """Accepts the handshake with ``subprotocol`` ("" for none; a stream of bytes has none) and then runs ``talk``.

    If the handshake fails after all, ``abandon`` is called instead.
    """

    __slots__ = ("abandon", "subprotocol", "talk")

    def __init__(self, subprotocol: str, talk: Conversation, abandon: Callable[[], None]) -> None:
        super().__init__(101, [])
        self.subprotocol, self.talk, self.abandon = subprotocol, talk, abandon
