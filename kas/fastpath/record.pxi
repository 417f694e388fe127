# The request record: the edge creates it, and the filters fill it in.
#
# It owns the list of header tuples and the map built from them on first use. Header names and values are untrusted bytes. Why C: every
# filter of every request reads or writes it; with the same class in Python, a GET spent a quarter of the chain's time on it.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.string cimport memcmp

from time import monotonic as _monotonic

# The answer carries only the first 4,096 characters of warnings (kas.filters.warnings).
cdef enum:
    MOST_WARNINGS = 10000


# Headers whose repeats are joined: those that are lists, and those where a repeat must not go unnoticed. Of any other header the first
# occurrence counts, as with Go's ``Header.Get``.
cdef frozenset JOINED = frozenset((
    b"connection", b"content-length", b"host", b"sec-websocket-extensions", b"sec-websocket-protocol", b"te", b"trailer",
    b"transfer-encoding", b"upgrade",
))


cdef class Request:
    """One HTTP request, decoded as far as every filter needs it.

    ``path`` is percent-decoded (like Go's ``URL.Path``), ``query`` is the raw query string, ``headers`` are (name, value) pairs of bytes
    with lower-case names. ``known`` is set when the resource is served. Filters fill in ``info`` (RequestInfo), ``params`` (Query),
    ``user``, ``audit_id`` and ``deadline``. ``warnings`` become ``Warning`` headers of the answer, in order, each text once.
    ``annotations`` belong to the audit event, ``audit`` is the event of a request that is audited. ``body`` is complete once ``incoming``,
    its source, is None (``kas.request.http.with_body``).
    """


    def __init__(self, str method not None, str path not None, str query not None, list headers not None, body=b""):
        self.method, self.path, self.query, self.raw_path = method, path, query, path
        self._raw, self.body = headers, body
        self.client, self.scheme, self.http_version, self.audit_id = "", "https", "1.0", ""
        self.started = _monotonic()

    cdef dict names(self):
        """The header map, built on first use. Repeats of headers in ``JOINED`` are joined by ", "; of any other header the first counts."""
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
        """The headers that have not been dropped, in the order received."""
        if self._dropped:
            return [pair for pair in self._raw if pair[0] in self._map]
        return self._raw

    @headers.setter
    def headers(self, list value not None):
        self._raw, self._map, self._dropped, self._impersonates, self._vouches = value, None, False, False, False

    @property
    def impersonates(self) -> bool:
        """Whether the request has an ``Impersonate-*`` header."""
        self.names()
        return self._impersonates

    @property
    def vouches(self) -> bool:
        """Whether the request has or had an ``X-Remote-*`` header, as sent by an authenticating proxy."""
        self.names()
        return self._vouches

    def header(self, bytes name not None) -> str:
        """The value of a header decoded as Latin-1, "" when absent."""
        value = self.names().get(name)
        return (<bytes>value).decode("latin-1") if value is not None else ""

    def raw_header(self, bytes name not None) -> bytes:
        """The value of a header as bytes, b"" when absent."""
        return self.names().get(name, b"")

    def get(self, str name not None):
        """Like ``header``, but None when absent; this is the form authenticators use."""
        value = self.names().get(name.encode())
        return (<bytes>value).decode("latin-1") if value is not None else None

    def has_header(self, bytes name not None) -> bool:
        return name in self.names()

    def drop_header(self, bytes name not None):
        """Removes a header, so that no later filter or handler can see it."""
        if self.names().pop(name, None) is not None:
            self._dropped = True

    def drop_prefix(self, bytes prefix not None):
        """Removes every header whose name starts with ``prefix``."""
        for name in [n for n in self.names() if n.startswith(prefix)]:
            self.drop_header(name)

    def warn(self, str text not None):
        if self.warnings is None:
            self.warnings = {}
        if len(<dict>self.warnings) < MOST_WARNINGS:
            (<dict>self.warnings)[text] = None

    def annotate(self, str key not None, str value not None) -> bool:
        """Adds an audit annotation and returns whether ``key`` now has this value.

        An existing value is kept: a later caller, such as a webhook whose name is a prefix of one of our keys, cannot change it.
        """
        if self.annotations is None:
            self.annotations = {}
        return (<dict>self.annotations).setdefault(key, value) == value


def request_of(dict scope not None, bint read_only=False) -> Request:
    """The request of an ASGI HTTP scope, without its client. ``read_only`` says that it arrived on the read-only port."""
    cdef bytes query = scope["query_string"], raw = scope["raw_path"]
    cdef Request req = Request(scope["method"], scope["path"], query.decode("latin-1") if query else "", scope["headers"])
    if b"%" in raw:
        req.raw_path = raw.decode("latin-1")
    req.scheme, req.http_version, req.read_only_port = scope["scheme"], scope["http_version"], read_only
    return req


@cython.freelist(64)
cdef class Response:
    """An answer. ``stream`` replaces ``body`` for answers that are written in pieces.

    ``stream(write)`` is awaited with a ``write(bytes)`` coroutine function, which returns once a bounded buffer has accepted the bytes. The
    stream ends the answer by returning and is cancelled when the client disconnects. ``finish``, when set, is called once a stream has
    ended for any reason. The writer of the pieces counts their bytes in ``sent``.
    """

    def __init__(self, int status, list headers not None, body=b"", stream=None):
        self.status, self.headers, self.body, self.stream = status, headers, body, stream
