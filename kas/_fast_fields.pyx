"""Walks of structured-merge-diff: comparing, merging, collecting and removing fields by their list and map semantics.

Upstream: structured-merge-diff v6, ``typed/*`` and ``fieldpath/set.go``.

A set of field paths *is* its FieldsV1 JSON form, a dict of dicts, so stored managedFields need neither parsing nor
printing. Three shapes of a child: ``{}`` the path itself is a member; ``{".": {}, "f:x": ...}`` it is a member and has
member children; ``{"f:x": ...}`` only its children are members. Sets are never changed once returned: operations share
the subtrees they leave alone, and return their argument itself when nothing changes.

Input is trusted to be JSON values of bounded depth (the decoder refuses deeper documents); types are checked, because an
object may contradict its schema: then ``Mismatch`` is raised. Justified by bench/test_fieldmanager.py: a pod create in
Python cost over ten times the budget of 30 µs.
"""

import json

from cpython.bool cimport PyBool_Check
from cpython.dict cimport PyDict_CheckExact, PyDict_Next, PyDict_Size
from cpython.float cimport PyFloat_CheckExact
from cpython.list cimport PyList_CheckExact, PyList_GET_ITEM, PyList_GET_SIZE
from cpython.long cimport PyLong_CheckExact
from cpython.object cimport PyObject
from cpython.dict cimport PyDict_SetItem
from cpython.unicode cimport PyUnicode_CheckExact, PyUnicode_Compare

cimport cython


cdef enum Form:
    NONE = 0
    MAP = 1
    SCALAR = 2
    LIST = 3


cdef enum ScalarType:
    NOT_SCALAR = 0
    NUMERIC = 1
    STRING = 2
    BOOLEAN = 3
    UNTYPED = 4


SCALARS = {"": NOT_SCALAR, "numeric": NUMERIC, "string": STRING, "boolean": BOOLEAN, "untyped": UNTYPED}


class _Missing:
    def __repr__(self):
        return "MISSING"


MISSING = _Missing()
cdef object _MISSING = MISSING


class Mismatch(Exception):
    """The object contradicts its schema; ``errors`` is a list of (path text, message)."""

    def __init__(self, errors):
        super().__init__(errors)
        self.errors = errors


@cython.final
cdef class Field:
    """One declared field of a map node.

    ``zero`` is what Go's encoder writes for an unset field (MISSING: nothing). ``omit`` says which values it leaves out:
    0 none, 1 null, 2 null and empty or zero ones. ``skip`` hides the field from comparisons.
    """

    cdef readonly str key
    cdef public Node node
    cdef readonly object zero
    cdef readonly int omit
    cdef readonly object default
    cdef readonly bint skip
    cdef int rank  # place among the node's fields in order of names

    def __init__(self, str name, Node node, object zero=MISSING, int omit=0, object default=None, bint skip=False):
        self.key = "f:" + name
        self.node = node
        self.zero = zero
        self.omit = omit
        self.default = default
        self.skip = skip


