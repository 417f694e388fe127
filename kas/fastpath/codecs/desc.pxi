# Field and TypeDesc. They are built once from the rows of types.json and compiled on first use, or made from a schema at run time
# (schema.pxi), and never change afterwards. The compiled attributes (kind, flat, fill, ...) are valid only after TypeDesc.ready().

cdef dict SCALAR_KINDS = {"string": K_STRING, "int32": K_INT32, "int64": K_INT64, "bool": K_BOOL, "double": K_DOUBLE, "bytes": K_BYTES}
cdef dict SPECIAL_KINDS = {
    "Quantity": K_QUANTITY, "QuantityValue": K_QUANTITY, "Time": K_TIME, "MicroTime": K_MICROTIME, "Duration": K_DURATION,
    "IntOrString": K_INTSTR, "RawExtension": K_RAW, "FieldsV1": K_RAW, "JSON": K_RAW, "Verbs": K_STRLIST, "ExtraValue": K_STRLIST,
    "JSONSchemaPropsOrArray": K_SCHEMA_ARRAY, "JSONSchemaPropsOrBool": K_SCHEMA_BOOL,
    "JSONSchemaPropsOrStringArray": K_SCHEMA_STRINGS, "Unknown": K_UNKNOWN,
}
cdef dict GO_SCALARS = {"string": "string", "int32": "int32", "int64": "int64", "bool": "bool", "double": "float64", "bytes": "[]uint8"}


cdef object _compile_lock = threading.RLock()


class DecodeError(ValueError):
    """The input is malformed or does not fit its type; the text is that of Go's decoders. ``value`` is the offending value, where there is
    a single one.
    """

    value = None


class EncodeError(ValueError):
    """An object in memory does not fit its type: a bug of the caller, or a value that has not been type-checked."""


cdef class Field:
    """One field of a type. ``name`` is the JSON key (None for embedded messages); ``message`` the TypeDesc of message elements.

    ``card`` is single, list or map; ``type`` is a scalar's name or "message"; ``ptr`` means that presence is tracked. ``listType`` and the
    like are spelled in snake case. Values are exactly those of the tables; absent ones are None, False or empty tuples.
    """

    def __init__(self, list row, dict index, TypeDesc owner):
        cdef dict extras = row[5] if len(row) > 5 else {}
        cdef int flags = row[4]
        self.owner = owner
        self.index = index
        self.name = None if row[0] is None else sys.intern(row[0])
        self.pb = -1 if row[1] is None else row[1]
        self.card = {"s": "single", "l": "list", "m": "map"}[row[2]]
        self.c_card = {"s": C_SINGLE, "l": C_LIST, "m": C_MAP}[row[2]]
        if row[3] in SCALAR_KINDS:
            self.type = row[3]
            self.kind = SCALAR_KINDS[row[3]]
        else:
            self.type = "message"
            self.ref = row[3]
            self.target = index[row[3]]
            self.kind = self.target.kind
        self.ptr = bool(flags & 1)
        self.omitempty = bool(flags & 2)
        self.omitzero = bool(flags & 4)
        self.inline = bool(flags & 8)
        self.type_meta = bool(flags & 16)
        self.required = bool(flags & 32)
        self.pb_name = extras.get("pbName") or self.name
        self.format = extras.get("format")
        self.has_default = "default" in extras
        self.default = extras.get("default")
        self.default_rule = extras.get("defaultRule")
        self.enum = extras.get("enum")
        self.key_enum = extras.get("keyEnum")
        self.named, self.key_named = extras.get("goType"), extras.get("goKey")
        self.list_type = extras.get("listType")
        self.map_type = extras.get("mapType")
        self.patch_strategy = extras.get("patchStrategy")
        self.patch_merge_key = extras.get("patchMergeKey")
        self.union_discriminator = extras.get("unionDiscriminator")
        self.list_map_keys = tuple(extras.get("listMapKeys") or ())
        if self.pb > 0:
            self.tag = varint((self.pb << 3) | self.wire_type())
        self.gates = _as_tuple(extras.get("gates"))
        self.rules = _as_tuple(extras.get("rules"))
        if self.name is not None:
            self.key_json = b',"' + self.name.encode() + b'":'
        if self.c_card != C_SINGLE or self.kind == K_BYTES:
            self.nullable = not self.omitempty
        elif self.kind in (K_TIME, K_MICROTIME, K_RAW, K_UNKNOWN):
            self.nullable = not self.ptr and not self.omitzero
        elif self.kind == K_STRLIST:
            self.nullable = not self.omitempty
        elif self.ptr:
            self.nullable = not self.omitempty

    @property
    def message(self):
        """The TypeDesc of message elements, compiled, or None."""
        return None if self.target is None else self.target.ready()

    def of(self, value):
        """The Field that describes ``value`` in a type made from a schema: this one, or the one for lists or objects of a schema with
        another type.
        """
        return schema_of(self, value)

    def __repr__(self):
        return f"Field({self.name})" if self.owner is None else f"Field({self.owner.name}.{self.name or self.pb_name})"

    cdef int wire_type(self):
        if self.c_card == C_MAP or self.kind not in (K_INT32, K_INT64, K_BOOL, K_DOUBLE):
            return 2
        return 1 if self.kind == K_DOUBLE else 0

    cdef str go_element(self):
        if self.named:
            return self.named
        if self.enum:
            return _go_name(self.enum)
        if self.target is not None:
            return _go_name(self.target.name)
        return GO_SCALARS[self.type]

    cdef str go_type(self):
        cdef str key
        cdef str named = _GO_NAMED.get(self.name) if self.owner is not None and self.owner.kind_name == "JSONSchemaProps" else None
        if named is not None:
            return _go_name(f"{self.owner.name.rpartition('.')[0]}.{named}")
        if self.c_card == C_LIST:
            return "[]" + self.go_element()
        if self.c_card == C_MAP:
            if self.named and self.named.startswith("map["):
                return self.named  # nearly all uses have the named type v1.ResourceList
            key = self.key_named or (_go_name(self.key_enum) if self.key_enum else "string")
            if self.kind == K_QUANTITY and key == "v1.ResourceName":
                return "v1.ResourceList"
            return f"map[{key}]{self.go_element()}"
        return self.go_element()


