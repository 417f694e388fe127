# JSON values: equality, which part of a node a value takes, and how Go's encoder writes it.

cdef extern from *:
    """
    /* JSON equality as upstream's value.Equals: numbers by value, but booleans are not numbers. -1 with an exception on error.
       In C because it is most of what an update without change does; references are borrowed, nothing runs Python code but
       number comparison. */
    static int kas_deep_eq(PyObject *a, PyObject *b) {
        PyTypeObject *t;
        if (a == b) return 1;
        t = Py_TYPE(a);
        if (t == &PyUnicode_Type) {
            Py_ssize_t n;
            if (Py_TYPE(b) != t) return 0;
            n = PyUnicode_GET_LENGTH(a);
            if (n != PyUnicode_GET_LENGTH(b) || PyUnicode_KIND(a) != PyUnicode_KIND(b)) return 0;
            return memcmp(PyUnicode_DATA(a), PyUnicode_DATA(b), n * PyUnicode_KIND(a)) == 0;
        }
        if (t == &PyDict_Type) {
            Py_ssize_t i = 0, j = 0;
            PyObject *k, *v, *k2, *v2;
            if (Py_TYPE(b) != t || PyDict_GET_SIZE(a) != PyDict_GET_SIZE(b)) return 0;
            while (PyDict_Next(a, &i, &k, &v)) {
                int same;
                /* Two forms of one object mostly have their keys in one order: look a key up only where they do not. */
                if (!PyDict_Next(b, &j, &k2, &v2) || k2 != k) {
                    v2 = PyDict_GetItemWithError(b, k);
                    if (v2 == NULL) return PyErr_Occurred() ? -1 : 0;
                }
                same = kas_deep_eq(v, v2);
                if (same != 1) return same;
            }
            return 1;
        }
        if (t == &PyList_Type) {
            Py_ssize_t i, n = PyList_GET_SIZE(a);
            if (Py_TYPE(b) != t || PyList_GET_SIZE(b) != n) return 0;
            for (i = 0; i < n; i++) {
                int same = kas_deep_eq(PyList_GET_ITEM(a, i), PyList_GET_ITEM(b, i));
                if (same != 1) return same;
            }
            return 1;
        }
        if (PyBool_Check(a) || PyBool_Check(b) || a == Py_None || b == Py_None) return 0;
        return PyObject_RichCompareBool(a, b, Py_EQ);
    }
    """
    int deep_eq "kas_deep_eq"(object a, object b) except -1
    PyObject *PyDict_GetItem "PyDict_GetItemWithError"(object d, object key)


def deep_equal(a, b):
    """Whether two JSON values are equal; 1 equals 1.0, but not true."""
    return deep_eq(a, b)


cdef inline bint is_scalar(object v):
    return PyUnicode_CheckExact(v) or PyLong_CheckExact(v) or PyBool_Check(v) or PyFloat_CheckExact(v)


cdef Form form(Node n, object v):
    """Return which part of the node a value takes. A value that fits none gets the first part, where validation then fails."""
    if PyDict_CheckExact(v):
        if n.is_map:
            return MAP
    elif PyList_CheckExact(v):
        if n.is_list:
            return LIST
    elif v is not None and v is not _MISSING:
        if n.scalar:
            return SCALAR
    if n.is_map:
        return MAP
    if n.scalar:
        return SCALAR
    if n.is_list:
        return LIST
    return NONE


cdef inline object value_of(Field f, object v):
    """Return the value as Go's encoder writes it in this field: MISSING if it is omitted."""
    if f is None:
        return v
    if v is _MISSING:
        return f.zero
    if f.omit:
        if v is None:
            return f.zero
        if f.omit == 2 and not v:
            return _MISSING
    return v


def is_written(Node n, object v):
    """Whether a value of a built-in type is certainly what Go's encoder writes: it has no omitted values and lacks no written ones.

    Scalars are not checked, as the decoder did that. False if a quick look cannot tell.
    """
    return _is_written(n, v)


cdef bint _is_written(Node n, object v) except -1:
    cdef Py_ssize_t at = 0, i
    cdef PyObject *k
    cdef PyObject *p
    cdef Field f
    if n.deduced and n.elem is not n:
        # A struct without fields, or a type of alternatives ("a schema or a list"), whose structs the node does not describe.
        return PyDict_CheckExact(v) and PyDict_Size(v) == 0
    if PyDict_CheckExact(v):
        if not n.is_map or n.deduced:
            return n.is_map  # arbitrary JSON is written unchanged
        if PyDict_Size(n.fields) == 0:
            if n.elem is None:
                return False
            while PyDict_Next(v, &at, &k, &p):
                if <object>p is None or not (is_scalar(<object>p) or _is_written(n.elem, <object>p)):
                    return False
            return True
        while PyDict_Next(v, &at, &k, &p):
            f = field_of(n, <object>k)
            if f is None:
                return False
            if is_scalar(<object>p):
                if f.omit == 2 and not <object>p:
                    return False
            elif <object>p is None:
                if f.omit or f.zero is not None:
                    return False
            elif (f.omit == 2 and not <object>p) or not _is_written(node_of(f), <object>p):
                return False
        for f in n.zeros:
            if PyDict_GetItem(v, f.name) == NULL:
                return False
        return True
    if PyList_CheckExact(v) and n.is_list:
        for i in range(PyList_GET_SIZE(v)):
            item = <object>PyList_GET_ITEM(v, i)
            if item is None or not (is_scalar(item) or _is_written(n.item, item)):
                return False
        return True
    return False


cdef inline object get(object d, object key):
    cdef PyObject *p
    if d is None:
        return _MISSING
    p = PyDict_GetItem(d, key)
    return <object>p if p != NULL else _MISSING


cdef bint equal_without(dict a, dict b, tuple skip) except -1:
    """Whether two maps are equal apart from some keys."""
    cdef Py_ssize_t at = 0, n = PyDict_Size(b)
    cdef PyObject *k
    cdef PyObject *v
    cdef PyObject *w
    for key in skip:
        if PyDict_GetItem(b, key) != NULL:
            n -= 1
    while PyDict_Next(a, &at, &k, &v):
        if <object>k in skip:
            continue
        w = PyDict_GetItem(b, <object>k)
        if w == NULL or not deep_eq(<object>v, <object>w):
            return False
        n -= 1
    return n == 0


_METADATA = ("metadata",)


def equal_but_metadata(dict a not None, dict b not None, tuple skip not None):
    """Whether two objects are equal apart from the metadata fields named in ``skip``.

    Metadata is compared last, because differences are usually elsewhere.
    """
    cdef PyObject *m = PyDict_GetItem(a, "metadata")
    cdef PyObject *n = PyDict_GetItem(b, "metadata")
    if not equal_without(a, b, _METADATA):
        return False
    if m == NULL or n == NULL:
        return m == n
    if PyDict_CheckExact(<object>m) and PyDict_CheckExact(<object>n):
        return equal_without(<dict>m, <dict>n, skip)
    return deep_eq(<object>m, <object>n)


_TIME = ("time",)


def equal_but_times(list a not None, list b not None):
    """Whether two lists of managedFields entries are equal apart from their times."""
    cdef Py_ssize_t i, n = PyList_GET_SIZE(a)
    if PyList_GET_SIZE(b) != n:
        return False
    for i in range(n):
        if not equal_without(a[i], b[i], _TIME):
            return False
    return True
