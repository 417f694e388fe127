# Encodes the typed form as protobuf like the generated marshallers of k8s.io/api: fields ascending by number, plain scalars and messages
# always, pointers when set, maps sorted. The output is written backwards (see wire.pxi).

cdef object _slow_parse_duration = None
cdef object _slow_format_duration = None


def install_durations(parse_duration, format_duration):
    """Registers the conversions of durations to and from nanoseconds."""
    global _slow_parse_duration, _slow_format_duration
    _slow_parse_duration, _slow_format_duration = parse_duration, format_duration


cdef int back_str(Back* b, object s) except -1:
    cdef Py_ssize_t n
    cdef const char* p = kas_ascii(<PyObject*>s, &n)
    cdef bytes fixed
    if p != NULL:
        back_put(b, p, n)
        return back_varint(b, n)
    try:
        p = PyUnicode_AsUTF8AndSize(s, &n)
    except UnicodeEncodeError:
        fixed = (<str>s).encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
        back_put(b, PyBytes_AS_STRING(fixed), PyBytes_GET_SIZE(fixed))
        return back_varint(b, PyBytes_GET_SIZE(fixed))
    back_put(b, p, n)
    return back_varint(b, n)


cdef int back_raw_json(Back* b, object v) except -1:
    """Writes field 1 of RawExtension and similar types; nothing for null."""
    cdef Buf text
    if v is None:
        return 0
    buf_init(&text, 256)
    try:
        put_value(&text, v, AS_IT_IS, 0)
        back_put(b, text.p, text.n)
        back_varint(b, text.n)
    finally:
        free(text.p)
    return back_byte(b, 0x0A)


cdef int back_message(Back* b, TypeDesc owner, Field f, object v, int depth) except -1:
    """Writes the body of a message element without length and tag."""
    cdef Py_ssize_t n, mark, i
    cdef const char* s
    cdef Field schema
    cdef int kind = f.kind
    if kind == K_STRUCT:
        if v is None:
            v = {}
        if isinstance(v, dict):
            return back_struct(b, f.target, <dict>v, depth)
    elif kind == K_QUANTITY:
        if v is None:
            v = "0"
        if isinstance(v, (int, float)):
            v = canonical_quantity(v)
        if isinstance(v, str):
            back_str(b, v)
            return back_byte(b, 0x0A)
    elif kind == K_TIME or kind == K_MICROTIME:
        if v is None:
            return 0
        if isinstance(v, str):
            s = PyUnicode_AsUTF8AndSize(v, &n)
            return back_time(b, s, n, kind == K_MICROTIME)
    elif kind == K_INTSTR:
        if v is None:
            v = 0
        if isinstance(v, str):
            back_str(b, v)
            return back_put(b, b"\x08\x01\x10\x00\x1a", 5)
        if isinstance(v, int):
            back_put(b, b"\x1a\x00", 2)
            back_varint(b, <uint64_t><int64_t>v)
            return back_put(b, b"\x08\x00\x10", 3)
    elif kind == K_DURATION:
        if v is None:
            v = "0s"
        if isinstance(v, str):
            back_varint(b, <uint64_t><int64_t>_slow_parse_duration(v))
            return back_byte(b, 0x08)
    elif kind == K_RAW:
        return back_raw_json(b, v)
    elif kind == K_UNKNOWN:
        back_put(b, b"application/json", 16)
        back_put(b, b"\x1a\x00\x22\x10", 4)
        mark = b.cap - b.at
        back_raw_json(b, v)
        if b.cap - b.at > mark:
            b.p[b.at] = 0x12
        return back_put(b, b"\x0a\x04\x0a\x00\x12\x00", 6)
    elif kind == K_STRLIST:
        if v is None:
            return 0
        if isinstance(v, list):
            for i in range(PyList_GET_SIZE(v) - 1, -1, -1):
                back_str(b, (<list>v)[i])
                back_byte(b, 0x0A)
            return 0
    else:
        if not f.target.compiled:
            f.target._compile()
        schema = f.target.pb_by_number[2] if kind == K_SCHEMA_BOOL else f.target.pb_by_number[1]
        if v is None:
            return back_put(b, b"\x08\x00", 2) if kind == K_SCHEMA_BOOL else 0
        if isinstance(v, dict):
            mark = b.cap - b.at
            back_struct(b, schema.target, <dict>v, depth + 1)
            back_close(b, mark)
            back_tag(b, schema)
            return back_put(b, b"\x08\x01", 2) if kind == K_SCHEMA_BOOL else 0
        if kind == K_SCHEMA_BOOL and (v is True or v is False):
            return back_put(b, b"\x08\x01" if v else b"\x08\x00", 2)
        if isinstance(v, list) and kind != K_SCHEMA_BOOL:
            for i in range(PyList_GET_SIZE(v) - 1, -1, -1):
                mark = b.cap - b.at
                if kind == K_SCHEMA_STRINGS:
                    back_str(b, (<list>v)[i])
                else:
                    back_message(b, f.target, schema, (<list>v)[i], depth + 1)
                    back_close(b, mark)
                back_byte(b, 0x12)
            return 0
    raise bad_value(owner, f, v)


