# Decodes protobuf to the typed form. The bytes are untrusted: every read checks against ``end`` before it advances, lengths are compared as
# unsigned 64-bit numbers, and recursion stops at MAX_DEPTH.

cdef int wire_varint(Wire* w, uint64_t* out) except -1:
    cdef uint64_t v = 0
    cdef int shift = 0
    cdef unsigned char c
    while True:
        if shift >= 64:
            raise DecodeError("proto: integer overflow")
        if w.p >= w.end:
            raise DecodeError("unexpected EOF")
        c = w.p[0]
        w.p += 1
        v |= (<uint64_t>(c & 127)) << shift
        if c < 128:
            out[0] = v
            return 0
        shift += 7


cdef int wire_bytes(Wire* w, Wire* sub) except -1:
    """Reads a length and sets ``sub`` to that many bytes."""
    cdef uint64_t n
    wire_varint(w, &n)
    if n > 0x7FFFFFFFFFFFFFFF:
        raise DecodeError("proto: negative length found during unmarshaling")
    if n > <uint64_t>(w.end - w.p):
        raise DecodeError("unexpected EOF")
    sub.p = w.p
    sub.end = w.p + n
    w.p += n
    return 0


cdef int wire_skip(Wire* w, int wire, int depth) except -1:
    cdef uint64_t v
    cdef Wire sub
    if wire == 0:
        return wire_varint(w, &v)
    if wire == 2:
        return wire_bytes(w, &sub)
    if wire == 1 or wire == 5:
        if w.end - w.p < (8 if wire == 1 else 4):
            raise DecodeError("unexpected EOF")
        w.p += 8 if wire == 1 else 4
        return 0
    if wire == 3:
        if depth > 100:
            raise DecodeError("exceeded max depth")
        while True:
            wire_varint(w, &v)
            if v & 7 == 4:
                return 0
            wire_skip(w, <int>(v & 7), depth + 1)
    raise DecodeError("proto: unexpected end of group" if wire == 4 else f"proto: illegal wireType {wire}")


cdef object wire_str(Wire* w):
    cdef Wire s
    wire_bytes(w, &s)
    try:
        return PyUnicode_DecodeUTF8(<const char*>s.p, s.end - s.p, NULL)
    except UnicodeDecodeError:
        # Go keeps the bytes and prints one U+FFFD for each byte that is not UTF-8.
        text = (<bytes>s.p[:s.end - s.p]).decode("utf-8", "surrogateescape")
        return "".join(["�" if "\udc80" <= c <= "\udcff" else c for c in text])


cdef object wire_base64(Wire* w):
    cdef Wire s
    wire_bytes(w, &s)
    return base64.b64encode(PyBytes_FromStringAndSize(<const char*>s.p, s.end - s.p)).decode()


cdef object wire_scalar(Wire* w, Field f):
    cdef uint64_t v
    cdef double d
    if f.kind == K_STRING:
        return wire_str(w)
    if f.kind == K_BYTES:
        return wire_base64(w)
    if f.kind == K_DOUBLE:
        if w.end - w.p < 8:
            raise DecodeError("unexpected EOF")
        memcpy(&d, w.p, 8)
        w.p += 8
        if d != d or d - d != 0:
            raise DecodeError("json: unsupported value: not a finite number")
        return int(d) if d == <double><int64_t>d and -1e18 < d < 1e18 else d
    wire_varint(w, &v)
    if f.kind == K_BOOL:
        return v != 0
    if f.kind == K_INT32:
        return <int32_t><uint32_t>v
    return <int64_t>v


cdef int field_wire(Field f) noexcept:
    if f.c_card == C_MAP:
        return 2
    if f.kind == K_DOUBLE:
        return 1
    return 0 if f.kind == K_INT32 or f.kind == K_INT64 or f.kind == K_BOOL else 2


cdef inline bint is_tag(uint64_t v) noexcept:
    """Whether a tag is valid for a field of a message. Go uses 32 bits of the number, as a signed integer."""
    return v & 7 != 4 and <int32_t><uint32_t>(v >> 3) > 0


cdef int check_tag(uint64_t v, str message) except -1:
    """Raises DecodeError for a tag that is not valid for a field of a message."""
    if is_tag(v):
        return 0
    if v & 7 == 4:
        raise DecodeError(f"proto: {message}: wiretype end group for non-group")
    raise DecodeError(f"proto: {message}: illegal tag {<int32_t><uint32_t>(v >> 3)} (wire type {v})")


cdef object wrong_wire(int wire, object name):
    return DecodeError(f"proto: wrong wireType = {wire} for field {name}")


