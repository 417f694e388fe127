# The way of a request through filters to its endpoint, as far as nobody waits, and two stretches of it that every request goes: the user
# of a credential that was good a moment ago, and the object whose stored bytes are the answer.
#
# Owns nothing but references; reads caches whose owners bound them. Why C: in a server at work each Python function on the way costs three
# times what it costs alone, because the runtime's threads and the system have emptied the processor's caches in between
# (bench/end_to_end.py, get).

from cpython.unicode cimport PyUnicode_READ_CHAR
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec


cdef tuple _JSON = (b"content-type", b"application/json")


cdef inline double _now_s() noexcept:
    """As ``time.monotonic()``, in seconds."""
    cdef timespec t
    clock_gettime(CLOCK_MONOTONIC, &t)
    return t.tv_sec + t.tv_nsec * 1e-9


cdef class FilterChain:
    """What ``kas.filters.handler.Chain`` is while nobody waits. Who inherits it says what becomes of an exception (``_failed``), of an
    endpoint or a filter that waits (``_later``)."""

    def __init__(self, tuple before not None, tuple after not None, tuple release not None, endpoint, double soon_s):
        """A request whose deadline is nearer than ``soon_s`` cannot be parked."""
        self._before, self._after, self._release, self._endpoint, self._soon_s = before, after, release, endpoint, soon_s

    def __call__(self, Request req not None):
        """The answer, or an awaitable of it."""
        return self._go_on(req, 0)

    cpdef _go_on(self, Request req, Py_ssize_t at):
        """From the filter at that index on."""
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
        """Shows an answer to every filter, and gives back what they took, or has that done when its stream has ended."""
        try:
            for after in self._after:
                after(req, resp)
        except Exception as e:  # a bug like any other; what was taken is given back all the same
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
    """To be called once the stream of an answer has ended."""

    cdef FilterChain _chain
    cdef Request _req

    def __cinit__(self, FilterChain chain, Request req):
        self._chain, self._req = chain, req

    def __call__(self):
        self._chain._released(self._req)


cdef class Timer:
    """One child of a histogram, for what mostly takes microseconds: looking for row and bucket each time would cost as much again."""

    def __init__(self, histogram, tuple labels not None):
        self._histogram, self._labels, self._bounds = histogram, labels, tuple(histogram.buckets)
        self.quick_s = self._bounds[0]
        self.row = None  # until there is something to show

    cpdef add(self, double seconds):
        """Count one that took this long."""
        cdef array row = self.row
        cdef Py_ssize_t at = 0, most = len(self._bounds)
        if row is None or seconds > self.quick_s:
            row = self.row = self._histogram.values.get(self._labels)  # what is no more is dropped, and begins anew
            if row is None:
                self._histogram.observe(self._labels, seconds)
                self.row = self._histogram.values[self._labels]
                return
            while at < most and seconds > <double>self._bounds[at]:
                at += 1
        row.data.as_doubles[at] += 1  # a row has two more than there are bounds (``metrics.row_of``)
        row.data.as_doubles[most + 1] += seconds


cdef class PluginChain:
    """Runs steps one after the other, each counted by its timer, and all of them by another: the plug-ins of an admission chain."""

    def _all(self, tuple plan not None, str what, a):
        """``plan``: steps, and what counts all of them or None. None when that was all, else the rest, to be awaited."""
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
        """(name, function of ``a``, timer or None) each, as far as it goes without waiting: None when that was all of it, else the steps that
        are left, what the first of them waits for, and since when. ``_stopped`` is told of the one that raises."""
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
        """What is ``left`` of steps that began with ``since``; ``whole`` counts all of them or is None."""
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
    """``known(request)``: whether its Authorization header was good a moment ago; then the request has its user, and no such header any
    more. ``entries`` has, by ``keyed_digest`` of headers, (user, until when, the name they are counted under, whether it is a bearer
    token); ``counts`` has requests by that name. What is longer than the ``longest`` of them, as its owner says, is not looked for."""

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
    """``answer(request, registry, namespace, name)``: the stored bytes of an object as they are, None where there is more to it: no such object,
    another form that was asked for, a name that is none, an answer that may be compressed. ``forms`` has what ``kas.endpoints.respond``
    knows of Accept and User-Agent; ``registry`` is where the objects are looked for, in the version in which they are stored."""

    cdef str _root
    cdef bint _namespaced
    cdef dict _forms
    cdef Py_ssize_t _most

    def __init__(self, str root not None, bint namespaced, dict forms not None, Py_ssize_t most):
        """``root`` is what the keys of all objects begin with; what is longer than ``most`` may be compressed."""
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
    """``answer(request)``: what a handler answers that the long way of ``kas.endpoints.rest`` has found for such a request before; None where
    that has to be gone. ``acceptable`` has pairs of Accept and how many media types there are to choose from, for those that the router
    lets pass; of one object there are ``READ_TYPES``. ``read_first`` is ``kas.request.http.with_body``."""

    def __init__(self, set acceptable not None, int types, read_first not None):
        self._acceptable, self._types, self._read_first, self._known = acceptable, types, read_first, {}

    def keep(self, str verb not None, served, handler, bint namespaced, bint named):
        """``handler(request, served, namespace[, name])`` answers the verb on ``served``: below a namespace or not, with a name or without."""
        self._known[served.group, served.version, served.resource, verb] = served, handler, namespaced, named

    def clear(self):
        self._known.clear()

    def answer(self, Request req not None):
        cdef RequestInfo info = req.info
        cdef tuple found
        if info.subresource != "" or req.method == "HEAD":
            return None
        kept = self._known.get((info.api_group, info.api_version, info.resource, info.verb))
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
            return self._read_first(req, handler, served, info.namespace, info.name)
        if info.name == "":
            return handler(req, served, info.namespace)
        return handler(req, served, info.namespace, info.name)


cdef class ResourceRouter:
    """What ``kas.director.Director`` is for the requests it sends to a resource; ``_elsewhere`` is its way for all others."""

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
    """``kas.filters.request_info``: says of a request what it is about. ``usual`` has views of queries that need one for all requests,
    ``query`` makes one, ``long_verbs`` and ``long_subresources`` make a request long-running, ``refused(request, error)`` answers one of
    which it cannot be told."""

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
    """What ``forms`` (``kas.endpoints.respond``) has for the request's Accept and User-Agent; None where it says ``pretty``, too."""
    cdef dict headers
    if req.query and "pretty" in req.query:
        return None
    headers = req.names()
    return forms.get((headers.get(b"accept", b""), headers.get(b"user-agent", b""), watch, table))


cdef tuple _NO_CACHES = (b"cache-control", b"no-cache, private")


def forbid_caches(Request req, Response resp not None):
    """Keeps an answer out of caches, unless its handler said otherwise."""
    cdef tuple header
    for header in resp.headers:
        if header[0] == b"cache-control":
            return
    resp.headers.append(_NO_CACHES)


def whole(Request req not None, Response resp not None, send):
    """Sends an answer that is no stream by ASGI's ``send``; returns the two awaitables of it."""
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
    """What ``sent`` sends: answers of up to so many bytes; where both awaitables are of a type of that name nothing is left to be awaited."""
    global _most, _taken
    _most, _taken = most, taken


def sent(Request req not None, resp, send):
    """Sends what can be answered at once, and returns what is still to be awaited, in order; None for everything else."""
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
