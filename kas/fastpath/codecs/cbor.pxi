# Decodes CBOR to JSON values (the mapping is in kas/types/cbor.py). Depth is bounded, and nothing outside the data is read.

cdef enum:
    CBOR_LEVELS = 250  # as deep as can be encoded as JSON
    CBOR_TURN = 10_000  # items between GIL checks: a millisecond
    CBOR_UNSIGNED = 0
    CBOR_NEGATIVE = 1
    CBOR_BYTES = 2
    CBOR_TEXT = 3
    CBOR_ARRAY = 4
    CBOR_MAP = 5
    CBOR_TAG = 6
    CBOR_OPEN = 31  # indefinite length, ended by a break
    CBOR_BREAK = 0xff
    CBOR_NULL = 0xf6

cdef dict CBOR_CONSTANTS = {20: False, 21: True, 22: None}
cdef dict CBOR_FLOATS = {25: ">e", 26: ">f", 27: ">d"}
cdef dict CBOR_LATER = {21: base64.urlsafe_b64encode, 22: base64.b64encode, 23: base64.b16encode}
cdef object CBOR_TIME = _re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)", _re.ASCII)


class CBORError(ValueError):
    """Invalid CBOR, or a value that JSON cannot express."""


class CBORTooLongError(CBORError):
    """More items than allowed."""


cdef struct Octets:
    const unsigned char* p
    Py_ssize_t at
    Py_ssize_t n
    Py_ssize_t items  # items still allowed
    int left          # items until the next GIL check


cdef const unsigned char* cbor_take(Octets* o, uint64_t n) except NULL:
    cdef const unsigned char* found = o.p + o.at
    if n > <uint64_t>(o.n - o.at):
        raise CBORError("unexpected EOF")
    o.at += <Py_ssize_t>n
    return found


cdef int cbor_head(Octets* o, int* major, int* info, uint64_t* n) except -1:
    """Reads the head of an item: its major type, the value of the low bits, and the number they encode or announce."""
    cdef const unsigned char* p = cbor_take(o, 1)
    cdef int i
    major[0], info[0] = p[0] >> 5, p[0] & 31
    n[0] = info[0]
    if info[0] < 24:
        return 0
    if info[0] == CBOR_OPEN and CBOR_BYTES <= major[0] <= CBOR_MAP:
        return 0
    if info[0] > 27:
        raise CBORError('unexpected "break" code' if p[0] == CBOR_BREAK else f"additional information {info[0]} is reserved")
    p = cbor_take(o, 1 << (info[0] - 24))
    n[0] = 0
    for i in range(1 << (info[0] - 24)):
        n[0] = n[0] << 8 | p[i]
    return 0


cdef bint cbor_ends(Octets* o) except -1:
    """Consumes a break if one is next; returns whether it did."""
    if o.at >= o.n:
        raise CBORError("unexpected EOF")
    if o.p[o.at] != CBOR_BREAK:
        return False
    o.at += 1
    return True


cdef int cbor_count(Octets* o) except -1:
    """Counts one more item."""
    o.items -= 1
    if o.items < 0:
        raise CBORTooLongError("there are too many data items")
    o.left -= 1
    if o.left == 0:
        o.left = CBOR_TURN
        yield_gil_if_due()
    return 0


cdef object cbor_joined(Octets* o, int major):
    """A string of indefinite length, in chunks. Byte strings are appended as they arrive: joining a million chunks holds the GIL for 0.1 s
    and takes 80 bytes for each.
    """
    cdef int piece, info
    cdef uint64_t n
    cdef list texts = []
    cdef bytearray out = bytearray()
    while not cbor_ends(o):
        cbor_count(o)
        cbor_head(o, &piece, &info, &n)
        if piece != major or info == CBOR_OPEN:
            raise CBORError("a piece of a string is not of its kind")
        if major == CBOR_TEXT:
            texts.append(cbor_text(o, info, n))
        else:
            out += cbor_bytes(o, info, n)
    return "".join(texts) if major == CBOR_TEXT else bytes(out)


cdef bytes cbor_bytes(Octets* o, int info, uint64_t n):
    cdef const unsigned char* p
    if info == CBOR_OPEN:
        return cbor_joined(o, CBOR_BYTES)
    p = cbor_take(o, n)
    return (<const char*>p)[:<Py_ssize_t>n]


