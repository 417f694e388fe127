"""Connections through a konnectivity server: gRPC on a Unix socket, with a tunnel for each connection (KEP-1281).

The service is ``ProxyService`` of apiserver-network-proxy (``konnectivity-client/proto/client/client.proto``): a
stream of packets in both directions, which begins with a dial. ``DATA`` packets carry the connection's data, which
the transport here hands to any protocol for a direct connection. While a protocol pauses reading nothing is read for
it, and what it writes waits in a queue with the usual watermarks, so that neither side holds more of the other's
data than gRPC's windows.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from time import perf_counter
from typing import Any

from kas.client.connectproxy import DialMetrics
from kas.client.http import BackendError, Factory, P, host_port
from kas.meta.protowire import fields, put_bytes, put_int, put_text

METHOD = "/ProxyService/Proxy"
DIAL_REQ, DIAL_RSP, CLOSE_REQ, CLOSE_RSP, DATA, DIAL_CLS = range(6)
_PAYLOAD = {DIAL_REQ: 2, DIAL_RSP: 3, DATA: 4, CLOSE_REQ: 5, CLOSE_RSP: 6, DIAL_CLS: 7}  # field numbers in Packet
_LABELS = "grpc", "uds"
PIECE = 32 << 10  # bytes in a packet that is sent, as in Go
HIGH, LOW = 64 << 10, 16 << 10  # bytes waiting to be sent at which a protocol must pause, and may resume
# How long the peer may take to confirm that a connection is closed (konnectivity-client: CloseTimeout).
CLOSE_S = 10.0
# A channel for each tunnel, as in upstream; and no proxy between us and the proxy.
_OPTIONS = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0), ("grpc.default_authority", "localhost")]
Message = dict[int, int | bytes]


def packet(kind: int, payload: bytes) -> bytes:
    """Encodes a ``Packet`` with the message of its kind."""
    return put_int(1, kind) + put_bytes(_PAYLOAD[kind], payload)


def read_packet(data: bytes) -> tuple[int, Message]:
    """Decodes a ``Packet`` to its kind and the fields of its message by their numbers. Raises ValueError if it is invalid."""
    found: Message = {number: value for number, _, value in fields(data)}
    kind = found.get(1, DIAL_REQ)
    if not isinstance(kind, int):
        raise ValueError("a packet without a type")
    inside = found.get(_PAYLOAD.get(kind, 0), b"")
    return kind, {number: value for number, _, value in fields(inside)} if isinstance(inside, bytes) else {}


def _text(message: Message, number: int) -> str:
    value = message.get(number, b"")
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else ""


class KonnectivityProxy:
    """The konnectivity server on the Unix socket ``path``. Needs grpcio."""

    def __init__(self, metrics: DialMetrics, path: str) -> None:
        self._metrics, self.where = metrics, path

    async def connect(self, factory: Factory[P], host: str, port: int) -> tuple[asyncio.BaseTransport, P]:
        """Like the event loop's ``create_connection``. Raises BackendError; cancelling it ends the dial."""
        import grpc.aio  # an extra, and large

        began, metrics = perf_counter(), self._metrics
        metrics.started.inc(_LABELS)
        channel = grpc.aio.insecure_channel(f"unix:{self.where}", options=_OPTIONS)
        stream = channel.stream_stream(METHOD)()
        dial = random.getrandbits(63)
        wanted = put_text(1, "tcp") + put_text(2, host_port(host, port)) + put_int(3, dial)
        try:
            await stream.write(packet(DIAL_REQ, wanted))
            connection = await _dialled(stream, dial)
        except BaseException as e:
            reached = channel.get_state() is grpc.ChannelConnectivity.READY
            metrics.failed.inc((_LABELS[0], "proxy" if reached else "connect", _LABELS[1]))
            stream.cancel()
            await channel.close()
            if isinstance(e, grpc.RpcError):
                raise BackendError(f"rpc error: code = {e.code().name.title().replace('_', '')} desc = {e.details()}") from None
            raise
        metrics.took.observe(_LABELS, perf_counter() - began)
        protocol = factory()
        transport = Tunnel(channel, stream, connection, protocol)
        protocol.connection_made(transport)
        transport.start()
        return transport, protocol


async def _dialled(stream: Any, dial: int) -> int:
    """Waits for the result of a dial; returns the number of the connection. Raises BackendError."""
    while True:
        data = await stream.read()
        if not isinstance(data, bytes):  # gRPC's end of a stream
            raise BackendError("tunnel closed")
        try:
            kind, said = read_packet(data)
        except ValueError as e:
            raise BackendError(str(e)) from None
        if kind == DIAL_RSP and said.get(3, 0) == dial:
            if error := _text(said, 1):
                raise BackendError(error)
            return int(said.get(2, 0))
        if kind == DIAL_CLS:
            raise BackendError("dial closed")


