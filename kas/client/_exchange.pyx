"""The usual path of a webhook call. ``_exchange.pxd`` describes the design.

Why C: a write that calls a webhook spent two fifths of the cost of the call in some hundred small steps of Python
(``bench/webhook_cost.py``).
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.contextvars cimport get_value
from cpython.object cimport PyObject
from libc.math cimport ceil
from libc.string cimport memcmp, memcpy
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

import asyncio
import ssl
from asyncio import CancelledError, current_task

from kas.client.http import BackendError
from kas.observe import tracing

cdef enum:
    READ = 16384
    PIECE = 65536
    WEIGHT = 3

cdef object _SPAN = tracing.CURRENT
cdef object _WantRead = ssl.SSLWantReadError, _SSLError = ssl.SSLError
cdef object _current_task = current_task, _CancelledError = CancelledError

cdef extern from "Python.h":
    int PyContext_Enter(object context) except -1
    int PyContext_Exit(object context) except -1


cdef bytes _message(bytes head, bytes body):
    """The request; its head is completed with the length of the body."""
    cdef char length[20]
    cdef Py_ssize_t n = PyBytes_GET_SIZE(head), m = PyBytes_GET_SIZE(body), left = m
    cdef int at = 20
    while at == 20 or left:
        at -= 1
        length[at] = <char>(48 + left % 10)
        left //= 10
    cdef Py_ssize_t k = 20 - at
    cdef bytes out = PyBytes_FromStringAndSize(NULL, n + 16 + k + 4 + m)
    cdef char *p = PyBytes_AS_STRING(out)
    memcpy(p, PyBytes_AS_STRING(head), n)
    memcpy(p + n, b"Content-Length: ", 16)
    memcpy(p + n + 16, length + at, k)
    memcpy(p + n + 16 + k, b"\r\n\r\n", 4)
    memcpy(p + n + 20 + k, PyBytes_AS_STRING(body), m)
    return out


@cython.final
@cython.freelist(16)
cdef class Answered:
    """What a task awaits: the part of a future that is needed for one waiter. The response resumes the task
    directly, while the connection hands it over. With a future, the callback's handle and another turn of the event
    loop would cost as much as encrypting the request."""

    def __cinit__(self, loop):
        self._loop = loop

    def get_loop(self):
        return self._loop

    def add_done_callback(self, callback, *, context=None):
        """Sets the callback of the one task that waits."""
        if self.over:
            self._loop.call_soon(callback, self, context=context)
        else:
            self._callback, self._context = callback, context

    def done(self):
        return self.over

    def result(self):
        if self.error is not None:
            raise self.error
        return self.found

    def cancel(self, msg=None):
        if self.over:
            return False
        self.set_exception(_CancelledError() if msg is None else _CancelledError(msg))
        return True

    def set_result(self, bytes found not None):
        self.found, self.over = found, True
        self._tell_soon()

    def set_exception(self, error not None):
        self.error, self.over = error, True
        self._tell_soon()

    cdef int _tell_soon(self) except -1:
        callback, self._callback = self._callback, None
        if callback is not None:
            self._loop.call_soon(callback, self, context=self._context)
        return 0

    cdef int _came(self, bytes found) except -1:
        """``set_result`` for a caller that has nothing left to do afterwards."""
        if self._callback is None or self._context is None or _current_task(self._loop) is not None:
            self.set_result(found)
            return 0
        self.found, self.over = found, True
        callback, self._callback = self._callback, None
        PyContext_Enter(self._context)
        try:
            callback(self)
        finally:
            PyContext_Exit(self._context)
        return 0


cdef class Wire:
    """The usual requests and responses of one connection. ``none`` stands for the head of a response that has not
    arrived, ``nothing`` for its framing. ``tls`` is a TLS connection over memory, which reads from ``sealed`` and
    writes to ``sealing``."""

    def __init__(self, none, nothing, tls, sealed, sealing):
        self._loop = asyncio.get_running_loop()
        self.head = self._none = none
        self._known = self._framing = nothing
        self._tls, self._sealed, self._sealing = tls, sealed, sealing
        self._got = bytearray()
        self._length = -1

    def knows(self, known not None, bytes raw not None, length, bint plain):
        """Remembers the parsed head of a response, for further responses that begin with the same bytes, ``raw``.
        ``length`` is the body's, None if it is not given; ``plain`` means that nothing but the body matters."""
        self._known, self._raw, self._says_nothing = known, raw, plain
        self._length = -1 if length is None else length

    def post(self, bytes head not None, bytes body not None, Py_ssize_t limit):
        """Sends a POST whose ``head`` was made by ``request_head``. Returns a future of the first ``limit`` bytes of
        the response; ``head`` of this object is the response's head then. Raises BackendError, as the future does. A
        caller that cancels it must close the connection."""
        if self._ended or len(self._got) or self._transport is None:
            raise BackendError("write: connection lost")
        answer = self._loop.create_future()
        self._ask(answer, head, body, limit)
        return answer

    cdef int _ask(self, answer, bytes head, bytes body, Py_ssize_t limit) except -1:
        self._limit, self.head, self._chunks, self._informational, self._looked = limit, self._none, None, 0, 0
        self.plain, self._answer = False, answer
        self._write(_message(head, body))
        return 0

    @property
    def quiet(self) -> bool:
        """Whether nothing has arrived since the last response; otherwise the peer has closed the connection or is out of step."""
        return not self._ended and not len(self._got)

    cdef int _write(self, bytes data) except -1:
        cdef Py_ssize_t written = 0, n = PyBytes_GET_SIZE(data)
        if self._tls is None:
            self._transport.write(data)
            return 0
        while written < n:
            # Of what is large a piece is sealed in memory that the one before it has left.
            written += self._tls.write(memoryview(data)[written : written + PIECE] if written or n > PIECE else data)
            self._transport.write(self._sealing.read())
        return 0

    def data_received(self, bytes data not None):
        """A piece of the response, or unexpected data."""
        cdef bint over = False
        if self._tls is not None:
            if not self.ready.done():
                self._sealed.write(data)
                self._handshake(self._tls)
                if not self.ready.done() or self._ended:
                    return
                data = self._opened(b"")
            else:
                data = self._opened(data)
            over = data is None
        if not over and self._usual(data):
            return
        if not over:
            self._got += data
        if self._answer is None or self._answer.done():
            if len(self._got):
                self.close()
        else:
            self._go_on()
        if over:
            self._said_all()

    cdef bytes _opened(self, bytes data):
        """Decrypts all complete records. None if the peer has closed TLS; then everything is in ``_got``."""
        cdef bytes piece, first = b""
        cdef bint over = False
        cdef Py_ssize_t left = PyBytes_GET_SIZE(data), wanted = 0
        tls, sealed = self._tls, self._sealed
        if left:
            sealed.write(data)
        try:
            while True:
                left = sealed.pending
                if not left and (PyBytes_GET_SIZE(first) < wanted or not tls.pending()):
                    break  # a read that was not filled has left nothing of its record
                wanted = left if 0 < left < READ else READ
                piece = tls.read(wanted)
                if not PyBytes_GET_SIZE(piece):
                    over = True
                    break
                if PyBytes_GET_SIZE(first):
                    self._got += first
                first = piece
        except _WantRead:
            pass
        except _SSLError as e:
            self._got += first
            first = b""
            self._end(e)
            self.close()
        if self._transport is not None and self._sealing.pending:
            self._transport.write(self._sealing.read())
        if over:
            self._got += first
            return None
        return first

    cdef bint _usual(self, bytes data) except -1:
        """Takes a response that has arrived as a whole with the head of the previous one, as nearly all do; returns whether it was one."""
        cdef Py_ssize_t n = PyBytes_GET_SIZE(data), k
        cdef bytes raw = self._raw
        if self._length < 0 or self._length >= self._limit or self.head is not self._none or len(self._got):
            return False
        k = PyBytes_GET_SIZE(raw)
        if n - k != self._length or memcmp(PyBytes_AS_STRING(data), PyBytes_AS_STRING(raw), k) != 0:
            return False
        answer = self._answer
        if answer is None or answer.done():
            return False
        self.head, self._framing, self._answer, self.plain = self._known.head, self._known, None, self._says_nothing
        found = PyBytes_FromStringAndSize(PyBytes_AS_STRING(data) + k, n - k)
        if type(answer) is Answered:
            (<Answered>answer)._came(found)  # last, because the waiting task continues in it
        else:
            answer.set_result(found)
        return True


