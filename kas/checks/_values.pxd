# Reading texts in compiled units: their representation in memory, and quantities.

from libc.stdint cimport INT64_MAX, int64_t

cdef extern from "Python.h":
    bint PyUnicode_CheckExact(object o)
    bint PyUnicode_IS_COMPACT_ASCII(object o)
    void* PyUnicode_DATA(object o)
    Py_ssize_t PyUnicode_GET_LENGTH(object o)


cdef inline bint ascii_text(object s, const char** p, Py_ssize_t* n) noexcept:
    """Whether ``s`` is ASCII text, possibly empty; sets its address and length."""
    if not PyUnicode_CheckExact(s) or not PyUnicode_IS_COMPACT_ASCII(s):
        return False
    p[0], n[0] = <const char*>PyUnicode_DATA(s), PyUnicode_GET_LENGTH(s)
    return True


cdef inline int64_t milli(object s) noexcept:
    """Return a canonical non-negative quantity in thousandths; -1 for a form that is left to the rules."""
    cdef const char* p = NULL
    cdef Py_ssize_t i = 0, n = 0
    cdef int64_t value = 0, unit = 1000
    if not ascii_text(s, &p, &n) or n > 12:
        return -1
    while i < n and 48 <= p[i] <= 57:
        value = value * 10 + (p[i] - 48)
        i += 1
    if i == 0 or n - i > 2:
        return -1
    if i < n:
        if p[i] == b'm' and n - i == 1:
            return value
        if n - i == 2 and p[i + 1] != b'i':
            return -1
        if p[i] == b'K' and n - i == 2:
            unit = 1000 * <int64_t>1024
        elif p[i] == b'k' and n - i == 1:
            unit = 1000 * <int64_t>1000
        elif p[i] == b'M':
            unit = 1000 * (<int64_t>1 << 20 if n - i == 2 else 10 ** 6)
        elif p[i] == b'G':
            unit = 1000 * (<int64_t>1 << 30 if n - i == 2 else <int64_t>10 ** 9)
        elif p[i] == b'T':
            unit = 1000 * (<int64_t>1 << 40 if n - i == 2 else <int64_t>10 ** 12)
        else:
            return -1
    return value * unit if value <= INT64_MAX // unit else -1
