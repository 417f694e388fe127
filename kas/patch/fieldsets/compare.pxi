# Comparing two versions of an object (``typed/compare.go``).

def compare(Node n, dict old, dict new):
    """Return (changed, removed): the paths that ``new`` adds or modifies, and those that it lacks. Raises Mismatch.

    Unset fields of built-in types count as the values that Go's encoder writes for them, so ``{}`` is the empty object of the type.
    """
    cdef dict changed = {}, removed = {}
    if n.map_atomic:
        return changed, removed
    if old or n.zeros:
        _compare_maps(n, old, new, changed, removed)
    elif new:
        changed = _added_map(n, new, False)
    return in_order(changed), in_order(removed)


cdef int _compare(Node n, object lhs, object rhs, str key, dict changed, dict removed) except -1:
    """Compare two different values, of which at most one is MISSING; add the paths found below ``key``."""
    cdef Form lf, rf
    cdef dict node
    if lhs is _MISSING:
        changed[key] = _added(n, rhs)
        return 0
    if rhs is _MISSING:
        removed[key] = _added(n, lhs)
        return 0
    if n.plain:
        if not _same(n, lhs, rhs):
            changed[key] = LEAF
        return 0
    lf, rf = form(n, lhs), form(n, rhs)
    _compare_as(n, lf, lhs, rhs, key, changed, removed)
    if lf != rf:
        _compare_as(n, rf, lhs, rhs, key, changed, removed)
    return 0


cdef int _compare_as(Node n, Form as_form, object lhs, object rhs, str key, dict changed, dict removed) except -1:
    cdef dict c, r
    if as_form == MAP:
        if not PyDict_CheckExact(lhs):
            lhs = None
        if not PyDict_CheckExact(rhs):
            rhs = None
        if n.map_atomic or not (lhs or rhs or n.zeros):
            changed.setdefault(key, LEAF)
            return 0
        c, r = {}, {}
        _compare_maps(n, lhs, rhs, c, r)
    elif as_form == LIST:
        if not PyList_CheckExact(lhs):
            lhs = None
        if not PyList_CheckExact(rhs):
            rhs = None
        if n.list_atomic or not (lhs or rhs):
            changed.setdefault(key, LEAF)
            return 0
        c, r = {}, {}
        _compare_lists(n, lhs, rhs, c, r)
    else:
        changed.setdefault(key, LEAF)
        return 0
    if c:
        changed[key] = _union_node(changed[key], in_order(c)) if key in changed else in_order(c)
    if r:
        removed[key] = _union_node(removed[key], in_order(r)) if key in removed else in_order(r)
    return 0


cdef bint _same(Node n, object lhs, object rhs, bint strict=False) except -1:
    """Whether Go represents both as the same value.

    Values that are compared as a whole may differ in fields that are unset on one side and explicitly empty on the other, if Go omits or
    fills in such fields: usually one side was stored, so Go wrote it, and the other was sent by a client.

    ``strict`` compares like reflect.DeepEqual, which upstream uses for lists: in a list item, an empty map or list differs from an unset
    one.
    """
    cdef Field f
    if lhs is rhs:
        return True
    if PyDict_CheckExact(lhs) and PyDict_CheckExact(rhs) and n.is_map:
        for name, value in (<dict>lhs).items():
            f = field_of(n, name)
            if not _same_member(n, f, value, get(rhs, name), strict):
                return False
        for name, value in (<dict>rhs).items():
            if PyDict_GetItem(lhs, name) == NULL:
                f = field_of(n, name)
                if not _same_member(n, f, _MISSING, value, strict):
                    return False
        return True
    if PyList_CheckExact(lhs) and PyList_CheckExact(rhs) and n.is_list:
        return _same_items(n.item, lhs, rhs, True)
    return deep_eq(lhs, rhs)


cdef bint _same_member(Node n, Field f, object lhs, object rhs, bint strict) except -1:
    cdef Node t = n.elem if f is None else node_of(f)
    lhs, rhs = _held(f, lhs, strict), _held(f, rhs, strict)
    if lhs is _MISSING or rhs is _MISSING:
        return lhs is rhs
    return deep_eq(lhs, rhs) if t is None else _same(t, lhs, rhs, strict)


cdef inline object _held(Field f, object v, bint strict):
    return v if strict and (PyDict_CheckExact(v) or PyList_CheckExact(v)) else value_of(f, v)


cdef bint _same_items(Node n, list lhs, list rhs, bint strict) except -1:
    cdef Py_ssize_t i
    if PyList_GET_SIZE(lhs) != PyList_GET_SIZE(rhs):
        return False
    for i in range(PyList_GET_SIZE(lhs)):
        yield_gil(1)
        if not _same(n, <object>PyList_GET_ITEM(lhs, i), <object>PyList_GET_ITEM(rhs, i), strict):
            return False
    return True