cdef int back_scalar(Back* b, TypeDesc owner, Field f, object v) except -1:
    """Writes a string, number, bool or bytes value with its length, without its tag."""
    cdef int kind = f.kind
    cdef Py_ssize_t n, mark
    cdef const char* s
    cdef double d
    if kind == K_STRING:
        if v is None:
            return back_byte(b, 0)
        if isinstance(v, str):
            return back_str(b, v)
    elif kind == K_BOOL:
        return back_byte(b, 1 if v else 0)
    elif kind == K_INT32 or kind == K_INT64:
        if v is None:
            return back_byte(b, 0)
        if isinstance(v, int) and -9223372036854775808 <= v <= 9223372036854775807:
            return back_varint(b, <uint64_t><int64_t>v)
    elif kind == K_BYTES:
        if isinstance(v, str):
            s = PyUnicode_AsUTF8AndSize(v, &n)
            mark = b.cap - b.at
            back_base64(b, s, n)
            return back_close(b, mark)
    elif isinstance(v, (int, float)):
        d = v
        return back_put(b, <const char*>&d, 8)
    elif v is None:
        d = 0
        return back_put(b, <const char*>&d, 8)
    raise bad_value(owner, f, v)


cdef int back_map(Back* b, TypeDesc owner, Field f, dict v, int depth) except -1:
    cdef list keys = sort_in_turns(list(v))
    cdef Py_ssize_t i, entry, mark
    cdef object key, value
    for i in range(PyList_GET_SIZE(keys) - 1, -1, -1):
        key = keys[i]
        value = v[key]
        yield_gil(1)
        entry = b.cap - b.at
        if f.kind > K_BYTES:
            mark = b.cap - b.at
            back_message(b, owner, f, value, depth + 1)
            back_close(b, mark)
            back_byte(b, 0x12)
        elif not (value is None and f.kind == K_BYTES):
            back_scalar(b, owner, f, value)
            back_byte(b, 0x12 if f.kind == K_STRING or f.kind == K_BYTES else 0x11 if f.kind == K_DOUBLE else 0x10)
        back_str(b, key)
        back_byte(b, 0x0A)
        back_close(b, entry)
        back_tag(b, f)
    return 0


cdef int back_struct(Back* b, TypeDesc t, dict obj, int depth) except -1:
    cdef PyObject* slots[MAX_FIELDS]
    if depth > MAX_DEPTH:
        raise EncodeError("exceeded max depth")
    if not t.compiled:
        t._compile()
    gather(t, obj, slots)
    return back_fields(b, t, slots, depth)


