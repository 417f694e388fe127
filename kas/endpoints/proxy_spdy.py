"""The client side of exec and attach over SPDY/3.1, for kubelets without v5 of the WebSocket protocol.

Upstream: ``util/proxy/streamtranslator.go``.

Each channel of the client's WebSocket becomes a SPDY stream. SPDY can signal the end of a client's stream, which v4 over a WebSocket
cannot. Header blocks are written without SPDY's dictionary, which Go's reader accepts, and received ones are skipped: a kubelet's reply
only confirms a stream. There is no flow control, as in the library that kubelets use.
"""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections.abc import AsyncIterator, Sequence

from kas.client.http import CHUNK, BackendError, Connection
from kas.endpoints.proxy_websocket import encoded, first_of, passed_on, pieces
from kas.meta.waiting import TimeSlice
from kas.request.websocket import CLOSE_NORMAL, Socket

CONTROL = 0x8003  # the control bit and the protocol version
SYN_STREAM, SYN_REPLY, RST_STREAM, PING = 1, 2, 3, 6
FIN = 1
MAX_DATA = (1 << 24) - 1
# By their channel numbers in the client's messages.
STDIN, STDOUT, STDERR, ERROR, RESIZE = range(5)
NAMES = {STDIN: "stdin", STDOUT: "stdout", STDERR: "stderr", ERROR: "error", RESIZE: "resize"}
CLOSE_SIGNAL = 255
ANSWER_S = 30.0  # limit for the replies to streams, as upstream; meanwhile a disconnect of the client goes unnoticed


def channels(stdin: bool, stdout: bool, stderr: bool, tty: bool) -> list[int]:
    """Return the channels in the order in which kubectl opens them. A terminal has no stderr but a size."""
    wanted = ((ERROR, True), (STDIN, stdin), (STDOUT, stdout), (STDERR, stderr and not tty), (RESIZE, tty))
    return [channel for channel, there in wanted if there]


class Streams:
    """Frames on an upgraded connection. Streams are identified by their channels."""

    def __init__(self, connection: Connection, opened: Sequence[int]) -> None:
        self._connection = connection
        self._numbers = {channel: 2 * n + 1 for n, channel in enumerate(opened)}
        self._channels = {number: channel for channel, number in self._numbers.items()}
        self._unanswered = set(self._channels)  # a kubelet drops data on a stream that it has not confirmed yet
        self._answered = asyncio.Event()
        # streams that the kubelet ends
        self._open = {number for number, channel in self._channels.items() if channel in (STDOUT, STDERR, ERROR)}

    async def open(self) -> None:
        """Open all streams. Raises BackendError."""
        deflate = zlib.compressobj()
        for number, channel in self._channels.items():
            block = struct.pack("!I", 1) + b"".join(struct.pack("!I", len(t)) + t for t in (b"streamtype", NAMES[channel].encode()))
            headers = deflate.compress(block) + deflate.flush(zlib.Z_SYNC_FLUSH)
            await self._control(SYN_STREAM, struct.pack("!IIH", number, 0, 0) + headers)

    async def send(self, message: bytes) -> None:
        """Forward a client's message for one of its streams: data, or its end.

        Messages for other streams are dropped. Raises BackendError.
        """
        channel, data, flags = message[0] if message else ERROR, message[1:], 0
        if channel == CLOSE_SIGNAL:
            channel, data, flags = data[0] if data else ERROR, b"", FIN
        if channel not in (STDIN, RESIZE) or channel not in self._numbers:
            return
        try:
            async with asyncio.timeout(ANSWER_S):
                await self._answered.wait()
        except TimeoutError:
            raise BackendError("spdy: timed out waiting for streams") from None
        number = self._numbers.pop(channel) if flags else self._numbers[channel]
        time_slice = TimeSlice()
        for piece in [b""] if flags else pieces(data):  # a frame holds less than 16 MiB, a client's message up to 64
            await self._write(struct.pack("!II", number, flags << 24 | len(piece)) + piece)
            if time_slice.over:
                await time_slice.pause()

    async def receive(self) -> AsyncIterator[bytes]:
        """Yield the kubelet's data as messages, until all of its streams have ended. Raises BackendError."""
        time_slice = TimeSlice()
        while self._open:
            if time_slice.over:
                await time_slice.pause()  # frames may be empty
            head = await self._exactly(8, at_end=True)
            if not head:
                return
            first, second = struct.unpack("!II", head)
            flags, left = second >> 24, second & MAX_DATA
            if first >> 31:
                await self._control_frame(first & 0xFFFF, left)
                continue
            channel = self._channels.get(first)
            while left:
                data = await self._exactly(min(left, CHUNK))
                left -= len(data)
                if channel is not None:
                    yield bytes((channel,)) + data
            if flags & FIN:
                self._open.discard(first)

    async def _control_frame(self, kind: int, size: int) -> None:
        payload = await self._exactly(min(size, 4))
        while left := size - len(payload):
            size -= len(await self._exactly(min(left, CHUNK)))  # headers, which are not needed
        number = int.from_bytes(payload, "big")
        if kind == PING and not number % 2:  # not a reply to a ping of ours
            await self._control(PING, payload)
        elif kind in (SYN_REPLY, RST_STREAM):
            self._unanswered.discard(number)
            if kind == RST_STREAM:
                self._open.discard(number)
            if not self._unanswered:
                self._answered.set()

    async def _exactly(self, size: int, at_end: bool = False) -> bytes:
        """Read ``size`` bytes; b"" at the end of the connection if ``at_end`` allows it."""
        try:
            return await self._connection.reader.readexactly(size) if size else b""
        except asyncio.IncompleteReadError as e:
            if at_end and not e.partial:
                return b""
            raise BackendError("spdy: EOF") from None
        except OSError as e:
            raise BackendError(f"spdy: {e.strerror or e}") from e

    async def _control(self, kind: int, payload: bytes) -> None:
        await self._write(struct.pack("!HHI", CONTROL, kind, len(payload)) + payload)

    async def _write(self, data: bytes) -> None:
        writer = self._connection.writer
        try:
            writer.write(data)
            await writer.drain()
        except OSError as e:
            raise BackendError(f"spdy: {e.strerror or e}") from e


async def translated(client: Socket, connection: Connection, opened: Sequence[int]) -> int:
    """Relay data in both directions until the kubelet's streams have ended or the client has gone. Returns the close code for the client.
    """
    streams = Streams(connection, opened)

    async def give(message: bytes | str) -> None:
        await streams.send(await encoded(message))

    async def down() -> int:
        await streams.open()
        async for message in streams.receive():
            await client.send(message)
        return CLOSE_NORMAL

    try:
        return await first_of(passed_on(client, give), down())
    finally:
        connection.close()