@cython.final
cdef class Node:
    """What upstream calls an atom: which of scalar, list and map a value may be, and how each merges.

    ``elem`` is the type of undeclared map keys (None: refused); ``keys`` None means a set, else a keyed list. ``deduced``
    marks maps that know no fields and take anything; they are not reconciled.
    """

    cdef public int scalar
    cdef public bint is_map, map_atomic, deduced, is_list, list_atomic
    cdef public dict fields
    cdef public Node elem
    cdef public tuple keys, sorted_keys
    cdef public Node item
    cdef dict by_key  # "f:name" -> Field
    cdef list zeros  # (name, Field) of the fields Go writes when unset
    cdef bint plain  # every value is one leaf, whatever it holds
    cdef dict texts  # path element texts of list items met before, by key value; bounded

    def __init__(self):
        self.fields, self.by_key, self.zeros, self.texts = {}, {}, [], {}
        self.plain = True

    def set_fields(self, dict fields):
        """Declare the fields by name; call once the nodes they refer to exist (types may be recursive)."""
        cdef Field f
        self.fields = fields
        for rank, name in enumerate(sorted(fields)):
            f = fields[name]
            f.rank = rank
        self.by_key = {f.key: f for f in fields.values()}
        self.zeros = [(name, f) for name, f in fields.items() if f.zero is not MISSING]

    def set_list(self, Node item, bint atomic, object keys=None):
        """Lists of ``item`` are allowed: atomic, a set (``keys`` None), or keyed."""
        self.is_list, self.item, self.list_atomic = True, item, atomic
        if not atomic:
            self.plain = False
        if keys is not None:
            self.keys, self.sorted_keys = tuple(keys), tuple(sorted(keys))

    def set_map(self, bint atomic, Node elem=None, bint deduced=False):
        """Maps are allowed; ``elem`` is the type of the keys that are no declared fields."""
        self.is_map, self.map_atomic, self.elem, self.deduced = True, atomic, elem, deduced
        if not atomic:
            self.plain = False

    def map_is(self, bint atomic):
        """This node, or a twin of it whose map is atomic or granular: a field's own map type overrides its type's."""
        if not self.is_map or self.map_atomic == atomic:
            return self
        cdef Node twin = Node()
        twin.scalar = self.scalar
        if self.is_list:
            twin.set_list(self.item, self.list_atomic, self.keys)
        twin.set_map(atomic, self.elem, self.deduced)
        twin.set_fields(self.fields)
        return twin


# ---------------------------------------------------------------------------------------------- values

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
    """Which part of the node a value takes; one that fits none gets the first part, where it then fails."""
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


cdef inline Field field_of(Node n, object key):
    cdef PyObject *p = PyDict_GetItem(n.fields, key)
    return <Field>p if p != NULL else None


cdef inline object value_of(Field f, object v):
    """What Go's encoder makes of a value held in this field: MISSING when it leaves it out."""
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


cdef inline object get(object d, object key):
    cdef PyObject *p
    if d is None:
        return _MISSING
    p = PyDict_GetItem(d, key)
    return <object>p if p != NULL else _MISSING


# ---------------------------------------------------------------------------------------------- path elements

cdef str escape(str s):
    # As jsoniter's standard-library mode writes strings; json.dumps differs in the short escapes \b and \f and in HTML.
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
            out.append("\\u%04x" % c)
        else:
            out.append(chr(c))
    out.append('"')
    return "".join(out)


cdef str float_text(double v):
    # Go's encoding/json: shortest digits, exponent only below 1e-6 or from 1e21 on, and that without leading zeros.
    if v == 0:
        return "-0" if str(v).startswith("-") else "0"
    r = repr(v)
    mantissa, _, exponent = r.partition("e")
    size = abs(v)
    if 1e-6 <= size < 1e21:
        if exponent:
            from decimal import Decimal

            r = format(Decimal(r), "f")
        return r.removesuffix(".0")
    if not exponent:
        from decimal import Decimal

        digits = Decimal(r).normalize().as_tuple()
        power = len(digits.digits) - 1 + digits.exponent
        text = "".join(map(str, digits.digits))
        mantissa = ("-" if digits.sign else "") + text[0] + ("." + text[1:] if len(text) > 1 else "")
        exponent = str(power)
    mantissa = mantissa.removesuffix(".0")
    number = int(exponent)
    return "%se%s%d" % (mantissa, "-" if number < 0 else "+", abs(number))


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


DEF TEXTS_LIMIT = 2048


cdef str item_key(Node n, object v):
    """FieldsV1 text of a list item's path element; raises ValueError with upstream's words when it has none."""
    cdef PyObject *p
    cdef PyObject *q
    cdef object value = None
    cdef str text
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
            # Exact types only: true and 1 are one key to a dict.
            if (
                p != NULL
                and q != NULL
                and (PyUnicode_CheckExact(<object>p) or PyLong_CheckExact(<object>p))
                and (PyUnicode_CheckExact(<object>q) or PyLong_CheckExact(<object>q))
            ):
                value = (<object>p, <object>q)
    if value is None:
        return make_item_key(n, v)
    p = PyDict_GetItem(n.texts, value)
    if p != NULL:
        return <str>p
    text = make_item_key(n, v)
    if PyDict_Size(n.texts) >= TEXTS_LIMIT:
        n.texts.clear()
    n.texts[value] = text
    return text