cdef str cbor_text(Octets* o, int info, uint64_t n):
    cdef const unsigned char* p
    if info == CBOR_OPEN:
        return cbor_joined(o, CBOR_TEXT)
    p = cbor_take(o, n)
    try:
        return PyUnicode_DecodeUTF8(<const char*>p, <Py_ssize_t>n, NULL)
    except UnicodeDecodeError:
        raise CBORError("a text is not UTF-8") from None


cdef object cbor_item(Octets* o, int level, object later):
    """Reads the next item. ``later`` is the expected conversion of byte strings within it, None for text."""
    cdef int major, info
    cdef uint64_t n, i
    cdef list out
    if level > CBOR_LEVELS:
        raise CBORError(f"exceeded max nested level {CBOR_LEVELS}")
    cbor_count(o)
    cbor_head(o, &major, &info, &n)
    if major <= CBOR_NEGATIVE:
        if n >= <uint64_t>1 << 63:
            raise CBORError("an integer is larger than 64 bits")
        return <int64_t>n if major == CBOR_UNSIGNED else -1 - <int64_t>n
    if major == CBOR_BYTES:
        return utf8_text(cbor_bytes(o, info, n)) if later is None else later(cbor_bytes(o, info, n)).decode()
    if major == CBOR_TEXT:
        return cbor_text(o, info, n)
    if major == CBOR_ARRAY:
        out, i = [], 0
        while not cbor_ends(o) if info == CBOR_OPEN else i < n:
            out.append(cbor_item(o, level + 1, later))
            i += 1
        return out
    if major == CBOR_MAP:
        return cbor_map(o, info, n, level, later)
    return cbor_tagged(o, n, level, later) if major == CBOR_TAG else cbor_simple(o, info, n)


cdef dict cbor_map(Octets* o, int kind, uint64_t n, int level, object later):
    cdef dict out = {}
    cdef int major, info
    cdef uint64_t i = 0, size
    cdef str key
    while not cbor_ends(o) if kind == CBOR_OPEN else i < n:
        cbor_head(o, &major, &info, &size)
        if major == CBOR_TEXT:
            key = cbor_text(o, info, size)
        elif major == CBOR_BYTES:
            key = utf8_text(cbor_bytes(o, info, size))
        elif o.p[o.at - 1] == CBOR_NULL:
            key = ""  # decoded into a string, null leaves it empty
        else:
            raise CBORError("a map's key is no text")
        if key in out:
            raise CBORError(f'found duplicate map key "{key}"')
        out[key] = cbor_item(o, level + 1, later)
        i += 1
    return out


cdef object cbor_tagged(Octets* o, uint64_t tag, int level, object later):
    """A tagged item: times become RFC 3339 texts, bignums are refused, other tags are ignored."""
    if tag == 2 or tag == 3:
        raise CBORError(f"tag {tag} is not allowed")
    found = cbor_item(o, level + 1, CBOR_LATER.get(tag, later))
    return cbor_time(tag, found) if tag < 2 else found


cdef str cbor_time(uint64_t tag, object found):
    """The text of a time, given as text (tag 0) or as seconds since 1970."""
    try:
        if tag == 0:
            date, fraction, zone = CBOR_TIME.fullmatch(found).groups("")
            _datetime.datetime.fromisoformat(date + zone.replace("Z", "+00:00"))
        elif isinstance(found, bool):
            raise TypeError
        else:
            part, seconds = math.modf(found) if isinstance(found, float) else (0, found)
            date = _datetime.datetime(1970, 1, 1) + _datetime.timedelta(seconds=int(seconds), microseconds=-1 if part < 0 else 0)
            date, fraction, zone = date.isoformat(timespec="seconds"), f".{int(part * 1e9) % 1_000_000_000:09}", "Z"
    except (AttributeError, OverflowError, TypeError, ValueError):
        raise CBORError(f"what has tag {tag} is no time") from None
    fraction = fraction[:10].rstrip("0")
    return date + ("" if fraction == "." else fraction) + zone


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
    """The JSON value of the single data item from offset ``at`` on. Raises CBORError, also for a repeated key, and CBORTooLongError for
    more than ``items`` values.
    """
    cdef Octets o
    o.p, o.at, o.n = <const unsigned char*>PyBytes_AS_STRING(data), at, PyBytes_GET_SIZE(data)
    o.items, o.left = items, CBOR_TURN
    value = cbor_item(&o, 0, None)
    if o.at != o.n:
        raise CBORError(f"{o.n - o.at} bytes of extraneous data starting at index {o.at}")
    return value
