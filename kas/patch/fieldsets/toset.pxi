# The set of fields that an object mentions (``typed/tofieldset.go``).

def to_set(Node n, dict value):
    """Return every leaf and item that the object mentions, as TypedValue.ToFieldSet: what an applier owns. Raises Mismatch."""
    cdef dict out = {}
    if not n.map_atomic:
        _set_of_map(n, value, out)
    return in_order(out)


cdef int _set_of(Node n, object v, str key, bint itself, dict out) except -1:
    """Add the paths of a value below ``key``; ``itself`` adds ``key`` too, whatever lies below."""
    cdef Form as_form
    cdef dict node
    if n.plain:
        out[key] = LEAF
        return 0
    as_form = form(n, v)
    node = {}
    if as_form == MAP:
        if n.map_atomic:
            itself = True
        elif PyDict_CheckExact(v):
            _set_of_map(n, v, node)
    elif as_form == SCALAR:
        itself = True
    elif as_form == LIST:
        if n.list_atomic:
            itself = True
        elif PyList_CheckExact(v):
            for k, item in _index(n, v).items():
                yield_gil(1)
                if n.item.plain or isinstance(item, _Repeated):
                    node[k] = LEAF
                else:
                    _set_of(n.item, item, k, True, node)
    if itself:
        if node:
            node["."] = LEAF
    elif not node:
        return 0
    out[key] = in_order(node) if node else LEAF
    return 0


cdef int _set_of_map(Node n, dict v, dict out) except -1:
    cdef Field f
    for name, value in v.items():
        yield_gil(1)
        f = field_of(n, name)
        if f is not None:
            if not f.skip:
                _set_of(node_of(f), value, f.key, value is None or (PyDict_CheckExact(value) and not value), out)
        elif n.elem is not None:
            _set_of(n.elem, value, "f:" + <str>name, True, out)
        else:
            raise Mismatch([("." + <str>name, "field not declared in schema")])
    return 0
