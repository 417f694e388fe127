"""The text of audit events. The design is in ``_engine.pxd``.

Why C: at level Metadata, recording took two thirds of the time of a GET. Half of it was for Python objects that lived until the batch was
written, and that the garbage collector traversed in the meantime (``bench/test_audit.py``, ``bench/identities.py``).
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.contextvars cimport PyContextVar_Set
from cpython.list cimport PyList_GET_SIZE
from cpython.object cimport PyObject, PyTypeObject
from cpython.unicode cimport PyUnicode_1BYTE_KIND, PyUnicode_DATA, PyUnicode_KIND, PyUnicode_READ
from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec

from kas._fastpath cimport Attributes, Request, RequestInfo, Response

import orjson

from kas.auth.impersonation import CONSTRAINT as _constraint
from kas.meta.ip import parse_ip
from kas.meta.scalars import format_micro_time
from kas.observe import latencies
from kas.observe.caches import remembered
from kas.request.masking import request_uri

cdef enum:
    MAX_USER_AGENT = 1024
    KEPT_BYTES = 65536  # the buffer is freed after a longer event

cdef double SLOW_S = 0.5
cdef str RECEIVED = "RequestReceived", COMPLETE = "ResponseComplete"
cdef str METADATA = "Metadata", NONE = "None"
cdef str AUTHENTICATION = latencies.AUTHENTICATION, AUTHORIZATION = latencies.AUTHORIZATION
cdef str TRUNCATED = "audit.k8s.io/truncated"
cdef str CONSTRAINT = _constraint
cdef str DECISION = "authorization.k8s.io/decision", REASON = "authorization.k8s.io/reason"
cdef bytes HEAD = b'{"kind":"Event","apiVersion":"audit.k8s.io/v1",'
cdef bytes NOBODY = b"{}"
cdef tuple _EMPTY = ()

cdef struct Out:
    char *data
    size_t size
    size_t room

cdef Out _out
_out.data, _out.size, _out.room = NULL, 0, 0

# Bytes that Go's encoder writes unchanged; it escapes HTML's special characters, too.
cdef uint8_t _plain[256]
cdef int _i
for _i in range(256):
    _plain[_i] = 32 <= _i < 128 and chr(_i) not in '"\\<>&'

cdef char *_HEX = "0123456789abcdef"


cdef inline int _reserve(size_t more) except -1:
    """Make room for this many more bytes."""
    cdef size_t room
    cdef char *data
    if _out.size + more > _out.room:
        room = (_out.size + more) * 2
        data = <char *>realloc(_out.data, room)
        if data == NULL:
            raise MemoryError()
        _out.data, _out.room = data, room
    return 0


cdef inline int _raw(bytes text) except -1:
    cdef size_t n = PyBytes_GET_SIZE(text)
    _reserve(n)
    memcpy(_out.data + _out.size, PyBytes_AS_STRING(text), n)
    _out.size += n
    return 0


cdef inline char *_escape(char *p, uint8_t c) noexcept:
    """Write an ASCII character that needs an escape."""
    p[0] = c"\\"
    if c == c'"' or c == c"\\":
        p[1] = c
    elif c == c"\n":
        p[1] = c"n"
    elif c == c"\t":
        p[1] = c"t"
    elif c == c"\r":
        p[1] = c"r"
    elif c == 8:
        p[1] = c"b"
    elif c == 12:
        p[1] = c"f"
    else:
        p[1], p[2], p[3], p[4], p[5] = c"u", c"0", c"0", _HEX[c >> 4], _HEX[c & 15]
        return p + 6
    return p + 2


cdef inline char *_encode(char *p, uint32_t c) noexcept:
    """Write a character beyond ASCII as UTF-8; JavaScript's line separators are escaped, and invalid characters become U+FFFD, as in
    Go."""
    if c == 0x2028 or c == 0x2029:
        memcpy(p, b"\\u2028", 6)
        if c == 0x2029:
            p[5] = c"9"
        return p + 6
    if 0xD800 <= c <= 0xDFFF:
        c = 0xFFFD
    if c < 0x800:
        p[0], p[1] = <char>(0xC0 | c >> 6), <char>(0x80 | c & 0x3F)
        return p + 2
    if c < 0x10000:
        p[0], p[1], p[2] = <char>(0xE0 | c >> 12), <char>(0x80 | c >> 6 & 0x3F), <char>(0x80 | c & 0x3F)
        return p + 3
    p[0], p[1] = <char>(0xF0 | c >> 18), <char>(0x80 | c >> 12 & 0x3F)
    p[2], p[3] = <char>(0x80 | c >> 6 & 0x3F), <char>(0x80 | c & 0x3F)
    return p + 4


cdef inline char *_latin1(char *p, const uint8_t *text, Py_ssize_t n) noexcept:
    cdef Py_ssize_t i = 0
    while i < n:
        # Most text needs no escapes and is copied eight bytes at a time.
        while i + 8 <= n and (
            _plain[text[i]] & _plain[text[i + 1]] & _plain[text[i + 2]] & _plain[text[i + 3]]
            & _plain[text[i + 4]] & _plain[text[i + 5]] & _plain[text[i + 6]] & _plain[text[i + 7]]
        ):
            memcpy(p, text + i, 8)
            p += 8
            i += 8
        if i == n:
            break
        if _plain[text[i]]:
            p[0] = <char>text[i]
            p += 1
        elif text[i] < 128:
            p = _escape(p, text[i])
        else:
            p = _encode(p, text[i])
        i += 1
    return p


cdef int _text(str text) except -1:
    """Write a string in quotes."""
    cdef Py_ssize_t i, n = len(text)
    cdef int kind = PyUnicode_KIND(text)
    cdef void *data = PyUnicode_DATA(text)
    cdef uint32_t c
    _reserve(<size_t>n * 6 + 2)
    cdef char *p = _out.data + _out.size
    p[0] = c'"'
    p += 1
    if kind == PyUnicode_1BYTE_KIND:
        p = _latin1(p, <const uint8_t *>data, n)
    else:
        for i in range(n):
            c = PyUnicode_READ(kind, data, i)
            if c >= 128:
                p = _encode(p, c)
            elif _plain[c]:
                p[0] = <char>c
                p += 1
            else:
                p = _escape(p, <uint8_t>c)
    p[0] = c'"'
    _out.size = p + 1 - _out.data
    return 0


cdef inline int _field(bytes key, str value) except -1:
    """Write ``key``, which includes quotes, colon and separator, and the value."""
    _raw(key)
    return _text(value)


cdef int _agent(bytes value) except -1:
    cdef Py_ssize_t n = PyBytes_GET_SIZE(value)
    cdef bint long_ = n > MAX_USER_AGENT
    if long_:
        n = MAX_USER_AGENT
    _raw(b',"userAgent":"')
    _reserve(<size_t>n * 6)
    _out.size = _latin1(_out.data + _out.size, <const uint8_t *>PyBytes_AS_STRING(value), n) - _out.data
    _raw(b'...TRUNCATED"' if long_ else b'"')
    return 0


cdef inline double _time(int clock) noexcept:
    """``time.time()`` or ``time.monotonic()``, by clock."""
    cdef timespec t
    clock_gettime(clock, &t)
    return t.tv_sec + t.tv_nsec * 1e-9


cdef inline double _arrival(Request req) noexcept:
    return _time(CLOCK_REALTIME) - (_time(CLOCK_MONOTONIC) - req.started)


def arrival(Request req not None) -> float:
    """Return the time of day when a request arrived, which may be long before now: authentication may have called other servers."""
    return _arrival(req)


# The last second of which a time was written, and its formatted prefix; one for each of the event's two times.
cdef long long _second[2]
cdef bytes _received_begin = b"", _staged_begin = b""
_second[0] = _second[1] = -1


cdef bytes _begin(long long micros, int which):
    """Return the prefix of a time, up to and including the decimal point."""
    global _received_begin, _staged_begin
    cdef long long whole = micros // 1000000
    if _second[which] != whole:
        begin = format_micro_time(whole, 0)[:20].encode()
        if which:
            _staged_begin = begin
        else:
            _received_begin = begin
        _second[which] = whole
    return _staged_begin if which else _received_begin


cdef int _micros(bytes begin, long long micros) except -1:
    """Write the prefix, the fraction of a time, and the closing quote."""
    cdef int part = micros % 1000000
    cdef int i
    _raw(begin)
    _reserve(8)
    cdef char *p = _out.data + _out.size
    for i in range(5, -1, -1):
        p[i] = c"0" + part % 10
        part = part // 10
    p[6], p[7] = c"Z", c'"'
    _out.size += 8
    return 0


cdef int _number(int value) except -1:
    """Write a non-negative number."""
    cdef char digits[12]
    cdef int n = 12
    while True:
        n -= 1
        digits[n] = c"0" + value % 10
        value = value // 10
        if not value:
            break
    _reserve(12)
    memcpy(_out.data + _out.size, digits + n, 12 - n)
    _out.size += 12 - n
    return 0


cdef int _reference(RequestInfo info) except -1:
    """Write the object reference as far as the request line determines it."""
    cdef size_t began
    _raw(b',"objectRef":{')
    began = _out.size
    if info.resource:
        _field(b'"resource":', info.resource)
    if info.namespace:
        _field(b'"namespace":' if _out.size == began else b',"namespace":', info.namespace)
    if info.name:
        _field(b'"name":' if _out.size == began else b',"name":', info.name)
    if info.api_group:
        _field(b'"apiGroup":' if _out.size == began else b',"apiGroup":', info.api_group)
    if info.api_version:
        _field(b'"apiVersion":' if _out.size == began else b',"apiVersion":', info.api_version)
    if info.subresource:
        _field(b'"subresource":' if _out.size == began else b',"subresource":', info.subresource)
    _raw(b"}")
    return 0


cdef int _mapping(bytes key, dict texts) except -1:
    cdef bint first = True
    _raw(key)
    for name, value in texts.items():
        if not first:
            _raw(b",")
        first = False
        _text(<str?>name)
        _raw(b":")
        _text(<str?>value)
    _raw(b"}")
    return 0


cdef dict _in_order(dict annotations):
    """Return the annotations sorted by key. Most requests have only those of authorization, which are sorted already."""
    cdef list keys = list(annotations)
    if len(keys) == 1 or len(keys) == 2 and keys[0] < keys[1]:
        return annotations
    return {key: annotations[key] for key in sorted(keys)}


cdef bytes _user(object user):
    """Return a user as JSON, cached on the user object, which lives as long as its credential is cached."""
    if user is None:
        return NOBODY
    text = user.recorded
    if text is None:
        text = user.recorded = escaped(orjson.dumps(user.to_dict()))
    return text


def escaped(bytes text not None) -> bytes:
    """Convert JSON to the form of Go's encoder, which escapes HTML's special characters; in JSON these occur only inside strings."""
    for char, escape in _ESCAPES if text.isascii() else _ALL_ESCAPES:
        if char in text:
            text = text.replace(char, escape)
    return text


cdef tuple _ESCAPES = ((b"<", b"\\u003c"), (b">", b"\\u003e"), (b"&", b"\\u0026"))
# Searching for a multi-byte sequence is five times slower.
cdef tuple _ALL_ESCAPES = (*_ESCAPES, ("\u2028".encode(), b"\\u2028"), ("\u2029".encode(), b"\\u2029"))


@remembered("audit_addresses", "addresses of clients as the audit log shows them", 1024, 64)
def _address(text: str) -> str:
    """Return the address as Go formats it, "" if it is invalid: a proxy may send "unknown"."""
    ip = parse_ip(text)
    return "" if ip is None else str(ip)


# The previous request's client, usually the same, and its formatted address.
cdef str _client = ""
cdef list _shown = []


def source_ips(Request req not None) -> list:
    """Return the source addresses of a request from proxy headers and the connection (``utilnet.SourceIPs``); do not modify the list.

    These are the X-Forwarded-For addresses, then X-Real-IP if not among them, then the connection's address unless it is the last one
    already.
    """
    return _came_from(req)


cdef list _came_from(Request req):
    global _client, _shown
    cdef dict headers = req.names()
    cdef str address
    cdef list found
    if headers.get(b"x-forwarded-for") is None and headers.get(b"x-real-ip") is None:
        if req.client is not _client and req.client != _client:
            address = _address(req.client)
            _client, _shown = req.client, [address] if address else []
        return _shown
    found = [address for address in [_address(text.strip()) for text in req.header(b"x-forwarded-for").split(",")] if address]
    address = _address(req.header(b"x-real-ip").strip())
    if address and address not in found:
        found.append(address)
    address = _address(req.client)
    if address and (not found or found[len(found) - 1] != address):
        found.append(address)
    return found


@cython.freelist(64)
cdef class Entry:
    """The event at one stage, as a backend writes it. ``fields`` are in the order of Go's struct, without kind and apiVersion."""

    def __init__(self, dict fields not None):
        self.line = HEAD + escaped(orjson.dumps(fields))[1:] + b"\n"
        self._from = self._to = 0
        if "requestObject" in fields or "responseObject" in fields:
            self._bare = orjson.dumps({k: v for k, v in fields.items() if k not in ("requestObject", "responseObject")})

    @property
    def text(self) -> bytes:
        """The event as an item of an EventList."""
        return b"{" + self.line[PyBytes_GET_SIZE(HEAD) : PyBytes_GET_SIZE(self.line) - 1]

    @property
    def size(self) -> int:
        """The length of the event as a JSON object."""
        return PyBytes_GET_SIZE(self.line)

    @property
    def fields(self) -> dict:
        """The event without the bodies, decoded."""
        if self._bare is not None:
            return orjson.loads(self._bare)
        if not self._to:
            return orjson.loads(self.text)
        return orjson.loads(b"{" + self.line[PyBytes_GET_SIZE(HEAD) : self._from] + self.line[self._to :])

    def truncated(self) -> Entry:
        """Return the event without the bodies and with an annotation that says so."""
        fields = self.fields
        annotations = dict(sorted({**fields.pop("annotations", {}), TRUNCATED: "true"}.items()))
        return Entry({**fields, "annotations": annotations})


