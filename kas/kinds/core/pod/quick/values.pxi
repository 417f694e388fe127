# What both units read values with: texts as they lie in memory, amounts, and dicts without reference counting.

from cpython.dict cimport PyDict_GetItem, PyDict_Next
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport INT64_MAX, int64_t, uint8_t
from libc.string cimport memset

cdef extern from "Python.h":
    bint PyUnicode_CheckExact(object o)
    bint PyUnicode_IS_COMPACT_ASCII(object o)
    void* PyUnicode_DATA(object o)
    Py_ssize_t PyUnicode_GET_LENGTH(object o)
    bint PyDict_CheckExact(object o)
    bint PyList_CheckExact(object o)
    bint PyLong_CheckExact(object o)
    long long PyLong_AsLongLongAndOverflow(object o, int* overflow) except? -1

cdef enum:
    LOWER = 1   # a-z
    UPPER = 2
    DIGIT = 4
    DASH = 8
    DOT = 16
    UNDERSCORE = 32

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


cdef inline bint ascii_text(object s, const char** p, Py_ssize_t* n):
    """A text of at least one character, all of them ASCII."""
    if not PyUnicode_CheckExact(s) or not PyUnicode_IS_COMPACT_ASCII(s):
        return False
    p[0], n[0] = <const char*>PyUnicode_DATA(s), PyUnicode_GET_LENGTH(s)
    return n[0] > 0


cdef int64_t milli(object s):
    """Thousandths of a canonical quantity that is not negative; -1 for a form that is left to the rules."""
    cdef const char* p = NULL
    cdef Py_ssize_t i = 0, n = 0
    cdef int64_t value = 0, unit = 1000
    if not ascii_text(s, &p, &n) or n > 12:
        return -1
    while i < n and SORT[<uint8_t>p[i]] == DIGIT:
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


cdef inline PyObject* get(dict d, object key):
    return PyDict_GetItem(d, key)


cdef inline dict as_dict(PyObject* v):
    """The value as a dict, None when it is absent or none."""
    return <dict><object>v if v != NULL and PyDict_CheckExact(<object>v) else None
