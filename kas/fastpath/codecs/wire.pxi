# A protobuf buffer that is written backwards: the length of a message is known when its prefix is written. Invariant: 0 <= at <= cap, the
# output is p[at:cap], and room() runs before every write.

cdef int back_init(Back* b, Py_ssize_t cap) except -1:
    b.p = <char*>malloc(cap)
    if b.p == NULL:
        raise MemoryError
    b.at = cap
    b.cap = cap
    return 0


cdef int back_grow(Back* b, Py_ssize_t need) except -1:
    cdef Py_ssize_t used = b.cap - b.at
    cdef Py_ssize_t cap = b.cap * 2
    if cap < used + need:
        cap = used + need + 256
    cdef char* p = <char*>malloc(cap)
    if p == NULL:
        raise MemoryError
    memcpy(p + cap - used, b.p + b.at, used)
    free(b.p)
    b.p = p
    b.at = cap - used
    b.cap = cap
    return 0


cdef inline int room(Back* b, Py_ssize_t need) except -1:
    if b.at < need:
        return back_grow(b, need)
    return 0


cdef inline int back_put(Back* b, const char* p, Py_ssize_t n) except -1:
    room(b, n)
    b.at -= n
    memcpy(b.p + b.at, p, n)
    return 0


cdef inline int back_varint(Back* b, uint64_t v) except -1:
    cdef int n = 1
    cdef uint64_t rest = v >> 7
    cdef char* p
    while rest:
        n += 1
        rest >>= 7
    room(b, 10)
    b.at -= n
    p = b.p + b.at
    while v > 127:
        p[0] = <char>((v & 127) | 128)
        v >>= 7
        p += 1
    p[0] = <char>v
    return 0


cdef inline int back_tag(Back* b, Field f) except -1:
    return back_put(b, PyBytes_AS_STRING(f.tag), PyBytes_GET_SIZE(f.tag))


cdef inline int back_byte(Back* b, char c) except -1:
    room(b, 1)
    b.at -= 1
    b.p[b.at] = c
    return 0


cdef inline int back_close(Back* b, Py_ssize_t mark) except -1:
    """Writes the length prefix of what was written since ``mark`` (the byte count at that time)."""
    return back_varint(b, <uint64_t>((b.cap - b.at) - mark))


cdef int back_envelope(Back* b, bytes api_version, bytes kind, Py_ssize_t mark) except -1:
    """Writes the k8s envelope except its two trailing fields, which were written before the object."""
    cdef Py_ssize_t meta
    back_close(b, mark)
    back_byte(b, 0x12)
    meta = b.cap - b.at
    back_put(b, PyBytes_AS_STRING(kind), PyBytes_GET_SIZE(kind))
    back_varint(b, PyBytes_GET_SIZE(kind))
    back_byte(b, 0x12)
    back_put(b, PyBytes_AS_STRING(api_version), PyBytes_GET_SIZE(api_version))
    back_varint(b, PyBytes_GET_SIZE(api_version))
    back_byte(b, 0x0A)
    back_close(b, meta)
    back_byte(b, 0x0A)
    return back_put(b, b"k8s\x00", 4)


cdef bytes back_finish(Back* b):
    return PyBytes_FromStringAndSize(b.p + b.at, b.cap - b.at)


def envelope(str api_version not None, str kind not None, bytes raw not None, str content_type=""):
    """Wraps a message in ``k8s\\0`` and a runtime.Unknown; contentEncoding and contentType are written even when empty."""
    cdef Back b
    cdef bytes text = content_type.encode()
    cdef Py_ssize_t mark
    back_init(&b, PyBytes_GET_SIZE(raw) + 128)
    try:
        back_put(&b, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
        back_varint(&b, PyBytes_GET_SIZE(text))
        back_byte(&b, 0x22)
        back_put(&b, b"\x1a\x00", 2)
        mark = b.cap - b.at
        back_put(&b, PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw))
        back_envelope(&b, api_version.encode(), kind.encode(), mark)
        return back_finish(&b)
    finally:
        free(b.p)


cdef int64_t civil_to_days(int64_t y, int m, int d) noexcept:
    """Days since 1970-01-01 in the proleptic Gregorian calendar, for years 0 to 9999."""
    cdef int64_t era, yoe, doy
    if m <= 2:
        y -= 1
    era = (y if y >= 0 else y - 399) // 400
    yoe = y - era * 400
    doy = (153 * (m - 3 if m > 2 else m + 9) + 2) // 5 + d - 1
    return era * 146097 + yoe * 365 + yoe // 4 - yoe // 100 + doy - 719468


