"""RequestInfo of a request line: the path is scanned once, and the verb follows from method and path.

It keeps no state. It reads the method and the percent-decoded path as ``str`` and creates only the strings that every request needs;
``parts`` is computed on access. The rules and their source are in ``kas.request.requestinfo``, which also parses the query string of
collection requests and registers itself for that with ``install``.

Why C: every request starts here, and splitting the path into a Python list alone costs more than this whole function
(``bench/test_api.py``).
"""

cimport cython
from cpython.unicode cimport PyUnicode_DATA, PyUnicode_KIND, PyUnicode_READ, PyUnicode_Substring

# No rule looks past /apis/group/version/watch/namespaces/ns/resource/name/subresource: nine segments.
cdef enum:
    LOOK = 9

from collections import deque

cdef object _read_query = None
cdef object _describe = None


def install(reader, describe):
    """Registers the callbacks of ``parse``. ``reader(info, query)`` completes the RequestInfo of a list or deletecollection that has a
    query; ``describe(path, query)`` returns the message of a RequestInfoError.
    """
    global _read_query, _describe
    _read_query = reader
    _describe = describe


@cython.freelist(64)
cdef class RequestInfo:
    """What a request path means to the API, with the fields of upstream's ``request.RequestInfo``.

    ``by_prefix`` is True for the deprecated ``/watch/`` and ``/proxy/`` forms.
    """

    @property
    def parts(self):
        """The path's segments from the resource on; None for a non-resource request."""
        if self.first_part < 0:
            return None
        return self.path.strip("/").split("/")[self.first_part:]

    def __repr__(self):
        return (
            f"RequestInfo({self.verb} {self.path!r}: group={self.api_group!r} version={self.api_version!r} "
            f"namespace={self.namespace!r} resource={self.resource!r} subresource={self.subresource!r} name={self.name!r})"
        )


class RequestInfoError(ValueError):
    """A path below /watch or /proxy that names no resource. ``info`` holds what was parsed before the error."""

    def __init__(self, message, info):
        super().__init__(message)
        self.info = info


def parse(str method not None, str path not None, query=b""):
    """Returns the RequestInfo of ``method`` on ``path``; see ``kas.request.requestinfo``. Raises RequestInfoError."""
    cdef RequestInfo info = RequestInfo.__new__(RequestInfo)
    cdef int kind = PyUnicode_KIND(path)
    cdef void *data = PyUnicode_DATA(path)
    cdef Py_ssize_t begin = 0, end = len(path), at
    cdef Py_ssize_t start[LOOK]
    cdef Py_ssize_t stop[LOOK]
    cdef int n = 1, i
    info.path = path
    info.first_part = -1
    info.api_prefix = info.api_group = info.api_version = info.namespace = ""
    info.resource = info.subresource = info.name = info.field_selector = info.label_selector = ""
    while begin < end and PyUnicode_READ(kind, data, begin) == c"/":
        begin += 1
    while end > begin and PyUnicode_READ(kind, data, end - 1) == c"/":
        end -= 1
    # start/stop hold the first LOOK segments, n their number; every index below is checked against n first.
    start[0] = begin
    for at in range(begin, end):
        if PyUnicode_READ(kind, data, at) == c"/":
            stop[n - 1] = at
            if n == LOOK:
                break
            start[n] = at + 1
            n += 1
    else:
        stop[n - 1] = end
    at = stop[0] - start[0]
    if (
        n < 3 or at < 3 or at > 4
        or PyUnicode_READ(kind, data, begin) != c"a"
        or PyUnicode_READ(kind, data, begin + 1) != c"p"
        or PyUnicode_READ(kind, data, begin + 2) != c"i"
        or (at == 4 and PyUnicode_READ(kind, data, begin + 3) != c"s")
    ):
        info.verb = _lower(method)
        return info
    i = 1
    if at == 3:
        info.api_prefix = "api"
    else:
        info.api_prefix = "apis"
        if n < 4:
            info.verb = _lower(method)
            return info
        info.api_group = PyUnicode_Substring(path, start[1], stop[1])
        i = 2
    info.is_resource_request = True
    at = start[i]
    if stop[i] - at == 2 and PyUnicode_READ(kind, data, at) == c"v" and PyUnicode_READ(kind, data, at + 1) == c"1":
        info.api_version = "v1"
    else:
        info.api_version = PyUnicode_Substring(path, at, stop[i])
    i += 1
    # Segment i exists: n >= 3 without a group and n >= 4 with one.
    info.resource = PyUnicode_Substring(path, start[i], stop[i])
    if info.resource == "watch" or info.resource == "proxy":
        if n - i < 2:
            info.resource = ""
            info.verb = _lower(method)
            raise RequestInfoError(_describe(path, query), info)
        info.verb = info.resource
        info.by_prefix = True
        i += 1
        info.resource = PyUnicode_Substring(path, start[i], stop[i])
    elif method == "GET" or method == "HEAD":
        info.verb = "get"
    elif method == "POST":
        info.verb = "create"
    elif method == "PUT":
        info.verb = "update"
    elif method == "PATCH":
        info.verb = "patch"
    elif method == "DELETE":
        info.verb = "delete"
    else:
        info.verb = ""
    if n - i > 1 and info.resource == "namespaces":
        info.namespace = PyUnicode_Substring(path, start[i + 1], stop[i + 1])
        if n - i > 2:
            info.subresource = PyUnicode_Substring(path, start[i + 2], stop[i + 2])
            # status and finalize are subresources of the namespace itself, anything else is a resource inside it.
            if info.subresource != "status" and info.subresource != "finalize":
                i += 2
                info.resource = info.subresource
            info.subresource = ""
    info.first_part = i
    if n - i >= 2:
        info.name = PyUnicode_Substring(path, start[i + 1], stop[i + 1])
        if n - i >= 3 and info.verb != "proxy":
            info.subresource = PyUnicode_Substring(path, start[i + 2], stop[i + 2])
    if not info.name:
        if info.verb == "get":
            info.verb = "list"
        elif info.verb == "delete":
            info.verb = "deletecollection"
        else:
            return info
        if query:
            _read_query(info, query)
    return info


cdef str _lower(str method):
    # The common methods without creating a string: health checks and discovery are frequent.
    if method == "GET":
        return "get"
    if method == "HEAD":
        return "head"
    if method == "POST":
        return "post"
    return method.lower()

include "fastpath/record.pxi"
include "fastpath/identity.pxi"
include "fastpath/digest.pxi"
include "fastpath/attributes.pxi"
include "fastpath/status.pxi"
include "fastpath/rbac.pxi"
include "fastpath/mux.pxi"
include "fastpath/requestmetrics.pxi"
include "fastpath/filterchain.pxi"
include "fastpath/consistentread.pxi"
