# Converts the canonical JSON of a stored object to protobuf without building Python objects. One pass cuts the text into tokens (see
# tape.pxi), unless its writer has recorded them. Then each object notes the positions of its fields' values and writes them backwards in
# the order of the field numbers. Benchmark: bench/test_types.py::test_transcode.
#
# The text is kas' own output, but memory safety does not rely on that: tokens never point outside the text, and slots are indices into
# growing arrays.

cdef inline Py_ssize_t scan_string(const char* s, Py_ssize_t i, Py_ssize_t n, char* escaped) noexcept:
    """``i`` is after the opening quote; returns the offset of the closing quote, or -1."""
    cdef Py_ssize_t near = i + 24 if n - i > 24 else n
    escaped[0] = 0
    while i < near:
        if s[i] == 34:
            return i
        if s[i] == 92:
            escaped[0] = 1
            i += 1
        i += 1
    return -1 if i >= n else scan_long(s, i, n, escaped)


cdef Py_ssize_t scan_long(const char* s, Py_ssize_t i, Py_ssize_t n, char* escaped) noexcept:
    # Each byte is read at most twice: the quote found stays the candidate until an escape occurs before it.
    cdef const char* quote = NULL
    cdef const char* slash
    while i < n:
        if quote == NULL or quote < s + i:
            quote = <const char*>memchr(s + i, 34, n - i)
            if quote == NULL:
                return -1
        slash = <const char*>memchr(s + i, 92, quote - s - i)
        if slash == NULL:
            return quote - s
        escaped[0] = 1
        i = slash - s + 2
    return -1


cdef int tape_build(Tape* tape) except -1:
    cdef const char* s = tape.s
    cdef Py_ssize_t i = 0, n = tape.size, stop
    cdef int32_t stack[1024]
    cdef int depth = 0
    cdef Token* t
    cdef char c, escaped
    while i < n:
        c = s[i]
        if c == 44 or c == 58 or c == 32 or c == 10 or c == 13 or c == 9:
            i += 1
            continue
        if c == 125 or c == 93:
            if depth == 0:
                raise DecodeError("invalid JSON: unbalanced brackets")
            depth -= 1
            t = tape.t + stack[depth]
            if t.type != (123 if c == 125 else 91):
                raise DecodeError("invalid JSON: unbalanced brackets")
            t.next = <int32_t>tape.n
            i += 1
            t.stop = <int32_t>i
            continue
        if tape.n == tape.cap:
            tape_grow(tape)
        t = tape.t + tape.n
        t.type = c
        t.escaped = 0
        t.place = -1
        if c == 34:
            stop = scan_string(s, i + 1, n, &escaped)
            if stop < 0:
                raise DecodeError("unexpected end of JSON input")
            t.escaped = escaped
            t.start = <int32_t>(i + 1)
            t.stop = <int32_t>stop
            i = stop + 1
        elif c == 123 or c == 91:
            if depth == 1024:
                raise DecodeError("exceeded max depth")
            stack[depth] = <int32_t>tape.n
            depth += 1
            t.start = <int32_t>i
            i += 1
        else:
            t.start = <int32_t>i
            while i < n and s[i] != 44 and s[i] != 125 and s[i] != 93 and s[i] > 32:
                i += 1
            if i == t.start:
                raise DecodeError("invalid JSON")
            t.stop = <int32_t>i
            if not (c == 116 or c == 102 or c == 110):
                t.type = 48
        tape.n += 1
        t.next = <int32_t>tape.n
    if depth or tape.n == 0:
        raise DecodeError("unexpected end of JSON input")
    return 0


cdef int hex_digit(char c) noexcept:
    if 48 <= c <= 57:
        return c - 48
    if 97 <= c <= 102:
        return c - 87
    if 65 <= c <= 70:
        return c - 55
    return -1


cdef int hex4(const char* s) except -1:
    cdef int i, d, v = 0
    for i in range(4):
        d = hex_digit(s[i])
        if d < 0:
            raise DecodeError("invalid character in \\u hexadecimal character escape")
        v = v * 16 + d
    return v


