"""One HTTP/2 connection to a gRPC server (RFC 9113), without a socket: bytes that came go in, bytes to send come out.

Its owner, on one thread at a time, calls ``feed`` with what the peer sent, and sends what ``take`` gives after each call. A stream is one
call: its messages gather in ``messages``, ``over`` says that it ended, and ``error`` how. Whatever the peer does, what is held for it is
bounded: a header block by ``MOST_HEADERS``, what was not read by the windows, an answer with one message (``single``) by that message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Any

from kas.store.etcd.rpc.hpack import Decoder, Headers, Malformed
from kas.store.etcd.rpc.status import Code, RpcError, verdict

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM = ACK = 1
END_HEADERS, PADDED, WITH_PRIORITY = 4, 8, 32
NO_ERROR, PROTOCOL_ERROR, FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL, COMPRESSION_ERROR = 0, 1, 3, 6, 7, 8, 9
TABLE_SIZE, ENABLE_PUSH, MOST_STREAMS, INITIAL_WINDOW, FRAME_SIZE, HEADER_LIST = range(1, 7)

# What the peer may have sent and we have not taken note of, of one stream and of all.
STREAM_WINDOW, WINDOW = 4 << 20, 16 << 20
MOST_FRAME = 16384  # the least that every peer has to accept, and the most that we do
MOST_HEADERS, MOST_CONTINUED = 16384, 32
MOST_HELD = 16  # pings that wait to be answered
MOST_MESSAGE = (1 << 31) - 1
LARGEST = (1 << 31) - 1  # of windows and stream numbers
FIRST_WINDOW = 65535

_head = Struct(">HBBBI")  # of a frame: the length (in two parts), the kind, flags, the stream
_setting, _number, _two, _prefix = Struct(">HI"), Struct(">I"), Struct(">II"), Struct(">BI")


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """A frame as it is sent."""
    n = len(payload)
    return _head.pack(n >> 8, n & 255, kind, flags, stream) + payload


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


class Broken(Exception):
    """The peer does not keep to the protocol: the connection has to end."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code, self.text = code, text


class Stream:
    """One call."""

    __slots__ = (
        "_block",
        "_buffer",
        "_ended",
        "_got",
        "_headers",
        "_id",
        "_left",
        "_window",
        "ended",
        "error",
        "messages",
        "over",
        "single",
        "timer",
        "waiter",
    )  # fmt: skip

    def __init__(self, block: bytes, left: bytes, last: bool, single: bool, ended: Callable[[Stream], None] | None) -> None:
        self._block, self._left, self._ended, self.single, self.ended = block, left, last, single, ended
        self._id = self._window = self._got = 0
        self._headers: Headers | None = None
        self._buffer = bytearray()
        self.messages: list[bytes] = []
        self.over = False
        self.error: RpcError | None = None
        self.waiter: Any = None  # its owner's
        self.timer: Any = None

    @property
    def unsent(self) -> bool:
        """Whether the request has not wholly been given to the socket: nobody can have begun with it."""
        return not self._id or bool(self._left)


