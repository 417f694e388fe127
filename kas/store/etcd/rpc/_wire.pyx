"""The path of every call on an HTTP/2 connection. ``_wire.pxd`` describes the design.

It is compiled because with dozens of writers these steps, none of which takes long, were a quarter of a worker's cost of a
create (``bench/on_etcd.py``, create).
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memcpy
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from asyncio import Future
from collections import deque

from kas.store.etcd.rpc.hpack import Malformed
from kas.store.etcd.rpc.status import Code, RpcError, verdict

cdef enum:
    HEAD = 9
    DATA = 0
    HEADERS = 1
    RST_STREAM = 3
    SETTINGS = 4
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9
    END_STREAM = 1
    END_HEADERS = 4
    PADDED = 8
    WITH_PRIORITY = 32
    PROTOCOL_ERROR = 1
    FLOW_CONTROL_ERROR = 3
    FRAME_SIZE_ERROR = 6
    COMPRESSION_ERROR = 9
    MOST_FRAME = 16384
    FIRST_WINDOW = 65535

cdef double TICK_S = 0.001  # resolution of the loop's clock
cdef long LARGEST = (1 << 31) - 1
cdef long STREAM_WINDOW_ = 4 << 20, WINDOW_ = 16 << 20
cdef unsigned long MOST_MESSAGE = (1 << 31) - 1
cdef Py_ssize_t MOST_UNREAD = 32 << 20  # bytes that may be queued for a peer that does not read, besides its own window

STREAM_WINDOW, WINDOW = STREAM_WINDOW_, WINDOW_
cdef object _DONE = b"0", _STATUS = b"grpc-status", _OK = b"200", _GRPC = b"application/grpc"


class Broken(Exception):
    """The peer violates the protocol: the connection has to end."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code, self.text = code, text


cdef inline double _now_s() noexcept:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return now.tv_sec + now.tv_nsec * 1e-9


cdef inline void _number(unsigned char *p, unsigned long n) noexcept:
    p[0], p[1], p[2], p[3] = n >> 24 & 255, n >> 16 & 255, n >> 8 & 255, n & 255


cdef inline long _read(const unsigned char *p) noexcept:
    return <long>p[0] << 24 | <long>p[1] << 16 | <long>p[2] << 8 | p[3]


cdef inline unsigned char *_frame_head(unsigned char *p, Py_ssize_t n, int kind, int flags, long stream) noexcept:
    p[0], p[1], p[2], p[3], p[4] = n >> 16 & 255, n >> 8 & 255, n & 255, kind, flags
    _number(p + 5, stream)
    return p + HEAD


cpdef bytes frame(int kind, int flags, long stream, bytes payload=b""):
    """Returns an encoded frame."""
    cdef Py_ssize_t n = PyBytes_GET_SIZE(payload)
    cdef bytes out = PyBytes_FromStringAndSize(NULL, HEAD + n)
    memcpy(_frame_head(<unsigned char *>PyBytes_AS_STRING(out), n, kind, flags, stream), PyBytes_AS_STRING(payload), n)
    return out


cdef bytes _four(long n):
    cdef unsigned char four[4]
    _number(four, n)
    return PyBytes_FromStringAndSize(<char *>four, 4)


cdef bytes _message(bytes message):
    """Adds gRPC's prefix: not compressed, and the length."""
    cdef Py_ssize_t n = PyBytes_GET_SIZE(message)
    cdef bytes out = PyBytes_FromStringAndSize(NULL, 5 + n)
    cdef unsigned char *p = <unsigned char *>PyBytes_AS_STRING(out)
    p[0] = 0
    _number(p + 1, n)
    memcpy(p + 5, PyBytes_AS_STRING(message), n)
    return out


cdef class Stream:
    """See ``http2.Connection.open``."""

    def __cinit__(self):
        self.most = MOST_MESSAGE
        self.messages = []

    def __init__(self, bytes block not None, bytes left not None, bint last, bint single, ended):
        self._block, self._left, self._ended, self.single, self.ended = block, left, last, single, ended

    @property
    def unsent(self):
        """Whether the request has not been passed completely to the socket: the server cannot have begun with it."""
        return not self._id or PyBytes_GET_SIZE(self._left) > 0