cdef Py_ssize_t unescape(const char* s, Py_ssize_t n, char* out) except -1:
    """Unescapes JSON string content to UTF-8. ``out`` has room for ``n`` bytes; no escape is shorter than its character."""
    cdef Py_ssize_t i = 0, o = 0
    cdef uint32_t r, low
    cdef char c
    while i < n:
        c = s[i]
        if c != 92:
            out[o] = c
            o += 1
            i += 1
            continue
        if i + 1 >= n:
            raise DecodeError("unexpected end of JSON input")
        c = s[i + 1]
        i += 2
        if c != 117:
            if c == 110:
                c = 10
            elif c == 116:
                c = 9
            elif c == 114:
                c = 13
            elif c == 98:
                c = 8
            elif c == 102:
                c = 12
            elif c != 34 and c != 92 and c != 47:
                raise DecodeError("invalid character in string escape code")
            out[o] = c
            o += 1
            continue
        if i + 4 > n:
            raise DecodeError("unexpected end of JSON input")
        r = hex4(s + i)
        i += 4
        if 0xD800 <= r < 0xE000:
            low = 0
            if r < 0xDC00 and i + 6 <= n and s[i] == 92 and s[i + 1] == 117:
                low = hex4(s + i + 2)
            if 0xDC00 <= low < 0xE000:
                r = 0x10000 + ((r - 0xD800) << 10) + (low - 0xDC00)
                i += 6
            else:
                r = 0xFFFD
        if r < 0x80:
            out[o] = <char>r
            o += 1
        elif r < 0x800:
            out[o] = <char>(0xC0 | (r >> 6))
            out[o + 1] = <char>(0x80 | (r & 63))
            o += 2
        elif r < 0x10000:
            out[o] = <char>(0xE0 | (r >> 12))
            out[o + 1] = <char>(0x80 | ((r >> 6) & 63))
            out[o + 2] = <char>(0x80 | (r & 63))
            o += 3
        else:
            out[o] = <char>(0xF0 | (r >> 18))
            out[o + 1] = <char>(0x80 | ((r >> 12) & 63))
            out[o + 2] = <char>(0x80 | ((r >> 6) & 63))
            out[o + 3] = <char>(0x80 | (r & 63))
            o += 4
    return o


cdef int tape_string(Back* b, Tape* tape, Token* t) except -1:
    """Writes a string token with its length prefix."""
    cdef Py_ssize_t n = t.stop - t.start, m
    cdef char* scratch
    if t.type != 34:
        raise DecodeError("a string was expected")
    if not t.escaped:
        back_put(b, tape.s + t.start, n)
        return back_varint(b, <uint64_t>n)
    scratch = <char*>malloc(n + 4)
    if scratch == NULL:
        raise MemoryError
    try:
        m = unescape(tape.s + t.start, n, scratch)
        back_put(b, scratch, m)
        back_varint(b, <uint64_t>m)
    finally:
        free(scratch)
    return 0


cdef int tape_int(Tape* tape, Token* t, int64_t* out) except -1:
    cdef Py_ssize_t i = t.start
    cdef bint negative = False
    cdef uint64_t v = 0
    if t.type == 48 and tape.s[i] == 45:
        negative = True
        i += 1
    if t.type != 48 or i == t.stop or t.stop - i > 19:
        raise DecodeError("an integer was expected")
    while i < t.stop:
        if tape.s[i] < 48 or tape.s[i] > 57:
            raise DecodeError("an integer was expected")
        v = v * 10 + <uint64_t>(tape.s[i] - 48)
        i += 1
    if v > <uint64_t>0x7FFFFFFFFFFFFFFF + negative:
        raise DecodeError("an integer is out of range")
    out[0] = <int64_t>(<uint64_t>0 - v) if negative else <int64_t>v
    return 0


