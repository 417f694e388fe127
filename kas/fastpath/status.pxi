# What a refusal says, and its bytes. Why C: a refusal must cost no more than what it refuses; put together in Python its text
# and its Status took longer than a GET's whole endpoint.

from cpython.unicode cimport Py_UNICODE_ISPRINTABLE

cdef extern from "Python.h":
    bint PyUnicode_IS_ASCII(object s)


cdef str _QUOTE = '"', _ESCAPED_QUOTE = '\\"'


cdef bint _verbatim(str s, bint quotes) except -1:
    """Whether ``s`` stands as it is in a JSON string, but for its quotes where they are allowed."""
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
    """Go's ``strconv.Quote``."""
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
    """Why a request is refused, without the leading "pods is forbidden"."""
    cdef str who = go_quote(a.user.name)
    cdef str what
    if not a.resource_request:
        return f"User {who} cannot {a.verb} path {go_quote(a.path)}"
    what = go_quote(f"{a.resource}/{a.subresource}" if a.subresource else a.resource)
    if a.namespace:
        return f"User {who} cannot {a.verb} resource {what} in API group {go_quote(a.api_group)} in the namespace {go_quote(a.namespace)}"
    return f"User {who} cannot {a.verb} resource {what} in API group {go_quote(a.api_group)} at the cluster scope"


def failure_json(int code, str reason not None, str message not None, details):
    """The Status of a refusal as compact JSON with its line end; None when anything of it has to be escaped in another way than by a
    backslash before a quote, or ``details`` hold more than texts and ``retryAfterSeconds``."""
    cdef str shown = "", key
    cdef object value
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
    if message:
        shown = f'"message":"{message.replace(_QUOTE, _ESCAPED_QUOTE)}",{shown}'
    return f'{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure",{shown}"code":{code}}}\n'.encode("ascii")