cdef str make_item_key(Node n, object v):
    cdef Field f
    cdef object got
    cdef list parts
    if n.keys is not None:
        if v is None:
            raise ValueError("associative list with keys may not have a null element")
        if not PyDict_CheckExact(v):
            raise ValueError("associative list with keys may not have non-map elements")
        parts = []
        for name in n.sorted_keys:
            got = get(v, name)
            if got is _MISSING:
                if not n.item.is_map:
                    raise ValueError(f"couldn't find default value for {name}: associative list may not have non-map types")
                f = field_of(n.item, name)
                # An unset key of a built-in type is what Go writes for it; absent a default, the key is left out.
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


# Sort keys of k: and v: texts, because parsing them again and again would cost more than the sorting.
cdef dict _order = {}
DEF ORDER_LIMIT = 8192


cdef tuple rank(object v):
    # value.Compare: numbers, strings, booleans, lists, maps, null.
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
    """Sort key of a path element's text: fields, keys, values, indexes, as fieldpath.PathElement.Compare."""
    cdef Py_UCS4 c
    if text == ".":
        return (0,)
    c = text[0]
    if c == u"f":
        return (1, text[2:])
    got = _order.get(text)
    if got is None:
        if c == u"k":
            got = (2, tuple([(k, rank(v)) for k, v in sorted(json.loads(text[2:]).items())]))
        elif c == u"v":
            got = (3, rank(json.loads(text[2:])))
        else:
            got = (4, int(text[2:]))
        if len(_order) >= ORDER_LIMIT:
            _order.clear()
        _order[text] = got
    return got


cdef dict in_order(dict level):
    """The same level with its keys in upstream's order."""
    cdef list keys
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
        keys.sort()
    else:
        keys = sorted(level, key=element_order)
    return {key: level[key] for key in keys}


# ---------------------------------------------------------------------------------------------- set algebra

cdef dict LEAF = {}
cdef dict DOT = {".": LEAF}


cdef inline bint member(dict node):
    return PyDict_Size(node) == 0 or PyDict_GetItem(node, ".") != NULL


def union(dict a, dict b):
    """Paths in either set."""
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
    """Paths in ``a`` that are not in ``b``; a member of ``b`` does not take its children along."""
    out = _difference(a, b)
    return {} if out is None else out


cdef dict _difference(dict a, dict b):
    """The level of ``a`` without ``b``; ``a`` itself when they do not meet, None when nothing remains."""
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
    """Paths in ``a`` that neither are in ``b`` nor lie below a member of it."""
    out = _recursive(a, b)
    return {} if out is None else out


cdef dict _recursive(dict a, dict b):
    cdef dict out = None
    cdef dict av, bv
    cdef object got, left
    for key, value in a.items():
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
    """Paths in both sets."""
    out = _intersection(a, b)
    return {} if out is None else out


cdef dict _intersection(dict a, dict b):
    cdef dict out = {}
    cdef dict av, bv
    cdef object got
    for key, value in a.items():
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
    """Every member as a list of element texts, members of a level before what lies deeper, as Set.Iterate."""
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


# ---------------------------------------------------------------------------------------------- compare

def compare(Node n, dict old, dict new):
    """(changed, removed): the paths added or modified by ``new``, and those it lacks. Raises Mismatch.

    Unset fields of built-in types count as what Go's encoder writes for them, so ``{}`` is the empty object of the type.
    """
    cdef dict changed = {}, removed = {}
    if n.map_atomic:
        return changed, removed
    if old or n.zeros:
        _compare_maps(n, old, new, changed, removed)
    elif new:
        _added_map(n, new, changed)
    return in_order(changed), in_order(removed)


cdef int _compare(Node n, object lhs, object rhs, str key, dict changed, dict removed) except -1:
    """Compare two values of which at most one is MISSING, known to differ; found paths go below ``key``."""
    cdef Form lf, rf
    cdef dict node
    if lhs is _MISSING:
        changed[key] = _added(n, rhs)
        return 0
    if rhs is _MISSING:
        removed[key] = _added(n, lhs)
        return 0
    if n.plain:
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