cdef int _compare_maps(Node n, object lhs, object rhs, dict changed, dict removed) except -1:
    cdef Field f
    cdef Node t
    cdef object lv, rv
    cdef str key
    if rhs is not None:
        for name, value in (<dict>rhs).items():
            yield_gil(1)
            lv = get(lhs, name)
            if lv is value:
                continue
            f = field_of(n, name)
            if f is not None and f.skip:
                continue
            rv = value_of(f, value)
            if lhs is not None:
                lv = value_of(f, lv)
            if lv is rv or (lv is not _MISSING and deep_eq(lv, rv)):
                continue
            if f is not None:
                t, key = node_of(f), f.key
            else:
                t, key = n.elem, "f:" + <str>name
                if t is None:
                    raise Mismatch([("." + <str>name, "field not declared in schema")])
            _compare(t, lv, rv, key, changed, removed)
    if lhs is not None:
        for name, value in (<dict>lhs).items():
            yield_gil(1)
            if rhs is not None and PyDict_GetItem(rhs, name) != NULL:
                continue
            f = field_of(n, name)
            lv = value_of(f, value)
            rv = value_of(f, _MISSING) if rhs is not None else _MISSING
            if lv is rv or (rv is not _MISSING and lv is not _MISSING and deep_eq(lv, rv)):
                continue
            if f is not None:
                if f.skip:
                    continue
                t, key = node_of(f), f.key
            else:
                t, key = n.elem, "f:" + <str>name
                if t is None:
                    raise Mismatch([("." + <str>name, "field not declared in schema")])
            _compare(t, lv, rv, key, changed, removed)
    # If one side is absent (null), the values that Go writes for unset fields are differences.
    if n.zeros and (lhs is None or rhs is None):
        for f in n.zeros:
            if get(rhs if lhs is None else lhs, f.name) is not _MISSING or f.skip:
                continue
            if lhs is None:
                changed[f.key] = _added(node_of(f), f.zero)
            else:
                removed[f.key] = _added(node_of(f), f.zero)
    return 0


cdef class _Repeated:
    """The items of a list that have the same key."""

    cdef list items


cdef dict _index(Node n, object items):
    """Return the items by path element text, in the order of their first appearance; items with the same key as _Repeated."""
    cdef dict out = {}
    cdef Py_ssize_t i
    cdef PyObject *p
    cdef _Repeated again
    if items is None:
        return out
    for i in range(PyList_GET_SIZE(items)):
        yield_gil(1)
        item = <object>PyList_GET_ITEM(items, i)
        try:
            key = item_key(n, item)
        except ValueError as e:
            raise Mismatch([("", f"element {i}: {e}")]) from None
        p = PyDict_GetItem(out, key)
        if p == NULL:
            PyDict_SetItem(out, key, item)
        elif isinstance(<object>p, _Repeated):
            (<_Repeated>p).items.append(item)
        else:
            again = _Repeated()
            again.items = [<object>p, item]
            out[key] = again
    return out


cdef int _compare_lists(Node n, object lhs, object rhs, dict changed, dict removed) except -1:
    cdef dict left = _index(n, lhs)
    cdef dict right = _index(n, rhs)
    cdef bint was_repeated, repeated
    for key, value in right.items():
        yield_gil(1)
        got = get(left, key)
        if got is _MISSING:
            changed[key] = _added_item(n, value)
            continue
        was_repeated, repeated = isinstance(got, _Repeated), isinstance(value, _Repeated)
        if not was_repeated and not repeated:
            if not deep_eq(got, value):
                _compare(n.item, got, value, key, changed, removed)
        elif was_repeated and repeated:
            if not _same_items(n.item, (<_Repeated>got).items, (<_Repeated>value).items, False):
                changed[key] = LEAF
        elif was_repeated:
            # The item was repeated and is now single: the repetition's marker is replaced by the item's fields.
            changed[key] = _added_item(n, value)
            removed[key] = LEAF
        else:
            removed[key] = _added_item(n, got)
            changed[key] = LEAF
    for key, value in left.items():
        if PyDict_GetItem(right, key) == NULL:
            removed[key] = _added_item(n, value)
    return 0


cdef inline dict _added_item(Node n, object v):
    # Repeated items are owned as a whole, without fields below.
    return LEAF if n.item.plain or isinstance(v, _Repeated) else _added(n.item, v)


cdef dict _added(Node n, object v):
    """Return all paths of a value that has no counterpart: the value itself and everything below."""
    cdef Form as_form
    cdef dict out
    cdef PyObject *ordered[MOST_ITEMS]
    cdef PyObject *names[MOST_ITEMS]
    cdef Py_ssize_t i
    if n.plain:
        return LEAF
    as_form = form(n, v)
    if as_form == MAP:
        if n.map_atomic or not PyDict_CheckExact(v) or (PyDict_Size(v) == 0 and not n.zeros):
            return LEAF
        out = _added_map(n, v, True)
    elif as_form == LIST:
        if n.list_atomic or not PyList_CheckExact(v) or PyList_GET_SIZE(v) == 0:
            return LEAF
        out = {".": LEAF}
        if named_in_order(n, v, ordered, names):
            for i in range(PyList_GET_SIZE(v)):
                key = item_text(n, <object>names[i], <object>ordered[i]).text
                PyDict_SetItem(out, key, LEAF if n.item.plain else _added(n.item, <object>ordered[i]))
        else:
            for key, item in in_order(_index(n, v)).items():
                PyDict_SetItem(out, key, _added_item(n, item))
    else:
        return LEAF
    return LEAF if PyDict_Size(out) == 1 else out


