# The design of the unit: structured-merge-diff's walks over plain objects, driven by a merge schema.
#
# A schema is a graph of Nodes; a Node says which of scalar, map and list a value may be and how each merges, a Field names a member of a map.
# A set of field paths is its FieldsV1 form, a dict of dicts: {} is a path that is a member, {".": {}, ...} a member with members below it,
# anything else only leads to members. Sets are never changed once they are returned, so operations share what they leave alone.
#
#   compare, to_set, created, merge, remove_items, validate    walk objects along Nodes           (fieldsets/<name>.pxi)
#   union, difference, intersection, reconcile, canonical      walk sets alone                    (sets.pxi, reconcile.pxi)
#
# Everything is a walk in the size of what it is given; items of lists are found by their key, never by searching.

from cpython.object cimport PyObject


cdef enum Form:  # what a value is, as far as its Node allows it
    NONE = 0
    MAP = 1
    SCALAR = 2
    LIST = 3


# Output that grows; writes go through reserve(). The same as the codecs' (fastpath/codecs/buffer.pxi).
cdef struct Buf:
    char* p
    Py_ssize_t n
    Py_ssize_t cap
    bint escaped  # set by strings that needed an escape
    int deepest   # levels of a document beyond which it is refused


cdef class Field:
    cdef readonly str key        # "f:name"
    cdef bytes text              # the key in JSON, with its colon
    cdef Node known              # its node, once somebody asked
    cdef object load, of         # what makes it of what, until then
    cdef readonly object zero    # what Go writes for an unset field, MISSING for nothing
    cdef readonly int omit       # what Go leaves out: 0 nothing, 1 null, 2 null and what is empty or zero
    cdef readonly object default
    cdef readonly bint skip      # hidden from comparisons
    cdef int rank                # place among the node's fields in order of names


cdef class Node:
    cdef public int scalar                # a ScalarType
    cdef public bint is_map, map_atomic, deduced, is_list, list_atomic
    cdef public dict fields               # name -> Field
    cdef public Node elem                 # the type of map keys that are no fields; None refuses them
    cdef public tuple keys, sorted_keys   # None: a set; else a list keyed by these fields
    cdef frozenset key_set, said_keys     # of many: all of them, and those an item has without naming them
    cdef public Node item
    cdef dict by_key                      # "f:name" -> Field
    cdef list ranked                      # the Fields in order of names
    cdef list zeros                       # (name, Field) of the fields Go writes when unset
    cdef bint plain                       # every value is one leaf, whatever it holds
    cdef dict texts                       # path element texts of list items met before, by key value; bounded; None before the first


# --- fields (node.pxi): the node of one, made when it is first asked for
cdef Node node_of(Field f)

# --- elements (element.pxi): the key of a list item in a set, "k:{...}" or "v:..."
cdef str item_key(Node n, object v)
cdef dict in_order(dict level)

# --- values (value.pxi)
cdef Form form(Node n, object v)
cdef bint equal_without(dict a, dict b, tuple skip) except -1

# --- walks that other parts use
cdef int _compare(Node n, object lhs, object rhs, str key, dict changed, dict removed) except -1
cdef dict _added(Node n, object v)
cdef int _set_of(Node n, object v, str key, bint itself, dict out) except -1
cdef dict _union(dict a, dict b)
cdef dict _difference(dict a, dict b)