cdef class Wire:
    """See ``http2.Connection``; this is the part of it that every call uses."""

    def __init__(self, bytes greeting not None, decoder, tuple handlers not None):
        """``decoder`` decodes header blocks, ``handlers`` handle frames, by their type."""
        self._out, self._rest = [greeting], b""
        self._decoder, self._seen, self._handlers = decoder, decoder.known, handlers
        self._streams, self._waiting, self._blocked, self.held = {}, deque(), {}, []
        self._next = self._taken = 1
        self._room = self._stream_room = FIRST_WINDOW
        self._most = LARGEST
        self.leaving = ""

    # -- sending

    cpdef bytes take(self):
        """Returns the bytes to be sent now."""
        cdef list out = self._out
        self._out, self._taken = [], self._next
        return <bytes>out[0] if len(out) == 1 else b"".join(out)

    cpdef Stream begin(self, bytes block, bytes message, bint last, bint single, ended):
        """See ``http2.Connection.open``."""
        cdef Stream stream
        if self.leaving or self._next > LARGEST or PyBytes_GET_SIZE(block) > MOST_FRAME:
            raise RpcError(Code.UNAVAILABLE, self.leaving or "no more calls on this connection", unsent=True)
        stream = Stream.__new__(Stream)
        stream._block, stream._left, stream._ended, stream.single, stream.ended = block, b"", last, single, ended
        if len(self._streams) >= self._most:
            stream._left = _message(message)
            self._waiting.append(stream)
        elif last and 5 + PyBytes_GET_SIZE(message) <= min(self._room, self._stream_room, MOST_FRAME):
            self._whole(stream, message)
        else:
            stream._left = _message(message)
            self._start(stream)
        return stream

    cdef int _whole(self, Stream stream, bytes message) except -1:
        """Sends a call whose headers and only message fit into one frame each."""
        cdef Py_ssize_t b = PyBytes_GET_SIZE(stream._block), m = PyBytes_GET_SIZE(message)
        cdef bytes out = PyBytes_FromStringAndSize(NULL, 2 * HEAD + 5 + b + m)
        cdef unsigned char *p = <unsigned char *>PyBytes_AS_STRING(out)
        stream._id = self._next
        p = _frame_head(p, b, HEADERS, END_HEADERS, stream._id)
        memcpy(p, PyBytes_AS_STRING(stream._block), b)
        p = _frame_head(p + b, 5 + m, DATA, END_STREAM, stream._id)
        p[0] = 0
        _number(p + 1, m)
        memcpy(p + 5, PyBytes_AS_STRING(message), m)
        self._next += 2
        self._room -= 5 + m
        stream._window = self._stream_room - 5 - m
        self._streams[stream._id] = stream
        self._out.append(out)
        return 0

    cpdef _start(self, Stream stream):
        """Begins a call, as far as the windows permit."""
        stream._id = self._next
        self._next += 2
        stream._window = self._stream_room
        self._streams[stream._id] = stream
        self._out.append(frame(HEADERS, END_HEADERS, stream._id, stream._block))
        self._pump_one(stream)

    cpdef _pump(self, Stream stream):
        """Sends as much of the remaining data as the windows permit."""
        self._pump_one(stream)

    cdef int _pump_one(self, Stream stream) except -1:
        cdef bytes left = stream._left
        cdef Py_ssize_t at = 0, size = PyBytes_GET_SIZE(left)
        cdef long n
        while at < size:
            n = min(size - at, self._room, stream._window, MOST_FRAME)
            if n <= 0:
                self._blocked[stream] = None
                break
            self._room -= n
            stream._window -= n
            at += n
            self._out.append(frame(DATA, END_STREAM if at == size and stream._ended else 0, stream._id, left[at - n : at]))
        stream._left = left[at:]
        return 0

    cpdef _over(self, Stream stream, error):
        """Ends the call, with an error or without."""
        stream.over, stream.error = True, error
        self._streams.pop(stream._id, None)
        if self._blocked:
            self._blocked.pop(stream, None)
        if PyBytes_GET_SIZE(stream._left) or not stream._ended:
            self._out.append(frame(RST_STREAM, 0, stream._id, _four(0)))
        while self._waiting and len(self._streams) < self._most and not self.leaving:
            self._start(self._waiting.popleft())
        if self.leaving and not self._streams:
            self.closed = True
        if stream.ended is not None:
            stream.ended(stream)

    # -- receiving

    cpdef feed(self, bytes data):
        """Processes received data. Never raises: a peer that violates the protocol ends the connection."""
        cdef Py_ssize_t at = 0, size, end, n
        cdef int kind, flags
        cdef long number
        cdef const unsigned char *p
        self.heard += 1
        if self.closed:
            return
        if PyBytes_GET_SIZE(self._rest):
            data = self._rest + data
        size = PyBytes_GET_SIZE(data)
        p = <const unsigned char *>PyBytes_AS_STRING(data)
        try:
            while size - at >= HEAD:
                n = <Py_ssize_t>p[at] << 16 | <Py_ssize_t>p[at + 1] << 8 | p[at + 2]
                kind, flags, number = p[at + 3], p[at + 4], _read(p + at + 5)
                end = at + HEAD + n
                if n > MOST_FRAME:
                    raise Broken(FRAME_SIZE_ERROR, "a frame is too large")
                if end > size:
                    break
                if (self._block is not None and kind != CONTINUATION) or (not self.ready and kind != SETTINGS):
                    raise Broken(PROTOCOL_ERROR, f"a frame of kind {kind} out of turn")
                if kind == DATA:
                    self._data(flags, number & LARGEST, data, at + HEAD, end)
                elif kind == HEADERS and flags & END_HEADERS and not flags & (PADDED | WITH_PRIORITY):
                    self._read_headers(self._known(number & LARGEST), flags, data[at + HEAD : end])
                elif kind <= CONTINUATION:
                    self._handlers[kind](self, flags, number & LARGEST, data, at + HEAD, end)
                at = end
        except Broken as e:
            self._out.append(frame(GOAWAY, 0, 0, _four(0) + _four(e.code)))
            self.lost(f"the server broke the protocol: {e.text}")
            return
        self._rest = data[at:] if at < size else b""

    def _of(self, long number):
        """Returns the open stream; None for one that has ended."""
        return self._known(number)

    cdef Stream _known(self, long number):
        found = self._streams.get(number)
        if found is None and (not number & 1 or number >= self._next):
            raise Broken(PROTOCOL_ERROR, f"a frame of stream {number}, which was never opened")
        return found

    cdef int _data(self, int flags, long number, bytes data, Py_ssize_t at, Py_ssize_t end) except -1:
        cdef Stream stream
        cdef Py_ssize_t n = end - at
        self._got += n
        if self._got > WINDOW_:
            raise Broken(FLOW_CONTROL_ERROR, "more than was allowed")
        if self._got > WINDOW_ // 2:
            self._out.append(frame(WINDOW_UPDATE, 0, 0, _four(self._got)))
            self._got = 0
        stream = self._known(number)
        if stream is None:
            return 0
        stream._got += n
        if stream._got > STREAM_WINDOW_:
            raise Broken(FLOW_CONTROL_ERROR, "more than was allowed")
        if flags & PADDED:
            at, end = self._padding(flags, data, at, end)
        if stream._headers is None:
            raise Broken(PROTOCOL_ERROR, "data before headers")
        error = self._gather(stream, data, at, end)
        if error is not None:
            stream._ended = False  # so that the server is told
            self._over(stream, error)
        elif flags & END_STREAM:
            self._over(stream, verdict(stream._headers) or RpcError(Code.INTERNAL, "an answer without trailers"))
        elif stream._got > STREAM_WINDOW_ // 2:
            self._out.append(frame(WINDOW_UPDATE, 0, number, _four(stream._got)))
            stream._got = 0
        return 0

    cdef object _gather(self, Stream stream, bytes data, Py_ssize_t at, Py_ssize_t end):
        """Extracts messages from received data; returns the ``RpcError`` that ends the call, or None."""
        cdef const unsigned char *p = <const unsigned char *>PyBytes_AS_STRING(data) + at
        cdef Py_ssize_t n = end - at
        cdef bytearray buffer = stream._buffer
        cdef unsigned long size
        if not buffer and n >= 5 and not p[0] and _read(p + 1) == n - 5 and not (stream.single and stream.messages):
            stream.messages.append(data[at + 5 : end])
            return None
        if buffer is None:
            buffer = stream._buffer = bytearray()
        buffer += data[at:end]
        while len(buffer) >= 5:
            size = int.from_bytes(buffer[1:5], "big")
            if buffer[0] or (stream.single and stream.messages):
                return RpcError(Code.INTERNAL, "a message is compressed, or one too many")
            if size > stream.most:
                return RpcError(Code.RESOURCE_EXHAUSTED, f"a message of {size} bytes")
            if len(buffer) < <Py_ssize_t>size + 5:
                break
            stream.messages.append(bytes(memoryview(buffer)[5 : size + 5]))
            del buffer[: size + 5]
        return None

    def _said(self, long number, int flags, bytes block not None):
        """Handles a complete header block, which may have come in pieces."""
        self._read_headers(self._known(number), flags, block)

    cdef int _read_headers(self, Stream stream, int flags, bytes block) except -1:
        """Handles the first headers of an answer, or its trailers."""
        headers = self._seen.get(block)
        if headers is None:
            try:
                headers = self._decoder.decode(block)
            except Malformed as e:
                raise Broken(COMPRESSION_ERROR, f"headers: {e}") from None
        if stream is None:
            return 0
        if headers is self._usual and stream._headers is None and not flags & END_STREAM:
            stream._headers = headers
            return 0
        if flags & END_STREAM:
            error = None if (<dict>headers).get(_STATUS) == _DONE else verdict(headers)
            if error is None and stream._buffer:
                error = RpcError(Code.INTERNAL, "a message breaks off")
            self._over(stream, error)
            return 0
        status = (<dict>headers).get(b":status", b"")
        if status.startswith(b"1"):
            return 0
        if stream._headers is not None:
            raise Broken(PROTOCOL_ERROR, "headers within an answer")
        if status != _OK or not (<dict>headers).get(b"content-type", b"").startswith(_GRPC):
            stream._ended = False
            self._over(stream, verdict(headers) or RpcError(Code.UNKNOWN, "no answer of gRPC"))
        else:
            stream._headers = self._usual = headers
        return 0


