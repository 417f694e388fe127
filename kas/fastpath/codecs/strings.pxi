# JSON strings and untyped JSON values as Go's encoding/json writes them.

cdef uint8_t ESCAPE[256]
cdef const char* HEX = b"0123456789abcdef"


cdef void _init_escape() noexcept:
    cdef int i
    for i in range(256):
        ESCAPE[i] = 1 if i < 0x20 else 0
    for i in (34, 92, 60, 62, 38):  # " \ < > &
        ESCAPE[i] = 1
    ESCAPE[0xE2] = 2  # first byte of U+2028 and U+2029

_init_escape()


cdef int put_string(Buf* b, const char* s, Py_ssize_t n) except -1:
    """Writes bytes (valid UTF-8) as a quoted JSON string."""
    cdef Py_ssize_t i
    reserve(b, n + 2)
    b.p[b.n] = 34
    i = kas_copy_plain(b.p + b.n + 1, s, n, ESCAPE)
    b.n += i + 1
    if i == n:
        b.p[b.n] = 34
        b.n += 1
        return 0
    return put_escaped(b, s, i, n)


cdef int put_escaped(Buf* b, const char* s, Py_ssize_t i, Py_ssize_t n) except -1:
    """Writes the rest of a string from ``i`` on, and the closing quote."""
    cdef Py_ssize_t start = i
    cdef unsigned char c
    b.escaped = True
    while i < n:
        c = <unsigned char>s[i]
        if ESCAPE[c] == 0:
            i += 1
            continue
        if c == 0xE2:
            # i + 2 < n holds for every valid three-byte sequence
            if i + 2 >= n or <unsigned char>s[i + 1] != 0x80 or (<unsigned char>s[i + 2] & 0xFE) != 0xA8:
                i += 1
                continue
            put(b, s + start, i - start)
            put(b, b"\\u202", 5)
            put_c(b, HEX[<unsigned char>s[i + 2] & 0xF])
            i += 3
            start = i
            continue
        put(b, s + start, i - start)
        if c == 34 or c == 92:
            put_c(b, 92)
            put_c(b, <char>c)
        elif c == 10:
            put(b, b"\\n", 2)
        elif c == 13:
            put(b, b"\\r", 2)
        elif c == 9:
            put(b, b"\\t", 2)
        elif c == 8:
            put(b, b"\\b", 2)
        elif c == 12:
            put(b, b"\\f", 2)
        else:
            put(b, b"\\u00", 4)
            put_c(b, HEX[c >> 4])
            put_c(b, HEX[c & 0xF])
        i += 1
        start = i
    put(b, s + start, n - start)
    return put_c(b, 34)


cdef inline int put_str(Buf* b, object s) except -1:
    cdef Py_ssize_t n
    cdef const char* p = kas_ascii(<PyObject*>s, &n)
    return put_string(b, p, n) if p != NULL else put_text(b, s)


cdef int put_text(Buf* b, object s) except -1:
    cdef Py_ssize_t n
    cdef const char* p
    cdef bytes fixed
    try:
        p = PyUnicode_AsUTF8AndSize(s, &n)
    except UnicodeEncodeError:
        # A lone surrogate has no UTF-8 form; Go would have decoded it as U+FFFD.
        fixed = (<str>s).encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
        return put_string(b, PyBytes_AS_STRING(fixed), PyBytes_GET_SIZE(fixed))
    return put_string(b, p, n)


def go_float(double x):
    """Formats a float64 like Go's encoding/json: shortest digits, exponent form below 1e-6 and from 1e21 on."""
    if x == 0:
        return "-0" if str(x)[0] == "-" else "0"
    if x != x or x in (float("inf"), float("-inf")):
        raise EncodeError(f"json: unsupported value: {x}")
    sign = "-" if x < 0 else ""
    mantissa, _, exp = f"{abs(x)!r}".partition("e")
    whole, _, frac = mantissa.partition(".")
    if frac == "0":
        frac = ""
    digits = (whole + frac).lstrip("0")
    point = len(whole) + int(exp or 0) - (len(whole + frac) - len(digits))  # 0.digits * 10^point
    digits = digits.rstrip("0")
    if abs(x) < 1e-6 or abs(x) >= 1e21:
        head = digits[0] + ("." + digits[1:] if len(digits) > 1 else "")
        e = point - 1
        return f"{sign}{head}e{'-' if e < 0 else '+'}{abs(e):0{1 if e < 0 else 2}d}"
    if point <= 0:
        return sign + "0." + "0" * -point + digits
    if point >= len(digits):
        return sign + digits + "0" * (point - len(digits))
    return sign + digits[:point] + "." + digits[point:]


class RawJSON(bytes):
    """Canonical JSON text produced by kas, in a place where an object may hold any value; it is written unchanged."""

    __slots__ = ()


# How an untyped value is written: as raw JSON that passes through, as Go prints an ordered value or a map, or as a stored untyped object.
cdef enum:
    AS_IT_IS = 0
    IN_ORDER = 1
    SORTED = 2
    UNSTRUCTURED = 3