# Schema fields whose lists, maps and strings are named types in Go.
_GO_NAMED = {
    "definitions": "JSONSchemaDefinitions", "dependencies": "JSONSchemaDependencies", "x-kubernetes-validations": "ValidationRules",
    "$schema": "JSONSchemaURL",
}


cpdef bytes varint(uint64_t v):
    """Encodes a protobuf varint."""
    out = bytearray()
    while v > 127:
        out.append(<int>(v & 127) | 128)
        v >>= 7
    out.append(<int>v)
    return bytes(out)


cdef tuple _as_tuple(object value):
    if value is None:
        return ()
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


cdef str _go_name(str name):
    head, _, last = name.rpartition(".")
    package = head.rpartition(".")[2]
    return f"{package}.{last}" if package else last


cdef class TypeDesc:
    """A message type. ``fields`` are as declared (embedded messages included), ``json_fields`` flattened in JSON output order, ``by_name``
    maps a JSON key to its Field.

    ``kind_name`` is the last part of the name. ``custom_json`` says how the type departs from a plain JSON object
    ("quantity-string;accepts-number", "raw-json", ...), or is None. ``has_type_meta`` says whether objects have kind and apiVersion.
    """

    def __dealloc__(self):
        cdef uint32_t i
        if self.known != NULL:
            for i in range(self.known_mask + 1):
                Py_XDECREF(self.known[i].key)
        free(self.known)
        free(self.table)
        free(self.infos)
        free(self.wire)

    def __init__(self, list row, bytes fields, dict index):
        self.name, attributes, self.has_type_meta = row
        self.map_type, self.custom_json = attributes.get("mapType"), attributes.get("customJSON")
        self.rows = fields
        self.index = index
        self.kind = K_STRUCT
        self.revision_at = -1
        if self.custom_json is not None:
            self.kind = SPECIAL_KINDS[self.kind_name]

    def ready(self):
        """Compiles the type on first use and returns it. Thread-safe."""
        if self.custom:
            if self.load is not None:
                load_schema(self)
        elif not self.compiled:
            self._compile()
        return self

    cdef int _compile(self) except -1:
        if self.custom:
            raise TypeError(f"{self.name} was made from a schema: its objects have no typed form")
        # Walks keep pointers into a compiled type, so it must be compiled exactly once, whichever threads ask for it.
        with _compile_lock:
            if not self.compiled:
                self._build()
        return 0

    cdef int _build(self) except -1:
        cdef Field f
        cdef list flat = []
        cdef list fields = [Field(row, self.index, self) for row in json.loads(self.rows)]
        for f in fields:
            if f.inline and f.name is None and f.target is not None and self.kind == K_STRUCT:
                f.target.ready()
                flat.extend(f.target.flat)
            elif f.name is not None:
                flat.append(f)
        self._fields = tuple(fields)
        # kind and apiVersion come first in every document, wherever they are in the struct.
        flat.sort(key=_type_meta_first)
        self.flat = tuple(flat)
        self._by_name = {f.name: f for f in flat}
        self.fill = tuple([f for f in flat if _needs_fill(f)])
        self.pb_order = tuple(sorted([f for f in fields if f.pb > 0], key=_pb_number))
        self.pb_by_number = {f.pb: f for f in self.pb_order}
        for f in self.pb_order:
            if f.inline and f.name is None and f.target is not None:
                f.offset = _place(self.flat, f.target.flat[0]) if f.target.flat else 0
            else:
                f.place = _place(self.flat, f)
        self.by_number = [None] * (self.pb_order[len(self.pb_order) - 1].pb + 1 if self.pb_order else 1)
        for f in self.pb_order:
            self.by_number[f.pb] = f
        self._build_infos()
        self._build_wire()
        self._build_table()
        self.rows = None
        self.compiled = True
        return 0

    cdef int _build_infos(self) except -1:
        cdef Field f
        cdef FieldInfo* info
        cdef int i
        self.n_flat = len(self.flat)
        if self.n_flat > MAX_FIELDS:
            raise ValueError(f"{self.name} has too many fields")
        self.infos = <FieldInfo*>malloc((self.n_flat + 1) * sizeof(FieldInfo))
        if self.infos == NULL:
            raise MemoryError
        for i in range(self.n_flat):
            f = self.flat[i]
            info = self.infos + i
            info.field = <PyObject*>f
            info.name = <PyObject*>f.name
            info.key = PyBytes_AS_STRING(f.key_json)
            info.key_n = <int32_t>PyBytes_GET_SIZE(f.key_json)
            info.kind = f.kind
            info.card = f.c_card
            info.fill = _needs_fill(f)
            info.absent = A_NULL if f.nullable else A_ZERO if info.fill else A_SKIP
            info.drop_zero = (f.c_card == C_SINGLE and f.omitempty and not f.ptr and (f.kind <= K_BYTES or f.kind == K_STRLIST))
            if f.name == "resourceVersion" and self.kind_name in ("ObjectMeta", "ListMeta"):
                self.revision_at = i
        return 0

    cdef int _build_wire(self) except -1:
        cdef Field f
        cdef WireInfo* w
        cdef int i
        self.n_wire = len(self.pb_order)
        self.wire = <WireInfo*>malloc((self.n_wire + 1) * sizeof(WireInfo))
        if self.wire == NULL:
            raise MemoryError
        for i in range(self.n_wire):
            f = self.pb_order[i]
            w = self.wire + i
            w.field = <PyObject*>f
            w.tag = PyBytes_AS_STRING(f.tag)
            w.tag_n = <int32_t>PyBytes_GET_SIZE(f.tag)
            w.kind = f.kind
            w.card = f.c_card
            w.embedded = f.name is None
            w.place = f.offset if w.embedded else f.place
            w.optional = f.c_card != C_SINGLE or f.ptr or f.kind == K_BYTES or f.kind == K_STRLIST
        return 0

    cdef int _build_table(self) except -1:
        cdef uint32_t size = 4, slot
        cdef Field f
        cdef int i
        while size < 2 * len(self.flat) + 2:
            size *= 2
        self.table = <int32_t*>malloc(size * sizeof(int32_t))
        if self.table == NULL:
            raise MemoryError
        for slot in range(size):
            self.table[slot] = -1
        self.table_mask = size - 1
        # Large, because a key has only one slot, and two keys that share it would evict each other with every object.
        self.known_mask = 4 * size - 1
        self.known = <KnownKey*>calloc(4 * size, sizeof(KnownKey))
        if self.known == NULL:
            raise MemoryError
        for i in range(len(self.flat)):
            f = self.flat[i]
            slot = key_hash(PyBytes_AS_STRING(f.key_json) + 2, PyBytes_GET_SIZE(f.key_json) - 4) & self.table_mask
            while self.table[slot] >= 0:
                slot = (slot + 1) & self.table_mask
            self.table[slot] = i
        return 0

    cdef int find(self, const char* key, Py_ssize_t n) noexcept:
        """Index in flat of the field with this JSON key, or -1."""
        cdef uint32_t slot = key_hash(key, n) & self.table_mask
        cdef int i
        while True:
            i = self.table[slot]
            if i < 0:
                return -1
            if self.infos[i].key_n == n + 4 and memcmp(self.infos[i].key + 2, key, n) == 0:
                return i
            slot = (slot + 1) & self.table_mask

    cdef int find_str(self, PyObject* key) except -2:
        """Like find, for a str; -1 also for a text that has no UTF-8 form."""
        cdef KnownKey* known = self.known + (((<size_t>key >> 4) ^ (<size_t>key >> 11)) & self.known_mask)
        return known.place if known.key == key else self.find_new(key, known)

    cdef int find_new(self, PyObject* key, KnownKey* known) except -2:
        cdef Py_ssize_t n
        cdef int i
        cdef PyObject* last
        cdef const char* p = kas_ascii(key, &n)
        if p == NULL:  # such a text cannot be a field name
            if not isinstance(<object>key, str):
                raise TypeError("a key is not a string")
            return -1
        i = self.find(p, n)
        if i >= 0:
            last = known.key
            Py_INCREF(<object>key)
            known.key, known.place = key, i
            Py_XDECREF(last)
        return i

    @property
    def schema(self):
        """The schema from which the type was made, None for a type of the tables."""
        self.ready()
        return self._schema

    @property
    def fields(self):
        self.ready()
        return self._fields

    @property
    def additional(self):
        self.ready()
        return self._additional

    @property
    def json_fields(self):
        self.ready()
        return self.flat

    @property
    def by_name(self):
        self.ready()
        return self._by_name

    @property
    def kind_name(self):
        return self.name.rpartition(".")[2]

    def __repr__(self):
        return f"TypeDesc({self.name})"


