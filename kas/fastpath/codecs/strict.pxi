# Strict decoding checks on raw JSON, which a parsed dict can no longer provide: repeated keys of an object and, if its type is known,
# unknown keys. One pass without building objects: each key is entered into one hash table with the number of its object, so the work is
# linear for any document. Keys already reported are marked in the same table.
#
# The document has been parsed before (gojson) and is valid JSON; the scan still never reads outside the text.

cdef struct KeySlot:
    uint32_t object  # 0: a free slot
    uint32_t hash
    int32_t start    # offset in the document; negative: in the buffer of unescaped keys, relative to its end
    int32_t length


cdef struct KeyTable:
    KeySlot* slots
    KeySlot* near  # an array that must not be freed
    uint32_t mask
    uint32_t used
    const char* document
    const char* plain  # the end of the buffer of unescaped keys


# How the scan treats a container.
cdef enum:
    S_NOTHING = 0     # its contents are ignored
    S_UNTYPED = 1     # repeated keys are reported, at any depth
    S_STRUCT = 2      # of a type: unknown keys are reported as well
    S_MAP = 3         # a map of elements of a field
    S_LIST = 4        # a list of elements of a field
    S_OPERATIONS = 5  # a JSON patch
    S_OPERATION = 6


cdef struct Frame:
    int what
    uint32_t object   # 0 for arrays
    int32_t index     # current index of an array
    bint descends     # whether the value of the current key is scanned
    int32_t start     # current key of an object, for paths; as in KeySlot
    int32_t length
    PyObject* of      # S_STRUCT: its TypeDesc, S_MAP and S_LIST: their Field; borrowed
    PyObject* field   # S_STRUCT: the Field of the current key; borrowed


# Enough for most patches, inside the scan: allocating a block for the deepest costs a system call each time, clearing more than is needed
# a part of the scan.
cdef enum:
    NEAR_DEPTH = 32
    NEAR_KEYS = 128
    MAX_SCAN_DEPTH = 10000
    MAX_FINDINGS = 100  # sigs.k8s.io/json stops collecting there

cdef uint32_t TOLD = <uint32_t>1 << 31  # flag in a slot's object number: the key has been reported
cdef uint32_t _hash_seed = <uint32_t>(hash("kas") & 0x7FFFFFFF)
cdef Py_ssize_t SCAN_BYTES = 1 << 18  # GIL check interval: a millisecond or two


cdef int table_grow(KeyTable* t) except -1:
    cdef uint32_t size = (t.mask + 1) * 2, i, at
    cdef KeySlot* slots = <KeySlot*>calloc(size, sizeof(KeySlot))
    if slots == NULL:
        raise MemoryError
    for i in range(t.mask + 1):
        if t.slots[i].object:
            at = t.slots[i].hash & (size - 1)
            while slots[at].object:
                at = (at + 1) & (size - 1)
            slots[at] = t.slots[i]
    if t.slots != t.near:
        free(t.slots)
    t.slots = slots
    t.mask = size - 1
    return 0


cdef inline const char* key_at(KeyTable* t, int32_t start) noexcept:
    return (t.document if start >= 0 else t.plain) + start


cdef int table_add(KeyTable* t, int32_t start, int32_t length, uint32_t object) except -1:
    """Returns 1 if the object already has the key; else adds it and returns 0."""
    cdef uint32_t h = _hash_seed ^ (object * <uint32_t>2654435761U), at
    cdef const char* key = key_at(t, start)
    cdef int32_t i
    for i in range(length):
        h = (h ^ <unsigned char>key[i]) * <uint32_t>16777619
    h ^= h >> 15
    at = h & t.mask
    while t.slots[at].object:
        if (t.slots[at].hash == h and t.slots[at].object == object and t.slots[at].length == length
                and memcmp(key_at(t, t.slots[at].start), key, length) == 0):
            return 1
        at = (at + 1) & t.mask
    t.slots[at].object = object
    t.slots[at].hash = h
    t.slots[at].start = start
    t.slots[at].length = length
    t.used += 1
    if t.used * 2 > t.mask:
        table_grow(t)
    return 0