class Connection:
    """See above. ``ready``: the peer has greeted. ``leaving``: why no call may begin any more; "" while one may. ``closed``: it is over,
    all streams with it. ``heard`` changes when something came. ``held``: answers to pings which wait for ``answer_pings``."""

    def __init__(self, hold_pings: bool = False) -> None:
        """``hold_pings``: who owns it answers them, by and by. gRPC's servers measure the connection with a ping for what they receive
        while none is open: answered at once, each call brings another one, and a wake-up of both sides."""
        self._hold_pings = hold_pings
        self.held: list[bytes] = []
        self._out: list[bytes] = [GREETING]
        self._rest = b""
        self._decoder = Decoder()
        self._streams: dict[int, Stream] = {}
        self._waiting: deque[Stream] = deque()  # for the peer to let more of them be open
        self._blocked: dict[Stream, None] = {}  # have more to send than the windows let
        self._next, self._got = 1, 0
        self._taken = 1  # streams from here on have nothing in what was taken
        self._room = self._stream_room = FIRST_WINDOW
        self._frame, self._most = MOST_FRAME, LARGEST
        self._block: tuple[int, int, bytearray, int] | None = None
        self.ready = self.closed = False
        self.leaving = ""
        self.heard = 0
        self._take = (
            self._data, self._headers, self._ignored, self._reset, self._settings, self._pushed, self._pinged, self._went, self._widened,
            self._continued,
        )  # fmt: skip

    # -- going out

    def take(self) -> bytes:
        """What is to be sent now."""
        out, self._out, self._taken = self._out, [], self._next
        return out[0] if len(out) == 1 else b"".join(out)

    @property
    def busy(self) -> bool:
        """Whether a call is under way."""
        return bool(self._streams or self._waiting)

    def open(
        self, block: bytes, message: bytes, *, last: bool = True, single: bool = True, ended: Callable[[Stream], None] | None = None
    ) -> Stream:
        """Begins a call with its first message; ``last``: there is no other. ``ended(stream)`` is called when it is over. Raises
        ``RpcError`` when no call may begin."""
        if self.leaving or self._next > LARGEST or len(block) > self._frame:
            raise RpcError(Code.UNAVAILABLE, self.leaving or "no more calls on this connection", unsent=True)
        stream = Stream(block, _prefix.pack(0, len(message)) + message, last, single, ended)
        if len(self._streams) < self._most:
            self._start(stream)
        else:
            self._waiting.append(stream)
        return stream

    def _start(self, stream: Stream) -> None:
        stream._id, self._next = self._next, self._next + 2
        stream._window = self._stream_room
        self._streams[stream._id] = stream
        self._out.append(frame(HEADERS, END_HEADERS, stream._id, stream._block))
        self._pump(stream)

    def send(self, stream: Stream, message: bytes) -> None:
        """Another message of a call; of one that is over nothing is sent."""
        if not stream.over:
            stream._left += _prefix.pack(0, len(message)) + message
            if stream._id:
                self._pump(stream)

    def _pump(self, stream: Stream) -> None:
        left, at = stream._left, 0
        while at < len(left):
            n = min(len(left) - at, self._room, stream._window, self._frame)
            if n <= 0:
                self._blocked[stream] = None
                break
            self._room -= n
            stream._window -= n
            at += n
            self._out.append(frame(DATA, END_STREAM if at == len(left) and stream._ended else 0, stream._id, left[at - n : at]))
        stream._left = left[at:]

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
        """Asks for a sign of life."""
        self._out.append(frame(PING, 0, 0, b"kas-ping"))

    def answer_pings(self) -> None:
        """Answers what was held."""
        self._out += [frame(PING, ACK, 0, ping) for ping in self.held]
        self.held.clear()

    def lost(self, why: str) -> None:
        """The connection is no more: every call ends, its outcome unknown unless it was not sent. Idempotent."""
        self.closed = True
        self.leaving = self.leaving or why
        for stream in (*self._streams.values(), *self._waiting):
            self._waiting.clear()
            self._over(stream, RpcError(Code.UNAVAILABLE, why, unsent=stream.unsent or stream._id >= self._taken))

    def _over(self, stream: Stream, error: RpcError | None) -> None:
        stream.over, stream.error = True, error
        self._streams.pop(stream._id, None)
        self._blocked.pop(stream, None)
        if stream._left or not stream._ended:
            self._out.append(frame(RST_STREAM, 0, stream._id, _number.pack(NO_ERROR)))
        while self._waiting and len(self._streams) < self._most and not self.leaving:
            self._start(self._waiting.popleft())
        if self.leaving and not self._streams:
            self.closed = True
        if stream.ended is not None:
            stream.ended(stream)

    # -- coming in

    def feed(self, data: bytes) -> None:
        """What the peer sent. Never raises: a peer that breaks the protocol ends the connection."""
        self.heard += 1
        if self.closed:
            return
        if self._rest:
            data = self._rest + data
        at, size = 0, len(data)
        try:
            while size - at >= 9:
                high, low, kind, flags, stream = _head.unpack_from(data, at)
                end = at + 9 + (high << 8 | low)
                if end - at > MOST_FRAME + 9:
                    raise Broken(FRAME_SIZE_ERROR, "a frame is too large")
                if end > size:
                    break
                if (self._block is not None and kind != CONTINUATION) or (not self.ready and kind != SETTINGS):
                    raise Broken(PROTOCOL_ERROR, f"a frame of kind {kind} out of turn")
                if kind <= CONTINUATION:
                    self._take[kind](flags, stream & LARGEST, data, at + 9, end)
                at = end
        except Broken as e:
            self._out.append(frame(GOAWAY, 0, 0, _two.pack(0, e.code)))
            self.lost(f"the server broke the protocol: {e.text}")
            return
        self._rest = data[at:] if at < size else b""

    def _ignored(self, flags: int, stream: int, data: bytes, at: int, end: int) -> None:
        """Priorities are advice."""

    def _pushed(self, flags: int, stream: int, data: bytes, at: int, end: int) -> None:
        raise Broken(PROTOCOL_ERROR, "a push")

    def _of(self, number: int) -> Stream | None:
        """The open stream; None for one that is over."""
        stream = self._streams.get(number)
        if stream is None and (not number & 1 or number >= self._next):
            raise Broken(PROTOCOL_ERROR, f"a frame of stream {number}, which was never opened")
        return stream

    def _padding(self, flags: int, data: bytes, at: int, end: int) -> tuple[int, int]:
        if flags & PADDED:
            if at >= end or at + 1 + data[at] > end:
                raise Broken(PROTOCOL_ERROR, "padding")
            return at + 1, end - data[at]
        return at, end

    def _data(self, flags: int, number: int, data: bytes, at: int, end: int) -> None:
        n = end - at
        self._got += n
        if self._got > WINDOW:
            raise Broken(FLOW_CONTROL_ERROR, "more than was allowed")
        if self._got > WINDOW // 2:
            self._out.append(frame(WINDOW_UPDATE, 0, 0, _number.pack(self._got)))
            self._got = 0
        stream = self._of(number)
        if stream is None:
            return
        stream._got += n
        if stream._got > STREAM_WINDOW:
            raise Broken(FLOW_CONTROL_ERROR, "more than was allowed")
        if flags & PADDED:
            at, end = self._padding(flags, data, at, end)
        if stream._headers is None:
            raise Broken(PROTOCOL_ERROR, "data before headers")
        error = self._gather(stream, data, at, end)
        if error is not None:
            stream._ended = False  # so that it is told
            self._over(stream, error)
        elif flags & END_STREAM:
            self._over(stream, verdict(stream._headers) or RpcError(Code.INTERNAL, "an answer without trailers"))
        elif stream._got > STREAM_WINDOW // 2:
            self._out.append(frame(WINDOW_UPDATE, 0, number, _number.pack(stream._got)))
            stream._got = 0

    def _gather(self, stream: Stream, data: bytes, at: int, end: int) -> RpcError | None:
        """Takes messages out of what came."""
        buffer = stream._buffer
        if not buffer and end - at >= 5:
            packed, size = _prefix.unpack_from(data, at)
            if not packed and size == end - at - 5 and not (stream.single and stream.messages):
                stream.messages.append(data[at + 5 : end])
                return None
        buffer += data[at:end]
        while len(buffer) >= 5:
            packed, size = _prefix.unpack_from(buffer)
            if packed or (stream.single and stream.messages):
                return RpcError(Code.INTERNAL, "a message is compressed, or one too many")
            if size > MOST_MESSAGE:
                return RpcError(Code.RESOURCE_EXHAUSTED, f"a message of {size} bytes")
            if len(buffer) < size + 5:
                break
            stream.messages.append(bytes(memoryview(buffer)[5 : size + 5]))
            del buffer[: size + 5]
        return None

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

    def _said(self, number: int, flags: int, block: bytes) -> None:
        """A whole block of headers: the first of an answer, or its trailers."""
        stream = self._of(number)
        try:
            headers = self._decoder.decode(block)
        except Malformed as e:
            raise Broken(COMPRESSION_ERROR, f"headers: {e}") from None
        if stream is None:
            return
        if flags & END_STREAM:
            error = verdict(headers)
            if error is None and stream._buffer:
                error = RpcError(Code.INTERNAL, "a message breaks off")
            self._over(stream, error)
        elif headers.get(b":status", b"").startswith(b"1"):
            return
        elif stream._headers is not None:
            raise Broken(PROTOCOL_ERROR, "headers within an answer")
        elif headers.get(b":status") != b"200" or not headers.get(b"content-type", b"").startswith(b"application/grpc"):
            stream._ended = False
            self._over(stream, verdict(headers) or RpcError(Code.UNKNOWN, "no answer of gRPC"))
        else:
            stream._headers = headers

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
