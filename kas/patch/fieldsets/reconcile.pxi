# Sets seen through a schema (``typed/reconcile_schema.go``, ``Set.EnsureNamedFieldsAreMembers``), and reading FieldsV1.

def with_named_members(Node n, dict s):
    """The set with every declared field on the way to a member made a member, as EnsureNamedFieldsAreMembers."""
    return _named(n, s)


cdef dict _named(Node n, dict s):
    cdef dict out = {}
    cdef dict node
    cdef Field f
    cdef Node t
    cdef Py_UCS4 c
    for key, value in s.items():
        node = value
        if not node or key == ".":
            out[key] = node
            continue
        c = (<str>key)[0]
        t, f = None, None
        if n is not None:
            if c == u"f" and n.is_map:
                f = n.by_key.get(key)
                t = node_of(f) if f is not None else n.elem
            elif c == u"k" and n.is_list:
                t = n.item
        below = _named(t, node)
        out[key] = below if f is None or "." in below else {**DOT, **below}
    return out


def reconcile(Node n, dict s):
    """The set adapted to types that have become atomic: what lay below such a field becomes the field itself."""
    cdef dict out = _reconcile(n, s, True)
    return out


cdef dict _reconcile(Node n, dict s, bint root):
    """The level itself when it fits; LEAF when the node has become atomic."""
    cdef dict out = None
    cdef dict node, got
    cdef Node t
    cdef Py_ssize_t pos = 0
    cdef PyObject *k
    cdef PyObject *v
    cdef PyObject *p
    cdef bint as_map = n.is_map
    if as_map:
        if n.deduced:
            return s
        if n.map_atomic:
            return s if root else LEAF
    elif n.scalar or not n.is_list:
        return s
    elif n.list_atomic:
        return LEAF
    while PyDict_Next(s, &pos, &k, &v):
        node = <dict>v
        if PyDict_Size(node) == 0:
            continue
        key = <object>k
        if as_map:
            p = PyDict_GetItem(n.by_key, key)
            t = node_of(<Field>p) if p != NULL else n.elem
        else:
            t = n.item
        if t is None:
            continue
        got = _reconcile(t, node, False)
        if got is not node:
            if out is None:
                out = dict(s)
            out[key] = got
    return s if out is None else out


def canonical(object fields):
    """A client's FieldsV1 as a set: unknown element types dropped, texts and order as upstream prints them.

    Raises ValueError with the reason when a key is no path element or a value no object.
    """
    if fields is None:
        return {}
    if not PyDict_CheckExact(fields):
        raise ValueError(f"ReadMapCB: expect {{ or n, but found {json_text(fields)[0]}")
    out = _canonical(fields)
    return {k: v for k, v in out.items() if k != "."}


cdef dict _canonical(dict level):
    cdef dict out = {}
    for key, value in level.items():
        if key == ".":
            out["."] = LEAF
            continue
        text = _element(key)
        if text is None:
            continue
        if value is not None and not PyDict_CheckExact(value):
            raise ValueError(f"ReadMapCB: expect {{ or n, but found {json_text(value)[0]}")
        below = _canonical(value) if value else LEAF
        if len(below) == 1 and "." in below:
            below = LEAF
        out[text] = _union_node(out[text], below) if text in out else below
    return in_order(out)


_FIRST = JSONDecoder()


cdef object _first_json(str text):
    """The first JSON value of a text: what follows it is never read."""
    try:
        return orjson.loads(text)
    except ValueError as e:
        text = text.lstrip(" \t\r\n")
        try:
            return orjson.loads(text[:_FIRST.raw_decode(text)[1]])
        except (ValueError, RecursionError):
            raise e from None


cdef str _element(str key):
    cdef Py_UCS4 c
    if len(key) < 2:
        raise ValueError("parsing key as path element: key must be 2 characters long:")
    if key[1] != u":":
        raise ValueError(f"parsing key as path element: missing colon: {key}")
    c = key[0]
    if c == u"f":
        return key
    if c == u"v" or c == u"k":
        try:
            value = _first_json(key[2:])
        except ValueError as e:
            raise ValueError(f"parsing key as path element: {e}") from None
        if c == u"v":
            return "v:" + json_text(value)
        if value is None:
            return "k:{}"
        if not PyDict_CheckExact(value):
            raise ValueError("parsing key as path element: ReadObjectCB: expect { or n")
        return "k:" + json_text(value)
    if c == u"i":
        try:
            return f"i:{int(key[2:])}"
        except ValueError:
            raise ValueError(f'parsing key as path element: strconv.Atoi: parsing "{key[2:]}": invalid syntax') from None
    return None
