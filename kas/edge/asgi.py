"""granian's ASGI calls to ``Request``/``Response``. The only module that knows ASGI.

ASGI and not RSGI: granian's RSGI streams queue without bound behind a client that does not read, its ASGI ``send`` waits
(measured: 300 MB against 50 chunks, see docs/architecture.md). Bodies beyond the limit are refused before they are read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from kas.api.errors import ApiError, request_entity_too_large
from kas.edge.http import MAX_BODY_BYTES, Handler, Request, Response

READ_METHODS = frozenset(("GET", "HEAD", "OPTIONS"))


class App:
    """The ASGI application of one listener.

    ``handler`` answers a request, now or awaitable; ``refuse`` renders an ApiError found before there is a handler.
    """

    def __init__(self, handler: Handler, refuse: Callable[[ApiError], Response], read_only: bool = False) -> None:
        self.handler, self.refuse, self.read_only = handler, refuse, read_only
        self.upgrade: Callable[[dict, Any, Any, Request], Any] | None = None

    async def __call__(self, scope: dict, receive, send) -> None:
        if scope["type"] != "http":
            await self._websocket(scope, receive, send)
            return
        query = scope["query_string"]
        req = Request(scope["method"], scope["path"], query.decode("latin-1") if query else "", scope["headers"])
        client = scope["client"]
        req.client, req.scheme, req.http_version = client[0] if client else "", scope["scheme"], scope["http_version"]
        req.read_only_port = self.read_only
        if req.method in READ_METHODS:
            resp = self.handler(req)
        else:
            refused = await _read_body(req, receive)
            resp = self.refuse(refused) if refused is not None else self.handler(req)
        if type(resp) is not Response:
            resp = await resp
        if resp.stream is None:
            body = resp.body
            headers = [*resp.headers, (b"content-length", str(len(body)).encode())]
            await send({"type": "http.response.start", "status": resp.status, "headers": headers})
            await send({"type": "http.response.body", "body": body if req.method != "HEAD" else b""})
            return
        await send({"type": "http.response.start", "status": resp.status, "headers": resp.headers})
        await _stream(resp, receive, send)

    async def _websocket(self, scope: dict, receive, send) -> None:
        """A WebSocket handshake goes through the same chain as its GET; a refusal is answered as HTTP."""
        query = scope["query_string"]
        req = Request("GET", scope["path"], query.decode("latin-1") if query else "", scope["headers"])
        client = scope["client"]
        req.client, req.scheme = client[0] if client else "", "https" if scope["scheme"] == "wss" else "http"
        req.read_only_port = self.read_only
        await receive()
        resp = self.handler(req)
        if type(resp) is not Response:
            resp = await resp
        # A socket that is closed before it is accepted is answered 403 by the server below.
        await send({"type": "websocket.close", "code": 1008, "reason": f"{resp.status}"})


async def _read_body(req: Request, receive) -> ApiError | None:
    for name, value in req.headers:
        if name == b"content-length" and value.isdigit() and int(value) > MAX_BODY_BYTES:
            return request_entity_too_large(f"limit is {MAX_BODY_BYTES}")
    message = await receive()
    body = message.get("body", b"")
    if message.get("more_body"):
        chunks, size = [body], len(body)
        while message.get("more_body"):
            message = await receive()
            if message["type"] == "http.disconnect":
                raise asyncio.CancelledError
            chunk = message.get("body", b"")
            size += len(chunk)
            if size > MAX_BODY_BYTES:
                return request_entity_too_large(f"limit is {MAX_BODY_BYTES}")
            chunks.append(chunk)
        body = b"".join(chunks)
    req.body = bytes(body)
    if len(req.body) > MAX_BODY_BYTES:
        return request_entity_too_large(f"limit is {MAX_BODY_BYTES}")
    return None


async def _stream(resp: Response, receive, send) -> None:
    """Runs the stream until it ends by itself or the client is gone."""

    async def write(data: bytes) -> None:
        await send({"type": "http.response.body", "body": data, "more_body": True})

    async def gone(main: asyncio.Task) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        main.cancel()

    task = asyncio.current_task()
    main = asyncio.ensure_future(resp.stream(write))
    watcher = asyncio.ensure_future(gone(main))
    try:
        await main
    except asyncio.CancelledError:
        if task is not None and task.cancelling():
            main.cancel()
            raise
        return
    finally:
        watcher.cancel()
    await send({"type": "http.response.body", "body": b"", "more_body": False})
