# The field set of a new object as FieldsV1 text: the result of comparing it with an empty object, without building the set.

cdef extern from *:
    """
    /* "text": as a member's key in JSON, by the way the path element is spelled: quotes and backslashes are escaped. -1 for what needs
       other escapes. The buffer has room for twice the length and four more. */
    static Py_ssize_t kas_put_key(char *out, PyObject *text, const char *before, Py_ssize_t n_before)
    {
        Py_ssize_t i, n = PyUnicode_GET_LENGTH(text), at = 0;
        const unsigned char *s;
        if (!PyUnicode_IS_COMPACT_ASCII(text)) return -1;
        s = (const unsigned char *)PyUnicode_DATA(text);
        out[at++] = '"';
        for (i = 0; i < n_before; i++) out[at++] = before[i];
        for (i = 0; i < n; i++) {
            unsigned char c = s[i];
            if (c < 0x20 || c == '<' || c == '>' || c == '&') return -1;
            if (c == '"' || c == '\\\\') out[at++] = '\\\\';
            out[at++] = (char)c;
        }
        out[at++] = '"';
        out[at++] = ':';
        return at;
    }
    """
    Py_ssize_t kas_put_key(char* out, PyObject* text, const char* before, Py_ssize_t n_before) noexcept


class _Unusual(Exception):
    """The object needs the general path through compare()."""


cdef enum:
    # Levels of the set, far fewer than a stored object may have.
    CREATED_DEPTH = 100


def created(Node root not None, dict new not None, dict without not None):
    """Return the FieldsV1 text of ``compare(root, {}, new)[0]`` less ``without``, as bytes; b"" if nothing is left.

    ``without`` is a set: its members are left out with everything below them; of a member that has children only the path itself is left
    out.

    Returns None for objects that need compare(): undeclared fields next to declared ones, keys with rare characters, repeated set items,
    too many levels, values that contradict the schema.
    """
    cdef Buf b
    cdef bint some
    if root.map_atomic:
        return b""
    buf_init(&b, 4096)
    try:
        put_c(&b, 123)
        some = put_children(&b, root, new, True, without, False, 0)
        put_c(&b, 125)
        return PyBytes_FromStringAndSize(b.p, b.n) if some else b""
    except (_Unusual, Mismatch):
        return None
    finally:
        free(b.p)


cdef int put_path(Buf* b, object text, const char* before, Py_ssize_t n_before) except -1:
    cdef Py_ssize_t n
    reserve(b, 2 * PyUnicode_GET_LENGTH(text) + n_before + 4)
    n = kas_put_key(b.p + b.n, <PyObject*>text, before, n_before)
    if n < 0:
        raise _Unusual
    b.n += n
    return 0


cdef bytes path_json(str text):
    """The text of a path element as a key in JSON, None if it has rare characters."""
    cdef bytes out = PyBytes_FromStringAndSize(NULL, 2 * len(text) + 4)
    cdef Py_ssize_t n = kas_put_key(PyBytes_AS_STRING(out), <PyObject*>text, b"", 0)
    return out[:n] if n >= 0 else None


cdef inline dict below(dict without, object key):
    cdef PyObject* p = NULL
    if without is not None:
        p = PyDict_GetItem(without, key)
    return <dict>p if p != NULL else None


cdef inline bint left_out(dict without) noexcept:
    """Whether a whole member is unwanted. It is still written, and then taken back, because it may contradict the schema."""
    return without is not None and PyDict_Size(without) == 0


cdef bint put_leaf(Buf* b, dict without) except -1:
    if without is not None and PyDict_GetItem(without, ".") != NULL:
        return False
    put(b, b"{}", 2)
    return True


cdef bint put_added(Buf* b, Node n, object v, dict without, int depth) except -1:
    """Write the set of a value that has no counterpart, as _added(). Returns whether anything was written."""
    cdef Form as_form
    cdef Py_ssize_t start = b.n
    cdef bint itself, some
    if n.plain:
        return put_leaf(b, without)
    if depth > CREATED_DEPTH:
        raise _Unusual
    as_form = form(n, v)
    itself = without is None or PyDict_GetItem(without, ".") == NULL
    if as_form == MAP:
        if n.map_atomic or not PyDict_CheckExact(v) or (PyDict_Size(v) == 0 and not n.zeros):
            return put_leaf(b, without)
    elif as_form == LIST:
        if n.list_atomic or not PyList_CheckExact(v) or PyList_GET_SIZE(v) == 0:
            return put_leaf(b, without)
    else:
        return put_leaf(b, without)
    put(b, b'{".":{}', 7 if itself else 1)
    if as_form == MAP:
        some = put_children(b, n, v, False, without, itself, depth)
    else:
        some = put_items(b, n, v, without, itself, depth)
    if not some and not itself:
        b.n = start
        return False
    if not some:
        b.n = start + 1
    put_c(b, 125)
    return True


