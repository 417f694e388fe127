# Path elements as FieldsV1 texts (``f:name``, ``k:{...}``, ``v:...``, ``i:0``), and their order.
#
# Upstream: ``fieldpath/serialize-pe.go`` and ``element.go``; texts are those of jsoniter in its standard-library mode.

cdef str escape(str s):
    # As jsoniter's standard-library mode writes strings; json.dumps differs in the short escapes \b and \f and in HTML characters.
    cdef Py_UCS4 c
    cdef list out
    for c in s:
        if c < 0x20 or c == 0x22 or c == 0x5C or c == 0x3C or c == 0x3E or c == 0x26 or c == 0x2028 or c == 0x2029:
            break
    else:
        return '"' + s + '"'
    out = ['"']
    for c in s:
        if c == 0x22 or c == 0x5C:
            out.append("\\" + chr(c))
        elif c == 0x0A:
            out.append("\\n")
        elif c == 0x0D:
            out.append("\\r")
        elif c == 0x09:
            out.append("\\t")
        elif c < 0x20 or c == 0x3C or c == 0x3E or c == 0x26 or c == 0x2028 or c == 0x2029:
            out.append("\\u%04x" % <int>c)
        else:
            out.append(chr(c))
    out.append('"')
    return "".join(out)


cdef str float_text(double v):
    # As jsoniter writes numbers: shortest digits; below 1e-6 and from 1e21 an exponent of at least two digits, as repr writes it there.
    if v == 0:
        return "-0" if str(v).startswith("-") else "0"
    r = repr(v)
    if not 1e-6 <= abs(v) < 1e21:
        return r
    if "e" in r:
        from decimal import Decimal

        r = format(Decimal(r), "f")
    return r.removesuffix(".0")


cdef str json_text(object v):
    if PyUnicode_CheckExact(v):
        return escape(<str>v)
    if v is None:
        return "null"
    if v is True:
        return "true"
    if v is False:
        return "false"
    if PyLong_CheckExact(v):
        return str(v)
    if PyFloat_CheckExact(v):
        return float_text(v)
    if PyDict_CheckExact(v):
        return "{" + ",".join([escape(k) + ":" + json_text(v[k]) for k in sorted(v)]) + "}"
    return "[" + ",".join([json_text(x) for x in v]) + "]"


# The caches below hold short texts only and are cleared when full, so that hostile keys cannot grow them.
cdef enum:
    TEXTS_LIMIT = 8192  # for all list types together
    ORDER_LIMIT = 8192
    CACHED_LENGTH = 128
    MANY_KEYS = 8         # keys of a list; built-in lists have at most three

# The cost of making a path element, in steps of a walk.
cdef enum:
    ELEMENT_STEPS = 4


cdef int texts_held = 0
cdef list texts_holders = []  # the dicts that hold cached texts, each once


def remembered():
    """Return ((current entries, limit), ...) of the caches of item texts and of sort keys; no text is longer than ``CACHED_LENGTH``."""
    return (texts_held, TEXTS_LIMIT), (len(_order), ORDER_LIMIT)


@cython.final
cdef class ItemText:
    """The FieldsV1 text of a list item's path element, and the same as a key in JSON; None for what needs rare escapes."""

    cdef str text
    cdef bytes json


cdef str item_key(Node n, object v):
    """Return the FieldsV1 text of a list item's path element. Raises ValueError with upstream's words if it has none."""
    cdef PyObject *p
    cdef PyObject *q
    cdef object value = None
    if n.keys is None:
        if PyUnicode_CheckExact(v):
            value = v
    elif PyDict_CheckExact(v):
        if len(n.sorted_keys) == 1:
            p = PyDict_GetItem(v, n.sorted_keys[0])
            if p != NULL and (PyUnicode_CheckExact(<object>p) or PyLong_CheckExact(<object>p)):
                value = <object>p
        elif len(n.sorted_keys) == 2:
            p = PyDict_GetItem(v, n.sorted_keys[0])
            q = PyDict_GetItem(v, n.sorted_keys[1])
            # Exact types only: to a dict, true and 1 are the same key.
            if (
                p != NULL
                and q != NULL
                and (PyUnicode_CheckExact(<object>p) or PyLong_CheckExact(<object>p))
                and (PyUnicode_CheckExact(<object>q) or PyLong_CheckExact(<object>q))
            ):
                value = (<object>p, <object>q)
    return make_item_key(n, v) if value is None else item_text(n, value, v).text


cdef ItemText item_text(Node n, object value, object v):
    """As ``item_key``; ``value`` is what identifies the item: its one key, or both, or the item itself."""
    global texts_held
    cdef PyObject *p
    cdef ItemText text
    if n.texts is None:
        n.texts = {}
    p = PyDict_GetItem(n.texts, value)
    if p != NULL:
        return <ItemText>p
    text = ItemText()
    text.text = make_item_key(n, v)
    text.json = path_json(text.text)
    if len(text.text) <= CACHED_LENGTH:
        if texts_held >= TEXTS_LIMIT:
            for held in texts_holders:
                (<dict>held).clear()
            texts_holders.clear()
            texts_held = 0
        if not n.texts:
            texts_holders.append(n.texts)
        n.texts[value] = text
        texts_held += 1
    return text


