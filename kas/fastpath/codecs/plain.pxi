# Decodes JSON text directly to the typed form, for documents without anything unusual: one pass instead of parsing, duplicate detection and
# decode(). Anything that needs an error text, a warning or closer inspection (unknown and duplicate fields, values of another type, floats,
# invalid UTF-8, deep nesting) makes it give up, and the caller takes the full path. Benchmark: bench/test_types.py::test_decode_plain.
#
# The text is untrusted. Invariant: every read of at[0] is preceded by a comparison with end; a bytes object has a NUL after its last byte,
# so that the byte at end may be read as well.

cdef enum:
    PLAIN_DEPTH = 100
    INT_DIGITS = 18  # fits into 64 bits


cdef struct Cursor:
    const char* at
    const char* end
    bint defaults  # whether unset fields get their constant defaults


cdef class _GiveUp(Exception):
    pass


cdef object GIVE_UP = _GiveUp


cdef inline void skip_space(Cursor* c) noexcept:
    while c.at[0] == 32 or c.at[0] == 10 or c.at[0] == 13 or c.at[0] == 9:
        c.at += 1


cdef inline int take_c(Cursor* c, char wanted) except -1:
    """Skips white space and consumes ``wanted``, which must be next."""
    skip_space(c)
    if c.at[0] != wanted or c.at >= c.end:
        raise GIVE_UP
    c.at += 1
    return 0


cdef inline bint more(Cursor* c, char close, bint first) except -1:
    """Whether another member follows; consumes the comma before it, or ``close``."""
    skip_space(c)
    if c.at >= c.end:
        raise GIVE_UP
    if c.at[0] == close:
        c.at += 1
        return False
    if not first:
        if c.at[0] != 44:
            raise GIVE_UP
        c.at += 1
        skip_space(c)
    return True


cdef inline int word(Cursor* c, const char* text, Py_ssize_t n) except -1:
    if c.end - c.at < n or memcmp(c.at, text, n) != 0:
        raise GIVE_UP
    c.at += n
    return 0


cdef inline bint is_null(Cursor* c) except -1:
    """Consumes ``null`` if it is next; returns whether it did."""
    if c.at[0] != 110:
        return False
    word(c, b"null", 4)
    return True


cdef Py_ssize_t span(Cursor* c, bint* ascii) except -2:
    """The length of a string whose opening quote has been consumed, -1 when it has escapes; the cursor stays at its first byte."""
    cdef const char* p = c.at
    cdef uint64_t ones = <uint64_t>0x0101010101010101
    cdef uint64_t high = <uint64_t>0x8080808080808080
    cdef uint64_t x, seen = 0
    cdef unsigned char b
    p += kas_unquoted(p, c.end, &seen)
    while c.end - p >= 8:
        memcpy(&x, p, 8)
        # Detects quotes, backslashes, control characters and possibly others (see kas_copy_plain); then continues byte by byte.
        if ((((x ^ (ones * 0x22)) - ones) & ~(x ^ (ones * 0x22))) | (((x ^ (ones * 0x5C)) - ones) & ~(x ^ (ones * 0x5C)))
                | ((x - ones * 0x20) & ~x)) & high:
            break
        seen |= x
        p += 8
    while p < c.end:
        b = <unsigned char>p[0]
        if b == 34:
            ascii[0] = not (seen & high)
            return p - c.at
        if b == 92:
            return -1
        if b < 0x20:
            raise GIVE_UP
        seen |= <uint64_t>b
        p += 1
    raise GIVE_UP


cdef object text(Cursor* c):
    """Parses a string."""
    cdef bint ascii
    cdef Py_ssize_t n
    cdef object out
    take_c(c, 34)
    n = span(c, &ascii)
    if n < 0:
        return escaped_text(c)
    if ascii:
        out = PyUnicode_New(n, 127)
        memcpy(PyUnicode_DATA(out), c.at, n)
    else:
        out = PyUnicode_DecodeUTF8(c.at, n, NULL)
    c.at += n + 1
    return out


# A cache of map keys and of keys in raw values, indexed by their bytes; a reused str has its hash already.
cdef enum:
    KEYS = 1024
    KEY_LENGTH = 64

cdef PyObject* key_cache[KEYS]