cdef bint put_changed(Buf* b, Node n, object zero, object v, dict without, int depth) except -1:
    """Write the set of a value compared with an unset one, as _compare(). Returns whether anything was written."""
    cdef Form as_form
    cdef Py_ssize_t start = b.n
    cdef bint some
    if n.plain:
        return False if _same(n, zero, v) else put_leaf(b, without)
    if depth > CREATED_DEPTH:
        raise _Unusual
    as_form = form(n, v)
    if form(n, zero) != as_form:
        raise _Unusual
    if as_form == MAP:
        if not PyDict_CheckExact(v) or (zero is not None and (not PyDict_CheckExact(zero) or PyDict_Size(zero) > 0)):
            raise _Unusual
        if n.map_atomic or (PyDict_Size(v) == 0 and not n.zeros):
            return put_leaf(b, without)
        put_c(b, 123)
        some = put_children(b, n, v, zero is not None, without, False, depth)
    elif as_form == LIST:
        if not PyList_CheckExact(v) or zero is not None:
            raise _Unusual
        if n.list_atomic or PyList_GET_SIZE(v) == 0:
            return put_leaf(b, without)
        put_c(b, 123)
        some = put_items(b, n, v, without, False, depth)
    else:
        return put_leaf(b, without)
    if not some:
        b.n = start
        return False
    put_c(b, 125)
    return True


cdef bint put_children(Buf* b, Node n, dict v, bint empty, dict without, bint some, int depth) except -1:
    """Write the members of a map in order, following a "." if ``some``. The map is compared with an empty one, or with none.

    Returns whether any member besides "." was written.
    """
    cdef Py_ssize_t pos = 0, start
    cdef PyObject* k
    cdef PyObject* p
    cdef PyObject* slots[MOST_FIELDS]
    cdef PyObject* f  # a Field; borrowed, as references to each would take longer than the rest
    cdef int i, total = <int>PyDict_Size(n.fields)
    cdef dict inner
    cdef bint began = some, any = False, there
    cdef list keys
    if total == 0:
        if n.elem is None:
            raise _Unusual
        keys = list(v)
        if len(keys) > 1:
            keys = sort_in_turns(keys)
        for key in keys:
            yield_gil(1)
            inner = None
            if without is not None:
                inner = below(without, "f:" + <str>key)
            start = b.n
            if began:
                put_c(b, 44)
            put_path(b, key, b"f:", 2)
            if put_added(b, n.elem, v[key], inner, depth + 1) and not left_out(inner):
                began = any = True
            else:
                b.n = start
        return any
    if total > MOST_FIELDS:
        raise _Unusual
    for i in range(total):
        slots[i] = NULL
    while PyDict_Next(v, &pos, &k, &p):
        f = find_field(n, k)
        if f == NULL:
            raise _Unusual
        if (<Field>f).omit:
            if p == <PyObject*>None:
                p = <PyObject*>(<Field>f).zero
                if p == <PyObject*>_MISSING:
                    continue
            elif (<Field>f).omit == 2 and not <object>p:
                continue
        if not (<Field>f).skip:
            slots[(<Field>f).rank] = p
    if not empty:
        for i in range(PyList_GET_SIZE(n.zeros)):
            f = PyList_GET_ITEM(n.zeros, i)
            if slots[(<Field>f).rank] == NULL and not (<Field>f).skip and PyDict_GetItem(v, (<Field>f).name) == NULL:
                slots[(<Field>f).rank] = <PyObject*>(<Field>f).zero
    inner = None
    for i in range(total):
        if slots[i] == NULL:
            continue
        f = PyList_GET_ITEM(n.ranked, i)
        if empty and (<Field>f).zero is not _MISSING and deep_eq((<Field>f).zero, <object>slots[i]):
            continue
        if without is not None:
            inner = below(without, (<Field>f).key)
        start = b.n
        if began:
            put_c(b, 44)
        put_bytes(b, (<Field>f).text)
        if empty and (<Field>f).zero is not _MISSING:
            there = put_changed(b, node_of(<Field>f), (<Field>f).zero, <object>slots[i], inner, depth + 1)
        else:
            there = put_added(b, node_of(<Field>f), <object>slots[i], inner, depth + 1)
        if there and not left_out(inner):
            began = any = True
        else:
            b.n = start
    return any


cdef bint put_items(Buf* b, Node n, list items, dict without, bint began, int depth) except -1:
    """Write the items of a set or keyed list in order, following a "." if ``began``. Returns whether any item was written."""
    cdef Py_ssize_t i
    cdef PyObject *ordered[MOST_ITEMS]
    cdef PyObject *names[MOST_ITEMS]
    cdef ItemText text
    cdef bint any = False
    if named_in_order(n, items, ordered, names):
        for i in range(PyList_GET_SIZE(items)):
            text = item_text(n, <object>names[i], <object>ordered[i])
            if put_item(b, n, text.text, text.json, <object>ordered[i], without, began or any, depth):
                any = True
        return any
    for key, item in in_order(_index(n, items)).items():
        if isinstance(item, _Repeated):
            raise _Unusual
        if put_item(b, n, key, path_json(key), item, without, began or any, depth):
            any = True
    return any


cdef bint put_item(Buf* b, Node n, str key, bytes json, object item, dict without, bint began, int depth) except -1:
    cdef Py_ssize_t start = b.n
    cdef dict inner = below(without, key)
    yield_gil(1)
    if json is None:
        raise _Unusual
    if began:
        put_c(b, 44)
    put_bytes(b, json)
    if put_added(b, n.item, item, inner, depth + 1) and not left_out(inner):
        return True
    b.n = start
    return False
