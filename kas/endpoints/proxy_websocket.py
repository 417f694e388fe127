"""The client side of a WebSocket (RFC 6455) on a ``kas.client.http.Connection``: handshake, frames, and relaying to a client's socket.

Supports what kubelets and pods use: text and binary messages, fragments, ping, pong and close; no extensions. Messages have a size limit.
Both directions apply back-pressure.
"""

from __future__ import annotations

import asyncio
import base64
import codecs
import hashlib
import os
import struct
from collections.abc import Awaitable, Callable, Hashable, Iterator

from kas.client.http import CHUNK, BackendError, Connection, Target
from kas.client.outgoing import connect_for
from kas.meta.waiting import TimeSlice
from kas.request.http import Headers
from kas.request.websocket import CLOSE_GOING_AWAY, CLOSE_INTERNAL, CLOSE_NORMAL, Socket

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
MAX_MESSAGE = 16 << 20
# Limits on the messages of all backends together. Above MAX_HELD, a message larger than any kubelet sends ends its connection.
MAX_HELD, FREE_MESSAGE = 32 << 20, 256 << 10
MAX_CONTROL = 125
PIECE = 256 << 10  # bytes to mask, encode or encrypt at a time; a client's message may have 64 MiB
# The same limit for clients' messages that backends have not taken yet.
MAX_PASSING = 64 << 20


class _Held:
    """Bytes of backends' messages that are incomplete or that clients have not taken yet, in this worker."""

    total = 0


class _Passing:
    """Bytes, or characters, of clients' messages that backends have not taken yet, in this worker."""

    total = 0


class WebSocket:
    """An open WebSocket to a backend."""

    __slots__ = ("_connection", "_held", "_sending", "_time_slice", "_whole", "code")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._held, self._time_slice = 0, TimeSlice()
        self._sending, self._whole = asyncio.Lock(), True  # a pong must not be sent in the middle of a message
        self.code = CLOSE_NORMAL

    async def receive(self) -> bytes | str | None:
        """Return the next message, or None once the backend has closed (``code`` then has the reason).

        The message counts as held until the next ``receive``, ``release`` or ``close``. Raises BackendError.
        """
        self.release()
        kind, message, text = 0, bytearray(), list[str]()
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while True:
            if self._time_slice.over:
                await self._time_slice.pause()  # frames may be as small as two bytes
            opcode, final, length = await self._frame()
            if opcode >= CLOSE:
                payload = await self._exactly(length)
                if opcode == CLOSE:
                    self.code = struct.unpack("!H", payload[:2])[0] if len(payload) >= 2 else CLOSE_NORMAL
                    return None
                if opcode == PING:
                    await self._send(PONG, payload)
                continue
            if (opcode == CONTINUATION) == (not kind):
                raise BackendError("websocket: unexpected continuation")
            kind = kind or opcode
            while length:
                piece = await self._exactly(min(length, CHUNK))
                self._hold(len(piece))
                if kind == TEXT:
                    text.append(decoder.decode(piece))
                else:
                    message += piece
                length -= len(piece)
                if self._time_slice.over:
                    await self._time_slice.pause()
            if final:
                return "".join(text) + decoder.decode(b"", True) if kind == TEXT else bytes(message)

    def _hold(self, size: int) -> None:
        self._held += size
        _Held.total += size
        if self._held > MAX_MESSAGE or (_Held.total > MAX_HELD and self._held > FREE_MESSAGE):
            raise BackendError("websocket: message too large")

    def release(self) -> None:
        """Stop counting the received message as held."""
        _Held.total -= self._held
        self._held = 0

    async def _exactly(self, size: int) -> bytes:
        try:
            return await self._connection.reader.readexactly(size) if size else b""
        except asyncio.IncompleteReadError:
            raise BackendError("websocket: EOF") from None
        except OSError as e:
            raise BackendError(f"websocket: {e.strerror or e}") from e

    async def _frame(self) -> tuple[int, bool, int]:
        """Read the header of the next frame: opcode, whether it ends a message, and the payload's length."""
        first, second = await self._exactly(2)
        length = second & 0x7F
        if length == 126:
            (length,) = struct.unpack("!H", await self._exactly(2))
        elif length == 127:
            (length,) = struct.unpack("!Q", await self._exactly(8))
        if first & 0x70 or second & 0x80:
            raise BackendError("websocket: bad frame")
        opcode = first & 0x0F
        if length > (MAX_CONTROL if opcode >= CLOSE else MAX_MESSAGE):
            raise BackendError("websocket: message too large")
        return opcode, bool(first & 0x80), length

    async def send(self, message: bytes | str) -> None:
        """Send a message; returns when the backend has taken enough. Raises BackendError."""
        await self._send(TEXT if isinstance(message, str) else BINARY, await encoded(message))

    async def close(self, code: int = CLOSE_NORMAL) -> None:
        """Send a close frame and close the connection, without waiting for the backend. Received data is no longer held."""
        self.release()
        try:
            if self._whole:  # not awaited: a backend that does not read would keep this alive forever
                key = os.urandom(4)
                self._connection.writer.write(_head(CLOSE, 2) + key + _masked(struct.pack("!H", code), key))
        except OSError:
            pass  # the connection is gone already
        finally:
            self._connection.close()

    async def _send(self, opcode: int, payload: bytes) -> None:
        size = len(payload)
        head, key = _head(opcode, size), os.urandom(4)
        writer = self._connection.writer
        async with self._sending:
            self._whole = False
            try:
                if size <= PIECE:
                    writer.write(head + key + _masked(payload, key))
                else:
                    writer.write(head + key)
                    time_slice = TimeSlice()
                    for piece in pieces(payload):
                        writer.write(_masked(piece, key))
                        await writer.drain()
                        if time_slice.over:
                            await time_slice.pause()
                self._whole = True
                await writer.drain()
            except OSError as e:
                raise BackendError(f"websocket: {e.strerror or e}") from e


