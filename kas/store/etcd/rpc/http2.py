"""One HTTP/2 connection to a gRPC server (RFC 9113), without a socket: received bytes go in, bytes to send come out.

Its owner, on one thread at a time, calls ``feed`` with received data, and sends the result of ``take`` after each call. A
stream is one call: its messages are collected in ``messages``, ``over`` says that it has ended, and ``error`` how. Whatever
the peer does, memory is bounded: a header block by ``MOST_HEADERS``, unread data by the windows, an answer with one message
(``single``) by that message.

The path of every call is compiled (``_wire.pxd``).
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from kas.store.etcd.rpc._wire import STREAM_WINDOW, WINDOW, Broken, Stream, Wire, frame
from kas.store.etcd.rpc.hpack import Decoder
from kas.store.etcd.rpc.status import Code, RpcError

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM = ACK = 1
END_HEADERS, PADDED, WITH_PRIORITY = 4, 8, 32
NO_ERROR, PROTOCOL_ERROR, FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL, COMPRESSION_ERROR = 0, 1, 3, 6, 7, 8, 9
TABLE_SIZE, ENABLE_PUSH, MOST_STREAMS, INITIAL_WINDOW, FRAME_SIZE, HEADER_LIST = range(1, 7)

MOST_FRAME = 16384  # the minimum that every peer must accept, and our maximum
MOST_HEADERS, MOST_CONTINUED = 16384, 32
MOST_HELD = 16  # pings waiting to be answered
LARGEST = (1 << 31) - 1  # maximum of windows and stream numbers
FIRST_WINDOW = 65535

_setting, _number, _two, _prefix = Struct(">HI"), Struct(">I"), Struct(">II"), Struct(">BI")


GREETING = (
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    + frame(
        SETTINGS, 0, 0,
        b"".join(
            _setting.pack(*one) for one in
            ((TABLE_SIZE, 0), (ENABLE_PUSH, 0), (INITIAL_WINDOW, STREAM_WINDOW), (FRAME_SIZE, MOST_FRAME), (HEADER_LIST, MOST_HEADERS))
        ),
    )
    + frame(WINDOW_UPDATE, 0, 0, _number.pack(WINDOW - FIRST_WINDOW))
)  # fmt: skip


class Connection(Wire):
    """See above. ``ready``: the peer has sent its greeting. ``leaving``: why no call may begin any more, "" while calls may
    begin. ``closed``: the connection and all its streams have ended. ``heard`` changes when data arrives. ``held``: answers
    to pings that wait for ``answer_pings``."""

    def __init__(self, hold_pings: bool = False) -> None:
        """``hold_pings``: the owner answers pings, after a delay. gRPC's servers measure the connection with a ping when they
        receive data and none is pending: if it were answered at once, each call would cause another ping, and wake both
        sides."""
        super().__init__(GREETING, Decoder(), HANDLERS)
        self._hold_pings = hold_pings

    # -- sending

    @property
    def busy(self) -> bool:
        """Whether a call is in progress."""
        return bool(self._streams or self._waiting)

    def open(
        self, block: bytes, message: bytes, *, last: bool = True, single: bool = True, ended: Callable[[Stream], None] | None = None
    ) -> Stream:
        """Begins a call with its first message; ``last``: it is the only one. ``ended(stream)`` is called at its end. Raises
        ``RpcError`` when no call may begin."""
        return self.begin(block, message, last, single, ended)

    def send(self, stream: Stream, message: bytes) -> None:
        """Sends another message of a call; does nothing if the call has ended."""
        if not stream.over:
            stream._left += _prefix.pack(0, len(message)) + message
            if stream._id:
                self._pump(stream)

    def _pump_all(self) -> None:
        blocked, self._blocked = self._blocked, {}
        for stream in blocked:
            if not stream.over:
                self._pump(stream)

    def cancel(self, stream: Stream, error: RpcError) -> None:
        """Ends a call from our side."""
        if not stream.over:
            if stream._id:
                self._out.append(frame(RST_STREAM, 0, stream._id, _number.pack(CANCEL)))
            else:
                self._waiting.remove(stream)
            stream._ended, stream._left = True, b""
            self._over(stream, error)

    def ping(self) -> None:
        """Sends a ping, to check that the peer is alive."""
        self._out.append(frame(PING, 0, 0, b"kas-ping"))

    def answer_pings(self) -> None:
        """Answers the held pings."""
        self._out += [frame(PING, ACK, 0, ping) for ping in self.held]
        self.held.clear()

    def lost(self, why: str) -> None:
        """Ends every call of a lost connection, with an unknown outcome unless it was not sent. Idempotent."""
        self.closed = True
        self.leaving = self.leaving or why
        for stream in (*self._streams.values(), *self._waiting):
            self._waiting.clear()
            self._over(stream, RpcError(Code.UNAVAILABLE, why, unsent=stream.unsent or stream._id >= self._taken))

    # -- receiving

    def _ignored(self, flags: int, stream: int, data: bytes, at: int, end: int) -> None:
        """Ignores priorities, which are only advice."""

    def _pushed(self, flags: int, stream: int, data: bytes, at: int, end: int) -> None:
        raise Broken(PROTOCOL_ERROR, "a push")

    def _padding(self, flags: int, data: bytes, at: int, end: int) -> tuple[int, int]:
        if flags & PADDED:
            if at >= end or at + 1 + data[at] > end:
                raise Broken(PROTOCOL_ERROR, "padding")
            return at + 1, end - data[at]
        return at, end

    def _headers(self, flags: int, number: int, data: bytes, at: int, end: int) -> None:
        at, end = self._padding(flags, data, at, end)
        if flags & WITH_PRIORITY:
            at += 5
        if at > end:
            raise Broken(PROTOCOL_ERROR, "headers")
        if flags & END_HEADERS:
            self._said(number, flags, data[at:end])
        else:
            self._block = (number, flags, bytearray(data[at:end]), 0)

    def _continued(self, flags: int, number: int, data: bytes, at: int, end: int) -> None:
        if self._block is None or self._block[0] != number:
            raise Broken(PROTOCOL_ERROR, "nothing to continue")
        _, first, block, n = self._block
        block += data[at:end]
        if len(block) > MOST_HEADERS or n >= MOST_CONTINUED:
            raise Broken(PROTOCOL_ERROR, "the headers are too large")
        self._block = (number, first, block, n + 1)
        if flags & END_HEADERS:
            self._block = None
            self._said(number, first, bytes(block))

    def _reset(self, flags: int, number: int, data: bytes, at: int, end: int) -> None:
        if end - at != 4:
            raise Broken(FRAME_SIZE_ERROR, "RST_STREAM")
        stream = self._of(number)
        if stream is None:
            return
        why = _number.unpack_from(data, at)[0]
        refused = why == REFUSED_STREAM and stream._headers is None
        code = Code.UNAVAILABLE if refused else Code.CANCELLED if why == CANCEL else Code.INTERNAL
        error = RpcError(code, f"the server ended the stream with error {why}", unsent=refused or stream.unsent)
        stream._ended, stream._left = True, b""
        self._over(stream, error)

    def _settings(self, flags: int, number: int, data: bytes, at: int, end: int) -> None:
        if number or (end - at) % 6 or (flags & ACK and end > at):
            raise Broken(FRAME_SIZE_ERROR, "SETTINGS")
        self.ready = True
        if flags & ACK:
            return
        for offset in range(at, end, 6):
            name, value = _setting.unpack_from(data, offset)
            if name == INITIAL_WINDOW:
                if value > LARGEST:
                    raise Broken(FLOW_CONTROL_ERROR, "the window is too large")
                for stream in self._streams.values():
                    stream._window += value - self._stream_room
                self._stream_room = value
            elif name == FRAME_SIZE:
                if not MOST_FRAME <= value < 1 << 24:
                    raise Broken(PROTOCOL_ERROR, "the size of frames")
            elif name == MOST_STREAMS:
                self._most = value
        self._out.append(frame(SETTINGS, ACK, 0))
        while self._waiting and len(self._streams) < self._most:
            self._start(self._waiting.popleft())
        self._pump_all()

    def _pinged(self, flags: int, number: int, data: bytes, at: int, end: int) -> None:
        if end - at != 8 or number:
            raise Broken(FRAME_SIZE_ERROR, "PING")
        if not flags & ACK:
            self.held.append(data[at:end])
            if not self._hold_pings or len(self.held) >= MOST_HELD:
                self.answer_pings()

    def _went(self, flags: int, number: int, data: bytes, at: int, end: int) -> None:
        if end - at < 8 or number:
            raise Broken(FRAME_SIZE_ERROR, "GOAWAY")
        last, code = _two.unpack_from(data, at)
        self.leaving = f"the server is leaving, error {code}"
        ignored = [stream for i, stream in self._streams.items() if i > last & LARGEST]
        ignored += self._waiting
        self._waiting.clear()
        for stream in ignored:
            stream._ended, stream._left = True, b""
            self._over(stream, RpcError(Code.UNAVAILABLE, self.leaving, unsent=True))
        self.closed = self.closed or not self._streams

    def _widened(self, flags: int, number: int, data: bytes, at: int, end: int) -> None:
        if end - at != 4:
            raise Broken(FRAME_SIZE_ERROR, "WINDOW_UPDATE")
        more = _number.unpack_from(data, at)[0] & LARGEST
        if not more:
            raise Broken(PROTOCOL_ERROR, "a window wider by nothing")
        if number:
            stream = self._of(number)
            if stream is None:
                return
            stream._window += more
            if stream._window > LARGEST:
                raise Broken(FLOW_CONTROL_ERROR, "the window is too large")
            if stream in self._blocked and self._room > 0:
                del self._blocked[stream]
                self._pump(stream)
            return
        self._room += more
        if self._room > LARGEST:
            raise Broken(FLOW_CONTROL_ERROR, "the window is too large")
        self._pump_all()


# Handlers by frame type. Wire handles DATA, and the usual HEADERS.
HANDLERS = (
    None, Connection._headers, Connection._ignored, Connection._reset, Connection._settings, Connection._pushed, Connection._pinged,
    Connection._went, Connection._widened, Connection._continued,
)  # fmt: skip