cdef int tape_scalar(Back* b, Tape* tape, Field f, Token* t) except -1:
    cdef int64_t v
    cdef double d
    cdef Py_ssize_t mark
    if f.kind == K_STRING:
        return tape_string(b, tape, t)
    if f.kind == K_BOOL:
        if t.type != 116 and t.type != 102:
            raise DecodeError("a bool was expected")
        return back_byte(b, 1 if t.type == 116 else 0)
    if f.kind == K_BYTES:
        if t.type != 34 or t.escaped:
            raise DecodeError("base64 was expected")
        mark = b.cap - b.at
        back_base64(b, tape.s + t.start, t.stop - t.start)
        return back_close(b, mark)
    if f.kind == K_DOUBLE:
        if t.type != 48:
            raise DecodeError("a number was expected")
        try:
            d = float(tape.s[t.start:t.stop])
        except ValueError:
            raise DecodeError("a number was expected") from None
        return back_put(b, <const char*>&d, 8)
    tape_int(tape, t, &v)
    return back_varint(b, <uint64_t>v)


cdef int tape_zero(Back* b, Field f) except -1:
    """Writes the zero value of a plain scalar, like tape_scalar."""
    cdef double d = 0
    if f.kind == K_DOUBLE:
        return back_put(b, <const char*>&d, 8)
    return back_byte(b, 0)


cdef int tape_message(Back* b, Tape* tape, Field f, int32_t at, int depth) except -1:
    """Writes the body of a message element; ``at`` is its token, -1 when absent or null."""
    cdef Token* t = tape.t + at
    cdef int64_t v
    cdef Py_ssize_t mark
    cdef Field schema
    cdef int kind = f.kind
    if at >= 0 and t.type == 110:
        at = -1
    if kind == K_STRUCT:
        return tape_struct(b, tape, f.target, at, depth)
    if kind == K_QUANTITY:
        if at < 0:
            return back_put(b, b"\x0a\x010", 3)
        tape_string(b, tape, t)
        return back_byte(b, 0x0A)
    if kind == K_INTSTR:
        if at >= 0 and t.type == 34:
            tape_string(b, tape, t)
            return back_put(b, b"\x08\x01\x10\x00\x1a", 5)
        v = 0
        if at >= 0:
            tape_int(tape, t, &v)
        back_put(b, b"\x1a\x00", 2)
        back_varint(b, <uint64_t>v)
        return back_put(b, b"\x08\x00\x10", 3)
    if kind == K_DURATION:
        v = 0
        if at >= 0:
            if t.type != 34:
                raise DecodeError("a duration was expected")
            v = _slow_parse_duration((<bytes>tape.s[t.start:t.stop]).decode())
        back_varint(b, <uint64_t>v)
        return back_byte(b, 0x08)
    if at < 0:
        return back_put(b, b"\x08\x00", 2) if kind == K_SCHEMA_BOOL else 0
    if kind == K_TIME or kind == K_MICROTIME:
        if t.type != 34:
            raise DecodeError("a time was expected")
        return back_time(b, tape.s + t.start, t.stop - t.start, kind == K_MICROTIME)
    if kind == K_RAW or kind == K_UNKNOWN:
        mark = b.cap - b.at
        if kind == K_UNKNOWN:
            back_put(b, b"\x1a\x00\x22\x10application/json", 20)
            mark = b.cap - b.at
        # a string token starts after its opening quote
        if t.type == 34:
            back_put(b, tape.s + t.start - 1, t.stop - t.start + 2)
        else:
            back_put(b, tape.s + t.start, t.stop - t.start)
        back_close(b, mark)
        back_byte(b, 0x12 if kind == K_UNKNOWN else 0x0A)
        if kind == K_UNKNOWN:
            back_put(b, b"\x0a\x04\x0a\x00\x12\x00", 6)
        return 0
    if kind == K_STRLIST:
        if t.type != 91:
            raise DecodeError("a list was expected")
        return tape_repeat(b, tape, f, at + 1, t.next, depth, True)
    if not f.target.compiled:
        f.target._compile()
    schema = f.target.pb_by_number[2] if kind == K_SCHEMA_BOOL else f.target.pb_by_number[1]
    if t.type == 123:
        mark = b.cap - b.at
        tape_struct(b, tape, schema.target, at, depth + 1)
        back_close(b, mark)
        back_tag(b, schema)
        return back_put(b, b"\x08\x01", 2) if kind == K_SCHEMA_BOOL else 0
    if kind == K_SCHEMA_BOOL and (t.type == 116 or t.type == 102):
        return back_put(b, b"\x08\x01" if t.type == 116 else b"\x08\x00", 2)
    if kind != K_SCHEMA_BOOL and t.type == 91:
        if kind == K_SCHEMA_STRINGS:
            return tape_repeat(b, tape, f.target.pb_by_number[2], at + 1, t.next, depth, False)
        return tape_repeat(b, tape, f.target.pb_by_number[2], at + 1, t.next, depth, False)
    raise DecodeError(f"a {f.target.kind_name} was expected")


