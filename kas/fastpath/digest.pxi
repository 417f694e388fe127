# The lookup key of cached credentials: 128-bit SipHash-2-4 (Aumasson and Bernstein, 2012) under a key that the process draws at start.
# Without the key, nobody can find two inputs with equal digests, or an input for a given digest.
#
# Why C: SHA-256 through OpenSSL takes 0.4 to 1.3 µs of a GET on an idle machine, and 4 to 15 µs in a busy server, because the path through
# the library evicts the processor's caches (bench/end_to_end.py, get and get-reader, interleaved with and without it).

from libc.string cimport memcpy

cdef uint64_t _digest_key[2]


cdef inline void _sip_round(uint64_t *v) noexcept nogil:
    v[0] += v[1]
    v[1] = _rotl(v[1], 13) ^ v[0]
    v[0] = _rotl(v[0], 32)
    v[2] += v[3]
    v[3] = _rotl(v[3], 16) ^ v[2]
    v[0] += v[3]
    v[3] = _rotl(v[3], 21) ^ v[0]
    v[2] += v[1]
    v[1] = _rotl(v[1], 17) ^ v[2]
    v[2] = _rotl(v[2], 32)


cdef inline uint64_t _le64(const uint8_t *p) noexcept nogil:
    return (
        <uint64_t>p[0] | <uint64_t>p[1] << 8 | <uint64_t>p[2] << 16 | <uint64_t>p[3] << 24
        | <uint64_t>p[4] << 32 | <uint64_t>p[5] << 40 | <uint64_t>p[6] << 48 | <uint64_t>p[7] << 56
    )


cdef void _siphash(const uint8_t *data, size_t size, uint64_t k0, uint64_t k1, uint64_t *out) noexcept nogil:
    cdef uint64_t v[4]
    cdef uint64_t word
    cdef uint8_t last[8]
    cdef size_t at = 0
    cdef int i
    v[0], v[1] = k0 ^ <uint64_t>0x736f6d6570736575, k1 ^ <uint64_t>0x646f72616e646f6d ^ 0xee
    v[2], v[3] = k0 ^ <uint64_t>0x6c7967656e657261, k1 ^ <uint64_t>0x7465646279746573
    while at + 8 <= size:
        word = _le64(data + at)
        v[3] ^= word
        _sip_round(v)
        _sip_round(v)
        v[0] ^= word
        at += 8
    for i in range(8):
        last[i] = 0
    memcpy(last, data + at, size - at)
    last[7] = <uint8_t>(size & 0xff)
    word = _le64(last)
    v[3] ^= word
    _sip_round(v)
    _sip_round(v)
    v[0] ^= word
    v[2] ^= 0xee
    for i in range(4):
        _sip_round(v)
    out[0] = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xdd
    for i in range(4):
        _sip_round(v)
    out[1] = v[0] ^ v[1] ^ v[2] ^ v[3]


def keyed_digest(bytes data not None, bytes key=None) -> bytes:
    """A 16-byte digest of ``data``, the same in this process and its forks. ``key``, of 16 bytes, replaces the process's own key; any other
    length raises ValueError.
    """
    cdef uint64_t out[2]
    cdef uint64_t k0 = _digest_key[0], k1 = _digest_key[1]
    if key is not None:
        if PyBytes_GET_SIZE(key) != 16:
            raise ValueError("a key has sixteen bytes")
        k0, k1 = _le64(<const uint8_t *>PyBytes_AS_STRING(key)), _le64(<const uint8_t *>PyBytes_AS_STRING(key) + 8)
    _siphash(<const uint8_t *>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), k0, k1, out)
    return (<char *>out)[:16]


cdef _draw_key():
    cdef bytes fresh = _os.urandom(16)
    memcpy(_digest_key, PyBytes_AS_STRING(fresh), 16)


_draw_key()
