# The design of the codecs: types, and the buffers that walks read and write.
#
#     tables / schema -> TypeDesc, Field -> decode (JSON -> dict) -> encode, protobuf (dict -> bytes)
#                                        -> prune, nulls, defaults (objects of schemas, in place)
#                                        -> transcode (stored JSON -> protobuf, by tape)
#
# A TypeDesc is built from a row of the tables or from a schema, compiled once under a lock and immutable afterwards. Walks keep borrowed
# pointers into it (FieldInfo, WireInfo), so it must be referenced while they run. State that belongs to one walk alone is in that walk's
# part (.pxi).

cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport int16_t, int32_t, uint32_t, uint64_t

# The kind of a field's element.
cdef enum:
    K_STRING = 0
    K_INT32 = 1
    K_INT64 = 2
    K_BOOL = 3
    K_DOUBLE = 4
    K_BYTES = 5
    K_STRUCT = 6
    K_QUANTITY = 7
    K_TIME = 8
    K_MICROTIME = 9
    K_DURATION = 10
    K_INTSTR = 11
    K_RAW = 12
    K_STRLIST = 13
    K_SCHEMA_ARRAY = 14
    K_SCHEMA_BOOL = 15
    K_SCHEMA_STRINGS = 16
    K_UNKNOWN = 17

# The cardinality of a field.
cdef enum:
    C_SINGLE = 0
    C_LIST = 1
    C_MAP = 2

# How an absent field is written.
cdef enum:
    A_SKIP = 0
    A_NULL = 1
    A_ZERO = 2

# The most flattened fields of a built-in type; compiling one with more raises, so typed walks may keep one slot per field on the C stack.
# Types made from schemas have no typed walks and no such limit.
cdef enum:
    MAX_FIELDS = 128

# What the walks need of a Field, without reference counting. The pointers are borrowed from the Field objects, which live as long as the
# type.
cdef struct FieldInfo:
    PyObject* field
    PyObject* name
    const char* key  # ,"name": with quotes and colon
    int32_t key_n
    int kind
    int card
    int absent
    bint drop_zero   # omitempty on a plain scalar: a zero value is omitted
    bint fill        # decode() fills in a zero value


# A cached key lookup. It owns a reference to the str, so that the same address means the same text.
cdef struct KnownKey:
    PyObject* key
    int32_t place


# What protobuf needs of a Field, in the order of the field numbers; borrowed as in FieldInfo.
cdef struct WireInfo:
    PyObject* field
    const char* tag
    int32_t tag_n
    int kind
    int card
    int place     # index in the flat list; for an embedded message, the index of its first field
    bint embedded
    bint optional # omitted when absent


# One field of a type; see the class in desc.pxi. Attributes that Python may read are readonly.
@cython.final
cdef class Field:
    cdef readonly str name, pb_name, card, type, ref, format
    cdef readonly int pb
    cdef readonly bint ptr, omitempty, omitzero, inline, type_meta, required, has_default
    cdef str named, key_named  # Go's names for the element's type and for a map's keys, where they cannot be derived
    cdef readonly object default, default_rule, enum, key_enum, list_type, map_type, patch_strategy, patch_merge_key, union_discriminator
    cdef readonly tuple list_map_keys, gates, rules
    # For types made from schemas: the element of a list or map, the schema of the value, and its rules for values of any type.
    cdef readonly Field element
    cdef Field alternative  # what the schema says about values of a type other than its own
    cdef readonly dict schema
    cdef readonly bint accepts_null, preserve
    cdef readonly bint defaults_below
    cdef int kind, c_card
    cdef bint nullable  # written as null when absent
    cdef bytes key_json  # b',"name":'
    cdef bytes tag  # protobuf tag
    cdef int offset  # for an embedded message: the index of its first field in the owner's flat list
    cdef int place   # index in the flat list of the declaring type
    cdef TypeDesc target
    cdef TypeDesc owner
    cdef dict index

    cdef int wire_type(self)
    cdef str go_element(self)
    cdef str go_type(self)