cdef int tape_repeat(Back* b, Tape* tape, Field f, int32_t at, int32_t stop, int depth, bint strings) except -1:
    """Writes the elements of a list, last one first; ``strings`` writes them as field 1 of a list alias."""
    cdef Py_ssize_t base = tape.slots_n, i, mark, count = 0
    cdef int32_t k = at
    while k < stop:
        count += 1
        k = tape.t[k].next
    slots_reserve(tape, count)
    k = at
    for i in range(count):
        tape.slots[base + i] = k
        k = tape.t[k].next
    for i in range(count - 1, -1, -1):
        k = tape.slots[base + i]
        yield_gil(1)
        if strings:
            tape_string(b, tape, tape.t + k)
            back_byte(b, 0x0A)
            continue
        if f.kind <= K_BYTES:
            if tape.t[k].type == 110:
                tape_zero(b, f)
            else:
                tape_scalar(b, tape, f, tape.t + k)
        else:
            mark = b.cap - b.at
            tape_message(b, tape, f, k, depth + 1)
            back_close(b, mark)
        back_tag(b, f)
    tape.slots_n = base
    return 0


cdef int slots_reserve(Tape* tape, Py_ssize_t count) except -1:
    cdef Py_ssize_t cap = tape.slots_cap
    cdef int32_t* p
    if tape.slots_n + count > cap:
        while tape.slots_n + count > cap:
            cap *= 2
        p = <int32_t*>realloc(tape.slots, cap * sizeof(int32_t))
        if p == NULL:
            raise MemoryError
        tape.slots = p
        tape.slots_cap = cap
    tape.slots_n += count
    return 0


cdef int tape_map(Back* b, Tape* tape, Field f, int32_t at, int depth) except -1:
    """Writes map entries, last one first. Canonical JSON has its keys in order already."""
    cdef int32_t k = at + 1, stop = tape.t[at].next
    cdef Py_ssize_t base = tape.slots_n, i, count = 0, entry, mark
    cdef Token* v
    while k < stop:
        if tape.t[k].type != 34 or k + 1 >= stop:
            raise DecodeError("invalid JSON: a key and a value were expected")
        count += 1
        k = tape.t[k + 1].next
    slots_reserve(tape, count)
    k = at + 1
    for i in range(count):
        tape.slots[base + i] = k
        k = tape.t[k + 1].next
    for i in range(count - 1, -1, -1):
        k = tape.slots[base + i]
        yield_gil(1)
        v = tape.t + k + 1
        entry = b.cap - b.at
        if f.kind > K_BYTES:
            mark = b.cap - b.at
            tape_message(b, tape, f, k + 1, depth + 1)
            back_close(b, mark)
            back_byte(b, 0x12)
        elif v.type == 110:
            if f.kind != K_BYTES:
                tape_zero(b, f)
                back_byte(b, 0x12 if f.kind == K_STRING else 0x11 if f.kind == K_DOUBLE else 0x10)
        else:
            tape_scalar(b, tape, f, v)
            back_byte(b, 0x12 if f.kind == K_STRING or f.kind == K_BYTES else 0x11 if f.kind == K_DOUBLE else 0x10)
        tape_string(b, tape, tape.t + k)
        back_byte(b, 0x0A)
        back_close(b, entry)
        back_tag(b, f)
    tape.slots_n = base
    return 0


