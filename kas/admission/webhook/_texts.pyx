"""The texts of reviews. The design stands in ``_texts.pxd``.

Why C: to put a review together took a tenth of what a webhook costs the server (``bench/webhook_cost.py``).
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.string cimport memcmp

import orjson

cdef object _dumps = orjson.dumps


cdef class Texts:
    """Reviews that begin with ``begin``, up to the uid. Of who asks no description of more than ``most`` bytes is kept."""

    def __init__(self, bytes begin not None, Py_ssize_t most):
        self._begin, self._most = begin, most

    def request(self, a, shown, own, str uid not None, bytes obj, bytes old):
        """The review to send; ``obj`` and ``old`` are JSON in the version that ``shown`` names, of the kind ``own`` in the request."""
        cdef bytes said = self._about(a, shown, own), info = self._user_info, name = b"", namespace = b""
        user = a.user
        if user is not self._user:
            info = _dumps(user.to_dict())
            if PyBytes_GET_SIZE(info) <= self._most:
                self._user, self._user_info = user, info
        cdef str called = a.name, place = a.namespace
        if a.resource == "namespaces" and not a.group:
            place = called  # that of a Namespace is itself
        if called:
            name = b',"name":' + <bytes>_dumps(called)
        if place:
            namespace = b',"namespace":' + <bytes>_dumps(place)
        return b"".join((
            self._begin, uid.encode(), b'",', said, name, namespace, b',"operation":"', (<str?>a.operation).encode(), b'","userInfo":', info,
            b',"object":', obj if obj is not None else b"null", b',"oldObject":', old if old is not None else b"null",
            b',"dryRun":true,"options":' if a.dry_run else b',"dryRun":false,"options":', _dumps(self.options(a)), b"}}",
        ))

    cdef bytes _about(self, a, shown, own):
        """What is said of kinds and resources: mostly what was said of them last."""
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
        """Remember an answer by what stands before and behind the uid."""
        self._last = before, after, found

    def response(self, bytes body not None, str uid not None):
        """The decision in an answer, not to be changed. Raises HookError for what is no review, InvalidResponseError for one that is no
        answer to ours."""
        cdef tuple last = self._last
        cdef bytes before, after, mine
        cdef Py_ssize_t n, m, k
        if last is not None:
            before, after, mine = <bytes>last[0], <bytes>last[1], uid.encode()
            n, m, k = PyBytes_GET_SIZE(before), PyBytes_GET_SIZE(mine), PyBytes_GET_SIZE(after)
            if (
                PyBytes_GET_SIZE(body) == n + m + k
                and memcmp(PyBytes_AS_STRING(body), PyBytes_AS_STRING(before), n) == 0
                and memcmp(PyBytes_AS_STRING(body) + n, PyBytes_AS_STRING(mine), m) == 0
                and memcmp(PyBytes_AS_STRING(body) + n + m, PyBytes_AS_STRING(after), k) == 0
            ):
                return last[2]
        return self.read(body, uid)
