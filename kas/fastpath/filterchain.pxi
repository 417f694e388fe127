# A request's path through the filters to its endpoint, as far as nothing has to wait, and the steps of it that nearly every request takes:
# RequestInfo, the user of a cached credential, routing, and an object whose stored bytes are the answer.
#
# Everything here holds references only and reads caches that their owners bound. Why C: in a busy server each Python function on this path
# costs three times what it costs alone, because the runtime's other threads and the system have evicted the processor's caches in between
# (bench/end_to_end.py, get).

from cpython.unicode cimport PyUnicode_READ_CHAR
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec


cdef tuple _JSON = (b"content-type", b"application/json")


cdef inline double _now_s() noexcept:
    """``time.monotonic()``, in seconds."""
    cdef timespec t
    clock_gettime(CLOCK_MONOTONIC, &t)
    return t.tv_sec + t.tv_nsec * 1e-9


cdef class FilterChain:
    """The part of ``kas.filters.handler.Chain`` that runs while nothing has to wait.

    A subclass defines ``_failed`` (the answer to an exception), ``_spoilt`` (the answer when an ``after`` function raised) and ``_later``
    (an endpoint or a filter that has to wait).
    """

    def __init__(self, tuple before not None, tuple after not None, tuple release not None, endpoint, double soon_s):
        """``before``, ``after`` and ``release`` are functions of the filters, in the order in which they are called. A request whose
        deadline is nearer than ``soon_s`` seconds after its start is not parked.
        """
        self._before, self._after, self._release, self._endpoint, self._soon_s = before, after, release, endpoint, soon_s

    def __call__(self, Request req not None):
        """Returns the answer, or an awaitable of it."""
        return self._go_on(req, 0)

    cpdef _go_on(self, Request req, Py_ssize_t at):
        """Continues with the filter at index ``at``."""
        cdef tuple steps = self._before
        cdef Py_ssize_t n = len(steps)
        cdef object result = None
        try:
            while at < n:
                result = (steps[at])(req)
                at += 1
                if result is not None:
                    break
            else:
                result = self._endpoint(req)
                if not isinstance(result, Response):
                    return self._later(req, result, -1)
        except Exception as e:
            result = self._failed(req, e)
        if isinstance(result, Response):
            return self._answered(req, <Response>result)
        if isinstance(result, FreshRead) and req.deadline - req.started > self._soon_s:
            (<FreshRead>result).chain, (<FreshRead>result).at = self, at
            return result
        return self._later(req, result, at)

    cpdef _answered(self, Request req, Response resp):
        """Passes an answer to every ``after`` function, and calls the ``release`` functions: now, or as the answer's ``finish`` when it is
        streamed.
        """
        try:
            for after in self._after:
                after(req, resp)
        except Exception as e:  # a bug like any other; the release functions run all the same
            resp = self._spoilt(req, resp, e)
        if resp.stream is None or req.long_running:
            for release in self._release:
                release(req)
        else:
            resp.finish = _Finish(self, req)
        return resp

    cpdef _released(self, Request req):
        for release in self._release:
            release(req)


@cython.freelist(16)
cdef class _Finish:
    """The ``finish`` of a streamed answer: calls the chain's ``release`` functions."""

    cdef FilterChain _chain
    cdef Request _req

    def __cinit__(self, FilterChain chain, Request req):
        self._chain, self._req = chain, req

    def __call__(self):
        self._chain._released(self._req)


cdef class Timer:
    """One child of a histogram, for durations that are mostly microseconds: it remembers its row, since looking up row and bucket each time
    would double the cost.
    """

    def __init__(self, histogram, tuple labels not None):
        self._histogram, self._labels, self._bounds = histogram, labels, tuple(histogram.buckets)
        self.quick_s = self._bounds[0]
        self.row = None  # None until the first observation

    cpdef add(self, double seconds):
        """Counts one observation of this duration."""
        cdef array row = self.row
        cdef Py_ssize_t at = 0, most = len(self._bounds)
        if row is None or seconds > self.quick_s:
            # the row may have been dropped from the histogram, which then starts a new one
            row = self.row = self._histogram.values.get(self._labels)
            if row is None:
                self._histogram.observe(self._labels, seconds)
                self.row = self._histogram.values[self._labels]
                return
            while at < most and seconds > <double>self._bounds[at]:
                at += 1
        row.data.as_doubles[at] += 1  # a row has two more entries than there are bounds
        row.data.as_doubles[most + 1] += seconds