cdef list keys_had(Node n, dict v):
    """Return the keys that the item has, by itself or by default. A list may have thousands of keys and of items that have only one."""
    cdef Field f
    cdef str name
    cdef list said
    if n.key_set is None:
        said = []
        for name in n.sorted_keys:
            f = field_of(n.item, name)
            if f is not None and (f.default is not None or f.zero is not _MISSING):
                said.append(name)
        n.said_keys = frozenset(said)
        n.key_set = frozenset(n.sorted_keys)
    return sorted(n.said_keys.union([key for key in v if key in n.key_set]))


cdef str make_item_key(Node n, object v):
    cdef Field f
    cdef object got
    cdef list parts
    yield_gil(ELEMENT_STEPS)
    if n.keys is not None:
        if v is None:
            raise ValueError("associative list with keys may not have a null element")
        if not PyDict_CheckExact(v):
            raise ValueError("associative list with keys may not have non-map elements")
        parts = []
        for name in n.sorted_keys if len(n.sorted_keys) <= MANY_KEYS or not n.item.is_map else keys_had(n, <dict>v):
            got = get(v, name)
            if got is _MISSING:
                if not n.item.is_map:
                    raise ValueError(f"couldn't find default value for {name}: associative list may not have non-map types")
                f = field_of(n.item, name)
                # An unset key of a built-in type has the value that Go writes for it; without a default, the key is left out.
                got = f.default if f is not None else None
                if got is None:
                    if f is None or f.zero is _MISSING:
                        continue
                    got = f.zero
            parts.append('"' + <str>name + '":' + json_text(got))
        if not parts:
            names = " ".join(['"' + x + '"' for x in n.keys])
            raise ValueError(
                f"associative list with keys has an element that omits all key fields [{names}] "
                "(and doesn't have default values for any key fields)"
            )
        return "k:{" + ",".join(parts) + "}"
    if PyDict_CheckExact(v):
        raise ValueError("associative list without keys has an element that's a map type")
    if PyList_CheckExact(v):
        raise ValueError("not supported: associative list with lists as elements")
    if v is None:
        raise ValueError("associative list without keys has an element that's an explicit null")
    return "v:" + json_text(v)


# Sort keys of k: and v: texts, cached because parsing the texts would cost more than sorting.
cdef dict _order = {}


cdef tuple rank(object v):
    # value.Compare orders numbers, strings, booleans, lists, maps, null.
    if PyUnicode_CheckExact(v):
        return (1, v)
    if PyBool_Check(v):
        return (2, v)
    if v is None:
        return (5,)
    if PyList_CheckExact(v):
        return (3, tuple([rank(x) for x in v]))
    if PyDict_CheckExact(v):
        return (4, tuple([(k, rank(v[k])) for k in sorted(v)]))
    return (0, v)


def element_order(str text):
    """Return the sort key of a path element's text: fields, keys, values, indexes, as fieldpath.PathElement.Compare."""
    cdef Py_UCS4 c
    if text == ".":
        return (0,)
    c = text[0]
    if c == u"f":
        return (1, text[2:])
    got = _order.get(text)
    if got is None:
        yield_gil(ELEMENT_STEPS)
        if c == u"k":
            got = (2,)  # flat, because nested tuples take three times as long to compare
            for k, v in sorted(orjson.loads(text[2:]).items()):
                got += (k, *rank(v))
        elif c == u"v":
            got = (3, rank(orjson.loads(text[2:])))
        else:
            got = (4, int(text[2:]))
        if len(text) <= CACHED_LENGTH:
            if len(_order) >= ORDER_LIMIT:
                _order.clear()
            _order[text] = got
    return got


cdef dict in_order(dict level):
    """Return the same level with its keys in upstream's order."""
    cdef list keys
    cdef dict out = {}
    cdef bint plain = True, ordered = True
    cdef Py_ssize_t pos = 0
    cdef PyObject *k
    cdef PyObject *v
    cdef PyObject *previous = NULL
    cdef Py_UCS4 c
    if PyDict_Size(level) < 2:
        return level
    while PyDict_Next(level, &pos, &k, &v):
        c = (<str>k)[0]
        if c != u"f" and c != u".":
            plain = False
            break
        if ordered and previous != NULL and PyUnicode_Compare(<object>previous, <object>k) > 0:
            ordered = False
        previous = k
    if plain:
        if ordered:
            return level
        keys = list(level)
        keys = sort_in_turns(keys)
    else:
        keys = sort_in_turns(list(level), element_order)
    for key in keys:
        yield_gil(1)
        out[key] = level[key]
    return out