cdef inline Py_ssize_t _varint_size(unsigned long long n) noexcept:
    cdef Py_ssize_t size = 1
    while n >= 128:
        n >>= 7
        size += 1
    return size


cdef inline unsigned char *_varint(unsigned char *p, unsigned char tag, unsigned long long n) noexcept:
    p[0] = tag
    p += 1
    while n >= 128:
        p[0] = n & 127 | 128
        p += 1
        n >>= 7
    p[0] = n
    return p + 1


cdef inline unsigned char *_bytes(unsigned char *p, unsigned char tag, bytes value) noexcept:
    cdef Py_ssize_t n = PyBytes_GET_SIZE(value)
    p = _varint(p, tag, n)
    memcpy(p, PyBytes_AS_STRING(value), n)
    return p + n


cdef class PutIf:
    """A ``TxnRequest``: puts ``key`` if it has the mod revision ``expected`` (None: any); otherwise returns its revision."""

    cdef bytes _key, _value
    cdef long long _expected, _lease

    def __init__(self, bytes key not None, bytes value not None, expected, long long lease):
        self._key, self._value, self._lease = key, value, lease
        self._expected = -1 if expected is None else expected

    def SerializeToString(self):
        """Returns the encoded message, like a protobuf message does."""
        cdef Py_ssize_t k = PyBytes_GET_SIZE(self._key), v = PyBytes_GET_SIZE(self._value)
        cdef Py_ssize_t key = 1 + _varint_size(k) + k  # as a field
        cdef Py_ssize_t compare = 0 if self._expected < 0 else 2 + key + 1 + _varint_size(self._expected)
        cdef Py_ssize_t put = key + (1 + _varint_size(v) + v if v else 0) + (1 + _varint_size(self._lease) if self._lease else 0)
        cdef Py_ssize_t success = 1 + _varint_size(put) + put, found = key + 2
        cdef Py_ssize_t failure = 1 + _varint_size(found) + found
        cdef Py_ssize_t size = (1 + _varint_size(compare) + compare if compare else 0) + 1 + _varint_size(success) + success
        cdef bytes out = PyBytes_FromStringAndSize(NULL, size + 1 + _varint_size(failure) + failure)
        cdef unsigned char *p = <unsigned char *>PyBytes_AS_STRING(out)
        if compare:
            p = _varint(p, 0x0A, compare)
            p = _varint(p, 0x10, 2)  # target: the mod revision
            p = _bytes(p, 0x1A, self._key)
            p = _varint(p, 0x30, self._expected)
        p = _varint(_varint(p, 0x12, success), 0x12, put)
        p = _bytes(p, 0x0A, self._key)
        if v:
            p = _bytes(p, 0x12, self._value)
        if self._lease:
            p = _varint(p, 0x18, self._lease)
        p = _varint(_varint(p, 0x1A, failure), 0x0A, found)
        p = _bytes(p, 0x0A, self._key)
        _varint(p, 0x40, 1)  # keys only
        return out


