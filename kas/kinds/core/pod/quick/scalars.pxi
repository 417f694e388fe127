# Scalars: each says that a value is one of those that no rule refuses. And what finds them in dicts and lists.

from libc.string cimport memcmp


cdef inline bint any_text(object s):
    return PyUnicode_CheckExact(s) and PyUnicode_GET_LENGTH(s) > 0


cdef inline bint number(object o, int64_t low, int64_t high):
    cdef int overflow = 0
    cdef long long n
    if not PyLong_CheckExact(o):
        return False
    n = PyLong_AsLongLongAndOverflow(o, &overflow)
    return overflow == 0 and low <= n <= high


cdef bint subdomain(object s, bint dots, Py_ssize_t longest):
    """RFC 1123 labels; with dots between where they are allowed."""
    cdef const char* p = NULL
    cdef Py_ssize_t i, n = 0
    cdef uint8_t sort, before = DOT
    if not ascii_text(s, &p, &n) or n > longest:
        return False
    for i in range(n):
        sort = SORT[<uint8_t>p[i]]
        if sort & (LOWER | DIGIT):
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


cdef bint data_key(object s):
    """A key of a ConfigMap or Secret that does not begin with a dot."""
    cdef const char* p = NULL
    cdef Py_ssize_t i, n = 0
    if not ascii_text(s, &p, &n) or n > 253 or p[0] == b'.':
        return False
    for i in range(n):
        if not SORT[<uint8_t>p[i]]:
            return False
    return True


cdef bint port_name(object s):
    cdef const char* p = NULL
    cdef Py_ssize_t i, n = 0
    cdef uint8_t sort, before = DASH
    cdef bint letter = False
    if not ascii_text(s, &p, &n) or n > 15:
        return False
    for i in range(n):
        sort = SORT[<uint8_t>p[i]]
        if not sort & (LOWER | DIGIT | DASH) or (sort == DASH and before == DASH):
            return False
        letter = letter or sort == LOWER
        before = sort
    return letter and before != DASH


cdef bint port(object o):
    return number(o, 1, 65535) or port_name(o)


cdef bint env_name(object s):
    cdef const char* p = NULL
    cdef Py_ssize_t i, n = 0
    if not ascii_text(s, &p, &n):
        return False
    for i in range(n):
        if not 0x20 <= p[i] <= 0x7E or p[i] == b'=':
            return False
    return True


cdef bint without_backsteps(object s, bint relative):
    """A path in which no two dots stand together; ``relative`` refuses a slash in front."""
    cdef const char* p = NULL
    cdef Py_ssize_t i, n = 0
    if not ascii_text(s, &p, &n) or (relative and p[0] == b'/'):
        return False
    for i in range(n - 1):
        if p[i] == b'.' and p[i + 1] == b'.':
            return False
    return True


cdef bint in_a_folder(object s):
    """Of an ASCII text: whether it has a slash."""
    cdef const char* p = NULL
    cdef Py_ssize_t i, n = 0
    if ascii_text(s, &p, &n):
        for i in range(n):
            if p[i] == b'/':
                return True
    return False


cdef bint unpadded(object s):
    cdef const char* p = NULL
    cdef Py_ssize_t n = 0
    return ascii_text(s, &p, &n) and p[0] > 0x20 and p[n - 1] > 0x20


cdef inline bint is_key(PyObject* k, const char* name, Py_ssize_t n):
    """Cheaper than a look-up for the dicts of few keys that come by the dozen."""
    return (
        PyUnicode_CheckExact(<object>k) and PyUnicode_GET_LENGTH(<object>k) == n and PyUnicode_IS_COMPACT_ASCII(<object>k)
        and memcmp(PyUnicode_DATA(<object>k), name, n) == 0
    )


cdef inline bint one_of(PyObject* v, frozenset known):
    return v != NULL and PyUnicode_CheckExact(<object>v) and <object>v in known


cdef inline bint only(dict d, frozenset known):
    """Whether all keys are known."""
    cdef Py_ssize_t at = 0
    cdef PyObject* k
    while PyDict_Next(d, &at, &k, NULL):
        if <object>k not in known:
            return False
    return True


cdef inline list as_list(PyObject* v):
    """The value as a list that has something in it, None otherwise."""
    return <list><object>v if v != NULL and PyList_CheckExact(<object>v) and PyList_GET_SIZE(<object>v) else None