cdef int _compare_maps(Node n, object lhs, object rhs, dict changed, dict removed) except -1:
    cdef Field f
    cdef Node t
    cdef object lv, rv
    cdef str key
    if rhs is not None:
        for name, value in (<dict>rhs).items():
            lv = get(lhs, name)
            if lv is value:
                continue
            f = field_of(n, name)
            rv = value_of(f, value)
            if lhs is not None:
                lv = value_of(f, lv)
            if lv is rv or (lv is not _MISSING and deep_eq(lv, rv)):
                continue
            if f is not None:
                if f.skip:
                    continue
                t, key = f.node, f.key
            else:
                t, key = n.elem, "f:" + <str>name
                if t is None:
                    raise Mismatch([("." + <str>name, "field not declared in schema")])
            _compare(t, lv, rv, key, changed, removed)
    if lhs is not None:
        for name, value in (<dict>lhs).items():
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
                t, key = f.node, f.key
            else:
                t, key = n.elem, "f:" + <str>name
                if t is None:
                    raise Mismatch([("." + <str>name, "field not declared in schema")])
            _compare(t, lv, rv, key, changed, removed)
    # Where one side is not there at all (null), what Go writes for its unset fields differs from nothing.
    if n.zeros and (lhs is None or rhs is None):
        for name, f in n.zeros:
            if get(rhs if lhs is None else lhs, name) is not _MISSING or f.skip:
                continue
            if lhs is None:
                changed[f.key] = _added(f.node, f.zero)
            else:
                removed[f.key] = _added(f.node, f.zero)
    return 0


cdef class _Repeated:
    """The items of a list that share one key."""

    cdef list items


cdef dict _index(Node n, object items):
    """Items by path element text, in the order of their first appearance; repeated ones as _Repeated."""
    cdef dict out = {}
    cdef Py_ssize_t i
    cdef PyObject *p
    cdef _Repeated again
    if items is None:
        return out
    for i in range(PyList_GET_SIZE(items)):
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
        got = get(left, key)
        if got is _MISSING:
            changed[key] = _added_item(n, value)
            continue
        was_repeated, repeated = isinstance(got, _Repeated), isinstance(value, _Repeated)
        if not was_repeated and not repeated:
            if not deep_eq(got, value):
                _compare(n.item, got, value, key, changed, removed)
        elif was_repeated and repeated:
            if not deep_eq((<_Repeated>got).items, (<_Repeated>value).items):
                changed[key] = LEAF
        elif was_repeated:
            # Was repeated, is now single: the marker of the repetition goes, the item comes.
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
    # Repeated items are owned as one, without what lies below.
    return LEAF if n.item.plain or isinstance(v, _Repeated) else _added(n.item, v)


cdef dict _added(Node n, object v):
    """Everything in a value whose counterpart does not exist: itself and all below."""
    cdef Form as_form
    cdef dict out, items
    if n.plain:
        return LEAF
    as_form = form(n, v)
    if as_form == MAP:
        if n.map_atomic or not PyDict_CheckExact(v) or (PyDict_Size(v) == 0 and not n.zeros):
            return LEAF
        out = {".": LEAF}
        _added_map(n, v, out)
    elif as_form == LIST:
        if n.list_atomic or not PyList_CheckExact(v) or PyList_GET_SIZE(v) == 0:
            return LEAF
        out = {".": LEAF}
        if not _added_named(n, v, out):
            for key, item in in_order(_index(n, v)).items():
                PyDict_SetItem(out, key, _added_item(n, item))
    else:
        return LEAF
    return LEAF if PyDict_Size(out) == 1 else out


cdef bint _added_named(Node n, list items, dict out) except -1:
    """The common list: different items with one text for a key, already in order. False, and nothing done, for others."""
    cdef Py_ssize_t i, count = PyList_GET_SIZE(items)
    cdef PyObject *p
    cdef PyObject *previous = NULL
    cdef PyObject *item
    cdef bint keyed = n.keys is not None
    if keyed and len(n.sorted_keys) != 1:
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
        if previous != NULL and PyUnicode_Compare(<object>previous, <object>p) >= 0:
            return False
        previous = p
    for i in range(count):
        item = PyList_GET_ITEM(items, i)
        PyDict_SetItem(out, item_key(n, <object>item), LEAF if n.item.plain else _added(n.item, <object>item))
    return True