cdef enum:
    VARINT = 0
    FIXED64 = 1
    BYTES = 2
    FIXED32 = 5


cdef struct Field:
    # One field of a message: its value if it is a number, its position if it is bytes.
    int number, kind
    unsigned long long value
    const unsigned char *data
    Py_ssize_t size


cdef inline const unsigned char *_read_varint(const unsigned char *p, const unsigned char *end, unsigned long long *n) noexcept:
    """Returns the end of the number; NULL if it is truncated, or too long."""
    cdef int shift = 0
    cdef unsigned char byte
    n[0] = 0
    while p < end and shift < 70:
        byte = p[0]
        n[0] |= <unsigned long long>(byte & 127) << shift
        p += 1
        if byte < 128:
            return p
        shift += 7
    return NULL


cdef const unsigned char *_field(const unsigned char *p, const unsigned char *end, Field *field) noexcept:
    """Returns the end of the field that begins at ``p``; NULL if it is invalid."""
    cdef unsigned long long n
    p = _read_varint(p, end, &n)
    if p == NULL or n >> 32 or not n >> 3:
        return NULL
    field.number, field.kind = n >> 3, n & 7
    if field.kind == VARINT:
        return _read_varint(p, end, &field.value)
    if field.kind == BYTES:
        p = _read_varint(p, end, &n)
    elif field.kind == FIXED64 or field.kind == FIXED32:
        n = 8 if field.kind == FIXED64 else 4
    else:
        return NULL
    if p == NULL or n > <unsigned long long>(end - p):
        return NULL
    field.data, field.size = p, n
    return p + n