cdef class PluginChain:
    """Runs the plug-ins of an admission chain one after the other; one timer measures each step, another all of them together.

    A subclass defines ``_stopped(step name or "", what, a, began, error)``, which is called when a step raises.
    """

    def _all(self, tuple plan not None, str what, a):
        """Runs all steps of ``plan``, which is (steps, timer of all of them or None). Returns None when that is done, else an awaitable of
        the rest.
        """
        cdef double began
        cdef tuple steps = <tuple?>plan[0]
        if not steps:
            return None
        began = _now_s()
        try:
            left = self._run(steps, what, a)
        except Exception as e:
            self._stopped("", what, a, began, e)
            raise
        if left is not None:
            return self._rest(left, plan[1], what, a, began)
        _count(plan[1], _now_s() - began)
        return None

    cpdef _run(self, tuple steps, str what, a):
        """Runs ``steps``, each (name, function of ``a``, timer or None), until one has to wait.

        Returns None when all are done, else (the remaining steps including the one that waits, the awaitable it waits for, when that step
        began). ``_stopped`` is called for a step that raises.
        """
        cdef double began = _now_s(), now
        cdef Py_ssize_t i
        cdef tuple one
        for i in range(len(steps)):
            one = <tuple>steps[i]
            try:
                pending = one[1](a)
            except Exception as e:
                self._stopped(one[0], what, a, began, e)
                raise
            if pending is not None:
                return steps[i:], pending, began
            if one[2] is not None:
                now = _now_s()
                _count(one[2], now - began)
                began = now
        return None

    async def _rest(self, tuple left, whole, str what, a, double since):
        """Completes ``left``, the result of ``_run`` for steps that began at ``since``; the timer ``whole`` measures all of them and may be
        None.
        """
        cdef double began
        cdef tuple one
        try:
            while left is not None:
                one, began = (<tuple>left[0])[0], left[2]
                try:
                    await left[1]
                except Exception as e:
                    self._stopped(one[0], what, a, began, e)
                    raise
                _count(one[2], _now_s() - began)
                left = self._run((<tuple>left[0])[1:], what, a)
        except Exception as e:
            self._stopped("", what, a, since, e)
            raise
        _count(whole, _now_s() - since)


cdef int _count(object timer, double seconds) except -1:
    if isinstance(timer, Timer):
        (<Timer>timer).add(seconds)
    elif timer is not None:
        timer.add(seconds)
    return 0


cdef class CredentialLookup:
    """Looks up a request's Authorization header in the cache of accepted credentials.

    ``entries`` maps the ``keyed_digest`` of a header to (user, expiry on the monotonic clock, the name it is counted under, whether it is a
    bearer token). ``counts`` counts requests by that name. Headers longer than ``longest``, which the cache's owner maintains, are not
    looked up.

    ``known(request)`` returns whether the header was found and has not expired. The request then has its user, and the header is removed
    from it.
    """

    cdef public Py_ssize_t longest
    cdef dict _entries
    cdef dict _counts
    cdef Timer _succeeded
    cdef Timer _hit

    def __init__(self, dict entries not None, dict counts not None, Timer succeeded not None, Timer hit not None):
        self._entries, self._counts, self._succeeded, self._hit = entries, counts, succeeded, hit

    def known(self, Request req not None) -> bool:
        cdef double began = _now_s()
        cdef dict names = req.names()
        cdef object credential = names.get(b"authorization")
        cdef tuple found
        cdef object of
        if not credential or len(credential) > self.longest:
            return False
        kept = self._entries.get(keyed_digest(credential))
        if kept is None:
            return False
        found = <tuple>kept
        if req.started >= <double>found[1]:
            return False
        req.user, of = found[0], found[2]
        self._counts[of] = self._counts.get(of, 0) + 1
        del names[b"authorization"]
        req._dropped = True
        req.authenticating = _now_s() - began
        self._succeeded.add(req.authenticating)
        if found[3]:
            self._hit.add(req.authenticating)
        return True