DEF MOST_FIELDS = 96


cdef int _added_map(Node n, dict v, dict out) except -1:
    """Add all of a map's fields to ``out`` in order. Borrowed references are safe: nothing here changes ``v`` or ``n``."""
    cdef Py_ssize_t pos = 0
    cdef PyObject *k
    cdef PyObject *p
    cdef PyObject *fields[MOST_FIELDS]
    cdef PyObject *values[MOST_FIELDS]
    cdef int count = 0, i, rank
    cdef Field f
    cdef object value
    cdef dict late
    cdef list keys
    if not n.fields and n.elem is not None:
        if n.elem.plain:
            keys = list(v)
            if len(keys) > 1:
                keys.sort()
            for key in keys:
                PyDict_SetItem(out, "f:" + <str>key, LEAF)
            return 0
        late = {}
        while PyDict_Next(v, &pos, &k, &p):
            PyDict_SetItem(late, "f:" + <str><object>k, _added(n.elem, <object>p))
        out.update(in_order(late))
        return 0
    if len(n.fields) > MOST_FIELDS:
        late = {}
        _added_many(n, v, late)
        out.update(in_order(late))
        return 0
    while PyDict_Next(v, &pos, &k, &p):
        f = field_of(n, <object>k)
        if f is None:
            # Fields beside the declared ones: rare, so in two steps.
            late = {}
            _added_many(n, v, late)
            out.update(in_order(late))
            return 0
        if f.omit:
            value = value_of(f, <object>p)
            if value is _MISSING:
                continue
            p = <PyObject *>value
        if f.skip:
            continue
        # At most len(n.fields) <= MOST_FIELDS different fields can pass here and below, so the arrays suffice.
        rank = f.rank
        i = count
        while i > 0 and (<Field>fields[i - 1]).rank > rank:
            fields[i], values[i] = fields[i - 1], values[i - 1]
            i -= 1
        fields[i], values[i] = <PyObject *>f, p
        count += 1
    for name, f in n.zeros:
        if PyDict_GetItem(v, name) != NULL:
            continue
        rank = f.rank
        i = count
        while i > 0 and (<Field>fields[i - 1]).rank > rank:
            fields[i], values[i] = fields[i - 1], values[i - 1]
            i -= 1
        fields[i], values[i] = <PyObject *>f, <PyObject *>f.zero
        count += 1
    for i in range(count):
        f = <Field>fields[i]
        PyDict_SetItem(out, f.key, LEAF if f.node.plain else _added(f.node, <object>values[i]))
    return 0


cdef int _added_many(Node n, dict v, dict out) except -1:
    cdef Field f
    for name, value in v.items():
        f = field_of(n, name)
        if f is None:
            if n.elem is None:
                raise Mismatch([("." + <str>name, "field not declared in schema")])
            out["f:" + <str>name] = _added(n.elem, value)
            continue
        value = value_of(f, value)
        if value is not _MISSING and not f.skip:
            out[f.key] = _added(f.node, value)
    for name, f in n.zeros:
        if PyDict_GetItem(v, name) == NULL:
            out[f.key] = _added(f.node, f.zero)
    return 0


# ---------------------------------------------------------------------------------------------- field set

def to_set(Node n, dict value):
    """Every leaf and item the object mentions, as TypedValue.ToFieldSet; what an applier comes to own. Raises Mismatch."""
    cdef dict out = {}
    if not n.map_atomic:
        _set_of_map(n, value, out)
    return in_order(out)


cdef int _set_of(Node n, object v, str key, bint itself, dict out) except -1:
    """Add the paths of a value below ``key``; ``itself`` adds the key too, whatever lies below."""
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
        f = field_of(n, name)
        if f is not None:
            if not f.skip:
                _set_of(f.node, value, f.key, value is None or (PyDict_CheckExact(value) and not value), out)
        elif n.elem is not None:
            _set_of(n.elem, value, "f:" + <str>name, True, out)
        else:
            raise Mismatch([("." + <str>name, "field not declared in schema")])
    return 0