cdef int tape_struct(Back* b, Tape* tape, TypeDesc t, int32_t at, int depth) except -1:
    cdef Py_ssize_t base = tape.slots_n, i, n
    cdef int32_t k, stop
    cdef int place
    cdef Token* key
    if depth > MAX_DEPTH:
        raise DecodeError("exceeded max depth")
    if not t.compiled:
        t._compile()
    n = t.n_flat
    slots_reserve(tape, n)
    memset(tape.slots + base, 0xFF, n * sizeof(int32_t))
    if at >= 0:
        if tape.t[at].type != 123:
            raise DecodeError(f"an object was expected for {t.kind_name}")
        k, stop = at + 1, tape.t[at].next
        while k < stop:
            key = tape.t + k
            if key.type != 34 or k + 1 >= stop:
                raise DecodeError("invalid JSON: a key and a value were expected")
            place = key.place
            if place < 0:
                place = t.find(tape.s + key.start, key.stop - key.start)
            k += 1
            if place >= 0 and tape.t[k].type != 110:
                tape.slots[base + place] = k
            k = tape.t[k].next
    tape_fields(b, tape, t, base, depth)
    tape.slots_n = base
    return 0


cdef int tape_fields(Back* b, Tape* tape, TypeDesc t, Py_ssize_t base, int depth) except -1:
    """Writes all fields; ``base`` is the slot of the type's first flattened field."""
    cdef Py_ssize_t mark
    cdef WireInfo* w
    cdef Field f
    cdef int32_t at
    cdef int i
    for i in range(t.n_wire - 1, -1, -1):
        w = t.wire + i
        if w.embedded:
            mark = b.cap - b.at
            tape_fields(b, tape, (<Field>w.field).target, base + w.place, depth)
            back_close(b, mark)
            back_put(b, w.tag, w.tag_n)
            continue
        at = tape.slots[base + w.place]
        if at < 0 and w.optional:
            continue
        f = <Field>w.field
        if w.card == C_SINGLE:
            if w.kind == K_STRING and at >= 0:
                tape_string(b, tape, tape.t + at)
            elif w.kind <= K_BYTES:
                if at < 0:
                    tape_zero(b, f)
                else:
                    tape_scalar(b, tape, f, tape.t + at)
            else:
                mark = b.cap - b.at
                tape_message(b, tape, f, at, depth + 1)
                back_close(b, mark)
            back_put(b, w.tag, w.tag_n)
        elif w.card == C_LIST:
            if tape.t[at].type != 91:
                raise DecodeError(f"a list was expected for {f.name}")
            tape_repeat(b, tape, f, at + 1, tape.t[at].next, depth, False)
        else:
            if tape.t[at].type != 123:
                raise DecodeError(f"an object was expected for {f.name}")
            tape_map(b, tape, f, at, depth)
    return 0


def transcode_json_to_protobuf(TypeDesc type not None, bytes data not None, *, str api_version=None, str kind=None):
    """Converts the canonical JSON of an object (encode_json's output) to a protobuf message, in the envelope when ``kind`` is given.

    The result equals ``encode_protobuf(type, decode(type, loads(data))[0])``. Raises DecodeError for text that is not canonical for the
    type.
    """
    cdef Tape tape
    type.ready()
    if PyBytes_GET_SIZE(data) > 0x7FFF0000:
        raise DecodeError("the document is too large")
    tape.s = PyBytes_AS_STRING(data)
    tape.size = PyBytes_GET_SIZE(data)
    try:
        tape_init(&tape, tape.size // 10 + 64)
        tape_build(&tape)
        return tape_protobuf(&tape, type, api_version, kind)
    finally:
        tape_free(&tape)


cdef bytes tape_protobuf(Tape* tape, TypeDesc type, str api_version, str kind):
    """The protobuf message of the document on the tape."""
    cdef Back b
    cdef Py_ssize_t mark
    back_init(&b, tape.size + 256)
    try:
        if kind is not None:
            back_put(&b, b"\x1a\x00\x22\x00", 4)
        mark = b.cap - b.at
        try:
            tape_struct(&b, tape, type, 0, 0)
        except EncodeError as e:
            raise DecodeError(str(e)) from None
        if kind is not None:
            back_envelope(&b, (api_version or "").encode(), kind.encode(), mark)
        return back_finish(&b)
    finally:
        free(b.p)