cdef object wire_time(Wire* w, bint micro):
    cdef uint64_t v, seconds = 0, nanos = 0
    cdef int64_t unix
    cdef int32_t part
    if w.p == w.end:
        return None
    while w.p < w.end:
        wire_varint(w, &v)
        if v == 0x08:
            wire_varint(w, &seconds)
        elif v == 0x10:
            wire_varint(w, &nanos)
        elif v >> 3 in (1, 2):
            raise wrong_wire(<int>(v & 7), "Seconds" if v >> 3 == 1 else "Nanos")
        else:
            wire_skip(w, <int>(v & 7), 0)
    unix = <int64_t>seconds
    part = <int32_t><uint32_t>nanos
    if not -62167219200 <= unix <= 253402300799 or not 0 <= part < 1000000000:
        raise DecodeError("time is out of range")
    if unix == -62135596800 and (not micro or part < 1000):
        return None
    return time_text(unix, part // 1000 if micro else -1)


cdef object wire_first_bytes(Wire* w, Wire* out, str name):
    """Finds the last occurrence of the length-delimited field 1 in a message; returns whether there is one."""
    cdef uint64_t v
    found = False
    while w.p < w.end:
        wire_varint(w, &v)
        if v == 0x0A:
            wire_bytes(w, out)
            found = True
        elif v >> 3 == 1:
            raise wrong_wire(<int>(v & 7), name)
        else:
            wire_skip(w, <int>(v & 7), 0)
    return found


cdef object _loads = None


cdef object _first_value(bytes text):
    """The value of FieldsV1 that is not a JSON text: upstream reads only the first JSON value. What does not begin with one is no field
    set; the consumer of the value reports that.
    """
    from json import JSONDecoder
    shown = text.decode("utf-8", "replace").lstrip(" \t\r\n")
    try:
        return JSONDecoder().raw_decode(shown)[0]
    except (ValueError, RecursionError):
        return shown


cdef object wire_raw_json(Wire* w, Field f):
    cdef Wire raw
    global _loads
    if not wire_first_bytes(w, &raw, "Raw"):
        return None
    if raw.p == raw.end:
        return None
    if _loads is None:
        from orjson import loads
        _loads = loads
    text = PyBytes_FromStringAndSize(<const char*>raw.p, raw.end - raw.p)
    try:
        return _loads(text)
    except ValueError as e:
        if f.name == "fieldsV1":
            return _first_value(text)
        raise DecodeError(f"json: error calling MarshalJSON for type *runtime.RawExtension: {e}") from None


cdef object wire_int_or_string(Wire* w):
    cdef uint64_t v, kind = 0, number = 0
    text = ""
    while w.p < w.end:
        wire_varint(w, &v)
        if v == 0x08:
            wire_varint(w, &kind)
        elif v == 0x10:
            wire_varint(w, &number)
        elif v == 0x1A:
            text = wire_str(w)
        elif 1 <= v >> 3 <= 3:
            raise wrong_wire(<int>(v & 7), "IntOrString")
        else:
            wire_skip(w, <int>(v & 7), 0)
    if kind > 1:
        raise DecodeError("impossible IntOrString.Type")
    return text if kind == 1 else <int32_t><uint32_t>number


cdef object wire_unknown(Wire* w):
    cdef uint64_t v
    cdef Wire raw
    cdef bint found = False
    global _loads
    while w.p < w.end:
        wire_varint(w, &v)
        if v == 0x12:
            wire_bytes(w, &raw)
            found = True
        else:
            wire_skip(w, <int>(v & 7), 0)
    if not found or raw.p == raw.end:
        return None
    if _loads is None:
        from orjson import loads
        _loads = loads
    try:
        return _loads(PyBytes_FromStringAndSize(<const char*>raw.p, raw.end - raw.p))
    except ValueError as e:
        raise DecodeError(f"json: error calling MarshalJSON for type *runtime.Unknown: {e}") from None


cdef object wire_schema_union(Wire* w, Field f, int depth):
    cdef uint64_t v
    cdef Wire sub
    cdef int number, wire
    cdef Field schema
    if not f.target.compiled:
        f.target._compile()
    schema = f.target.pb_by_number[2] if f.kind == K_SCHEMA_BOOL else f.target.pb_by_number[1]
    result, allows, items = None, 0, []
    while w.p < w.end:
        wire_varint(w, &v)
        number, wire = <int>(v >> 3), <int>(v & 7)
        if f.kind == K_SCHEMA_BOOL and number == 1:
            if wire != 0:
                raise wrong_wire(wire, "Allows")
            wire_varint(w, &v)
            allows = v != 0
        elif number == 1 or number == 2:
            if wire != 2:
                raise wrong_wire(wire, "Schema")
            wire_bytes(w, &sub)
            if number == 2 and f.kind == K_SCHEMA_STRINGS:
                items.append(PyUnicode_DecodeUTF8(<const char*>sub.p, sub.end - sub.p, "replace"))
            elif number == 2 and f.kind == K_SCHEMA_ARRAY:
                items.append(wire_struct(&sub, schema.target, {}, depth + 1))
            else:
                result = wire_struct(&sub, schema.target, {}, depth + 1)
        else:
            wire_skip(w, wire, 0)
    if f.kind == K_SCHEMA_BOOL:
        return result if result is not None else bool(allows)
    return items if items else result


cdef object wire_message(Wire* w, Field f, object old, int depth):
    """Decodes the body of one message element. ``old`` is the result of an earlier occurrence, into which structs are merged."""
    cdef Wire s
    cdef uint64_t v
    cdef list strings
    if f.kind == K_STRUCT:
        return wire_struct(w, f.target, <dict>old if isinstance(old, dict) else {}, depth)
    if f.kind == K_QUANTITY:
        if not wire_first_bytes(w, &s, "String"):
            return "0"
        return canonical_quantity(PyUnicode_DecodeUTF8(<const char*>s.p, s.end - s.p, "replace"))
    if f.kind == K_TIME or f.kind == K_MICROTIME:
        return wire_time(w, f.kind == K_MICROTIME)
    if f.kind == K_INTSTR:
        return wire_int_or_string(w)
    if f.kind == K_RAW:
        return wire_raw_json(w, f)
    if f.kind == K_UNKNOWN:
        return wire_unknown(w)
    if f.kind == K_DURATION:
        number = 0
        while w.p < w.end:
            wire_varint(w, &v)
            if v == 0x08:
                wire_varint(w, &v)
                number = <int64_t>v
            elif v >> 3 == 1:
                raise wrong_wire(<int>(v & 7), "Duration")
            else:
                wire_skip(w, <int>(v & 7), 0)
        return _slow_format_duration(number)
    if f.kind == K_STRLIST:
        strings = []
        while w.p < w.end:
            wire_varint(w, &v)
            if v == 0x0A:
                strings.append(wire_str(w))
            elif v >> 3 == 1:
                raise wrong_wire(<int>(v & 7), "Items")
            else:
                wire_skip(w, <int>(v & 7), 0)
        return strings or None
    return wire_schema_union(w, f, depth)


cdef int wire_map_entry(Wire* w, Field f, dict out, int depth) except -1:
    cdef uint64_t v
    cdef Wire sub
    cdef int wire = 2 if f.kind >= K_BYTES or f.kind == K_STRING else 1 if f.kind == K_DOUBLE else 0
    key, value, got = "", None, False
    while w.p < w.end:
        wire_varint(w, &v)
        if v == 0x0A:
            key = wire_str(w)
        elif v == <uint64_t>(0x10 | wire):
            got = True
            if f.kind > K_BYTES:
                wire_bytes(w, &sub)
                value = wire_message(&sub, f, None, depth + 1)
            else:
                value = wire_scalar(w, f)
        elif v >> 3 == 1 or v >> 3 == 2:
            raise wrong_wire(<int>(v & 7), f.name)
        else:
            wire_skip(w, <int>(v & 7), 0)
    if not got:
        value = "" if f.kind == K_BYTES else zero_value(f)
    elif value is None and f.kind == K_STRLIST:
        value = []  # a present but empty message is an empty list
    out[key] = value
    return 0


# An empty message takes two bytes, but a dict in memory. The GIL is held while a message is decoded.
cdef enum:
    MOST_MESSAGES = 200_000

cdef int messages_left = 0
cdef bint fields_left_out = False


cdef dict wire_struct(Wire* w, TypeDesc t, dict out, int depth):
    global messages_left
    cdef int i
    messages_left -= 1
    if messages_left < 0:
        raise DecodeError("exceeded max number of messages")
    wire_fields(w, t, out, depth)
    for i in range(t.n_flat):
        if t.infos[i].fill and PyDict_GetItem(out, <object>t.infos[i].name) == NULL:
            PyDict_SetItem(out, <object>t.infos[i].name, zero_value(<Field>t.infos[i].field))
    return out


cdef int wire_fields(Wire* w, TypeDesc t, dict out, int depth) except -1:
    global fields_left_out
    cdef uint64_t v, number
    cdef int wire
    cdef PyObject* found
    cdef Field f
    cdef Wire sub
    cdef object value
    cdef list items
    cdef dict entries
    if depth > MAX_DEPTH:
        raise DecodeError("exceeded max depth")
    if not t.compiled:
        t._compile()
    while w.p < w.end:
        wire_varint(w, &v)
        if not is_tag(v):
            check_tag(v, t.kind_name)
        number, wire = <uint32_t>(v >> 3), <int>(v & 7)
        f = None
        if number < <uint64_t>PyList_GET_SIZE(t.by_number):
            f = t.by_number[<Py_ssize_t>number]
        if f is None:
            wire_skip(w, wire, 0)
            fields_left_out = True
            continue
        if wire != field_wire(f):
            raise wrong_wire(wire, f.pb_name)
        if f.name is None:
            wire_bytes(w, &sub)
            wire_fields(&sub, f.target, out, depth + 1)
        elif f.c_card == C_SINGLE:
            if f.kind <= K_BYTES:
                value = wire_scalar(w, f)
                if f.omitempty and not f.ptr and not value:
                    value = None
            else:
                wire_bytes(w, &sub)
                found = PyDict_GetItem(out, f.name) if f.kind == K_STRUCT else NULL
                value = wire_message(&sub, f, None if found == NULL else <object>found, depth + 1)
                if f.kind == K_STRLIST and f.omitempty and not value:
                    value = None
            # The last occurrence counts, even when it is a zero that would not be written.
            if value is not None:
                PyDict_SetItem(out, f.name, value)
            elif f.name in out:
                del out[f.name]
        elif f.c_card == C_LIST:
            found = PyDict_GetItem(out, f.name)
            if found == NULL:
                items = []
                PyDict_SetItem(out, f.name, items)
            else:
                items = <list>found
            if f.kind <= K_BYTES:
                items.append(wire_scalar(w, f))
            else:
                wire_bytes(w, &sub)
                items.append(wire_message(&sub, f, None, depth + 1))
        else:
            found = PyDict_GetItem(out, f.name)
            if found == NULL:
                entries = {}
                PyDict_SetItem(out, f.name, entries)
            else:
                entries = <dict>found
            wire_bytes(w, &sub)
            wire_map_entry(&sub, f, entries, depth + 1)
    return 0


def decode_protobuf(TypeDesc type not None, bytes data not None):
    """Decodes a protobuf message (without envelope) to the typed form, as decode() returns it; the caller adds kind and apiVersion.

    Unknown fields are skipped, as in upstream's generated code. Raises DecodeError for malformed input. Memory is proportional to the
    input.
    """
    global messages_left
    cdef Wire w
    type.ready()
    w.p = <const unsigned char*>PyBytes_AS_STRING(data)
    w.end = w.p + PyBytes_GET_SIZE(data)
    messages_left = MOST_MESSAGES
    return wire_struct(&w, type, {}, 0)


def decode_protobuf_whole(TypeDesc type not None, bytes data not None):
    """Returns (``decode_protobuf``, complete); complete is False when messages had fields that their types do not know."""
    global fields_left_out
    fields_left_out = False
    obj = decode_protobuf(type, data)
    return obj, not fields_left_out


def open_envelope(bytes data not None):
    """Parses a k8s envelope to ``(api_version, kind, raw, content_type)``. Raises DecodeError when it is not one."""
    cdef Wire w, sub, field
    cdef uint64_t v
    cdef bytes raw = b""
    api_version = kind = encoding = content_type = ""
    if not data:
        raise DecodeError("empty data")
    if data == b"k8s\x00":
        raise DecodeError("empty body")
    if not data.startswith(b"k8s\x00"):
        raise DecodeError("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    w.p = <const unsigned char*>PyBytes_AS_STRING(data) + 4
    w.end = w.p + PyBytes_GET_SIZE(data) - 4
    while w.p < w.end:
        wire_varint(&w, &v)
        check_tag(v, "Unknown")
        if v == 0x0A:
            wire_bytes(&w, &sub)
            while sub.p < sub.end:
                wire_varint(&sub, &v)
                check_tag(v, "TypeMeta")
                if v == 0x0A:
                    api_version = wire_str(&sub)
                elif v == 0x12:
                    kind = wire_str(&sub)
                elif v >> 3 == 1 or v >> 3 == 2:
                    raise wrong_wire(<int>(v & 7), "APIVersion" if v >> 3 == 1 else "Kind")
                else:
                    wire_skip(&sub, <int>(v & 7), 0)
        elif v == 0x12:
            wire_bytes(&w, &field)
            raw = PyBytes_FromStringAndSize(<const char*>field.p, field.end - field.p)
        elif v == 0x1A:
            encoding = wire_str(&w)
        elif v == 0x22:
            content_type = wire_str(&w)
        elif 1 <= v >> 3 <= 4:
            raise wrong_wire(<int>(v & 7), ("TypeMeta", "Raw", "ContentEncoding", "ContentType")[(v >> 3) - 1])
        else:
            wire_skip(&w, <int>(v & 7), 0)
    if encoding:
        raise DecodeError(f"unsupported content encoding {go_quote(encoding)}")
    return api_version, kind, raw, content_type