cdef class Record:
    """An audited request: what all kinds of requests have in common. ``verdict`` is the policy's (``kas.audit.policy.Verdict``);
    ``received`` is the time of day of the request's arrival."""

    def __init__(self, Request req not None, verdict, double received):
        level, omitted, omit_managed_fields = verdict
        self._begin(req, level, omitted, omit_managed_fields, received)

    cdef int _begin(self, Request req, str level, tuple omitted, bint omit_managed_fields, double received) except -1:
        self.req, self._received = req, received
        self.level, self._omitted, self.omit_managed_fields = level, omitted, omit_managed_fields
        self.user = req.user  # impersonation changes the request's user; the record keeps the authenticated one
        self.panicked = ""
        self.took = {AUTHENTICATION: req.authenticating}
        return 0

    def records(self, str stage not None) -> bool:
        """Return whether the policy records this stage."""
        return stage not in self._omitted

    def authorized(self, str decision not None, str reason not None, double seconds):
        """Record the authorizer's decision, and how long it took."""
        cdef Request req = self.req
        self.took[AUTHORIZATION] = seconds
        if req.annotations is None:
            req.annotations = {DECISION: decision, REASON: reason}
        else:
            (<dict>req.annotations)[DECISION] = decision
            (<dict>req.annotations)[REASON] = reason

    def ended(self):
        """The response is finished; a hook for subclasses."""

    def plain(self, Response resp not None) -> bool:
        """Public form of ``_is_plain``."""
        return self._is_plain(resp)

    cdef bint _is_plain(self, Response resp) except -1:
        """Return whether the response has nothing to record but its code: it is complete, its body is not recorded, and it is no Status.
        False means that a closer look is needed."""
        cdef bytes body
        cdef tuple header
        cdef bint json = False
        if resp.stream is not None or type(resp) is not Response or self.level != METADATA or self.panicked or self.req.long_running:
            return False
        if self.handed_on:
            return True
        for header in resp.headers:
            if header[0] == b"content-type":
                json = header[1] == b"application/json"
        body = resp.body
        if not json or PyBytes_GET_SIZE(body) == 0:
            return False
        if body[0] != c"{" or PyBytes_GET_SIZE(body) > 1 and body[1] != c'"':
            return False
        return not (PyBytes_GET_SIZE(body) >= 16 and memcmp(PyBytes_AS_STRING(body), b'{"kind":"Status"', 16) == 0)

    def slow(self) -> float:
        """Return the seconds since the request's arrival if these are many, else 0."""
        cdef double total = _time(CLOCK_MONOTONIC) - self.req.started
        return total if total > SLOW_S else 0.0

    cpdef Entry entry(self, str stage):
        """Return the entry of a stage with the current time; RequestReceived has the arrival time."""
        cdef Request req = self.req
        cdef RequestInfo info = req.info
        cdef dict annotations = None
        cdef str constraint = None
        cdef Entry made
        # Everything that runs Python code comes first.
        cdef bytes user = _user(self.user)
        cdef bytes other = _user(req.user) if self.user is not None and req.user is not self.user else None
        cdef str uri = request_uri(req)
        cdef list sources = _came_from(req)
        cdef object agent = req.names().get(b"user-agent")
        cdef bytes status = None, asked = None, answered = None
        if req.annotations:
            annotations = _in_order(req.annotations)
            if CONSTRAINT in annotations:
                annotations = annotations.copy()
                constraint = annotations.pop(CONSTRAINT)
        if self.response_status is not None and stage != RECEIVED:
            status = escaped(orjson.dumps({**self.response_status, "code": self.code}))
        if self.request_object is not None:
            asked = escaped(self.request_object)
        if self.response_object is not None:
            answered = escaped(self.response_object)
        cdef long long received = <long long>(self._received * 1e6)
        cdef long long now = received if stage == RECEIVED else <long long>(_time(CLOCK_REALTIME) * 1e6)
        cdef bytes received_begin = _begin(received, 0), now_begin = _begin(now, 1)

        _out.size = 0
        _raw(HEAD)
        _field(b'"level":', self.level)
        _field(b',"auditID":', req.audit_id)
        _field(b',"stage":', stage)
        _field(b',"requestURI":', uri)
        _field(b',"verb":', info.verb)
        _raw(b',"user":')
        _raw(user)
        if other is not None:
            _raw(b',"impersonatedUser":')
            _raw(other)
        if constraint is not None:
            _field(b',"authenticationMetadata":{"impersonationConstraint":', constraint)
            _raw(b"}")
        if sources:
            _sources(sources)
        if agent:
            _agent(<bytes?>agent)
        if self.ref is not None:
            _mapping(b',"objectRef":{', self.ref)
        elif info.is_resource_request:
            _reference(info)
        if status is not None:
            _raw(b',"responseStatus":')
            _raw(status)
        elif self.code and stage != RECEIVED:
            _raw(b',"responseStatus":{"metadata":{},"code":')
            _number(self.code)
            _raw(b"}")
        cdef Py_ssize_t began = _out.size
        if asked is not None:
            _raw(b',"requestObject":')
            _raw(asked)
        if answered is not None:
            _raw(b',"responseObject":')
            _raw(answered)
        cdef Py_ssize_t ended = _out.size
        _raw(b',"requestReceivedTimestamp":"')
        _micros(received_begin, received)
        _raw(b',"stageTimestamp":"')
        _micros(now_begin, now)
        if annotations:
            _mapping(b',"annotations":{', annotations)
        _raw(b"}\n")

        made = Entry.__new__(Entry)
        made.line = PyBytes_FromStringAndSize(_out.data, _out.size)
        if ended > began:
            made._from, made._to = began, ended
        if _out.room > KEPT_BYTES:
            free(_out.data)
            _out.data, _out.room = NULL, 0
        return made


