# Set algebra over FieldsV1 dicts (``fieldpath/set.go``); ``_fieldsets.pyx`` describes their form.

cdef dict LEAF = {}
cdef dict DOT = {".": LEAF}


cdef inline bint member(dict node):
    return PyDict_Size(node) == 0 or PyDict_GetItem(node, ".") != NULL


def union(dict a, dict b):
    """Return the paths in either set."""
    return _union(a, b)


cdef dict _union(dict a, dict b):
    cdef dict out = None
    cdef object got
    cdef bint grown = False
    if a is b or not b:
        return a
    if not a:
        return b
    for key, bv in b.items():
        yield_gil(1)
        got = get(a, key)
        if got is _MISSING:
            if out is None:
                out = dict(a)
            out[key] = bv
            grown = True
        else:
            merged = _union_node(got, bv)
            if merged is not got:
                if out is None:
                    out = dict(a)
                out[key] = merged
    if out is None:
        return a
    return in_order(out) if grown else out


cdef dict _union_node(dict a, dict b):
    if a is b:
        return a
    if not a:
        if not b or "." in b:
            return b
        return {**DOT, **b}
    if not b:
        return a if "." in a else {**DOT, **a}
    return _union(a, b)


def difference(dict a, dict b):
    """Return the paths in ``a`` that are not in ``b``; a member of ``b`` does not remove the paths below it."""
    out = _difference(a, b)
    return {} if out is None else out


cdef dict _difference(dict a, dict b):
    """Return the level of ``a`` without ``b``: ``a`` itself if they are disjoint, None if nothing remains."""
    cdef dict out = None
    cdef dict av, bv
    cdef object got, left
    if not b:
        return a if a else None
    if PyDict_Size(b) < PyDict_Size(a):
        for key in b:
            if key in a:
                break
        else:
            return a
    for key, value in a.items():
        yield_gil(1)
        got = get(b, key)
        if got is _MISSING:
            continue
        av, bv = value, got
        if not av:
            left = None if member(bv) else av
        elif not bv:
            if "." not in av:
                continue
            left = {k: v for k, v in av.items() if k != "."}
            if not left:
                left = None
        else:
            left = _difference(av, bv)
            if left is not None and left is not av and len(left) == 1 and "." in <dict>left:
                left = LEAF
        if left is av:
            continue
        if out is None:
            out = dict(a)
        if left is None:
            del out[key]
        else:
            out[key] = left
    if out is None:
        return a if a else None
    return out if out else None


def recursive_difference(dict a, dict b):
    """Return the paths in ``a`` that are neither in ``b`` nor below a member of it."""
    out = _recursive(a, b)
    return {} if out is None else out


cdef dict _recursive(dict a, dict b):
    cdef dict out = None
    cdef dict av, bv
    cdef object got, left
    for key, value in a.items():
        yield_gil(1)
        got = get(b, key)
        if got is _MISSING:
            continue
        av, bv = value, got
        if member(bv):
            left = None
        elif not av:
            continue
        else:
            left = _recursive(av, bv)
            if left is not None and left is not av and len(left) == 1 and "." in <dict>left:
                left = LEAF
        if left is av:
            continue
        if out is None:
            out = dict(a)
        if left is None:
            del out[key]
        else:
            out[key] = left
    if out is None:
        return a if a else None
    return out if out else None


def intersection(dict a, dict b):
    """Return the paths in both sets."""
    out = _intersection(a, b)
    return {} if out is None else out


cdef dict _intersection(dict a, dict b):
    cdef dict out = {}
    cdef dict av, bv
    cdef object got
    for key, value in a.items():
        yield_gil(1)
        got = get(b, key)
        if got is _MISSING:
            continue
        av, bv = value, got
        if key == ".":
            out[key] = LEAF
        elif not av or not bv:
            if member(av) and member(bv):
                out[key] = LEAF
        else:
            both = _intersection(av, bv)
            if both is not None:
                out[key] = LEAF if len(both) == 1 and "." in both else both
    return out if out else None


def has(dict s, list path):
    """Whether the path, a list of element texts, is a member."""
    cdef dict node = s
    for key in path:
        got = get(node, key)
        if got is _MISSING:
            return False
        node = got
    return len(path) > 0 and member(node)


def paths(dict s):
    """Return every member as a list of element texts, members of a level before deeper ones, as Set.Iterate."""
    out = []
    _paths(s, [], out)
    return out


cdef _paths(dict s, list prefix, list out):
    for key, node in s.items():
        if key != "." and member(node):
            out.append([*prefix, key])
    for key, node in s.items():
        if key != "." and node:
            _paths(node, [*prefix, key], out)
