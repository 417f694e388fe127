"""Where a worker takes connections that ask for SPDY (``edge/front/upgrades.py``): one request each, answered by the
same handler as any other.

The head is parsed strictly, and the request must not have a body. An upgraded connection becomes a stream of bytes
in both directions after the 101 that is written here; any other response closes the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from urllib.parse import unquote

from kas.edge.front.introduction import Introductions
from kas.edge.front.rendezvous import free
from kas.edge.front.upgrades import END, MAX_HEAD
from kas.edge.messagelimit import MessageLimit, Messages
from kas.request.http import Handler, Headers, Response
from kas.request.websocket import SPDY, StreamRequest, Upgrade

log = logging.getLogger("kas.edge")

HEAD_S = 30.0
READ_BYTES = 64 << 10
# Of a client whose backend takes nothing, twice as much is held, and what the next read brings: at most what the front's socket holds.
HELD_BYTES = 16 << 10
_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):([^\x00-\x08\x0a-\x1f\x7f]*)")
_FIRST = re.compile(rb"(GET|POST) (/[!-~]*) HTTP/1\.1")


class HeadError(ValueError):
    """The head of a request is malformed."""


def request_of(head: bytes) -> StreamRequest:
    """Parses the head of a request, without the empty line at its end. Raises HeadError."""
    first, *lines = head.split(b"\r\n")
    found = _FIRST.fullmatch(first)
    if found is None:
        raise HeadError("malformed request line")
    headers: Headers = []
    for line in lines:
        pair = _LINE.fullmatch(line)
        if pair is None:
            raise HeadError("malformed header")
        headers.append((pair[1].lower(), pair[2].strip(b" \t")))
    names = {name for name, _ in headers}
    if b"transfer-encoding" in names or any(name == b"content-length" and value != b"0" for name, value in headers):
        raise HeadError("a request for a stream brings no body")
    path, _, query = found[2].decode("ascii").partition("?")
    req = StreamRequest(found[1].decode(), unquote(path), query, headers)
    req.raw_path = path
    return req


class _Raw:
    """The client's side after the upgrade, as ``Upgrade.talk`` sees it."""

    __slots__ = ("_first", "_messages", "_reader", "_writer")

    def __init__(self, first: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, messages: Messages) -> None:
        self._first, self._reader, self._writer, self._messages = first, reader, writer, messages

    async def receive(self) -> bytes | None:
        data, self._first = self._first, b""
        try:
            data = data or await self._reader.read(READ_BYTES)
        except OSError:
            return None
        self._messages.add(len(data))
        return data or None

    async def send(self, message: bytes | str) -> None:
        self._writer.write(message if isinstance(message, bytes) else message.encode())
        await self._writer.drain()


class SPDYListener:
    """Listens at ``address`` once started. ``introductions`` tell which client a relay speaks for; ``message_limit``
    tells when a client has disconnected."""

    def __init__(self, handler: Handler, address: str, introductions: Introductions, message_limit: MessageLimit) -> None:
        self._handler, self._address, self._introductions, self._message_limit = handler, address, introductions, message_limit
        self._listening: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Starts to accept connections."""
        free(self._address)
        self._listening = await asyncio.start_unix_server(self._accepted, self._address, limit=HELD_BYTES)

    async def stop(self) -> None:
        """Ends all connections and stops accepting."""
        if self._listening is not None:
            self._listening.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except (OSError, asyncio.CancelledError):
            pass  # the client is gone, or the server ends; this is the root of its task
        except Exception:
            log.exception("apiserver panic'd in a stream")
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(HEAD_S):
                head, first = await _read_head(reader)
            req = request_of(head)
        except (HeadError, TimeoutError) as e:
            await _answer(writer, Response(400, [(b"content-type", b"text/plain; charset=utf-8")], f"400 Bad Request: {e}\n".encode()))
            return
        peername = writer.get_extra_info("peername")
        introduction = self._introductions.of(peername)
        req.scheme = "https"
        if introduction is not None:
            req.client, req.peer = introduction.client, introduction
        result = self._handler(req)
        resp = result if isinstance(result, Response) else await result
        if isinstance(resp, Upgrade):
            task = asyncio.current_task()
            assert task is not None
            messages = self._message_limit.open[peername, 0] = Messages(introduction, task.cancel, stream=True)
            try:
                await _upgrade(resp, writer, _Raw(first, reader, writer, messages))
            finally:
                self._message_limit.open.pop((peername, 0), None)
                if resp.finish is not None:
                    resp.finish()
        else:
            await _answer(writer, resp)


async def _read_head(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Returns the head of a request without the empty line at its end, and what follows. Raises HeadError."""
    head, end = b"", -1
    while end < 0:
        if len(head) > MAX_HEAD:
            raise HeadError("the head is too long")
        data = await reader.read(READ_BYTES)
        if not data:
            raise HeadError("the head is incomplete")
        known = max(0, len(head) - len(END))
        head += data
        end = head.find(END, known)
    return head[:end], head[end + len(END) :]


def _head(status: int, headers: Headers) -> bytes:
    from http import HTTPStatus  # only needed by the few servers that relay streams

    lines = b"".join(b"%b: %b\r\n" % pair for pair in headers)
    return b"HTTP/1.1 %d %b\r\n%b\r\n" % (status, HTTPStatus(status).phrase.encode(), lines)


async def _answer(writer: asyncio.StreamWriter, resp: Response) -> None:
    """Sends a response that is not an upgrade; the connection closes with it."""
    headers = [*resp.headers, (b"connection", b"close")]
    try:
        if resp.stream is None:
            writer.write(_head(resp.status, [*headers, (b"content-length", str(len(resp.body)).encode())]) + resp.body)
            await writer.drain()
            return

        async def write(data: bytes) -> None:
            resp.sent += len(data)
            writer.write(data)
            await writer.drain()

        writer.write(_head(resp.status, headers))
        await writer.drain()
        await resp.stream(write)
    finally:
        if resp.finish is not None:
            resp.finish()


async def _upgrade(resp: Upgrade, writer: asyncio.StreamWriter, client: _Raw) -> None:
    try:
        writer.write(_head(101, [(b"connection", b"Upgrade"), (b"upgrade", SPDY), *resp.headers]))
        await writer.drain()
    except BaseException:
        resp.abandon()
        raise
    with contextlib.suppress(ConnectionError):
        await resp.talk(client)
