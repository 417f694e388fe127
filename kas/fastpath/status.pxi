# The message and body of a refusal. Why C: a refusal must cost no more than what it refuses; building its text and Status in Python took
# longer than the whole endpoint of a GET.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport Py_UNICODE_ISPRINTABLE
from libc.string cimport memcpy

cdef extern from "Python.h":
    bint PyUnicode_IS_ASCII(object s)


cdef bytes _FAILURE = b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",', _MESSAGE = b'"message":"'


cdef bint _verbatim(str s, bint quotes) except -1:
    """Whether ``s`` needs no escaping in a JSON string, except of its quotes when ``quotes`` allows them."""
    cdef const unsigned char *p
    cdef Py_ssize_t i
    cdef unsigned char c
    if not PyUnicode_IS_ASCII(s):
        return False
    p = <const unsigned char *>PyUnicode_DATA(s)
    for i in range(len(s)):
        c = p[i]
        if c < 0x20 or c == c"\\" or c == c"<" or c == c">" or c == c"&" or (c == c'"' and not quotes):
            return False
    return True


def go_quote(str s not None) -> str:
    """``s`` quoted like Go's ``strconv.Quote``."""
    cdef Py_UCS4 c
    cdef list out
    cdef const unsigned char *p
    cdef Py_ssize_t i
    if PyUnicode_IS_ASCII(s):
        p = <const unsigned char *>PyUnicode_DATA(s)
        for i in range(len(s)):
            if p[i] < 0x20 or p[i] >= 0x7F or p[i] == c'"' or p[i] == c"\\":
                break
        else:
            return f'"{s}"'
    out = ['"']
    for c in s:
        if c == c'"' or c == c"\\":
            out.append("\\" + c)
        elif 7 <= c <= 13:
            out.append("\\" + "abtnvfr"[<int>c - 7])
        elif c < 0x20 or c == 0x7F:
            out.append(f"\\x{<int>c:02x}")
        elif Py_UNICODE_ISPRINTABLE(c):
            out.append(c)
        elif c < 0x10000:
            out.append(f"\\u{<int>c:04x}")
        else:
            out.append(f"\\U{<int>c:08x}")
    out.append('"')
    return "".join(out)


def forbidden_message(Attributes a not None) -> str:
    """The reason of a 403 in upstream's words, without the leading "pods is forbidden"."""
    cdef str who = go_quote(a.user.name)
    cdef str what
    if not a.resource_request:
        return f"User {who} cannot {a.verb} path {go_quote(a.path)}"
    what = go_quote(f"{a.resource}/{a.subresource}" if a.subresource else a.resource)
    if a.namespace:
        return f"User {who} cannot {a.verb} resource {what} in API group {go_quote(a.api_group)} in the namespace {go_quote(a.namespace)}"
    return f"User {who} cannot {a.verb} resource {what} in API group {go_quote(a.api_group)} at the cluster scope"


def plain_failure(Request req not None, dict forms not None, int code, str reason not None, str message not None, details):
    """The answer of a refusal as compact JSON, or None when the caller has to render it.

    That is the case when the client wants another form, when ``forms`` (the cache of Accept and User-Agent in ``kas.endpoints.respond``)
    has no entry for the client's headers, and when ``failure_json`` returns None.
    """
    cdef dict headers = req.names()
    cdef object form
    cdef bytes body
    if req.query and "pretty" in req.query:
        return None
    form = forms.get((headers.get(b"accept", b""), headers.get(b"user-agent", b""), False, True))
    if form is None or not (<tuple>form)[3]:
        return None
    body = failure_json(code, reason, message, details)
    return None if body is None else Response(code, [_JSON], body)


cdef bytes failure_json(int code, str reason, str message, details):
    """The Status of a refusal as compact JSON with a final newline.

    None when the text needs any escape other than a backslash before a quote, or when ``details`` holds anything besides strings and
    ``retryAfterSeconds``.
    """
    cdef str shown = "", key
    cdef object value
    cdef bytes tail, made
    cdef const char *text
    cdef char *p
    cdef Py_ssize_t i, n = len(message), quotes = 0
    if not _verbatim(message, True) or not _verbatim(reason, False):
        return None
    if details is not None:
        for key, value in (<dict?>details).items():
            if isinstance(value, str):
                if not _verbatim(<str>value, False):
                    return None
                shown = f'{shown},"{key}":"{value}"' if shown else f'"{key}":"{value}"'
            elif key == "retryAfterSeconds":
                shown = f'{shown},"{key}":{value}' if shown else f'"{key}":{value}'
            else:
                return None
        shown = f'"details":{{{shown}}},'
    if reason:
        shown = f'"reason":"{reason}",{shown}'
    tail = f'{shown}"code":{code}}}\n'.encode("ascii")
    if not n:
        return _FAILURE + tail
    text = <const char *>PyUnicode_DATA(message)
    for i in range(n):
        quotes += text[i] == c'"'
    made = PyBytes_FromStringAndSize(NULL, len(_FAILURE) + len(_MESSAGE) + n + quotes + 2 + len(tail))
    p = PyBytes_AS_STRING(made)
    p = _copied(p, _FAILURE)
    p = _copied(p, _MESSAGE)
    for i in range(n):
        if text[i] == c'"':
            p[0] = c"\\"
            p += 1
        p[0] = text[i]
        p += 1
    p[0], p[1] = c'"', c","
    _copied(p + 2, tail)
    return made


cdef inline char *_copied(char *p, bytes piece) noexcept:
    """Copies ``piece`` to ``p`` and returns the end of the copy."""
    memcpy(p, PyBytes_AS_STRING(piece), PyBytes_GET_SIZE(piece))
    return p + PyBytes_GET_SIZE(piece)