cdef bytes clean_text(bytes data):
    """The text in which keys are compared: as in Go, invalid UTF-8 has become U+FFFD."""
    return data if data.isascii() else utf8_text(data).encode()


@cython.final
@cython.no_gc
cdef class _Scan:
    """The scan of one document. Findings are appended to ``found`` as (duplicate or unknown, path), each once, in document order."""

    cdef bytes data, plain  # plain: unescaped keys
    cdef Py_ssize_t used    # of plain
    cdef frozenset members  # of an operation
    cdef dict found
    cdef KeyTable table
    cdef KeySlot near_keys[NEAR_KEYS]
    cdef Frame near_stack[NEAR_DEPTH]
    cdef Frame* stack
    cdef int depth, room
    cdef uint32_t objects

    def __cinit__(self, bytes data not None):
        if len(data) > 0x7FFF0000:
            raise DecodeError("the document is too large")
        self.data = clean_text(data)
        self.found = {}
        self.table.mask = NEAR_KEYS - 1
        self.table.slots = self.table.near = self.near_keys
        self.table.document = PyBytes_AS_STRING(self.data)
        self.stack = self.near_stack
        self.room = NEAR_DEPTH

    def __dealloc__(self):
        if self.stack != self.near_stack:
            free(self.stack)
        if self.table.slots != self.near_keys:
            free(self.table.slots)

    cdef str path(self):
        cdef list parts = []
        cdef int i
        for i in range(self.depth):
            if self.stack[i].object:
                parts.append("." + PyUnicode_DecodeUTF8(key_at(&self.table, self.stack[i].start), self.stack[i].length, "replace"))
            else:
                parts.append(f"[{self.stack[i].index}]")
        text = "".join(parts)
        return text[1:] if text.startswith(".") else text

    cdef bint tell(self, str what) except -1:
        """Records a finding at the current key. Returns True when the limit is reached."""
        self.found[what, self.path()] = None
        return len(self.found) >= MAX_FINDINGS

    cdef int push(self, int what, PyObject* of, bint array) except -1:
        cdef Frame* larger
        cdef Frame* top
        if self.depth == self.room:
            larger = <Frame*>malloc(MAX_SCAN_DEPTH * sizeof(Frame))
            if larger == NULL:
                raise MemoryError
            memcpy(larger, self.stack, self.depth * sizeof(Frame))
            self.stack, self.room = larger, MAX_SCAN_DEPTH
        top = self.stack + self.depth
        top.what, top.of, top.field, top.descends = what, of, NULL, False
        top.object = top.index = top.start = top.length = 0
        if not array:
            self.objects += 1
            top.object = self.objects
        self.depth += 1
        return 0

    cdef int enter(self, bint array) except -1:
        """Enters a container within the innermost open one."""
        cdef Frame* up = self.stack + self.depth - 1
        cdef Field f
        if up.what == S_UNTYPED or (up.what == S_OPERATION and up.descends):
            return self.push(S_UNTYPED, NULL, array)
        if up.what == S_OPERATIONS and not array:
            return self.push(S_OPERATION, NULL, array)
        if up.what == S_STRUCT and up.field != NULL:
            f = <Field>up.field
            if f.c_card != C_SINGLE:
                if array is (f.c_card == C_LIST):
                    return self.push(S_LIST if array else S_MAP, up.field, array)
                return self.push(S_NOTHING, NULL, array)
        elif up.what == S_LIST or up.what == S_MAP:
            f = <Field>up.of
        else:
            return self.push(S_NOTHING, NULL, array)
        # Types with their own JSON decoder are not structs: nothing inside them is checked.
        if array or f.target is None or f.target.kind != K_STRUCT:
            return self.push(S_NOTHING, NULL, array)
        f.target.ready()
        return self.push(S_STRUCT, <PyObject*>f.target, array)

    cdef bint key(self, int32_t start, int32_t length, bint escaped) except -1:
        """Handles a key of the innermost object. Returns True when the limit of findings is reached."""
        cdef Frame* top = self.stack + self.depth - 1
        cdef bint known = True
        if top.what == S_NOTHING:
            return False
        if escaped:
            start = self.unescaped(start, &length)
        top.start, top.length = start, length
        if top.what != S_UNTYPED:
            known = self.known(top)
        if not known:
            return not table_add(&self.table, start, length, top.object | TOLD) and self.tell("unknown")
        if not table_add(&self.table, start, length, top.object):
            return False
        return not table_add(&self.table, start, length, top.object | TOLD) and self.tell("duplicate")

    cdef bint known(self, Frame* top) except -1:
        """Whether the object's type has the current key; determines how to treat its value."""
        cdef const char* key = key_at(&self.table, top.start)
        cdef int place
        if top.what == S_STRUCT:
            place = (<TypeDesc>top.of).find(key, top.length)
            top.field = (<TypeDesc>top.of).infos[place].field if place >= 0 else NULL
            return place >= 0
        if top.what == S_OPERATION:
            top.descends = top.length == 5 and memcmp(key, b"value", 5) == 0
            return key[:top.length] in self.members
        return True

    cdef int32_t unescaped(self, int32_t start, int32_t* length) except? -1:
        """Unescapes a key; returns its position and sets its length."""
        cdef Py_ssize_t size = PyBytes_GET_SIZE(self.data) + 4
        cdef char* plain
        if self.plain is None:
            self.plain = PyBytes_FromStringAndSize(NULL, size)
            self.table.plain = PyBytes_AS_STRING(self.plain) + size
        plain = PyBytes_AS_STRING(self.plain) + self.used
        length[0] = <int32_t>unescape(self.table.document + start, length[0], plain)
        start = <int32_t>(self.used - size)
        self.used += length[0]
        return start

    cdef int run(self, int what, PyObject* of) except -1:
        """Scans the document, whose root is treated as ``what``."""
        cdef const char* s = PyBytes_AS_STRING(self.data)
        cdef Py_ssize_t n = PyBytes_GET_SIZE(self.data), i = 0, stop, pause = SCAN_BYTES
        cdef bint want_key = False
        cdef char c, escaped
        while i < n:
            c = s[i]
            if c == 34:
                stop = scan_string(s, i + 1, n, &escaped)
                if stop < 0:
                    return 0
                if want_key:
                    want_key = False
                    if self.key(<int32_t>(i + 1), <int32_t>(stop - i - 1), escaped):
                        return 0
                i = stop + 1
                continue
            i += 1
            if i >= pause:  # GIL check
                yield_gil_if_due()
                pause = i + SCAN_BYTES
            if c == 44:
                if self.depth and self.stack[self.depth - 1].object:
                    want_key = True
                elif self.depth:
                    self.stack[self.depth - 1].index += 1
            elif c == 123 or c == 91:
                if self.depth == MAX_SCAN_DEPTH:
                    return 0
                if self.depth:
                    self.enter(c == 91)
                else:
                    self.push(what if what == S_UNTYPED or (c == 91) is (what == S_OPERATIONS) else S_NOTHING, of, c == 91)
                want_key = c == 123
            elif c == 125 or c == 93:
                want_key = False
                if self.depth:
                    self.depth -= 1
        return 0


def duplicate_fields(bytes data not None):
    """The paths ("spec.containers[0].image") of keys that are repeated in the same object, in document order, each once, at most 100."""
    cdef _Scan scan = _Scan(data)
    scan.run(S_UNTYPED, NULL)
    return [path for _, path in scan.found]


def strict_fields(bytes data not None, TypeDesc type):
    """The texts ``unknown field "spec.foo"`` and ``duplicate field "data.a"`` for an object of ``type`` (a type of the tables, or None for
    untyped values), in document order, each once, at most 100. Nothing inside an unknown field is reported.
    """
    cdef _Scan scan = _Scan(data)
    if type is None:
        scan.run(S_UNTYPED, NULL)
    else:
        type._compile()
        scan.run(S_STRUCT, <PyObject*>type)
    return [f"{what} field {go_quote(path)}" for what, path in scan.found]


def strict_operations(bytes data not None, frozenset members not None):
    """Like ``strict_fields``, for a JSON patch whose operations have ``members`` (bytes) with any values."""
    cdef _Scan scan = _Scan(data)
    scan.members = members
    scan.run(S_OPERATIONS, NULL)
    return [f"{what} field {go_quote(path)}" for what, path in scan.found]