def lines(entries not None) -> bytes:
    """Return the log lines, concatenated."""
    return b"".join([(<Entry?>entry).line for entry in entries])


cdef class Buffer:
    """Entries waiting for a backend: at most ``limit``, and none are added from ``most`` bytes on. ``filled`` is called when there are
    ``size``."""

    def __init__(self, Py_ssize_t limit, Py_ssize_t size, filled, Py_ssize_t most):
        self.waiting, self._limit, self._size, self._filled, self._most = [], limit, size, filled, most

    cdef bint _has_room(self) noexcept:
        """Return False if a closer look is needed: the buffer is full, or there is no consumer."""
        return self.served and PyList_GET_SIZE(self.waiting) < self._limit and self.held < self._most

    cdef int _put(self, Entry entry) except -1:
        """Add an entry; there must be room."""
        self.waiting.append(entry)
        self.held += PyBytes_GET_SIZE(entry.line)
        if PyList_GET_SIZE(self.waiting) == self._size:
            self._filled()
        return 0


cdef class Verdicts:
    """Cached verdicts of a policy. ``always`` is the verdict on all requests, or None; ``remembered`` has the verdicts on resources, by
    the attributes that any rule looks at: the flags say whether user, namespace and name are among them."""

    cdef dict _remembered
    cdef tuple _always
    cdef bint _users, _namespaces, _names

    def __init__(self, always, dict remembered not None, bint users, bint namespaces, bint names):
        self._always, self._remembered = <tuple>always, remembered  # verdicts are a subclass of tuple
        self._users, self._namespaces, self._names = users, namespaces, names

    def key(self, Attributes a not None) -> tuple:
        """Return the cache key of a request."""
        return self._key(a.user, a.verb, a.api_group, a.resource, a.subresource, a.namespace, a.name)

    cdef tuple _key(self, user, str verb, str group, str resource, str subresource, str namespace, str name):
        return (
            user.key if self._users else None, verb, group, resource, subresource, namespace if self._namespaces else None,
            name if self._names else None,
        )

    cdef tuple _of(self, Request req):
        """Return the cached verdict; None if the policy must be evaluated."""
        cdef RequestInfo info = req.info
        if self._always is not None:
            return self._always
        if not info.is_resource_request or req.user is None:
            return None
        return <tuple>self._remembered.get(
            self._key(req.user, info.verb, info.api_group, info.resource, info.subresource, info.namespace, info.name)
        )