cdef int put_value(Buf* b, object v, int form, int depth) except -1:
    """Writes an untyped value. Forms from ``SORTED`` on sort object keys; others keep the order of the dict."""
    cdef PyObject* key
    cdef PyObject* val
    cdef Py_ssize_t pos = 0, i
    cdef bint first = True
    cdef bytes text
    if depth > b.deepest:
        raise EncodeError("exceeded max depth")
    if PyUnicode_CheckExact(v):
        return put_str(b, v)
    if isinstance(v, dict):
        if PyDict_Size(<dict>v) == 0:
            return put(b, b"{}", 2)
        put_c(b, 123)
        if form >= SORTED and not keys_sorted(<dict>v):
            for k in sort_in_turns(list(<dict>v)):
                yield_gil(1)
                if not first:
                    put_c(b, 44)
                first = False
                put_str(b, k)
                put_c(b, 58)
                put_value(b, (<dict>v)[k], form, depth + 1)
        else:
            while PyDict_Next(v, &pos, &key, &val):
                yield_gil(1)
                if not first:
                    put_c(b, 44)
                first = False
                put_str(b, <object>key)
                if PyDict_CheckExact(<object>val) and PyDict_Size(<object>val) == 0 and depth < b.deepest:
                    put(b, b":{}", 3)  # a leaf of a managed field set
                    continue
                put_c(b, 58)
                put_value(b, <object>val, form, depth + 1)
        return put_c(b, 125)
    if v is None:
        return put(b, b"null", 4)
    if v is True:
        return put(b, b"true", 4)
    if v is False:
        return put(b, b"false", 5)
    if isinstance(v, int):
        if -0x7FFFFFFFFFFFFFFF <= v <= 0x7FFFFFFFFFFFFFFF:
            return put_int(b, v)
        text = str(v).encode()
        return put_bytes(b, text)
    if isinstance(v, float):
        if form == UNSTRUCTURED and v == 0:  # Go writes -0.0 as -0 and reads that back as the integer 0, which is stored and shown
            return put_c(b, 48)
        # Whole floats in raw JSON keep their point: Go passes raw text through unchanged.
        text = (repr(v) if form == AS_IT_IS and v.is_integer() and abs(v) < 1e16 else go_float(v)).encode()
        return put_bytes(b, text)
    if isinstance(v, (list, tuple)):
        put_c(b, 91)
        for item in v:
            if not first:
                put_c(b, 44)
            first = False
            yield_gil(1)
            put_value(b, item, form, depth + 1)
        return put_c(b, 93)
    if isinstance(v, str):
        return put_str(b, str(v))
    if type(v) is RawJSON:
        return put(b, PyBytes_AS_STRING(v), PyBytes_GET_SIZE(v))
    raise EncodeError(f"cannot write a {type(v).__name__} as JSON")


cdef bint keys_sorted(dict d):
    cdef PyObject* key
    cdef PyObject* val
    cdef PyObject* last = NULL
    cdef Py_ssize_t pos = 0
    while PyDict_Next(d, &pos, &key, &val):
        if last != NULL and PyUnicode_Compare(last, key) > 0:
            return False
        last = key
    return True


cdef bytes finish(Buf* b):
    try:
        return PyBytes_FromStringAndSize(b.p, b.n)
    finally:
        free(b.p)
        b.p = NULL


def write_json(object value, *, bint sort_keys=True, bint as_it_is=False):
    """Encodes an untyped value like Go's json.Marshal (no newline): sorted keys, HTML characters escaped.

    ``sort_keys=False`` keeps the order of each dict, as for a Status built in output order. ``as_it_is`` additionally keeps the point of
    whole floats, as in raw JSON that passes through.
    """
    cdef Buf b
    buf_init(&b, 1024)
    try:
        put_value(&b, value, AS_IT_IS if as_it_is else SORTED if sort_keys else IN_ORDER, 0)
    except:
        free(b.p)
        raise
    return finish(&b)


cdef Py_ssize_t PRETTY_BYTES = 1 << 20  # GIL check interval: one or a few milliseconds


def pretty_json(bytes data):
    """Formats valid compact JSON like Go's json.Indent with two spaces (``?pretty=true``)."""
    cdef Buf b
    cdef const char* s = PyBytes_AS_STRING(data)
    cdef Py_ssize_t n = PyBytes_GET_SIZE(data), i = 0, start
    cdef Py_ssize_t pause = PRETTY_BYTES
    cdef int depth = 0, k
    cdef char c
    buf_init(&b, n * 2 + 64)
    try:
        while i < n:
            if i >= pause:  # GIL check
                with nogil:
                    pass
                pause = i + PRETTY_BYTES
            c = s[i]
            if c == 34:
                start = i
                i += 1
                while i < n and s[i] != 34:
                    i += 2 if s[i] == 92 else 1
                i += 1
                if i > n:
                    raise DecodeError("unexpected end of JSON input")
                put(&b, s + start, i - start)
                continue
            i += 1
            if c == 32 or c == 10 or c == 13 or c == 9:
                continue
            if c == 123 or c == 91:
                while i < n and (s[i] == 32 or s[i] == 10 or s[i] == 13 or s[i] == 9):
                    i += 1
                put_c(&b, c)
                if i < n and (s[i] == 125 or s[i] == 93):
                    put_c(&b, s[i])
                    i += 1
                    continue
                depth += 1
            elif c == 125 or c == 93:
                depth -= 1
            elif c == 58:
                put(&b, b": ", 2)
                continue
            elif c != 44:
                put_c(&b, c)
                continue
            else:
                put_c(&b, c)
            put_c(&b, 10)
            for k in range(depth):
                put(&b, b"  ", 2)
            if c == 125 or c == 93:
                put_c(&b, c)
    except:
        free(b.p)
        raise
    return finish(&b)