class Undecoded(ValueError):
    """A message that is not of the expected type."""


cdef const unsigned char *_next(const unsigned char *p, const unsigned char *end, Field *field) except NULL:
    p = _field(p, end, field)
    if p == NULL:
        raise Undecoded("it breaks off, or is no protobuf")
    return p


cdef class Change:
    """A change of a key: an ``Event`` with its ``KeyValue``."""


cdef class Watched:
    """A ``WatchResponse``, with the values of its header."""


cdef int _key_value(Change change, const unsigned char *p, const unsigned char *end) except -1:
    cdef Field field
    while p < end:
        p = _next(p, end, &field)
        if field.number == 1 and field.kind == BYTES:
            change.key = PyBytes_FromStringAndSize(<const char *>field.data, field.size)
        elif field.number == 5 and field.kind == BYTES:
            change.value = PyBytes_FromStringAndSize(<const char *>field.data, field.size)
        elif field.number == 3 and field.kind == VARINT:
            change.mod_revision = <long long>field.value
    return 0


cdef Change _change(const unsigned char *p, const unsigned char *end):
    cdef Change change = Change.__new__(Change)
    cdef Field field
    change.key = change.value = b""
    change.put = True
    while p < end:
        p = _next(p, end, &field)
        if field.number == 1 and field.kind == VARINT:
            change.put = field.value == 0
        elif field.number == 2 and field.kind == BYTES:
            _key_value(change, field.data, field.data + field.size)
    return change


cdef int _header(Watched watched, const unsigned char *p, const unsigned char *end) except -1:
    cdef Field field
    while p < end:
        p = _next(p, end, &field)
        if field.number == 1 and field.kind == VARINT:
            watched.cluster_id = field.value
        elif field.number == 3 and field.kind == VARINT:
            watched.revision = <long long>field.value
    return 0


