# The design of checks: programs that say of a document "certainly valid", or leave it to the rules that word errors.
#
#     table + descriptor (kas/types/checktables.py)  \
#     schema (apiextensions/schemachecks.py)          >  Check, a tree built once  ->  Check.passes(document)
#     metadata (kas/meta/metachecks.py)              /
#
#   texts.pxi   leaves: names, keys, ports, paths, quantities            (one pass over a text in memory)
#   walk.pxi    run(): one switch over what a check is; objects, maps, lists, alternatives
#   build.pxi   the constructors that Python sees
#
# A check answers 1 (certainly valid), -1 (certainly not) or 0 (nobody knows: ask the rules). Only alternatives of schemas ("not", "oneOf")
# need -1; whoever says it must be exact, and everything else answers 0 where it could. What is present and not named is 0, so a new field
# goes to the rules until somebody adds it to the table.
#
# Documents are decoded values of any shape: types are checked, references are borrowed while their dict or list is not changed, nothing
# is changed or kept. A walk visits each value once for each check that looks at it, and is as deep as document and checks both are, but never deeper than
# MAX_DEPTH.
# Alternatives multiply what a walk costs; by them it is counted: it gives the interpreter's lock away, ends the turn of the loop, and knows
# nothing in the end. What concerns several places (unique names, a mount's volume) goes through scopes: a container check opens one, checks below it claim
# values or ask for claimed ones. Open scopes lie on a stack of the walk, so a tree may be shared by threads and by other trees.

cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef enum:
    MAX_SCOPES = 24   # open at one time; one more, and nothing is certain
    MAX_DEPTH = 500   # levels of a document, which are as many calls on the C stack
    # Of the alternatives of schemas every value may try thousands. Some 45 ns each: half a millisecond, and two seconds.
    ALTERNATIVES = 10000
    PATTERN_ALTERNATIVES = 24  # that a search for a pattern takes as long as
    ROUND_UNITS = 500  # of a turn of the loop
    MAX_ROUNDS = 5000


# A name for what is claimed: that of a list's items, of a pod's ports. What it holds is the walk's.
@cython.final
cdef class Scope:
    cdef readonly str name


# What a walk reads of a check. Pointers are borrowed from the Check that owns the node; NULL: there is none.
cdef struct Node:
    int op
    PyObject* owner     # the Check it stands in
    int no              # what it answers when the value is not valid: 0, or -1 where it is exact
    bint nullable
    int64_t low, high   # numbers, lengths, sizes
    int64_t total       # of maps: bytes of all keys and values; -1: no limit
    double least, most  # numbers that are not whole
    PyObject* data      # options, a function, a method of a pattern, a scope
    PyObject* rule      # called with a value that passed all else; false: unknown
    PyObject* claims    # the scope where the value itself is claimed, or what is claimed in its stead
    PyObject* claimed
    PyObject* opens     # a tuple of scopes that last as long as the value
    PyObject* items     # of lists: the scope where each item claims one thing
    Node* key           # of maps: keys
    Node* rest          # of maps, objects and lists: values, fields not named, items
    Node** parts        # alternatives
    int n_parts
    PyObject* index     # field -> place in slots
    Slot* slots
    int n_slots, n_required, n_early
    Group* groups
    int n_groups
    PyObject* keys      # of objects: ((scope, (field, ...)), ...)
    PyObject* not_above # ((field, field), ...)
    PyObject* rules     # ((mask, function), ...)


# One known field of an object.
cdef struct Slot:
    PyObject* name
    Node* check
    uint64_t bit      # of the groups and rules that ask whether it is there; 0: none does
    bint required
    bint early        # looked at before the others, whatever the order of the document
    bint looked_at    # in its turn: there is something to check, and it is not early


# "least" to "most" of the fields in "mask" are there, if one of those in "when" is (0: always).
cdef struct Group:
    uint64_t when
    uint64_t mask
    int least
    int most


cdef struct Walk:
    PyObject* owners[MAX_SCOPES]
    PyObject* taken[MAX_SCOPES]   # sets, made when something is claimed first
    bint alone[MAX_SCOPES]        # of a list with one item, which cannot repeat itself
    int n
    int depth
    int left      # alternatives until others have their turn
    int rounds    # of so many


@cython.final
cdef class Check:
    cdef Node node
    cdef dict held   # what the node borrows, by the names of its fields

    cdef Check _copy(self)
    cdef int _hold(self, str name, object value) except -1
    cdef int _lay_out(self) except -1


cdef int run(Node* c, PyObject* v, Walk* w) except -2