cdef class Kept:
    """The connections that stay open between calls, at most ``room``; ``clock`` tells their age."""

    def __init__(self, Py_ssize_t room, clock):
        self._idle, self._room, self._clock = [], room, clock

    def take(self):
        """A connection on which nothing has arrived since its last response; None if there is none."""
        return self._take()

    cdef Wire _take(self):
        cdef Wire found
        while self._idle:
            found = <Wire?>(<tuple>self._idle.pop())[1]
            if not found._ended and not len(found._got) and found._transport is not None:
                found.generation = self.generation
                return found
            found.close()
        return None

    def keep(self, Wire connection not None, long generation):
        """Keeps a connection that takes another request, or closes it. ``generation`` is the value when the
        connection was taken or made."""
        self._keep(connection, generation)

    cdef int _keep(self, Wire connection, long generation) except -1:
        if self._closed or generation != self.generation or len(self._idle) >= self._room:
            connection.close()
            return 0
        self._idle.append((self._clock(), connection))
        if self._timer is None:
            self._wait()
        return 0

    def outdate(self):
        """Makes the connections that are in use now close after use."""
        self.generation += 1


cdef class Shares:
    """Shares the calls that a worker has ``room`` for between backends, whatever they are called for: mutation, validation, conversion.

    A backend may hold three times what is left (dynamic thresholds, as switches share their buffers): one that hangs
    gets three quarters of the room, two get three sevenths each. A backend without a call may always get one.
    """

    def __init__(self, Py_ssize_t room):
        self._room, self._running = room, {}

    def running(self, backend) -> int:
        """How many calls of the backend are in progress."""
        return self._running.get(backend, 0)

    def take(self, backend) -> bool:
        """Whether one more call may begin; if so, ``give`` must be called at its end."""
        return self._take(backend)

    def give(self, backend):
        """Records that a call has ended."""
        self._give(backend)

    cdef bint _take(self, object backend) except -1:
        cdef Py_ssize_t running = self._running.get(backend, 0)
        if running and running >= WEIGHT * (self._room - self._total):
            return False
        self._running[backend] = running + 1
        self._total += 1
        return True

    cdef int _give(self, object backend) except -1:
        cdef Py_ssize_t left = self._running[backend] - 1
        self._total -= 1
        if left:
            self._running[backend] = left
        else:
            del self._running[backend]
        return 0


