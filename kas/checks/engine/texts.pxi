# The leaves: each recognizes texts that no rule refuses.

from cpython.dict cimport PyDict_GetItem, PyDict_Next, PyDict_Size
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport INT64_MAX, INT64_MIN
from libc.stdlib cimport calloc, free
from libc.string cimport memchr, memcmp, memset

from kas.checks._values cimport ascii_text, milli

cdef extern from "Python.h":
    bint PyUnicode_CheckExact(object o)
    bint PyUnicode_IS_COMPACT_ASCII(object o)
    void* PyUnicode_DATA(object o)
    Py_ssize_t PyUnicode_GET_LENGTH(object o)
    bint PyDict_CheckExact(object o)
    bint PyList_CheckExact(object o)
    bint PyLong_CheckExact(object o)
    bint PyFloat_CheckExact(object o)
    double PyFloat_AS_DOUBLE(object o)
    bint PyFrozenSet_CheckExact(object o)
    PyObject* PyTuple_GET_ITEM(object t, Py_ssize_t i)
    Py_ssize_t PyTuple_GET_SIZE(object t)
    int PySet_Contains(object anyset, object key) except -1
    long long PyLong_AsLongLongAndOverflow(object o, int* overflow) except? -1

cdef enum:
    LOWER = 1   # a-z
    UPPER = 2
    DIGIT = 4
    DASH = 8
    DOT = 16
    UNDERSCORE = 32
    SUBDOMAIN_MAX = 253
    NAME_MAX = 63

cdef uint8_t SORT[256]


cdef void _init_sort() noexcept:
    cdef int c
    memset(SORT, 0, 256)
    for c in range(97, 123):
        SORT[c] = LOWER
        SORT[c - 32] = UPPER
    for c in range(48, 58):
        SORT[c] = DIGIT
    SORT[45], SORT[46], SORT[95] = DASH, DOT, UNDERSCORE

_init_sort()


cdef inline bint number(object o, int64_t low, int64_t high) noexcept:
    cdef int overflow = 0
    cdef long long n
    if not PyLong_CheckExact(o):
        return False
    n = PyLong_AsLongLongAndOverflow(o, &overflow)
    return overflow == 0 and low <= n <= high


cdef bint is_label_key(const char* p, Py_ssize_t n) noexcept:
    """Whether a text matches ``([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]``, with at most 63 characters."""
    cdef Py_ssize_t i
    if n < 1 or n > NAME_MAX:
        return False
    if not SORT[<uint8_t>p[0]] & (LOWER | UPPER | DIGIT) or not SORT[<uint8_t>p[n - 1]] & (LOWER | UPPER | DIGIT):
        return False
    for i in range(n):
        if not SORT[<uint8_t>p[i]]:
            return False
    return True


cdef bint is_subdomain(const char* p, Py_ssize_t n, int letters, bint dots) noexcept:
    """Whether a text is an RFC 1123 label, or several with ``dots``; ``letters`` are the allowed classes. The caller checks its length."""
    cdef Py_ssize_t i
    cdef uint8_t sort, before = DOT
    for i in range(n):
        sort = SORT[<uint8_t>p[i]]
        if sort & (letters | DIGIT):
            pass
        elif sort == DASH:
            if before == DOT:
                return False
        elif sort == DOT and dots:
            if before == DOT or before == DASH:
                return False
        else:
            return False
        before = sort
    return before != DOT and before != DASH


cdef bint is_qualified(const char* p, Py_ssize_t n, int letters, bint prefixed) noexcept:
    """Whether a text is a label key, with a subdomain before a slash if ``prefixed``."""
    cdef const char* slash = <const char*>memchr(p, 47, n)
    if slash == NULL:
        return not prefixed and is_label_key(p, n)
    # A second slash is not allowed in a label key.
    return (
        1 <= slash - p <= SUBDOMAIN_MAX and is_subdomain(p, slash - p, letters, True)
        and is_label_key(slash + 1, n - (slash - p) - 1)
    )


cdef bint is_data_key(const char* p, Py_ssize_t n) noexcept:
    """Whether a text is a key of a ConfigMap or Secret that does not begin with a dot."""
    cdef Py_ssize_t i
    if n < 1 or n > SUBDOMAIN_MAX or p[0] == b'.':
        return False
    for i in range(n):
        if not SORT[<uint8_t>p[i]]:
            return False
    return True


cdef bint is_port_name(const char* p, Py_ssize_t n) noexcept:
    cdef Py_ssize_t i
    cdef uint8_t sort, before = DASH
    cdef bint letter = False
    if n < 1 or n > 15:
        return False
    for i in range(n):
        sort = SORT[<uint8_t>p[i]]
        if not sort & (LOWER | DIGIT | DASH) or (sort == DASH and before == DASH):
            return False
        letter = letter or sort == LOWER
        before = sort
    return letter and before != DASH


cdef bint is_printable(const char* p, Py_ssize_t n, char refused) noexcept:
    cdef Py_ssize_t i
    for i in range(n):
        if not 0x20 <= p[i] <= 0x7E or p[i] == refused:
            return False
    return True


cdef bint is_path(const char* p, Py_ssize_t n, bint relative, bint folders) noexcept:
    """Whether a text is a path without ".."; ``relative`` refuses a leading slash, and without ``folders`` any slash is refused."""
    cdef Py_ssize_t i
    if n < 1 or (relative and p[0] == b'/'):
        return False
    if not folders and memchr(p, 47, n) != NULL:
        return False
    for i in range(n - 1):
        if p[i] == b'.' and p[i + 1] == b'.':
            return False
    return True


cdef bint is_segment(const char* p, Py_ssize_t n) noexcept:
    """Whether a text is a path segment; one that begins with a dot may be invalid and is left to the rules."""
    return n > 0 and p[0] != b'.' and memchr(p, 47, n) == NULL and memchr(p, 37, n) == NULL


cdef bint is_group_version(const char* p, Py_ssize_t n) noexcept:
    """Whether a text is a version, optionally with a group and a slash before it."""
    cdef const char* slash = <const char*>memchr(p, 47, n)
    return n > 0 and (slash == NULL or (slash < p + n - 1 and memchr(slash + 1, 47, p + n - slash - 1) == NULL))


cdef bint is_ipv4(const char* p, Py_ssize_t n) noexcept:
    """Whether a text is four decimal numbers without leading zeros: a unicast address that is neither loopback nor link-local."""
    cdef Py_ssize_t i = 0
    cdef int part, value, digits, first = 0, second = 0
    for part in range(4):
        value, digits = 0, 0
        while i < n and SORT[<uint8_t>p[i]] == DIGIT and digits < 4:
            value = value * 10 + p[i] - 48
            digits += 1
            i += 1
        if digits < 1 or digits > 3 or value > 255 or (digits > 1 and p[i - digits] == 48):
            return False
        if part == 0:
            first = value
        elif part == 1:
            second = value
        if part < 3:
            if i >= n or p[i] != b'.':
                return False
            i += 1
    return i == n and 0 < first < 224 and first != 127 and not (first == 169 and second == 254)