class Tunnel(asyncio.Transport):
    """The transport of a connection in a tunnel of its own."""

    def __init__(self, channel: Any, stream: Any, connection: int, protocol: Any) -> None:
        super().__init__()
        self._channel, self._stream, self._connection, self._protocol = channel, stream, connection, protocol
        self._left: deque[bytes] = deque()
        self._size = 0
        self._high, self._low = HIGH, LOW
        self._paused = self._closing = self._lost = False
        self._more, self._reads = asyncio.Event(), asyncio.Event()
        self._reads.set()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Starts, after the protocol was told of its connection."""
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._receive()), loop.create_task(self._send())]

    # --- receiving

    async def _receive(self) -> None:
        error: Exception | None = None
        try:
            while True:
                await self._reads.wait()
                data = await self._stream.read()
                if not isinstance(data, bytes):
                    break
                kind, said = read_packet(data)
                if kind == CLOSE_RSP:
                    break
                received = said.get(3)
                if kind == DATA and said.get(1) == self._connection and isinstance(received, bytes) and not self._closing:
                    self._hand(received)
        except Exception as e:  # whatever grpc raises when the stream breaks off
            error = ConnectionResetError(f"the tunnel broke off: {e}")
        self._ended(error)

    def _hand(self, data: bytes) -> None:
        """Hands data to the protocol, which may want its own buffers filled."""
        protocol = self._protocol
        if not isinstance(protocol, asyncio.BufferedProtocol):
            protocol.data_received(data)
            return
        rest = memoryview(data)
        while rest and not self._closing:
            into = memoryview(protocol.get_buffer(len(rest)))
            n = min(len(into), len(rest))
            into[:n] = rest[:n]
            protocol.buffer_updated(n)
            rest = rest[n:]

    def _ended(self, error: Exception | None) -> None:
        """Handles the end of the peer's stream, which ends both directions: a tunnel closes as a whole."""
        if not self._lost and not self._closing and error is None:
            self._protocol.eof_received()
        self._over(error)
        self._tasks[1].cancel()
        self._tasks.append(asyncio.get_running_loop().create_task(self._channel.close()))

    def _over(self, error: Exception | None) -> None:
        """Tells the protocol, once."""
        self._closing = True
        if not self._lost:
            self._lost = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, error)

    # --- sending

    async def _send(self) -> None:
        try:
            while self._left or not self._closing:
                if not self._left:
                    self._more.clear()
                    await self._more.wait()
                    continue
                data = self._left.popleft()
                for at in range(0, len(data), PIECE):
                    piece = data[at : at + PIECE]
                    await self._stream.write(packet(DATA, put_int(1, self._connection) + put_bytes(3, piece)))
                    self._size -= len(piece)
                    if self._paused and self._size <= self._low:
                        self._paused = False
                        self._protocol.resume_writing()
            await self._stream.write(packet(CLOSE_REQ, put_int(1, self._connection)))
            self._over(None)
            self._reads.set()
            await asyncio.wait(self._tasks[:1], timeout=CLOSE_S)
            self._tasks[0].cancel()
            await self._channel.close()
        except asyncio.CancelledError:
            raise
        except Exception as e:  # whatever grpc raises when the stream breaks off
            self._over(ConnectionResetError(f"the tunnel broke off: {e}"))

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """asyncio's, like all that follow."""
        if self._closing or not data:
            return
        self._left.append(bytes(data))
        self._size += len(data)
        self._more.set()
        if self._size > self._high and not self._paused:
            self._paused = True
            self._protocol.pause_writing()

    def can_write_eof(self) -> bool:
        """Always False: a tunnel closes as a whole."""
        return False

    def is_closing(self) -> bool:
        """Whether it is closed, or will be once everything is sent."""
        return self._closing

    def close(self) -> None:
        """Closes once everything written is sent."""
        self._closing = True
        self._more.set()

    def abort(self) -> None:
        """Closes at once; the peer sees its stream end."""
        self._left.clear()
        self._over(None)
        for task in self._tasks[:2]:
            task.cancel()
        self._stream.cancel()
        self._tasks.append(asyncio.get_running_loop().create_task(self._channel.close()))

    def _force_close(self, exc: BaseException | None) -> None:  # called by asyncio's TLS to end its transport
        self.abort()

    def pause_reading(self) -> None:
        """Pauses reading; data that is on its way to the protocol still arrives."""
        self._reads.clear()

    def resume_reading(self) -> None:
        """Resumes reading."""
        self._reads.set()

    def is_reading(self) -> bool:
        """Whether reading is not paused."""
        return self._reads.is_set()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Sets the protocol that is called from now on."""
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """The protocol that is called."""
        return self._protocol

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Sets the watermarks of the queue, in bytes."""
        self._high = HIGH if high is None and low is None else 4 * (low or 0) if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        """Bytes that wait to be sent."""
        return self._size
