# Design of checks: programs that find a document certainly valid, or leave it to the validation rules, which word errors.
#
#     table + descriptor (kas/types/checktables.py)  \
#     schema (apiextensions/schemachecks.py)          >  Check, a tree built once  ->  Check.passes(document)
#     metadata (kas/meta/metachecks.py)              /
#
#   texts.pxi   leaves: names, keys, ports, paths, quantities            (one pass over a text in memory)
#   walk.pxi    run(): one switch over the kind of a check; objects, maps, lists, alternatives
#   build.pxi   the constructors for Python
#
# A check answers 1 (certainly valid), -1 (certainly invalid) or 0 (unknown: run the rules). Only alternatives of schemas ("not", "oneOf")
# need -1; a check that answers it must be exact, and all others answer 0 instead. A field that is present but not named makes the answer 0,
# so a new field is left to the rules until it is added to the table.
#
# Documents are decoded values of any shape: types are checked, and references are only borrowed while their dict or list is unchanged.
# Nothing is changed or kept. A walk visits each value once for each check that covers it. Its depth is that of the document and the checks,
# at most MAX_DEPTH.
#
# Alternatives multiply the cost of a walk, so it counts them: at intervals it releases the interpreter's lock and ends the turn of the
# event loop, and at the limit it answers 0. Rules that concern several places (unique names, a mount's volume) use scopes: a container
# check opens a scope, and checks below it claim values or look for claimed ones. Open scopes are on a stack of the walk, so a tree may be
# shared by threads and by other trees.

cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef enum:
    MAX_SCOPES = 24   # open at the same time; with more the answer is 0
    MAX_DEPTH = 500   # levels of a document; each is a call on the C stack
    # Every value may try thousands of a schema's alternatives. One takes some 45 ns: half a millisecond per round, two seconds in all.
    ALTERNATIVES = 10000
    PATTERN_ALTERNATIVES = 24  # as many as a pattern search takes the time of
    ROUND_UNITS = 500  # cost of a round, in units of a loop iteration
    MAX_ROUNDS = 5000


# Identifies a set of claimed values, such as the names of a list's items or of a pod's ports. The set itself belongs to the walk.
@cython.final
cdef class Scope:
    cdef readonly str name


# The part of a check that a walk reads. Pointers are borrowed from the Check that owns the node; NULL means absent.
cdef struct Node:
    int op
    PyObject* owner     # the Check that contains it
    int no              # the answer for an invalid value: 0, or -1 if it is exact
    bint nullable
    int64_t low, high   # numbers, lengths, sizes
    int64_t total       # of maps: limit of the bytes of all keys and values; -1: none
    double least, most  # bounds of floats
    PyObject* data      # options, a function, a pattern's method, a scope
    PyObject* rule      # called with a value that passed everything else; false: unknown
    PyObject* claims    # the scope in which the value is claimed, or what is claimed instead
    PyObject* claimed
    PyObject* opens     # a tuple of scopes opened for the value
    PyObject* items     # of lists: the scope in which each item claims one value
    Node* key           # of maps: the check of keys
    Node* rest          # of maps, objects and lists: the check of values, unnamed fields, items
    Node** parts        # alternatives
    int n_parts
    PyObject* index     # field -> index in slots
    Slot* slots
    int n_slots, n_required, n_early
    Group* groups
    int n_groups
    PyObject* keys      # of objects: ((scope, (field, ...)), ...)
    PyObject* not_above # ((field, field), ...)
    PyObject* rules     # ((mask, function), ...)


# One named field of an object.
cdef struct Slot:
    PyObject* name
    Node* check
    uint64_t bit      # its bit in the masks of groups and rules; 0: in none
    bint required
    bint early        # checked before the others, whatever the order of the document
    bint looked_at    # checked in document order: it has a check and is not early


# "least" to "most" of the fields in "mask" must be present if one of those in "when" is (0: always).
cdef struct Group:
    uint64_t when
    uint64_t mask
    int least
    int most


cdef struct Walk:
    PyObject* owners[MAX_SCOPES]
    PyObject* taken[MAX_SCOPES]   # sets, made on the first claim
    bint alone[MAX_SCOPES]        # for a list with one item, whose claims cannot collide
    int n
    int depth
    int left      # alternatives left in this round
    int rounds    # rounds so far


@cython.final
cdef class Check:
    cdef Node node
    cdef dict held   # owns what the node borrows, by the names of its fields

    cdef Check _copy(self)
    cdef int _hold(self, str name, object value) except -1
    cdef int _lay_out(self) except -1


cdef int run(Node* c, PyObject* v, Walk* w) except -2
