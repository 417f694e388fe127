# Design of this unit: the walks of structured-merge-diff over plain objects, driven by a merge schema.
#
# A schema is a graph of Nodes. A Node says which of scalar, map and list a value may be and how each merges; a Field describes a member
# of a map. A set of field paths is its FieldsV1 form, a dict of dicts: {} is a member path, {".": {}, ...} a member path with members
# below it, and any other dict only leads to members. Sets are never changed once returned, so operations share unchanged subtrees.
#
#   compare, to_set, created, merge, remove_items, validate    walk objects along Nodes           (fieldsets/<name>.pxi)
#   union, difference, intersection, reconcile, canonical      walk sets alone                    (sets.pxi, reconcile.pxi)
#
# Every operation takes time linear in its input; list items are found by their key, never by searching.

from cpython.object cimport PyObject


cdef enum Form:  # which part of its Node a value takes
    NONE = 0
    MAP = 1
    SCALAR = 2
    LIST = 3


# A growing output buffer; writes go through reserve(). The same as the codecs' (fastpath/codecs/buffer.pxi).
cdef struct Buf:
    char* p
    Py_ssize_t n
    Py_ssize_t cap
    bint escaped  # set when a string needed an escape
    int deepest   # nesting depth beyond which a document is refused


# A cached lookup of a field by its name. It owns a reference to the str, so that the same address means the same text; the field belongs to
# the node.
cdef struct KnownName:
    PyObject* name
    PyObject* field


cdef class Field:
    cdef str name
    cdef readonly str key        # "f:name"
    cdef bytes text              # the key as JSON, with its colon
    cdef Node known              # its node, once it has been made
    cdef object load, of         # until then, the function that makes the node and its argument
    cdef readonly object zero    # the value Go writes for an unset field, MISSING for nothing
    cdef readonly int omit       # values that Go omits: 0 none, 1 null, 2 null and empty or zero values
    cdef readonly object default
    cdef readonly bint skip      # hidden from comparisons
    cdef int rank                # position among the node's fields sorted by name


cdef class Node:
    cdef public int scalar                # a ScalarType
    cdef public bint is_map, map_atomic, deduced, is_list, list_atomic
    cdef readonly dict fields             # name -> Field
    cdef KnownName* known                 # by the address of the name; NULL before the first lookup
    cdef size_t known_mask
    cdef public Node elem                 # the type of undeclared map keys; None refuses them
    cdef public tuple keys, sorted_keys   # None: a set; else the key fields of a keyed list
    cdef frozenset key_set, said_keys     # only with many keys: all of them, and those without a default
    cdef public Node item
    cdef dict by_key                      # "f:name" -> Field
    cdef list ranked                      # the Fields sorted by name
    cdef list zeros                       # the Fields that Go writes when unset
    cdef bint plain                       # every value is a single leaf, whatever it contains
    cdef dict texts                       # path element texts of known list items, by key value; bounded; None before the first


# --- fields (node.pxi): the node of a field, made on first use
cdef Node node_of(Field f)

# --- elements (element.pxi): the path element of a list item, "k:{...}" or "v:..."
cdef str item_key(Node n, object v)
cdef dict in_order(dict level)

# --- values (value.pxi)
cdef Form form(Node n, object v)
cdef bint equal_without(dict a, dict b, tuple skip) except -1

# --- walks used by several parts
cdef int _compare(Node n, object lhs, object rhs, str key, dict changed, dict removed) except -1
cdef dict _added(Node n, object v)
cdef int _set_of(Node n, object v, str key, bint itself, dict out) except -1
cdef dict _union(dict a, dict b)
cdef dict _difference(dict a, dict b)