cdef class PlainGet:
    """Answers a GET with the stored bytes of an object, where nothing has to be converted.

    ``answer(request, registry, namespace, name)`` returns None when there is more to do: the object does not exist, another form was
    requested, the name is invalid, or the answer may be compressed. ``forms`` is the cache of Accept and User-Agent in
    ``kas.endpoints.respond``. ``registry`` reads the objects, in the version in which they are stored.
    """

    cdef str _root
    cdef bint _namespaced
    cdef dict _forms
    cdef Py_ssize_t _most

    def __init__(self, str root not None, bint namespaced, dict forms not None, Py_ssize_t most):
        """``root`` is the key prefix of all objects; a body longer than ``most`` bytes may be compressed."""
        self._root, self._namespaced, self._forms, self._most = root, namespaced, forms, most

    def answer(self, Request req not None, registry, str namespace not None, str name not None):
        cdef dict headers = req.names()
        cdef object form = self._forms.get((headers.get(b"accept", b""), headers.get(b"user-agent", b""), False, True))
        cdef double began
        cdef bytes body
        cdef Py_ssize_t at, n = len(name)
        cdef Py_UCS4 c
        if form is None or not (<tuple>form)[3] or n == 0 or PyUnicode_READ_CHAR(name, 0) == c".":
            return None
        for at in range(n):
            c = PyUnicode_READ_CHAR(name, at)
            if c == c"/" or c == c"%":
                return None
        began = _now_s()
        rec = registry.store.get(f"{self._root}{namespace}/{name}" if self._namespaced else self._root + name)
        (<Timer?>registry.requests.get).add(_now_s() - began)
        if rec is None:
            return None
        body = rec.json_line
        if len(body) > self._most:
            return None
        return Response(200, [_JSON], body)


cdef class HandlerCache:
    """Remembers which handler ``kas.endpoints.rest`` found for a kind of request, and calls it for the next one.

    ``answer(request)`` returns the handler's result, or None when the request has to take the full path. ``acceptable`` holds (Accept
    header, number of media types to choose from) pairs that the router accepts; ``types`` is that number for a single object
    (``READ_TYPES``). ``read_first`` is ``kas.request.http.with_body``.
    """

    def __init__(self, set acceptable not None, int types, read_first not None):
        self._acceptable, self._types, self._read_first, self._known = acceptable, types, read_first, {}

    def keep(self, str verb not None, served, handler, bint namespaced, bint named, str subresource=""):
        """Remembers that ``handler(request, served, namespace[, name[, subresource]])`` answers ``verb`` on ``served`` or its subresource.
        ``namespaced`` and ``named`` say whether such requests have a namespace and a name.
        """
        self._known[served.group, served.version, served.resource, verb, subresource] = served, handler, namespaced, named

    def clear(self):
        self._known.clear()

    def answer(self, Request req not None):
        cdef RequestInfo info = req.info
        cdef tuple found
        if req.method == "HEAD":
            return None
        kept = self._known.get((info.api_group, info.api_version, info.resource, info.verb, info.subresource))
        if kept is None:
            return None
        found = <tuple>kept
        if <bint>found[2] != (info.namespace != "") or <bint>found[3] != (info.name != ""):
            return None
        accept = req.names().get(b"accept")
        if accept and (accept, self._types) not in self._acceptable:
            return None
        req.known = True
        served, handler = found[0], found[1]
        deprecation = served.deprecation
        if deprecation is not None:
            deprecation.tell(req)
        if req.incoming is not None and info.verb != "get":
            if info.name == "":
                return self._read_first(req, handler, served, info.namespace)
            if info.subresource != "":
                return self._read_first(req, handler, served, info.namespace, info.name, info.subresource)
            return self._read_first(req, handler, served, info.namespace, info.name)
        if info.name == "":
            return handler(req, served, info.namespace)
        if info.subresource != "":
            return handler(req, served, info.namespace, info.name, info.subresource)
        return handler(req, served, info.namespace, info.name)


