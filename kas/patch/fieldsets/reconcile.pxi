# Adapting sets to a schema (``typed/reconcile_schema.go``, ``Set.EnsureNamedFieldsAreMembers``), and reading FieldsV1.

def with_named_members(Node n, dict s):
    """Return the set in which every declared field on the way to a member is a member, too, as EnsureNamedFieldsAreMembers."""
    return _named(n, s)


cdef dict _named(Node n, dict s):
    cdef dict out = {}
    cdef dict node
    cdef Field f
    cdef Node t
    cdef Py_UCS4 c
    for key, value in s.items():
        yield_gil(1)
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
    """Return the set adapted to types that have become atomic: members below such a field are replaced by the field itself."""
    cdef SharedFields shared = shared_of(s)
    cdef dict out
    if shared is None:
        return _reconcile(n, s, True)
    if shared.fits is n:
        return s
    out = _reconcile(n, s, True)
    if out is s:
        shared.fits = n
    return out


cdef dict _reconcile(Node n, dict s, bint root):
    """Return the level itself if it fits, LEAF if the node has become atomic."""
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
        yield_gil(1)
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


def is_set(object fields):
    """Whether every level is an object, as the set operations assume."""
    return PyDict_CheckExact(fields) and (shared_of(<dict>fields) is not None or _all_objects(<dict>fields))


cdef bint _all_objects(dict level) except -1:
    cdef PyObject *key
    cdef PyObject *value
    cdef Py_ssize_t at = 0
    while PyDict_Next(level, &at, &key, &value):
        if not PyDict_CheckExact(<object>value) or not _all_objects(<dict>value):
            return False
    return True


def canonical(object fields):
    """Decode a client's FieldsV1 into a set: unknown element types are dropped, texts and order become upstream's.

    Raises ValueError with the reason if a key is not a path element or a value is not an object.
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
        yield_gil(1)
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


_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_LIKE_NUMBER = re.compile("[-0-9][-+.eE0-9]*")
_INDEX = re.compile("[-+]?[0-9]+")
_SURROGATES = re.compile("[\ud800-\udfff]")


def _no_constant(name):
    raise ValueError(f"unexpected {name}")


# jsoniter decodes every number as float64.
_FIRST = JSONDecoder(parse_int=float, parse_constant=_no_constant)


cdef object _without_surrogates(object v):
    if PyUnicode_CheckExact(v):
        return _SURROGATES.sub("\ufffd", v)
    if PyList_CheckExact(v):
        return [_without_surrogates(x) for x in v]
    if PyDict_CheckExact(v):
        return {_without_surrogates(k): _without_surrogates(x) for k, x in v.items()}
    return v


cdef bint _exact(object v):
    """Whether an integer equals its float64 value. Minus zero, decoded as an integer, does not."""
    if PyLong_CheckExact(v):
        return v != 0 and -(2**53) <= v <= 2**53
    if PyFloat_CheckExact(v):
        return True
    if PyList_CheckExact(v):
        return all([_exact(x) for x in v])
    return not PyDict_CheckExact(v) or all([_exact(x) for x in v.values()])


cdef object _first_json(str text):
    """Return the first JSON value of a text. The rest is ignored, but everything that looks like a number is read as one."""
    cdef object value
    try:
        value = orjson.loads(text)
        if _exact(value):
            return value
    except ValueError:
        pass
    text = text.lstrip(" \t\r\n")
    like = _LIKE_NUMBER.match(text)
    if like is not None and _NUMBER.fullmatch(like[0]) is None:
        raise ValueError(f"invalid number {like[0]}")
    try:
        value = _FIRST.raw_decode(text)[0]
    except RecursionError:
        raise ValueError("exceeded max depth") from None
    if _infinite(value):
        raise ValueError("value out of range")
    return _without_surrogates(value)


cdef bint _infinite(object v):
    if PyFloat_CheckExact(v):
        return v in (float("inf"), float("-inf"))
    if PyList_CheckExact(v):
        return any([_infinite(x) for x in v])
    return PyDict_CheckExact(v) and any([_infinite(x) for x in v.values()])


cdef str _element(str key):
    cdef Py_UCS4 c
    c = key[0] if key else u"\0"
    if len(key) < 2 and c < 0x80:
        raise ValueError("parsing key as path element: key must be 2 characters long:")
    if c >= 0x80 or key[1] != u":":
        raise ValueError(f"parsing key as path element: missing colon: {key}")
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
        text = key[2:]
        if _INDEX.fullmatch(text) is None:
            raise ValueError(f'parsing key as path element: strconv.Atoi: parsing {_go_quote(text)}: invalid syntax')
        if len(text.lstrip("+-0")) > 19 or not -(2**63) <= int(text) < 2**63:
            raise ValueError(f'parsing key as path element: strconv.Atoi: parsing {_go_quote(text)}: value out of range')
        return f"i:{int(text)}"
    return None