cdef inline double _now() noexcept:
    """As ``time.monotonic()``."""
    cdef timespec t
    clock_gettime(CLOCK_MONOTONIC, &t)
    return t.tv_sec + t.tv_nsec * 1e-9


cdef class Ends:
    """Calls ``late`` of connections whose responses are not there in time. All share one timer, as in
    ``kas.meta.deadlines.Deadlines`` for tasks: nearly every response comes long before that."""

    def __init__(self):
        self._due = {}

    cdef int _add(self, Wire connection, double at) except -1:
        self._due[connection] = at
        if self._timer is None or at < self._fires:
            self._arm(at)
        return 0

    def _arm(self, double at):
        if self._timer is not None:
            self._timer.cancel()
        self._fires = at
        self._timer = asyncio.get_running_loop().call_later(max(0.0, at - _now()), self._sweep)

    def _sweep(self):
        cdef double now = _now()
        self._timer = None
        late = [connection for connection, at in self._due.items() if <double>at <= now]
        for connection in late:
            del self._due[connection]
            connection.late()
        if self._due:
            self._arm(min(self._due.values()))


cdef class Asker:
    """Calls one backend on open connections; takes at most ``most`` bytes of a response."""

    def __init__(self, Shares shares not None, backend, Ends ends not None, Py_ssize_t most):
        self._shares, self._backend, self._ends, self._most = shares, backend, ends, most

    def begin(self, bytes body not None, double timeout_s, double left_s):
        """Sends a request if it can be done as before: on an open connection, with the head of the last request.
        Returns an awaitable of the response; None if it must be done otherwise."""
        return self._begin(body, timeout_s, left_s)

    cdef Asking _begin(self, bytes body, double timeout_s, double left_s):
        cdef Wire connection
        cdef Kept pool
        cdef Answered answered
        cdef Asking asking
        cdef double seconds = ceil(timeout_s if timeout_s < left_s else left_s), until
        if not self._fixed or self._last is None or not isinstance(self._pool, Kept):
            return None
        if <double>(<tuple>self._last[0])[0] != (seconds if seconds > 1 else 1) or get_value(_SPAN) is not None:
            return None
        pool = <Kept>self._pool
        connection = pool._take()
        if connection is None:
            return None
        if not self._shares._take(self._backend):
            pool._keep(connection, connection.generation)
            return None
        until = _now() + timeout_s
        answered = Answered.__new__(Answered, connection._loop)
        self._ends._add(connection, until)
        try:
            connection._ask(answered, <bytes?>self._last[2], body, self._most + 1)
        except BaseException:
            self._shares._give(self._backend)
            self._rest(connection, False)
            raise
        asking = Asking.__new__(Asking)
        asking._asker, asking._connection, asking._answered, asking._body, asking._until = self, connection, answered, body, until
        asking._last = self._last
        return asking

    def rest(self, Wire connection not None, bint good):
        """Releases a connection whose response was taken. One that is not ``good`` is closed, whatever arrives on it."""
        self._rest(connection, good)

    cdef int _rest(self, Wire connection, bint good) except -1:
        self._ends._due.pop(connection, None)
        if good:
            (<Kept>self._pool)._keep(connection, connection.generation)
        else:
            connection.close()
        return 0


