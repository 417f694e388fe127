# The resourceVersion inside a protobuf message, and numbers as text.
#
# The revision's digits are nested two messages deep, so their number affects two lengths: that of the string, one byte, and
# that of the metadata, which is field 1 and comes first in the message. Fields are in the order of their numbers, as
# encode_protobuf() writes them: find_splice() refuses anything else, and splice() trusts its result. The caller owns both
# buffers, and makes `out` SPLICE_ROOM bytes longer than the message. Benchmark: bench/test_store.py::test_create.


cdef size_t digits_of(uint64_t v, char *out) noexcept nogil:
    cdef char buffer[20]
    cdef size_t n = 0, i
    while True:
        buffer[n] = <char>(c'0' + v % 10)
        v //= 10
        n += 1
        if v == 0:
            break
    for i in range(n):
        out[i] = buffer[n - 1 - i]
    return n


cdef inline size_t put_varint(char *out, uint64_t v) noexcept nogil:
    cdef size_t n = 0
    while v >= 128:
        out[n] = <char>((v & 127) | 128)
        v >>= 7
        n += 1
    out[n] = <char>v
    return n + 1


cdef inline int get_varint(const char *p, size_t n, size_t *at, size_t *v) noexcept nogil:
    cdef int shift = 0
    v[0] = 0
    while at[0] < n and shift < 35:
        v[0] |= <size_t>(<unsigned char>p[at[0]] & 127) << shift
        at[0] += 1
        if not p[at[0] - 1] & 128:
            return 1
        shift += 7
    return 0


cdef bint find_splice(const char *p, size_t n, Splice *s) noexcept nogil:
    """Finds the resourceVersion (field 6) of the metadata (field 1); False for anything but an object's message."""
    cdef size_t i = 1, end, length
    if n < 2 or p[0] != 0x0A or not get_varint(p, n, &i, &s.meta_len) or s.meta_len > n - i:
        return False
    s.meta = i
    end = i + s.meta_len
    while i < end:
        if p[i] == 0x32:
            s.at = i + 1
            if s.at == end:
                return False
            s.digits = <unsigned char>p[s.at]
            return s.digits <= 20 and s.at + 1 + s.digits <= end
        if p[i] != 0x0A and p[i] != 0x12 and p[i] != 0x1A and p[i] != 0x22 and p[i] != 0x2A:
            return False  # name, generateName, namespace, selfLink, uid: strings
        i += 1
        if not get_varint(p, end, &i, &length) or length > end - i:
            return False
        i += length
    return False


cdef enum:
    SPLICE_ROOM = 32  # the most by which a message grows: 20 digits and the metadata's length


cdef size_t splice(char *out, const char *p, size_t n, const Splice *s, uint64_t revision) noexcept nogil:
    """Writes the message with another resourceVersion; returns its size."""
    cdef char digits[20]
    cdef char *q = out
    cdef size_t count = digits_of(revision, digits)
    cdef size_t rest = s.at + 1 + s.digits
    q[0] = 0x0A
    q += 1 + put_varint(q + 1, s.meta_len - s.digits + count)
    memcpy(q, p + s.meta, s.at - s.meta)
    q += s.at - s.meta
    q[0] = <char>count
    memcpy(q + 1, digits, count)
    q += 1 + count
    memcpy(q, p + rest, n - rest)
    return q - out + n - rest
