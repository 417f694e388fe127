# The request record: what the edge hands to the filter chain, and what the filters write on it.
#
# Owns the list of header tuples it was given and the map made of them on first use. Trusts nothing: names and values are any
# bytes. Why C: every filter of every request reads or writes it; a GET spent a quarter of the chain's time on the same class
# in Python.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.string cimport memcmp

from time import monotonic as _monotonic

# Only the first 4,096 characters of warnings are told (kas.filters.warnings).
cdef enum:
    MOST_WARNINGS = 10000


# What is a list however many headers it stands in, and what must not be told twice: who reads those sees all of them. Of others
# the first counts, as with Go's ``Header.Get``.
cdef frozenset JOINED = frozenset((
    b"connection", b"content-length", b"host", b"sec-websocket-extensions", b"sec-websocket-protocol", b"te", b"trailer",
    b"transfer-encoding", b"upgrade",
))


cdef class Request:
    """One HTTP request, decoded as far as every filter needs it.

    ``path`` is percent-decoded (as Go's ``URL.Path``), ``query`` the raw query string, ``headers`` (name, value) pairs of
    bytes with lower-case names. ``known`` is set for a resource that is served. Filters fill in what they find out: ``info``
    (RequestInfo), ``params`` (Query), ``user``, ``audit_id``, ``deadline``. ``warnings`` become ``Warning`` headers of the answer, in
    order, each text once; ``annotations`` are the audit event's, ``audit`` the event of a request that is recorded. ``body`` holds the body once ``incoming``, which brings it, is None
    (``kas.request.http.with_body``).
    """


    def __init__(self, str method not None, str path not None, str query not None, list headers not None, body=b""):
        self.method, self.path, self.query, self.raw_path = method, path, query, path
        self._raw, self.body = headers, body
        self.client, self.scheme, self.http_version, self.audit_id = "", "https", "1.0", ""
        self.started = _monotonic()

    cdef dict names(self):
        """The header map, made on first use. Of repeats the first counts; those of ``JOINED`` are joined by ", "."""
        cdef dict m = self._map
        cdef tuple pair
        cdef bytes name, value
        cdef dict repeated = None
        if m is None:
            m = {}
            for pair in self._raw:
                name, value = pair
                if name in m:
                    if name not in JOINED:
                        continue
                    if repeated is None:
                        repeated = {}
                    if name not in repeated:
                        repeated[name] = [m[name]]
                    (<list>repeated[name]).append(value)
                else:
                    m[name] = value
                    if PyBytes_GET_SIZE(name) > 12 and memcmp(PyBytes_AS_STRING(name), b"impersonate-", 12) == 0:
                        self._impersonates = True
                    elif PyBytes_GET_SIZE(name) > 8 and memcmp(PyBytes_AS_STRING(name), b"x-remote-", 9) == 0:
                        self._vouches = True
            if repeated is not None:
                for name in repeated:
                    m[name] = b", ".join(repeated[name])
            self._map = m
        return m

    @property
    def headers(self) -> list:
        """The headers that are still there, in the order received."""
        if self._dropped:
            return [pair for pair in self._raw if pair[0] in self._map]
        return self._raw

    @headers.setter
    def headers(self, list value not None):
        self._raw, self._map, self._dropped, self._impersonates, self._vouches = value, None, False, False, False

    @property
    def impersonates(self) -> bool:
        """Whether an ``Impersonate-*`` header is there."""
        self.names()
        return self._impersonates

    @property
    def vouches(self) -> bool:
        """Whether a header of an authenticating proxy is there, or was: ``X-Remote-*``."""
        self.names()
        return self._vouches

    def header(self, bytes name not None) -> str:
        """The value of a header, "" when absent."""
        value = self.names().get(name)
        return (<bytes>value).decode("latin-1") if value is not None else ""

    def raw_header(self, bytes name not None) -> bytes:
        """As ``header``, undecoded."""
        return self.names().get(name, b"")

    def get(self, str name not None):
        """As ``header``, None when absent: what authenticators ask with."""
        value = self.names().get(name.encode())
        return (<bytes>value).decode("latin-1") if value is not None else None

    def has_header(self, bytes name not None) -> bool:
        return name in self.names()

    def drop_header(self, bytes name not None):
        """Forgets a header, so that nothing behind this point can see it."""
        if self.names().pop(name, None) is not None:
            self._dropped = True

    def drop_prefix(self, bytes prefix not None):
        """As ``drop_header``, for every header whose name begins so."""
        for name in [n for n in self.names() if n.startswith(prefix)]:
            self.drop_header(name)

    def warn(self, str text not None):
        if self.warnings is None:
            self.warnings = {}
        if len(<dict>self.warnings) < MOST_WARNINGS:
            (<dict>self.warnings)[text] = None

    def annotate(self, str key not None, str value not None) -> bool:
        """Adds an audit annotation. What was said of the request stays: who comes later, as a webhook whose name begins a key of ours,
        cannot say otherwise. Whether this is what is said now."""
        if self.annotations is None:
            self.annotations = {}
        return (<dict>self.annotations).setdefault(key, value) == value


def request_of(dict scope not None, bint read_only=False) -> Request:
    """The request of an ASGI scope of HTTP, without its client; ``read_only``: it came in at the read-only port."""
    cdef bytes query = scope["query_string"], raw = scope["raw_path"]
    cdef Request req = Request(scope["method"], scope["path"], query.decode("latin-1") if query else "", scope["headers"])
    if b"%" in raw:
        req.raw_path = raw.decode("latin-1")
    req.scheme, req.http_version, req.read_only_port = scope["scheme"], scope["http_version"], read_only
    return req


@cython.freelist(64)
cdef class Response:
    """An answer. ``stream`` replaces ``body`` for answers that are written piece by piece.

    ``stream(write)`` is awaited with a ``write(bytes)`` coroutine function that returns once the bytes are accepted by a
    bounded buffer; it ends the answer by returning and is cancelled when the client goes away. ``finish``, when set, is called
    once a stream has ended one way or another; whoever writes the pieces counts their bytes in ``sent``.
    """

    def __init__(self, int status, list headers not None, body=b"", stream=None):
        self.status, self.headers, self.body, self.stream = status, headers, body, stream
