# Merging an applied configuration into an object and removing fields (``typed/merge.go``, ``typed/remove.go``).

def merge(Node n, dict live, dict applied):
    """Return the live object with everything that the applied one specifies, as TypedValue.Merge. Shares subtrees. Raises Mismatch."""
    cdef list errors = []
    out = _merge_maps(n, live, applied, None, errors)
    if errors:  # they contain no paths yet
        errors = []
        _merge_maps(n, live, applied, "", errors)
        raise Mismatch(errors)
    return out


cdef object _merge(Node n, object lhs, object rhs, str path, list errors):
    if form(n, lhs) != form(n, rhs) and lhs is not None and rhs is not None:
        return rhs
    if n.is_map and (PyDict_CheckExact(lhs) or PyDict_CheckExact(rhs)):
        if n.map_atomic or not (lhs or rhs):
            return rhs
        return _merge_maps(n, lhs, rhs, path, errors)
    if n.is_list and (PyList_CheckExact(lhs) or PyList_CheckExact(rhs)):
        if n.list_atomic or not (lhs or rhs):
            return rhs
        return _merge_lists(n, lhs, rhs, path, errors)
    return rhs


cdef object _merge_maps(Node n, object lhs, object rhs, str path, list errors):
    cdef dict out
    cdef Field f
    cdef Node t
    if not lhs:
        return rhs
    if not rhs:
        return lhs
    out = dict(<dict>lhs)
    for name, value in (<dict>rhs).items():
        yield_gil(1)
        got = get(lhs, name)
        if got is _MISSING:
            out[name] = value
            continue
        if got is value:
            continue
        f = field_of(n, name)
        t = node_of(f) if f is not None else n.elem
        out[name] = value if t is None else _merge(t, got, value, path_below(path, name), errors)
    return out


cdef object _merge_lists(Node n, object lhs, object rhs, str path, list errors):
    """Interleave two keyed lists: shared items in the order of ``rhs``, the others near their old neighbours."""
    cdef list lkeys = [], rkeys = [], shared, out = []
    cdef dict left = {}, right = {}
    cdef set merged = set()
    cdef Py_ssize_t li = 0, ri = 0, si = 0, i
    cdef object key
    if not lhs:
        lhs = []
    if not rhs:
        rhs = []
    for i in range(len(<list>rhs)):
        try:
            key = item_key(n, (<list>rhs)[i])
        except ValueError as e:
            errors.append((path, f"element {i}: {e}"))
            continue
        if key in right:
            errors.append((path, f"duplicate entries for key {element_text(key)}"))
            continue
        right[key] = (<list>rhs)[i]
        rkeys.append(key)
    for i in range(len(<list>lhs)):
        try:
            key = item_key(n, (<list>lhs)[i])
        except ValueError as e:
            errors.append((path, f"element {i}: {e}"))
            continue
        # Repeated items are replaced by the applied item, not merged with it.
        left[key] = None if key in left else (<list>lhs)[i]
        lkeys.append(key)
    if errors:
        return None
    shared = [k for k in rkeys if k in left]
    while li < len(lkeys) or ri < len(rkeys):
        yield_gil(1)
        if li < len(lkeys) and ri < len(rkeys):
            key = lkeys[li]
            if key == rkeys[ri]:
                merged.add(key)
                out.append(_merge_item(n, left[key], right[key], path, key, errors))
                li += 1
                ri += 1
                si += 1
                continue
            if key in right and si < len(shared) and shared[si] != key:
                li += 1
                continue
        if li < len(lkeys):
            key = lkeys[li]
            if key not in right:
                out.append((<list>lhs)[li])
                li += 1
                continue
            if key in merged:
                li += 1
        if ri < len(rkeys):
            key = rkeys[ri]
            merged.add(key)
            if key in left:
                out.append(_merge_item(n, left[key], right[key], path, key, errors))
            else:
                out.append(right[key])
            ri += 1
            if si < len(shared) and shared[si] == key:
                si += 1
    return out


cdef object _merge_item(Node n, object lhs, object rhs, str path, object key, list errors):
    if is_scalar(rhs):
        return rhs
    return _merge(n.item, lhs, rhs, item_path(path, key), errors)


def remove_items(Node n, dict value, dict gone):
    """Return the object without the fields and items in the set.

    Maps and lists left empty stay; an atomic map or list with something to be removed below it becomes empty.
    """
    if not gone:
        return value
    return _remove(n, value, gone)


cdef object _remove(Node n, object v, dict gone):
    cdef Form as_form = form(n, v)
    cdef Field f
    cdef Node t
    cdef dict out
    cdef list items
    if as_form == SCALAR:
        return v
    if as_form == MAP:
        if not PyDict_CheckExact(v):
            return None
        if n.map_atomic:
            return {}
        out = {}
        for name, value in (<dict>v).items():
            f = field_of(n, name)
            key = f.key if f is not None else "f:" + <str>name
            sub = get(gone, key)
            if sub is _MISSING:
                out[name] = value
                continue
            if member(sub):
                continue
            t = node_of(f) if f is not None else n.elem
            out[name] = _remove(t, value, sub) if t is not None else value
        return out
    if not PyList_CheckExact(v):
        return None
    if n.list_atomic:
        return []
    items = []
    for item in <list>v:
        try:
            key = item_key(n, item)
        except ValueError:
            # The list was validated before; the set cannot name an item that has no key.
            items.append(item)
            continue
        sub = get(gone, key)
        if sub is _MISSING:
            items.append(item)
        elif not member(sub):
            items.append(_remove(n.item, item, sub))
    return items
