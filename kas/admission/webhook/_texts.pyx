"""The texts of reviews. The design is in ``_texts.pxd``.

Why C: assembling a review took a tenth of what a webhook costs the server (``bench/webhook_cost.py``).
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.string cimport memcmp, memcpy
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

import orjson

from kas._fastpath cimport Timer
from kas._fastpath import audit_id
from kas.client._exchange cimport Asker, Asking, Known
from kas.meta.offload import LARGE, POOL
from kas.observe.latencies import VALIDATING_WEBHOOK

cdef object _dumps = orjson.dumps, _VALIDATING = VALIDATING_WEBHOOK
cdef Py_ssize_t _LARGE = LARGE

cdef inline double _now() noexcept:
    """``time.monotonic()``."""
    cdef timespec t
    clock_gettime(CLOCK_MONOTONIC, &t)
    return t.tv_sec + t.tv_nsec * 1e-9


cdef bytes _quoted(bytes before, str text):
    """Return ``before`` followed by the text as a JSON string."""
    cdef Py_ssize_t n, i, k = PyBytes_GET_SIZE(before)
    cdef const char *s = PyUnicode_AsUTF8AndSize(text, &n)
    cdef bytes out
    cdef char *p
    for i in range(n):
        if <unsigned char>s[i] < 32 or s[i] == 34 or s[i] == 92:
            return before + <bytes>_dumps(text)
    out = PyBytes_FromStringAndSize(NULL, k + n + 2)
    p = PyBytes_AS_STRING(out)
    memcpy(p, PyBytes_AS_STRING(before), k)
    p[k] = 34
    memcpy(p + k + 1, s, n)
    p[k + n + 1] = 34
    return out


cdef bytes _joined(tuple parts):
    cdef Py_ssize_t n = 0
    cdef bytes out, part
    cdef char *p
    for part in parts:
        n += PyBytes_GET_SIZE(part)
    out = PyBytes_FromStringAndSize(NULL, n)
    p = PyBytes_AS_STRING(out)
    for part in parts:
        memcpy(p, PyBytes_AS_STRING(part), PyBytes_GET_SIZE(part))
        p += PyBytes_GET_SIZE(part)
    return out


cdef class Texts:
    """Reviews that begin with ``begin``, up to the uid. A user's identity or options of more than ``most`` bytes are not cached."""

    def __init__(self, bytes begin not None, Py_ssize_t most):
        self._begin, self._most = begin, most

    def request(self, a, shown, own, str uid not None, bytes obj, bytes old):
        """Return the review to send; ``obj`` and ``old`` are JSON in the version that ``shown`` names, of the kind ``own`` in the
        request."""
        cdef bytes said = self._about(a, shown, own), opted, info = self._user_info, name = b"", namespace = b""
        user = a.user
        if user is not self._user:
            info = _dumps(user.to_dict())
            if PyBytes_GET_SIZE(info) <= self._most:
                self._user, self._user_info = user, info
        cdef str called = a.name, place = a.namespace, operation = a.operation
        options = a.options
        if not options or not (operation == "CREATE" or operation == "UPDATE"):  # these are sent as they are
            options = self.options(a)
        if self._options is not None and options == self._options:
            opted = self._opted
        else:
            opted = _dumps(options)
            if PyBytes_GET_SIZE(opted) <= self._most:
                self._options, self._opted = options, opted
        if a.resource == "namespaces" and not a.group:
            place = called  # the namespace of a Namespace is the object itself
        if called:
            name = _quoted(b',"name":', called)
        if place:
            namespace = _quoted(b',"namespace":', place)
        return _joined((
            self._begin, <bytes>uid.encode(), b'",', said, name, namespace, _quoted(b',"operation":', operation), b',"userInfo":', info,
            b',"object":', obj if obj is not None else b"null", b',"oldObject":', old if old is not None else b"null",
            b',"dryRun":true,"options":' if a.dry_run else b',"dryRun":false,"options":', opted, b"}}",
        ))

    cdef bytes _about(self, a, shown, own):
        """Return the description of kinds and resources, usually the cached one."""
        cdef str group = a.group, version = a.version, resource = a.resource, subresource = a.subresource
        if not (
            shown is self._shown and own == self._own and group == self._group and version == self._version and resource == self._resource
            and subresource == self._subresource
        ):
            self._said = self.about(a, shown, own)
            self._shown, self._own = shown, own
            self._group, self._version, self._resource, self._subresource = group, version, resource, subresource
        return self._said

    def keep(self, bytes before not None, bytes after not None, found):
        """Cache an answer by the text before and after its uid."""
        self._last = before, after, found

    def response(self, bytes body not None, str uid not None):
        """Return the decision in an answer; do not modify it. Raises HookError for what is not a review, InvalidResponseError for one
        that does not fit the request."""
        cdef tuple last = self._last
        cdef bytes before, after, uid_bytes
        cdef Py_ssize_t n, m, k
        if last is not None:
            before, after, uid_bytes = <bytes>last[0], <bytes>last[1], uid.encode()
            n, m, k = PyBytes_GET_SIZE(before), PyBytes_GET_SIZE(uid_bytes), PyBytes_GET_SIZE(after)
            if (
                PyBytes_GET_SIZE(body) == n + m + k
                and memcmp(PyBytes_AS_STRING(body), PyBytes_AS_STRING(before), n) == 0
                and memcmp(PyBytes_AS_STRING(body) + n, PyBytes_AS_STRING(uid_bytes), m) == 0
                and memcmp(PyBytes_AS_STRING(body) + n + m, PyBytes_AS_STRING(after), k) == 0
            ):
                return last[2]
        return self.read(body, uid)