cdef enum:
    MOST_ITEMS = 96


cdef bint named_in_order(Node n, list items, PyObject **out, PyObject **names) except -1:
    """Fill ``out`` with the items in the order of their keys, and ``names`` with these, if all have different keys that are single strings;
    else return False.

    Both have room for MOST_ITEMS; the references are borrowed.
    """
    cdef Py_ssize_t i, at, count = PyList_GET_SIZE(items)
    cdef PyObject *p
    cdef PyObject *item
    cdef bint keyed = n.keys is not None
    cdef int order
    if count > MOST_ITEMS or (keyed and len(n.sorted_keys) != 1):
        return False
    for i in range(count):
        item = PyList_GET_ITEM(items, i)
        if keyed:
            if not PyDict_CheckExact(<object>item):
                return False
            p = PyDict_GetItem(<object>item, n.sorted_keys[0])
        else:
            p = item
        if p == NULL or not PyUnicode_CheckExact(<object>p):
            return False
        # Lists are usually sorted or nearly so: insert from the end.
        at = i
        while at:
            order = PyUnicode_Compare(<object>names[at - 1], <object>p)
            if order < 0:
                break
            if order == 0:
                return False
            names[at], out[at] = names[at - 1], out[at - 1]
            at -= 1
        names[at], out[at] = p, item
    return True


cdef extern from *:
    # Cython's macro over CPython's presized dict: growing a dict to twenty fields would cost two rehashes.
    dict presized "__Pyx_PyDict_NewPresized"(Py_ssize_t)


cdef enum:
    MOST_FIELDS = 256


cdef dict _added_map(Node n, dict v, bint itself):
    """Return the set of all fields of a map, in order, after "." if ``itself``.

    Borrowed references are safe: nothing here changes ``v`` or ``n``. A field's rank is below the number of fields, which is at most
    MOST_FIELDS where the array is used.
    """
    cdef Py_ssize_t pos = 0
    cdef PyObject *k
    cdef PyObject *p
    cdef PyObject *slots[MOST_FIELDS]
    cdef int count = 0, i, total = <int>PyDict_Size(n.fields)
    cdef Field f
    cdef object value
    cdef dict out, late
    cdef list keys
    if total == 0 and n.elem is not None and n.elem.plain:
        keys = list(v)
        if len(keys) > 1:
            keys = sort_in_turns(keys)
        out = presized(len(keys) + 1)
        if itself:
            PyDict_SetItem(out, ".", LEAF)
        for key in keys:
            PyDict_SetItem(out, "f:" + <str>key, LEAF)
            yield_gil(1)
        return out
    if total == 0 or total > MOST_FIELDS:
        return _added_many(n, v, itself)
    for i in range(total):
        slots[i] = NULL
    while PyDict_Next(v, &pos, &k, &p):
        f = field_of(n, <object>k)
        if f is None:
            # Undeclared fields next to declared ones are rare and take the slow path.
            return _added_many(n, v, itself)
        if f.omit:
            value = value_of(f, <object>p)
            if value is _MISSING:
                continue
            p = <PyObject *>value
        if not f.skip:
            slots[f.rank] = p
            count += 1
    for f in n.zeros:
        if PyDict_GetItem(v, f.name) == NULL:
            slots[f.rank] = <PyObject *>f.zero
            count += 1
    out = presized(count + 1)
    if itself:
        PyDict_SetItem(out, ".", LEAF)
    for i in range(total):
        if slots[i] != NULL:
            f = <Field>PyList_GET_ITEM(n.ranked, i)
            PyDict_SetItem(out, f.key, LEAF if node_of(f).plain else _added(node_of(f), <object>slots[i]))
    return out


cdef dict _added_many(Node n, dict v, bint itself):
    cdef Field f
    cdef dict out = {".": LEAF} if itself else {}
    for name, value in v.items():
        yield_gil(1)
        f = field_of(n, name)
        if f is None:
            if n.elem is None:
                raise Mismatch([("." + <str>name, "field not declared in schema")])
            out["f:" + <str>name] = _added(n.elem, value)
            continue
        value = value_of(f, value)
        if value is not _MISSING and not f.skip:
            out[f.key] = _added(node_of(f), value)
    for f in n.zeros:
        if PyDict_GetItem(v, f.name) == NULL:
            out[f.key] = _added(node_of(f), f.zero)
    return in_order(out)