# A type: its fields as declared (_fields), in JSON order (flat), by number (pb_order), and open-addressed hash tables to look them up.
@cython.final
cdef class TypeDesc:
    cdef readonly str name, map_type, custom_json
    # For types made from schemas: the schema, its rule for additional fields, and what upper layers derived from it (validator, rules,
    # ...), which lives as long as the type. ``load`` returns the schema of a type whose fields have not been used yet.
    cdef dict _schema
    cdef object load
    cdef readonly dict derived
    cdef Field _additional
    cdef readonly bint allows_additional, preserve, embedded, custom
    cdef bytes rows  # JSON of the fields, until compiled
    cdef readonly bint has_type_meta
    cdef dict index
    cdef bint compiled, defaults_known, defaults_below
    cdef list defaulted  # fields with a constant default, or with one below them; None: not computed yet
    cdef int kind
    cdef tuple _fields, flat, fill, pb_order
    cdef dict _by_name
    cdef dict pb_by_number
    cdef list by_number  # protobuf number -> Field or None
    cdef FieldInfo* infos
    cdef WireInfo* wire
    cdef int n_wire
    cdef int n_flat
    cdef int revision_at  # for ObjectMeta and ListMeta: the index of resourceVersion; else -1
    cdef int32_t* table  # open addressing, JSON key -> index in flat; -1 is a free slot
    cdef uint32_t table_mask
    cdef KnownKey* known
    cdef uint32_t known_mask

    cdef int _compile(self) except -1
    cdef int _build(self) except -1
    cdef int _build_infos(self) except -1
    cdef int _build_wire(self) except -1
    cdef int _build_table(self) except -1
    cdef int find(self, const char* key, Py_ssize_t n) noexcept
    cdef int find_str(self, PyObject* key) except -2
    cdef int find_new(self, PyObject* key, KnownKey* known) except -2


# A growing output buffer; reserve() runs before each write.
cdef struct Buf:
    char* p
    Py_ssize_t n
    Py_ssize_t cap
    bint escaped  # set when a string needed an escape
    int deepest   # the deepest level allowed in a document


# A buffer that grows towards the front: protobuf is written backwards, so that lengths are known when they are written.
cdef struct Back:
    char* p
    Py_ssize_t at
    Py_ssize_t cap


# Input of protobuf: from p up to end.
cdef struct Wire:
    const unsigned char* p
    const unsigned char* end


# A JSON token. Each links to the token after its value, to skip containers.
cdef struct Token:
    int32_t start  # strings: after the opening quote
    int32_t stop   # strings: the closing quote; scalars: one past
    int32_t next   # index of the token after this value
    int16_t place  # for a key: index in the flattened fields of its type; -1: not looked up
    char type      # { [ " 0 t f n
    char escaped


cdef struct Tape:
    const char* s
    Py_ssize_t size
    Token* t
    Py_ssize_t n
    Py_ssize_t cap
    int32_t* slots
    Py_ssize_t slots_n
    Py_ssize_t slots_cap


# State of encode_json_split() and encode_stored() about the text being written.
cdef struct Split:
    bint on            # looking for metadata.resourceVersion of the root object
    bint stored        # write the form that a protobuf round trip leaves: no empty non-nil lists and maps
    Py_ssize_t cut     # offset of the cut, -1 while not reached
    Py_ssize_t prefix  # length of the kind/apiVersion part
    Py_ssize_t end     # offset of the end of metadata
    Tape* tape         # records tokens for the transcoder, or NULL
    bint retape        # something was written without its tokens
    bint differs       # the stored form differs from the one that is sent to clients, besides the resourceVersion


@cython.final
cdef class SharedFields:        # a set of managed fields that stored objects share; only ``fits`` ever changes
    cdef readonly dict fields
    cdef readonly bytes text
    cdef object fits            # a node of a merge schema


cdef SharedFields shared_of(dict fields)
cpdef bytes varint(uint64_t v)
cpdef str go_quote(str s)
cdef TypeDesc schema_struct(str name, dict schema, bint embedded, set defaults)
cdef int schema_fill(TypeDesc t, dict schema, set defaults) except -1
cdef int put_struct(Buf* b, TypeDesc t, dict obj, Split* s, int depth) except -1
cdef int back_struct(Back* b, TypeDesc t, dict obj, int depth) except -1