# ---------------------------------------------------------------------------------------------- validate

def validate(Node n, object value, bint allow_duplicates=False):
    """Why the value does not fit its type: a list of (path text, message), empty when it does."""
    cdef list errors = []
    _validate(n, value, "", allow_duplicates, errors)
    return errors


def _go_v(v, top=True):
    """fmt's %v of a decoded JSON value."""
    if v is None:
        return "<nil>"
    if v is True or v is False:
        return "true" if v else "false"
    if isinstance(v, dict):
        return "map[" + " ".join(k + ":" + _go_v(v[k]) for k in sorted(v)) + "]"
    if isinstance(v, list):
        return "[" + " ".join(_go_v(x) for x in v) + "]"
    if isinstance(v, float):
        r = float_text(v)
        return r
    return str(v)


def _go_source(v):
    """fmt's %#v of a decoded JSON value."""
    if v is None:
        return "interface {}(nil)"
    if isinstance(v, dict):
        return "map[string]interface {}{" + ", ".join(_go_quote(k) + ":" + _go_source(v[k]) for k in sorted(v)) + "}"
    if isinstance(v, list):
        return "[]interface {}{" + ", ".join(_go_source(x) for x in v) + "}"
    return _go_quote(v) if isinstance(v, str) else _go_v(v)


def _go_quote(s):
    return json.dumps(s, ensure_ascii=False)


def _go_type(v):
    if v is None:
        return "<nil>"
    if isinstance(v, bool):
        return "bool"
    if isinstance(v, str):
        return "string"
    if isinstance(v, int):
        return "int64"
    if isinstance(v, float):
        return "float64"
    return "map[string]interface {}" if isinstance(v, dict) else "[]interface {}"


cdef int _validate(Node n, object v, str path, bint duplicates, list errors) except -1:
    cdef Form as_form = form(n, v)
    cdef Field f
    cdef Py_ssize_t i
    cdef set seen
    if as_form == MAP:
        if PyDict_CheckExact(v):
            for name, value in (<dict>v).items():
                f = field_of(n, name)
                if f is not None:
                    _validate(f.node, value, path + "." + <str>name, duplicates, errors)
                elif n.elem is not None:
                    _validate(n.elem, value, path + "." + <str>name, duplicates, errors)
                else:
                    errors.append((path + "." + <str>name, "field not declared in schema"))
                    break
        elif v is not None:
            errors.append((path, f"expected map, got &{{{_go_v(v)}}}"))
    elif as_form == SCALAR:
        if v is None:
            pass
        elif n.scalar == NUMERIC:
            if PyBool_Check(v) or not (PyLong_CheckExact(v) or PyFloat_CheckExact(v)):
                errors.append((path, f"expected numeric (int or float), got {_go_type(v)}"))
        elif n.scalar == STRING:
            if not PyUnicode_CheckExact(v):
                errors.append((path, f"expected string, got &value.valueUnstructured{{Value:{_go_source(v)}}}"))
        elif n.scalar == BOOLEAN:
            if not PyBool_Check(v):
                errors.append((path, f"expected boolean, got &{{{_go_v(v)}}}"))
        elif not is_scalar(v):
            errors.append((path, f"expected any scalar, got &{{{_go_v(v)}}}"))
    elif as_form == LIST:
        if PyList_CheckExact(v):
            seen = set()
            for i in range(len(<list>v)):
                item = <object>PyList_GET_ITEM(v, i)
                if n.list_atomic:
                    if not is_scalar(item) or not n.item.scalar:
                        _validate(n.item, item, f"{path}[{i}]", duplicates, errors)
                    elif n.item.scalar != UNTYPED:
                        _validate(n.item, item, f"{path}[{i}]", duplicates, errors)
                    continue
                try:
                    key = item_key(n, item)
                except ValueError as e:
                    errors.append((path, f"element {i}: {e}"))
                    break
                if key in seen and not duplicates:
                    errors.append((path, f"duplicate entries for key {element_text(key)}"))
                seen.add(key)
                if PyDict_CheckExact(item) or not is_scalar(item):
                    _validate(n.item, item, path + element_text(key), duplicates, errors)
                elif n.item.scalar != STRING or not PyUnicode_CheckExact(item):
                    _validate(n.item, item, path + element_text(key), duplicates, errors)
        elif v is not None:
            errors.append((path, f"expected list, got &{{{_go_v(v)}}}"))
    else:
        errors.append((path, "schema error: invalid atom"))
    return 0