cdef inline void put_two(char* p, int v) noexcept:
    p[0] = <char>(48 + v // 10)
    p[1] = <char>(48 + v % 10)


cdef object time_text(int64_t unix, int micros):
    """RFC 3339 text of Unix seconds in the years 0 to 9999; ``micros`` is -1 for a time without a fraction."""
    cdef char s[28]
    cdef int64_t days = unix // 86400, rest = unix % 86400, z, era, doe, yoe, doy, mp, year
    cdef int month, day, i
    if rest < 0:  # C division rounds towards zero
        rest += 86400
        days -= 1
    z = days + 719468
    era = (z if z >= 0 else z - 146096) // 146097
    doe = z - era * 146097
    yoe = (doe - doe // 1460 + doe // 36524 - doe // 146096) // 365
    doy = doe - (365 * yoe + yoe // 4 - yoe // 100)
    mp = (5 * doy + 2) // 153
    day = <int>(doy - (153 * mp + 2) // 5 + 1)
    month = <int>(mp + 3 if mp < 10 else mp - 9)
    year = yoe + era * 400 + (1 if month <= 2 else 0)
    put_two(s, <int>(year // 100))
    put_two(s + 2, <int>(year % 100))
    put_two(s + 5, month)
    put_two(s + 8, day)
    put_two(s + 11, <int>(rest // 3600))
    put_two(s + 14, <int>(rest // 60 % 60))
    put_two(s + 17, <int>(rest % 60))
    s[4] = s[7] = 45
    s[10] = 84
    s[13] = s[16] = 58
    if micros < 0:
        s[19] = 90
        return PyUnicode_DecodeUTF8(s, 20, NULL)
    s[19] = 46
    for i in range(3):
        put_two(s + 24 - 2 * i, micros % 100)
        micros //= 100
    s[26] = 90
    return PyUnicode_DecodeUTF8(s, 27, NULL)


cdef int64_t time_seconds(const char* s) noexcept:
    """Unix seconds of a text whose first 19 characters are YYYY-MM-DDTHH:MM:SS."""
    return civil_to_days(two(s, 0) * 100 + two(s, 2), two(s, 5), two(s, 8)) * 86400 + two(s, 11) * 3600 + two(s, 14) * 60 + two(s, 17)


cdef bint time_has_shape(const char* s, Py_ssize_t n, bint micro) noexcept:
    return (n == (27 if micro else 20) and digits_at(s, 0, 4) and s[4] == 45 and digits_at(s, 5, 7) and s[7] == 45 and digits_at(s, 8, 10)
            and s[10] == 84 and digits_at(s, 11, 13) and s[13] == 58 and digits_at(s, 14, 16) and s[16] == 58 and digits_at(s, 17, 19)
            and s[n - 1] == 90 and (not micro or (s[19] == 46 and digits_at(s, 20, 26))))


cdef int back_time(Back* b, const char* s, Py_ssize_t n, bint micro) except -1:
    """Writes the body of a Timestamp message from canonical text."""
    cdef int64_t nanos = 0
    if not time_has_shape(s, n, micro):
        raise EncodeError("a time is not in its canonical form")
    if micro:
        nanos = (two(s, 20) * 10000 + two(s, 22) * 100 + two(s, 24)) * 1000
    back_varint(b, <uint64_t>nanos)
    back_byte(b, 0x10)
    back_varint(b, <uint64_t>time_seconds(s))
    return back_byte(b, 0x08)


cdef int back_base64(Back* b, const char* s, Py_ssize_t n) except -1:
    """Writes the decoded bytes of canonical base64 text, without their length."""
    cdef Py_ssize_t out, i
    cdef uint32_t group
    cdef char* p
    if not base64_is_canonical(s, n):
        raise EncodeError("bytes are not canonical base64")
    if n == 0:
        return 0
    out = n // 4 * 3
    if s[n - 1] == 61:
        out -= 2 if s[n - 2] == 61 else 1
    room(b, n)
    b.at -= out
    p = b.p + b.at
    i = 0
    while i < n:
        # padding counts as zero bits; n is a multiple of four
        group = (B64[<unsigned char>s[i]] << 18) | (B64[<unsigned char>s[i + 1]] << 12)
        if s[i + 2] != 61:
            group |= B64[<unsigned char>s[i + 2]] << 6
        if s[i + 3] != 61:
            group |= B64[<unsigned char>s[i + 3]]
        p[0] = <char>(group >> 16)
        if out > 1:
            p[1] = <char>((group >> 8) & 255)
        if out > 2:
            p[2] = <char>(group & 255)
        p += 3
        out -= 3
        i += 4
    return 0