cdef class Allowed:
    """Counts webhook calls that allowed the request."""

    def __init__(self, requests):
        self._requests, self._known = requests, {}

    def allowed(self, str name not None, str operation not None, double seconds):
        """Count a call that allowed the request."""
        self._allowed(name, operation, seconds)

    cdef int _allowed(self, str name, str operation, double seconds) except -1:
        cdef tuple key = (name, operation), known = self._known.get(key)
        cdef dict values
        if known is None:
            self._known[key] = self.first(name, operation, seconds)
            return 0
        values = self._requests.values
        values[known[0]] = values.get(known[0], 0) + 1
        (<Timer?>known[1]).add(seconds)
        return 0


async def only(webhooks, a, objects, hook, invocation, refused):
    """Call the only matching validating webhook, as ``Webhooks.ask`` does, and count the result. ``refused(error, seconds)`` is called if
    it does not allow the request; it raises the refusal if there is one."""
    cdef double began = _now(), took
    cdef Texts reviews = hook.reviews
    cdef tuple texts = objects.small()
    cdef bytes body
    cdef Asking asking
    cdef object error = None
    cdef Asker client = (<Known?>webhooks.clients)._found(hook.client_key)
    try:
        if reviews is None or client is None or texts is None or (a.dry_run and not hook.dry_run):
            await webhooks.ask(hook, a, invocation, objects)
        else:
            uid = audit_id()
            sent = reviews.request(a, invocation, objects.own, uid, texts[0], texts[1])
            try:
                asking = client._begin(sent, hook.timeout_s, a.deadline - _now())
                if asking is None:
                    body = await client.otherwise(sent, hook.timeout_s, a.deadline - _now())
                else:
                    asking.bare = True
                    body = await asking
                    if body is None:
                        body = asking.found
                if PyBytes_GET_SIZE(body) < _LARGE:
                    found = reviews.response(body, uid)
                else:
                    found = await POOL.run(reviews.response, body, uid)
            except Exception as e:
                raise webhooks.unanswered(hook, e) from None
            if found.annotations or found.warnings or not found.allowed:
                await webhooks.record_response(hook, a, found)
    except Exception as e:
        error = e
    took = _now() - began
    a.waited(_VALIDATING, took)
    if error is None:
        (<Allowed?>webhooks.metrics)._allowed(hook.name, a.operation, took)
    else:
        refused(error, took)