cdef class ResourceRouter:
    """The part of ``kas.director.Director`` that routes requests to a resource; its ``_elsewhere`` handles all others."""

    def __init__(self, rest not None, versions not None, claims not None):
        self._rest, self._versions, self._claims, self.peers = rest, versions, claims, None

    def __call__(self, Request req not None):
        cdef RequestInfo info = req.info
        cdef tuple version
        if info.is_resource_request and self.peers is None and not req.path.startswith("//"):
            version = info.api_group, info.api_version
            claim = self._claims.get(version) if self._claims else None
            if claim is not None:
                return claim(req)
            if version in self._versions:
                return self._rest(req)
        return self._elsewhere(req)


cdef class RequestInfoFilter:
    """The ``before`` function of ``kas.filters.request_info``: sets a request's ``info``, ``params`` and ``long_running``.

    ``usual`` maps frequent query strings to a ``Query`` shared by all requests, ``query`` parses any other. Verbs in ``long_verbs`` and
    subresources in ``long_subresources`` make a request long-running. ``refused(request, error)`` answers a request that ``parse`` rejects.
    """

    cdef dict _usual
    cdef object _query, _refused
    cdef frozenset _verbs, _subresources

    def __init__(self, dict usual not None, query, frozenset long_verbs not None, frozenset long_subresources not None, refused):
        self._usual, self._query, self._refused, self._verbs, self._subresources = usual, query, refused, long_verbs, long_subresources

    def __call__(self, Request req not None):
        cdef RequestInfo info
        params = self._usual.get(req.query)
        if params is None:
            params = self._query(req.query)
        req.params = params
        try:
            info = parse(req.method, req.path, params)
        except RequestInfoError as e:
            return self._refused(req, e)
        req.info = info
        if info.is_resource_request:
            req.long_running = info.verb in self._verbs or info.subresource in self._subresources
        else:
            req.long_running = req.path.startswith("/debug/pprof/")
        return None


def known_form(Request req not None, dict forms not None, bint watch, bint table):
    """The entry of ``forms``, the cache of ``kas.endpoints.respond``, for the request's Accept and User-Agent. None when there is none or
    the query has ``pretty``.
    """
    cdef dict headers
    if req.query and "pretty" in req.query:
        return None
    headers = req.names()
    return forms.get((headers.get(b"accept", b""), headers.get(b"user-agent", b""), watch, table))


cdef tuple _NO_CACHES = (b"cache-control", b"no-cache, private")


def forbid_caches(Request req, Response resp not None):
    """Forbids caching an answer, unless its handler set Cache-Control."""
    cdef tuple header
    for header in resp.headers:
        if header[0] == b"cache-control":
            return
    resp.headers.append(_NO_CACHES)


def whole(Request req not None, Response resp not None, send):
    """Sends an answer that is not streamed with ASGI's ``send``; returns the two awaitables, of the head and of the body."""
    return _whole(req, resp, send)


cdef tuple _whole(Request req, Response resp, send):
    cdef list headers = resp.headers.copy()
    body = resp.body
    headers.append((b"content-length", b"%d" % len(body)))
    head = send({"type": "http.response.start", "status": resp.status, "headers": headers})
    return head, send({"type": "http.response.body", "body": body if req.method != "HEAD" else b""})


cdef Py_ssize_t _most = 0
cdef str _taken = ""


def send_at_once(Py_ssize_t most, str taken not None):
    """Configures ``sent``: it sends answers of up to ``most`` bytes. When both awaitables of ``send`` are of a type named ``taken``,
    nothing is left to await.
    """
    global _most, _taken
    _most, _taken = most, taken


def sent(Request req not None, resp, send):
    """Sends an answer that is complete and small. Returns the awaitables that remain, in order; None when the answer was not sent: a
    stream, one with ``finish``, one that is too large, or no Response at all.
    """
    return _sent(req, resp, send)


cdef tuple _sent(Request req, resp, send):
    cdef Response answer
    cdef tuple both
    if not isinstance(resp, Response):
        return None
    answer = <Response>resp
    if answer.stream is not None or answer.finish is not None or len(answer.body) > _most:
        return None
    both = _whole(req, answer, send)
    return () if type(both[0]) is type(both[1]) and type(both[1]).__name__ == _taken else both