def element_text(str key):
    """A path element for people, as PathElement.String: ``.name``, ``[name="x"]``, ``[="x"]``, ``[0]``."""
    cdef Py_UCS4 c = key[0]
    if c == u"f":
        return "." + key[2:]
    if c == u"k":
        got = json.loads(key[2:])
        return "[" + ",".join([f"{k}={_value_text(got[k])}" for k in sorted(got)]) + "]"
    if c == u"v":
        return f"[={_value_text(json.loads(key[2:]))}]"
    return f"[{key[2:]}]"


def _value_text(v):
    # value.ToString
    if v is None:
        return "null"
    if isinstance(v, str):
        return _go_quote(v)
    if isinstance(v, list):
        return "[" + ",".join(_value_text(x) for x in v) + "]"
    if isinstance(v, dict):
        return "{" + ";".join(f"{k}={_value_text(v[k])}" for k in sorted(v)) + "}"
    return _go_v(v)


# ---------------------------------------------------------------------------------------------- merge

def merge(Node n, dict live, dict applied):
    """The live object with everything the applied one says, as TypedValue.Merge. Shares subtrees of both. Raises Mismatch."""
    cdef list errors = []
    out = _merge_maps(n, live, applied, "", errors)
    if errors:
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
        got = get(lhs, name)
        if got is _MISSING:
            out[name] = value
            continue
        if got is value:
            continue
        f = field_of(n, name)
        t = f.node if f is not None else n.elem
        out[name] = value if t is None else _merge(t, got, value, path + "." + <str>name, errors)
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
        # A repeated item is not merged with its new form but replaced by it.
        left[key] = None if key in left else (<list>lhs)[i]
        lkeys.append(key)
    if errors:
        return None
    shared = [k for k in rkeys if k in left]
    while li < len(lkeys) or ri < len(rkeys):
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
    return _merge(n.item, lhs, rhs, path + element_text(key), errors)


# ---------------------------------------------------------------------------------------------- remove

def remove_items(Node n, dict value, dict gone):
    """The object without the fields and items in the set; a map or list left empty stays."""
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
        if not PyDict_CheckExact(v) or not v or n.map_atomic:
            return None
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
            t = f.node if f is not None else n.elem
            out[name] = _remove(t, value, sub) if t is not None else value
        return out
    if not PyList_CheckExact(v) or not v or n.list_atomic:
        return None
    items = []
    for item in <list>v:
        try:
            key = item_key(n, item)
        except ValueError:
            # The list was validated before; what has no key cannot be named by the set.
            items.append(item)
            continue
        sub = get(gone, key)
        if sub is _MISSING:
            items.append(item)
        elif not member(sub):
            items.append(_remove(n.item, item, sub))
    return items


# ---------------------------------------------------------------------------------------------- schema and set

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
                t = f.node if f is not None else n.elem
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
            t = (<Field>p).node if p != NULL else n.elem
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


# ---------------------------------------------------------------------------------------------- FieldsV1

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
            value = json.loads(key[2:])
        except ValueError as e:
            raise ValueError(f"parsing key as path element: {e}") from None
        if c == u"v":
            return "v:" + json_text(value)
        if not PyDict_CheckExact(value):
            raise ValueError("parsing key as path element: ReadObjectCB: expect { or n")
        return "k:" + json_text(value)
    if c == u"i":
        try:
            return f"i:{int(key[2:])}"
        except ValueError:
            raise ValueError(f'parsing key as path element: strconv.Atoi: parsing "{key[2:]}": invalid syntax') from None
    return None