cdef inline uint32_t key_hash(const char* p, Py_ssize_t n) noexcept:
    if n == 0:
        return 0
    return <uint32_t>n * 31 + <unsigned char>p[0] * 7 + <unsigned char>p[n - 1] * 131 + <unsigned char>p[n // 2] * 17


cdef int _place(tuple flat, Field f):
    cdef int i
    for i in range(len(flat)):
        if flat[i] is f:
            return i
    return -1


def _type_meta_first(Field f):
    return 0 if f.type_meta and f.name == "kind" else 1 if f.type_meta else 2


def _pb_number(Field f):
    return f.pb


cdef bint _needs_fill(Field f):
    # Fields that Go always writes and whose zero value is not null.
    if f.ptr or f.c_card != C_SINGLE:
        return False
    if f.kind in (K_STRUCT, K_QUANTITY, K_DURATION, K_INTSTR):
        return True
    return f.kind in (K_STRING, K_INT32, K_INT64, K_BOOL, K_DOUBLE) and not f.omitempty


def build_types(list rows, list fields):
    """Builds {name: TypeDesc} from the rows of types.json and the lines of fields.jsonl; nothing is compiled yet."""
    cdef dict index = {}
    for row, line in zip(rows, fields, strict=True):
        index[row[0]] = TypeDesc(row, line, index)
    return index
