# CBOR to JSON's values (kas/types/cbor.py says which). Depth is bounded, and nothing outside the data is read.

cdef enum:
    CBOR_LEVELS = 64
    CBOR_TURN = 10_000  # items: a millisecond
    CBOR_UNSIGNED = 0
    CBOR_NEGATIVE = 1
    CBOR_BYTES = 2
    CBOR_TEXT = 3
    CBOR_ARRAY = 4
    CBOR_MAP = 5
    CBOR_TAG = 6

cdef dict CBOR_CONSTANTS = {20: False, 21: True, 22: None}
cdef dict CBOR_FLOATS = {25: ">e", 26: ">f", 27: ">d"}
cdef dict CBOR_LATER = {21: base64.urlsafe_b64encode, 22: base64.b64encode, 23: base64.b16encode}


class CBORError(ValueError):
    """No CBOR, or what no object can be."""


class CBORTooLongError(CBORError):
    """More items than are wanted."""


cdef struct Octets:
    const unsigned char* p
    Py_ssize_t at
    Py_ssize_t n
    Py_ssize_t items  # that there may be
    int left          # until whoever waits for the interpreter's lock gets it


cdef const unsigned char* cbor_take(Octets* o, uint64_t n) except NULL:
    cdef const unsigned char* found = o.p + o.at
    if n > <uint64_t>(o.n - o.at):
        raise CBORError("unexpected EOF")
    o.at += <Py_ssize_t>n
    return found


cdef int cbor_head(Octets* o, int* major, int* info, uint64_t* n) except -1:
    """Major type, what the lower bits say, and the number they mean or announce."""
    cdef const unsigned char* p = cbor_take(o, 1)
    cdef int i
    major[0], info[0] = p[0] >> 5, p[0] & 31
    n[0] = info[0]
    if info[0] < 24:
        return 0
    if info[0] > 27:
        raise CBORError("indefinite lengths are not allowed" if info[0] == 31 else f"additional information {info[0]} is reserved")
    p = cbor_take(o, 1 << (info[0] - 24))
    n[0] = 0
    for i in range(1 << (info[0] - 24)):
        n[0] = n[0] << 8 | p[i]
    return 0


cdef str cbor_text(Octets* o, uint64_t n):
    cdef const unsigned char* p = cbor_take(o, n)
    try:
        return PyUnicode_DecodeUTF8(<const char*>p, <Py_ssize_t>n, NULL)
    except UnicodeDecodeError:
        raise CBORError("a text is not UTF-8") from None


cdef object cbor_item(Octets* o, int level):
    cdef int major, info
    cdef uint64_t n, i
    cdef list out
    if level > CBOR_LEVELS:
        raise CBORError(f"exceeded max nested level {CBOR_LEVELS}")
    o.items -= 1
    if o.items < 0:
        raise CBORTooLongError("there are too many data items")
    o.left -= 1
    if o.left == 0:
        o.left = CBOR_TURN
        with nogil:
            pass
    cbor_head(o, &major, &info, &n)
    if major <= CBOR_NEGATIVE:
        if n >= <uint64_t>1 << 63:
            raise CBORError("an integer is larger than 64 bits")
        return <int64_t>n if major == CBOR_UNSIGNED else -1 - <int64_t>n
    if major <= CBOR_TEXT:
        return cbor_text(o, n)
    if major == CBOR_ARRAY:
        out, i = [], 0
        while i < n:
            out.append(cbor_item(o, level + 1))
            i += 1
        return out
    if major == CBOR_MAP:
        return cbor_map(o, n, level)
    return cbor_tagged(o, n) if major == CBOR_TAG else cbor_simple(o, info, n)


cdef dict cbor_map(Octets* o, uint64_t n, int level):
    cdef dict out = {}
    cdef int major, info
    cdef uint64_t i = 0, size
    cdef str key
    while i < n:
        cbor_head(o, &major, &info, &size)
        if major != CBOR_BYTES and major != CBOR_TEXT:
            raise CBORError("a map's key is no text")
        key = cbor_text(o, size)
        if key in out:
            raise CBORError(f'found duplicate map key "{key}"')
        out[key] = cbor_item(o, level + 1)
        i += 1
    return out


cdef str cbor_tagged(Octets* o, uint64_t tag):
    cdef int major, info
    cdef uint64_t n
    cdef const unsigned char* p
    cbor_head(o, &major, &info, &n)
    if tag not in CBOR_LATER or major != CBOR_BYTES:
        raise CBORError(f"tag {tag} is not allowed")
    p = cbor_take(o, n)
    return CBOR_LATER[tag]((<const char*>p)[:<Py_ssize_t>n]).decode()


cdef object cbor_simple(Octets* o, int info, uint64_t n):
    if info in CBOR_CONSTANTS:
        return CBOR_CONSTANTS[info]
    if info not in CBOR_FLOATS:
        raise CBORError(f"simple value {n} is not allowed")
    cdef Py_ssize_t size = 1 << (info - 24)
    (value,) = struct.unpack(CBOR_FLOATS[info], (<const char*>o.p)[o.at - size:o.at])
    if not math.isfinite(value):
        raise CBORError("infinities and NaN are not allowed")
    return value


def cbor_value(bytes data not None, Py_ssize_t at, Py_ssize_t items):
    """The JSON value of the one data item from ``at`` on. Raises CBORError, also for a repeated key; CBORTooLongError for more than so
    many values in it."""
    cdef Octets o
    o.p, o.at, o.n = <const unsigned char*>PyBytes_AS_STRING(data), at, PyBytes_GET_SIZE(data)
    o.items, o.left = items, CBOR_TURN
    value = cbor_item(&o, 0)
    if o.at != o.n:
        raise CBORError(f"{o.n - o.at} bytes of extraneous data starting at index {o.at}")
    return value