def watched(bytes message not None) -> Watched:
    """Parses a ``WatchResponse``. Raises ``Undecoded``."""
    cdef Watched watched = Watched.__new__(Watched)
    cdef const unsigned char *p = <const unsigned char *>PyBytes_AS_STRING(message)
    cdef const unsigned char *end = p + PyBytes_GET_SIZE(message)
    cdef Field field
    watched.events, watched.cancel_reason = [], ""
    while p < end:
        p = _next(p, end, &field)
        if field.kind == BYTES:
            if field.number == 11:
                watched.events.append(_change(field.data, field.data + field.size))
            elif field.number == 1:
                _header(watched, field.data, field.data + field.size)
            elif field.number == 6:
                watched.cancel_reason = PyBytes_FromStringAndSize(<const char *>field.data, field.size).decode("utf-8", "replace")
        elif field.kind == VARINT:
            if field.number == 2:
                watched.watch_id = <long long>field.value
            elif field.number == 3:
                watched.created = field.value != 0
            elif field.number == 4:
                watched.canceled = field.value != 0
            elif field.number == 5:
                watched.compact_revision = <long long>field.value
            elif field.number == 7:
                watched.fragment = field.value != 0
    return watched


cdef class Calls:
    """See ``looped.Looped``; this is the part of it that is not about the connection's lifetime."""

    def __init__(self, loop, Wire http2 not None):
        self._loop, self._http2 = loop, http2
        self._call_soon, self._call_later = loop.call_soon, loop.call_later
        self._greeting = True

    cpdef Stream begin(self, bytes block, bytes message, double within_s, on_end=None):
        """See ``looped.Looped``."""
        cdef bint alone = on_end is not None and not self._flushing and not self._http2._streams
        cdef Stream stream = self._http2.begin(block, message, True, True, self._ended)
        stream.waiter = self._loop.create_future() if on_end is None else on_end
        stream.until = _now_s() + within_s
        if self._latest is None or stream.until < self._look_at:
            self._watch(stream.until)
        if alone:  # waiting for other calls to send with it would take a loop iteration
            self._flush()
        elif not self._flushing:
            self._flushing = True
            self._call_soon(self._flush)
        if self._alive is None:
            self._look_soon()
        return stream

    cdef int _watch(self, double until) except -1:
        """Sets the timer that checks calls for timeouts."""
        if self._latest is not None:
            self._latest.cancel()
        self._look_at = until
        self._latest = self._call_later(max(0.0, until - _now_s()), self._look_for_late)

    def data_received(self, bytes data not None):
        """See asyncio."""
        self._http2.feed(data)
        if self._greeting or (self._http2.held and self._answering is None and not self._http2.closed):
            self._handle_received()
        self._flush()

    cpdef _flush(self):
        cdef bytes out
        self._flushing = False
        if self._transport.is_closing():  # uvloop would raise; data that were not taken are known to be unsent
            return
        if self._http2._out:
            out = self._http2.take()
            if PyBytes_GET_SIZE(out):
                self._transport.write(out)
        elif not self._http2.closed:
            return
        if self._http2.closed or <Py_ssize_t>self._transport.get_write_buffer_size() > MOST_UNREAD:
            self._overflown()

    def _look_for_late(self):
        """Ends the calls whose deadline has passed. A single timer serves all: few calls take so long."""
        cdef double now = _now_s() + TICK_S, until = 0
        cdef Stream stream
        self._latest = None
        for stream in [*self._http2._streams.values(), *self._http2._waiting]:
            if stream.over:
                continue
            if stream.until <= now:
                self._late(stream)
            elif not until or stream.until < until:
                until = stream.until
        if until and (self._latest is None or until < self._look_at):
            self._watch(until)

    def _ended(self, Stream stream not None):
        waiter = stream.waiter
        stream.waiter = None
        if not isinstance(waiter, Future):
            waiter(stream)
        elif not waiter.done():
            if stream.error is None and len(stream.messages) == 1:
                waiter.set_result(stream.messages[0])
            else:
                self._failed(waiter, stream)


include "wire/question.pxi"