cdef class Known:
    """The existing clients by ``client_key``, the most recently used one last."""

    def __init__(self, clients not None):
        self._known = clients

    def found(self, bytes key not None):
        """The client of a configuration, if there is one."""
        return self._found(key)

    cdef Asker _found(self, bytes key):
        cdef Asker found = self._known.get(key)
        if found is not None and found is not self._latest:
            self._known.move_to_end(key)
            self._latest = found
        return found


@cython.freelist(16)
cdef class Asking:
    """A call on the usual path, to be awaited once for the body of its response. Raises as ``HookClient.post`` does.
    When it ends the connection is kept and the share released. One that is never awaited must be closed."""

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        cdef Wire connection = self._connection
        cdef Answered answered = self._answered
        if self._more is not None:
            return next(self._more)
        if connection is None:
            raise RuntimeError("an answer is awaited once")
        if not self._waits:
            self._waits = answered._asyncio_future_blocking = True
            return answered
        found = answered.result()
        if not connection.plain:
            self._connection = None
            self._more = self._asker.unusual(connection, found, self._last, self._body, self._until).__await__()
            return next(self._more)
        self._over(True)
        if self.bare:
            self.found = found
            raise StopIteration
        raise StopIteration(found)

    def send(self, _):
        """The generator protocol's."""
        return self.__next__()

    def throw(self, kind, value=None, trace=None):
        """The response did not come, or the caller was cancelled."""
        if self._more is not None:
            return self._more.throw(kind, value, trace)
        error = value if value is not None else kind() if isinstance(kind, type) else kind
        self._over(False)
        if isinstance(error, BackendError):
            raise self._asker.unanswered(error, self._last) from None
        raise error

    def close(self):
        """The response is not wanted."""
        if self._more is not None:
            self._more.close()
        else:
            self._over(False)

    cdef int _over(self, bint good) except -1:
        cdef Wire connection = self._connection
        if connection is not None:
            self._connection = None
            self._asker._rest(connection, good)
            self._asker._shares._give(self._asker._backend)
        return 0