cdef class Recording:
    """The fast path of most requests through the audit log: plain responses, and a backend that nobody waits for.

    - ``begin`` creates the event of a request; if the verdict is cached, an ``event`` is created directly and counted in ``levels``.
    - ``received`` records the RequestReceived stage, ``otherwise`` handles responses that are not plain, ``later`` takes the awaitable of
      an entry that must be waited for.
    - ``events`` counts entries. They are put into ``buffer`` or passed to ``process``; errors of type ``refused`` it raises were counted
      and logged already.
    """

    cdef object _begin, _received, _otherwise, _later, _process, _refused, _current
    cdef type _event
    cdef dict _events, _levels
    cdef Verdicts _verdicts
    cdef Buffer _buffer

    def __init__(self, begin, Verdicts verdicts not None, type event, dict levels not None, received, otherwise, later, process,
                 type refused, dict events not None, Buffer buffer):
        self._begin, self._received, self._otherwise, self._later = begin, received, otherwise, later
        self._verdicts, self._event, self._levels = verdicts, event, levels
        self._process, self._refused, self._events, self._buffer = process, refused, events, buffer
        self._current = latencies.CURRENT

    cdef Record _recorded(self, Request req, tuple verdict):
        """Return the event of a request with this verdict, None for level None."""
        cdef Record event
        cdef str level = <str>verdict[0]
        cdef tuple label = (level,)
        self._levels[label] = self._levels.get(label, 0) + 1
        if level == NONE:
            return None
        event = <Record>(<PyTypeObject *>self._event).tp_new(self._event, <PyObject *>_EMPTY, NULL)
        event._begin(req, level, <tuple>verdict[1], verdict[2] is True, _arrival(req))
        return event

    def before(self, Request req not None):
        cdef tuple verdict = self._verdicts._of(req)
        cdef Record event = self._recorded(req, verdict) if verdict is not None else self._begin(req)
        if event is None:
            PyContextVar_Set(self._current, None)  # the context may still hold another request's
            return None
        req.audit = event
        PyContextVar_Set(self._current, event.took)
        if RECEIVED in event._omitted:
            return None
        if self._buffer is not None and self._buffer._has_room():
            self._events[()] = self._events.get((), 0) + 1
            self._buffer._put(event.entry(RECEIVED))
            return None
        return self._received(req, event)

    def after(self, Request req not None, Response resp not None):
        cdef Record event
        cdef Entry entry
        if not isinstance(req.audit, Record) or not (<Record>req.audit)._is_plain(resp):
            return self._otherwise(req, resp)
        event = <Record>req.audit
        req.audit = None  # the event is complete
        event.code = resp.status
        if _time(CLOCK_MONOTONIC) - req.started > SLOW_S:
            event.ended()
        if COMPLETE in event._omitted:
            return
        self._events[()] = self._events.get((), 0) + 1
        entry = event.entry(COMPLETE)
        if self._buffer is not None and self._buffer._has_room():
            self._buffer._put(entry)
            return
        try:
            pending = self._process((entry,))
        except self._refused:
            return
        if pending is not None:
            self._later(pending, resp)

    def release(self, Request req not None):
        """Break the reference cycle between request and event, which would keep both bodies alive."""
        req.audit = None


cdef int _sources(list sources) except -1:
    cdef bint first = True
    _raw(b',"sourceIPs":[')
    for address in sources:
        if not first:
            _raw(b",")
        first = False
        _text(<str?>address)
    _raw(b"]")
    return 0