cdef object plain_key(Cursor* c):
    """Like text(), for a key."""
    cdef bint ascii
    cdef Py_ssize_t n, i
    cdef uint32_t h = 0
    cdef PyObject** place
    cdef object out
    cdef const char* start = c.at
    if c.at[0] != 34:
        raise GIVE_UP
    c.at += 1
    n = span(c, &ascii)
    if not 0 < n <= KEY_LENGTH or not ascii:
        c.at = start
        return text(c)
    for i in range(n):
        h = h * 31 + <unsigned char>c.at[i]
    place = key_cache + ((h ^ (h >> 10)) & (KEYS - 1))
    if place[0] != NULL and PyUnicode_GET_LENGTH(<object>place[0]) == n and memcmp(PyUnicode_DATA(<object>place[0]), c.at, n) == 0:
        c.at += n + 1
        return <object>place[0]
    c.at = start
    out = text(c)
    Py_XDECREF(place[0])
    Py_INCREF(out)
    place[0] = <PyObject*>out
    return out


cdef object escaped_text(Cursor* c):
    """Parses a string with escapes, whose opening quote has been consumed."""
    cdef const char* p = c.at
    cdef char near[256]
    cdef char* out = near
    cdef Py_ssize_t n
    while c.at < c.end and c.at[0] != 34:
        if <unsigned char>c.at[0] < 0x20:
            raise GIVE_UP
        c.at += 2 if c.at[0] == 92 else 1
    if c.at >= c.end:
        raise GIVE_UP
    n = c.at - p
    c.at += 1
    if n > 250:
        out = <char*>malloc(n + 4)
        if out == NULL:
            raise MemoryError
    try:
        return PyUnicode_DecodeUTF8(out, unescape(p, n, out), NULL)
    finally:
        if out != near:
            free(out)


cdef object integer(Cursor* c):
    cdef const char* p
    cdef bint negative = c.at[0] == 45
    cdef int64_t v = 0
    c.at += negative
    p = c.at
    while 48 <= p[0] <= 57:
        v = v * 10 + (p[0] - 48)
        p += 1
        if p - c.at > INT_DIGITS:
            raise GIVE_UP
    if p == c.at or (c.at[0] == 48 and (p - c.at > 1 or negative)) or p[0] == 46 or p[0] == 101 or p[0] == 69:
        raise GIVE_UP
    c.at = p
    return -v if negative else v


cdef object anything(Cursor* c, int depth):
    """Parses an untyped value."""
    cdef dict members
    cdef list items
    cdef bint first = True
    cdef object key
    if depth > PLAIN_DEPTH:
        raise GIVE_UP
    if c.at[0] == 34:
        return text(c)
    if c.at[0] == 123:
        c.at += 1
        members = {}
        while more(c, 125, first):
            first = False
            key = plain_key(c)
            take_c(c, 58)
            skip_space(c)
            yield_gil(1)
            if PyDict_GetItem(members, key) != NULL:
                raise GIVE_UP
            PyDict_SetItem(members, key, anything(c, depth + 1))
        return members
    if c.at[0] == 91:
        c.at += 1
        items = []
        while more(c, 93, first):
            first = False
            yield_gil(1)
            items.append(anything(c, depth + 1))
        return items
    if c.at[0] == 116:
        word(c, b"true", 4)
        return True
    if c.at[0] == 102:
        word(c, b"false", 5)
        return False
    if is_null(c):
        return None
    return integer(c)


cdef object plain_value(Cursor* c, Field f, int depth):
    """Parses an element of the field's type; not null."""
    cdef int kind = f.kind
    cdef object v
    if kind == K_STRING:
        return text(c)
    if kind == K_STRUCT:
        return plain_struct(c, f.target, depth)
    if kind == K_BOOL:
        if c.at[0] == 116:
            word(c, b"true", 4)
            return True
        word(c, b"false", 5)
        return False
    if kind == K_INT32 or kind == K_INT64 or (kind == K_INTSTR and c.at[0] != 34):
        v = integer(c)
        if kind != K_INT64 and not -2147483648 <= v <= 2147483647:
            raise GIVE_UP
        return v
    if kind == K_RAW or kind == K_UNKNOWN:
        return anything(c, depth)
    v = text(c)
    if kind == K_INTSTR:
        return v
    if kind == K_QUANTITY:
        return canonical_quantity(v)
    if kind == K_TIME or kind == K_MICROTIME:
        return canonical_time(v, kind == K_MICROTIME)
    if kind == K_DURATION:
        return _slow_duration(v)
    if kind == K_BYTES:
        return canonical_bytes(v)
    raise GIVE_UP  # floats, list aliases, and the unions of JSON schemas


