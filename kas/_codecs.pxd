# The design of the codecs: what a type is while it is walked, and the buffers that walks read and write.
#
#     tables / schema -> TypeDesc, Field -> decode (JSON -> dict) -> encode, protobuf (dict -> bytes)
#                                        -> prune, nulls, defaults (objects of schemas, in place)
#                                        -> transcode (stored JSON -> protobuf, by tape)
#
# A TypeDesc is built from a row of tables or from a schema, compiled once under a lock and never changed. Walks keep borrowed pointers
# into it (FieldInfo, WireInfo), so it must be referred to while they run. What belongs to one walk alone stands in its part (.pxi).

cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport int16_t, int32_t, uint32_t, uint64_t

# What a field's element is.
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

# How many of them.
cdef enum:
    C_SINGLE = 0
    C_LIST = 1
    C_MAP = 2

# How an absent field is written.
cdef enum:
    A_SKIP = 0
    A_NULL = 1
    A_ZERO = 2

# No built-in type has more flattened fields; compiling one that has raises, so typed walks may keep one slot per field on the C stack.
# Types made from schemas have no typed walks and no such limit.
cdef enum:
    MAX_FIELDS = 128

# What the walks need of a Field, without reference counting. The pointers are borrowed from the Field objects, which live as long as the type.
cdef struct FieldInfo:
    PyObject* field
    PyObject* name
    const char* key  # ,"name": with quotes and colon
    int32_t key_n
    int kind
    int card
    int absent
    bint drop_zero   # omitempty on a plain scalar: a zero value is not written
    bint fill        # decode() gives it a zero value


# A key looked up before. The str is kept alive, so that the same address means the same text.
cdef struct KnownKey:
    PyObject* key
    int32_t place


# What protobuf needs of a Field, in the order of the numbers; borrowed as in FieldInfo.
cdef struct WireInfo:
    PyObject* field
    const char* tag
    int32_t tag_n
    int kind
    int card
    int place     # in the flat list; of embedded messages: where their fields begin in it
    bint embedded
    bint optional # not written when absent


# One field of a type; see the class in desc.pxi. What Python may read is readonly.
@cython.final
cdef class Field:
    cdef readonly str name, pb_name, card, type, ref, format
    cdef readonly int pb
    cdef readonly bint ptr, omitempty, omitzero, inline, type_meta, required, has_default
    cdef str named, key_named  # Go's names of the element's type and of a map's keys, where nothing else gives them
    cdef readonly object default, default_rule, enum, key_enum, list_type, map_type, patch_strategy, patch_merge_key, union_discriminator
    cdef readonly tuple list_map_keys, gates, rules
    # Of types made from schemas: what a list or map holds, the schema of the value, and what it says of values of any type.
    cdef readonly Field element
    cdef Field aside  # what the schema says of values of another type than its own
    cdef readonly dict schema
    cdef readonly bint accepts_null, preserve
    cdef readonly bint defaults_below
    cdef int kind, c_card
    cdef bint nullable  # written as null when absent
    cdef bytes key_json  # b',"name":'
    cdef bytes tag  # protobuf tag
    cdef int offset  # of embedded messages: where their fields begin in the owner's flat list
    cdef int place   # in the flat list of the type that declares it
    cdef TypeDesc target
    cdef TypeDesc owner
    cdef dict index

    cdef int wire_type(self)
    cdef str go_element(self)
    cdef str go_type(self)


# A type: its fields as declared (_fields), in JSON order (flat), by number (pb_order), and open-addressed tables to find them in.
@cython.final
cdef class TypeDesc:
    cdef readonly str name, map_type, custom_json
    # Of types made from schemas: the schema, what it says of further fields, and what upper layers made of it (validator, rules, ...),
    # which lives as long as the type. ``load`` brings the schema of a type whose fields nobody has asked for yet.
    cdef dict _schema
    cdef object load
    cdef readonly dict derived
    cdef Field _additional
    cdef readonly bint allows_additional, preserve, embedded, custom
    cdef bytes rows  # JSON of the fields, until compiled
    cdef readonly bint has_type_meta
    cdef dict index
    cdef bint compiled, defaults_known, defaults_below
    cdef list defaulted  # fields with a constant default, or with one below them; None: not asked yet
    cdef int kind
    cdef tuple _fields, flat, fill, pb_order
    cdef dict _by_name
    cdef dict pb_by_number
    cdef list by_number  # protobuf number -> Field or None
    cdef FieldInfo* infos
    cdef WireInfo* wire
    cdef int n_wire
    cdef int n_flat
    cdef int revision_at  # of ObjectMeta and ListMeta: the place of resourceVersion; else -1
    cdef int32_t* table  # open addressing, JSON key -> place in flat; -1 is free
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


# Output that grows; writes go through reserve().
cdef struct Buf:
    char* p
    Py_ssize_t n
    Py_ssize_t cap
    bint escaped  # set by strings that needed an escape
    int deepest   # levels of a document beyond which it is refused


# Output that grows at the front: protobuf is written from its end, so that lengths are known when they are written.
cdef struct Back:
    char* p
    Py_ssize_t at
    Py_ssize_t cap


# Input of protobuf: from p up to end.
cdef struct Wire:
    const unsigned char* p
    const unsigned char* end


# JSON cut into tokens, with a link over each container.
cdef struct Token:
    int32_t start  # strings: after the opening quote
    int32_t stop   # strings: the closing quote; scalars: one past
    int32_t next   # index of the token after this value
    int16_t place  # of a key, in the flattened fields of its type; -1: not looked up
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


# What encode_json_split() and encode_stored() want to know of the text that is being written.
cdef struct Split:
    bint on            # looking for metadata.resourceVersion of the root object
    bint stored        # write the form a protobuf round trip leaves: no empty non-nil lists and maps
    Py_ssize_t cut     # offset of the cut, -1 while not reached
    Py_ssize_t prefix  # length of the kind/apiVersion part
    Py_ssize_t end     # offset of the end of metadata
    Tape* tape         # takes notes for the transcoder, or NULL
    bint retape        # something was written without its tokens
    bint differs       # the form that is stored is not the one that is answered, but for its resourceVersion


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