cdef int back_fields(Back* b, TypeDesc t, PyObject** slots, int depth) except -1:
    """Writes all fields; ``slots`` holds the values of the type's flattened fields."""
    cdef WireInfo* w
    cdef Field f
    cdef object v
    cdef Py_ssize_t j, mark
    cdef int i
    for i in range(t.n_wire - 1, -1, -1):
        w = t.wire + i
        if w.embedded:
            mark = b.cap - b.at
            back_fields(b, (<Field>w.field).target, slots + w.place, depth)
            back_close(b, mark)
            back_put(b, w.tag, w.tag_n)
            continue
        if slots[w.place] == NULL and w.optional:
            continue
        f = <Field>w.field
        v = None if slots[w.place] == NULL else <object>slots[w.place]
        if w.card == C_SINGLE:
            if w.kind <= K_BYTES:
                back_scalar(b, t, f, v)
            else:
                mark = b.cap - b.at
                back_message(b, t, f, v, depth + 1)
                back_close(b, mark)
            back_put(b, w.tag, w.tag_n)
        elif w.card == C_LIST:
            if not isinstance(v, list):
                raise bad_value(t, f, v)
            for j in range(PyList_GET_SIZE(v) - 1, -1, -1):
                yield_gil(1)
                if f.kind <= K_BYTES:
                    back_scalar(b, t, f, (<list>v)[j])
                else:
                    mark = b.cap - b.at
                    back_message(b, t, f, (<list>v)[j], depth + 1)
                    back_close(b, mark)
                back_tag(b, f)
        else:
            if not isinstance(v, dict):
                raise bad_value(t, f, v)
            back_map(b, t, f, <dict>v, depth)
    return 0


def encode_protobuf(TypeDesc type not None, dict obj not None, *, str api_version=None, str kind=None):
    """Encodes a typed object as a protobuf message; with ``api_version`` and ``kind`` in the k8s envelope. Raises EncodeError."""
    cdef Back b
    cdef Py_ssize_t mark
    back_init(&b, 2048)
    try:
        if kind is not None:
            back_put(&b, b"\x1a\x00\x22\x00", 4)
        mark = b.cap - b.at
        back_struct(&b, type, obj, 0)
        if kind is not None:
            back_envelope(&b, (api_version or "").encode(), kind.encode(), mark)
        return back_finish(&b)
    finally:
        free(b.p)


def protobuf_list(bytes list_meta not None, items not None, *, str api_version=None, str kind=None):
    """Builds a list message from encoded parts: ``list_meta`` is the ListMeta message (field 1), each item a message (field 2).

    With ``api_version`` and ``kind`` in the k8s envelope. Each item is copied once, so that stored bytes can be served as a list.
    """
    cdef Py_ssize_t total = 0, size
    cdef bytes item
    cdef Buf b
    cdef list parts = list(items)
    for item in parts:
        size = PyBytes_GET_SIZE(item)
        total += size + 1 + varint_size(size)
    total += PyBytes_GET_SIZE(list_meta) + 1 + varint_size(PyBytes_GET_SIZE(list_meta))
    buf_init(&b, total + 128)
    try:
        if kind is not None:
            put_bytes(&b, envelope_head(api_version or "", kind, total))
        put_c(&b, 0x0A)
        put_varint(&b, PyBytes_GET_SIZE(list_meta))
        put_bytes(&b, list_meta)
        for item in parts:
            put_c(&b, 0x12)
            put_varint(&b, PyBytes_GET_SIZE(item))
            put_bytes(&b, item)
        if kind is not None:
            put(&b, b"\x1a\x00\x22\x00", 4)
    except:
        free(b.p)
        raise
    return finish(&b)


def envelope_head(str api_version not None, str kind not None, Py_ssize_t size):
    """The part of the envelope before an object of ``size`` bytes; ``ENVELOPE_TAIL`` follows the object. For streamed lists."""
    version, name = api_version.encode(), kind.encode()
    meta = b"\x0a" + varint(len(version)) + version + b"\x12" + varint(len(name)) + name
    return b"k8s\x00\x0a" + varint(len(meta)) + meta + b"\x12" + varint(size)


ENVELOPE_TAIL = b"\x1a\x00\x22\x00"


cdef inline Py_ssize_t varint_size(uint64_t v) noexcept:
    cdef Py_ssize_t n = 1
    while v > 127:
        v >>= 7
        n += 1
    return n


cdef int put_varint(Buf* b, uint64_t v) except -1:
    while v > 127:
        put_c(b, <char>((v & 127) | 128))
        v >>= 7
    return put_c(b, <char>v)