cdef list plain_list(Cursor* c, Field f, int depth):
    cdef list out = []
    cdef bint first = True
    take_c(c, 91)
    while more(c, 93, first):
        first = False
        yield_gil(1)
        out.append(plain_value(c, f, depth + 1))
    return out


cdef dict plain_map(Cursor* c, Field f, int depth):
    cdef dict out = {}
    cdef bint first = True
    cdef object key
    take_c(c, 123)
    while more(c, 125, first):
        first = False
        key = plain_key(c)
        take_c(c, 58)
        skip_space(c)
        yield_gil(1)
        if PyDict_GetItem(out, key) != NULL:
            raise GIVE_UP
        PyDict_SetItem(out, key, plain_value(c, f, depth + 1))
    return out


cdef dict plain_struct(Cursor* c, TypeDesc t, int depth):
    cdef FieldInfo* info
    cdef dict out = {}
    cdef object v
    cdef Py_ssize_t n
    cdef int i
    cdef bint first = True, ascii
    cdef bint seen[MAX_FIELDS]
    cdef bint given[MAX_FIELDS]
    if depth > PLAIN_DEPTH:
        raise GIVE_UP
    if not t.compiled:
        t._compile()
    memset(seen, 0, t.n_flat * sizeof(bint))
    memset(given, 0, t.n_flat * sizeof(bint))
    take_c(c, 123)
    while more(c, 125, first):
        first = False
        take_c(c, 34)
        n = span(c, &ascii)
        i = t.find(c.at, n) if n >= 0 else -1
        if i < 0 or given[i]:
            raise GIVE_UP
        c.at += n + 1
        take_c(c, 58)
        skip_space(c)
        given[i] = True
        if is_null(c):
            continue
        info = t.infos + i
        if info.card == C_SINGLE:
            v = plain_value(c, <Field>info.field, depth + 1)
            if v is None or (info.drop_zero and not v):
                continue
            if c.defaults and info.kind <= K_DOUBLE and is_unset(<Field>info.field, v):
                continue
        elif info.card == C_LIST:
            v = plain_list(c, <Field>info.field, depth)
        else:
            v = plain_map(c, <Field>info.field, depth)
        seen[i] = True
        PyDict_SetItem(out, <object>info.name, v)
    if c.defaults:
        fill_defaults(t, out, seen, depth)
    else:
        fill_missing(t, out, seen)
    return out


cdef int fill_defaults(TypeDesc t, dict out, bint* seen, int depth) except -1:
    """As fill_missing(), and adds the constant defaults of fields that are not in ``seen``."""
    cdef PyObject* f
    cdef object v
    cdef int i
    for i in range(t.n_flat):
        if seen[i]:
            continue
        f = t.infos[i].field
        if (<Field>f).has_default and (<Field>f).default_rule is None:
            v = default_of(<Field>f)
            if v is not None:
                PyDict_SetItem(out, <object>t.infos[i].name, v)
                if (<Field>f).kind == K_STRUCT:
                    defaults_of_value(<Field>f, v, depth)
                continue
        if t.infos[i].fill:
            v = zero_value(<Field>f)
            PyDict_SetItem(out, <object>t.infos[i].name, v)
            if v is not None and (<Field>f).kind == K_STRUCT and has_defaults((<Field>f).target, set()):
                defaults_of_value(<Field>f, v, depth)
    return 0


def decode_plain(TypeDesc type not None, bytes data not None, bint defaults=False):
    """Returns ``decode(type, loads(data))[0]`` for a text without unknown or duplicate fields, or None: then use decode().

    With ``defaults`` the result is as after apply_constant_defaults(). None does not imply an error.
    """
    cdef Cursor c
    cdef dict out
    type.ready()
    c.at = PyBytes_AS_STRING(data)
    c.end = c.at + PyBytes_GET_SIZE(data)
    c.defaults = defaults
    try:
        skip_space(&c)
        out = plain_struct(&c, type, 0)
        skip_space(&c)
    except (_GiveUp, ValueError):  # invalid UTF-8, quantity, time or base64
        return None
    return out if c.at == c.end else None