def _head(opcode: int, size: int) -> bytes:
    """Return the header of a masked frame, without its key."""
    if size < 126:
        return struct.pack("!BB", 0x80 | opcode, 0x80 | size)
    if size < 1 << 16:
        return struct.pack("!BBH", 0x80 | opcode, 0x80 | 126, size)
    return struct.pack("!BBQ", 0x80 | opcode, 0x80 | 127, size)


def pieces(data: bytes) -> Iterator[bytes]:
    """Split data into pieces of at most PIECE bytes."""
    return (data[at : at + PIECE] for at in range(0, len(data), PIECE))


async def encoded(message: bytes | str) -> bytes:
    """Return a client's message as bytes."""
    if isinstance(message, bytes):
        return message
    if len(message) <= PIECE:
        return message.encode()
    out, time_slice = list[bytes](), TimeSlice()
    for at in range(0, len(message), PIECE):
        out.append(message[at : at + PIECE].encode())
        if time_slice.over:
            await time_slice.pause()
    return b"".join(out)


def _masked(payload: bytes, key: bytes) -> bytes:
    size = len(payload)
    mask = (key * (size // 4 + 1))[:size]
    return (int.from_bytes(payload, "little") ^ int.from_bytes(mask, "little")).to_bytes(size, "little")


async def open_websocket(
    target: Target, headers: Headers, subprotocols: list[str], host: str = "", client: Hashable = None
) -> tuple[Connection, WebSocket | None]:
    """Connect on behalf of ``client`` and do the handshake.

    The socket is None if the backend refused; the connection then has its response.

    The selected subprotocol is in the connection's ``sec-websocket-protocol`` header. Raises BackendError.
    """
    key = base64.b64encode(os.urandom(16))
    asked = [*headers, (b"connection", b"Upgrade"), (b"upgrade", b"websocket")]
    asked += [(b"sec-websocket-version", b"13"), (b"sec-websocket-key", key)]
    if subprotocols:
        asked.append((b"sec-websocket-protocol", ", ".join(subprotocols).encode("latin-1", "replace")))
    connection = await connect_for(client, target, upgrade=True)
    try:
        await connection.send("GET", target, asked, host=host)
        await connection.head()
        if connection.status != 101:
            return connection, None
        want = base64.b64encode(hashlib.sha1(key + GUID, usedforsecurity=False).digest())
        if connection.header(b"upgrade").lower() != b"websocket" or connection.header(b"sec-websocket-accept") != want:
            raise BackendError("websocket: bad handshake")
    except BaseException:
        connection.close()
        raise
    return connection, WebSocket(connection)


async def passed_on(client: Socket, give: Callable[[bytes | str], Awaitable[None]]) -> int:
    """Pass a client's messages to a backend, one by one, until the client closes; returns the close code.

    Raises BackendError, also for a message that does not fit in the memory limit because backends are not reading.
    """
    time_slice = TimeSlice()
    while (message := await client.receive()) is not None:
        size = len(message)
        if size > FREE_MESSAGE and _Passing.total + size > MAX_PASSING:
            raise BackendError("websocket: message too large")
        _Passing.total += size
        try:
            await give(message)
        finally:
            _Passing.total -= size
        del message  # do not keep it while waiting for the next one
        if time_slice.over:
            await time_slice.pause()
    return CLOSE_NORMAL


async def relay(client: Socket, backend: WebSocket) -> int:
    """Relay messages in both directions until one side closes; returns the close code for the client."""

    async def down() -> int:
        while (message := await backend.receive()) is not None:
            await client.send(message)
        # 1004 to 1006 and 1015 describe a connection and must never be sent.
        return backend.code if 1000 <= backend.code < 5000 and backend.code not in (1004, 1005, 1006, 1015) else CLOSE_NORMAL

    try:
        return await first_of(passed_on(client, backend.send), down())
    finally:
        await backend.close(CLOSE_GOING_AWAY)


async def tunnel(client: Socket, connection: Connection) -> int:
    """Relay a raw byte stream over a WebSocket, each message a piece of it (KEP-4006's port forwarding)."""

    async def give(message: bytes | str) -> None:
        time_slice = TimeSlice()
        try:
            for piece in pieces(await encoded(message)):
                connection.writer.write(piece)
                await connection.writer.drain()
                if time_slice.over:
                    await time_slice.pause()
        except OSError as e:
            raise BackendError(f"write: {e.strerror or e}") from e

    async def down() -> int:
        time_slice = TimeSlice()
        try:
            while piece := await connection.reader.read(CHUNK):
                await client.send(piece)
                if time_slice.over:
                    await time_slice.pause()
        except OSError as e:
            raise BackendError(f"read: {e.strerror or e}") from e
        return CLOSE_NORMAL

    try:
        return await first_of(passed_on(client, give), down())
    finally:
        connection.close()


async def first_of(*sides) -> int:
    """Run both directions until one is done. A failed backend closes the client with an error."""
    tasks = [asyncio.ensure_future(s) for s in sides]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return _code(tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # An exception raised in a side refers to this frame and to those of both sides with all that they received, so nothing here may
        # refer to the sides.
        tasks.clear()


def _code(tasks: list[asyncio.Future[int]]) -> int:
    """Return the result of the side that is done."""
    broken = next(task.exception() for task in tasks if task.done())
    if isinstance(broken, BackendError):
        return CLOSE_INTERNAL
    return next(task.result() for task in tasks if task.done())
