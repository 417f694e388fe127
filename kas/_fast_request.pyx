"""RequestInfo of a request line: the path is cut once, the verb follows from method and path.

Owns nothing; reads the method and the already percent-decoded path as ``str``. What depends on the query string (list or
watch, a name out of a field selector) is left to ``kas.api.requestinfo``, which is also where the rules are documented.
Why C: every request starts here; ``bench/test_api.py::test_request_info`` has the number (about a third of the Python twin's).
"""

cimport cython


@cython.freelist(64)
cdef class RequestInfo:
    """What a path means to the API, field by field as upstream's ``request.RequestInfo``.

    ``parts`` is None for a non-resource request. ``by_prefix`` tells the deprecated ``/watch/`` and ``/proxy/`` forms.
    """

    cdef public bint is_resource_request
    cdef public bint by_prefix
    cdef public str path
    cdef public str verb
    cdef public str api_prefix
    cdef public str api_group
    cdef public str api_version
    cdef public str namespace
    cdef public str resource
    cdef public str subresource
    cdef public str name
    cdef public list parts
    cdef public str field_selector
    cdef public str label_selector

    def __repr__(self):
        return (
            f"RequestInfo({self.verb} {self.path!r}: group={self.api_group!r} version={self.api_version!r} "
            f"namespace={self.namespace!r} resource={self.resource!r} subresource={self.subresource!r} name={self.name!r})"
        )


class RequestInfoError(ValueError):
    """A path below /watch or /proxy that names no resource; ``info`` is what was understood so far."""

    def __init__(self, info):
        super().__init__(info.path)
        self.info = info


cpdef RequestInfo cut(str method, str path):
    """Everything of RequestInfo that method and path decide. A nameless GET comes back as ``list``."""
    cdef RequestInfo info = RequestInfo.__new__(RequestInfo)
    cdef list parts
    cdef Py_ssize_t i = 0, n
    cdef str head
    info.path = path
    info.api_prefix = info.api_group = info.api_version = info.namespace = ""
    info.resource = info.subresource = info.name = info.field_selector = info.label_selector = ""
    parts = path.strip("/").split("/")
    n = len(parts)
    head = <str>parts[0]
    if n < 3 or (head != "api" and head != "apis"):
        info.verb = method.lower()
        return info
    info.api_prefix = head
    i = 1
    if head == "apis":
        if n < 4:
            info.verb = method.lower()
            return info
        info.api_group = <str>parts[1]
        i = 2
    info.is_resource_request = True
    info.api_version = <str>parts[i]
    i += 1
    # n >= 3 without and n >= 4 with a group: parts[i] exists here and below.
    head = <str>parts[i]
    if head == "watch" or head == "proxy":
        if n - i < 2:
            info.verb = method.lower()
            raise RequestInfoError(info)
        info.verb = head
        info.by_prefix = True
        i += 1
        head = <str>parts[i]
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
    if head == "namespaces" and n - i > 1:
        info.namespace = <str>parts[i + 1]
        if n - i > 2:
            head = <str>parts[i + 2]
            # status and finalize are subresources of the namespace itself, anything else is a resource inside it.
            if head != "status" and head != "finalize":
                i += 2
    parts = parts[i:]
    n -= i
    info.parts = parts
    info.resource = <str>parts[0]
    if n >= 2:
        info.name = <str>parts[1]
        if n >= 3 and info.verb != "proxy":
            info.subresource = <str>parts[2]
    if not info.name:
        if info.verb == "get":
            info.verb = "list"
        elif info.verb == "delete":
            info.verb = "deletecollection"
    return info
