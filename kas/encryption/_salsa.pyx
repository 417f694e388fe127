# See _salsa.pxd for the design.
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint64_t
from libc.string cimport memcpy, memset

cdef extern from *:
    """
    #define KAS_ROTL(x, n) (((x) << (n)) | ((x) >> (32 - (n))))
    static inline void kas_quarter(uint32_t *x, int a, int b, int c, int d) {
        x[b] ^= KAS_ROTL(x[a] + x[d], 7);
        x[c] ^= KAS_ROTL(x[b] + x[a], 9);
        x[d] ^= KAS_ROTL(x[c] + x[b], 13);
        x[a] ^= KAS_ROTL(x[d] + x[c], 18);
    }
    static void kas_twenty_rounds(uint32_t *x) {
        int i;
        for (i = 0; i < 10; i++) {
            kas_quarter(x, 0, 4, 8, 12); kas_quarter(x, 5, 9, 13, 1); kas_quarter(x, 10, 14, 2, 6); kas_quarter(x, 15, 3, 7, 11);
            kas_quarter(x, 0, 1, 2, 3); kas_quarter(x, 5, 6, 7, 4); kas_quarter(x, 10, 11, 8, 9); kas_quarter(x, 15, 12, 13, 14);
        }
    }
    """
    void kas_twenty_rounds(uint32_t *x) noexcept nogil

cdef uint32_t word(const uint8_t *p) noexcept nogil:
    return p[0] | <uint32_t>p[1] << 8 | <uint32_t>p[2] << 16 | <uint32_t>p[3] << 24


cdef void put_word(uint8_t *p, uint32_t v) noexcept nogil:
    p[0], p[1], p[2], p[3] = v & 255, v >> 8 & 255, v >> 16 & 255, v >> 24


cdef void lay_out(uint32_t *x, const uint8_t *key, const uint8_t *middle) noexcept nogil:
    # ``middle``: the 16 bytes of nonce and counter
    cdef int i
    x[0], x[5], x[10], x[15] = 0x61707865, 0x3320646E, 0x79622D32, 0x6B206574
    for i in range(4):
        x[1 + i], x[11 + i], x[6 + i] = word(key + 4 * i), word(key + 16 + 4 * i), word(middle + 4 * i)


cdef void xor_stream(const uint8_t *key, const uint8_t *nonce, const uint8_t *text, size_t n, uint8_t *out) noexcept nogil:
    cdef uint32_t start[16]
    cdef uint32_t x[16]
    cdef uint8_t derived[32]
    cdef uint8_t middle[16]
    cdef uint8_t block[64]
    cdef uint64_t counter = 0
    cdef size_t at = 0, part, i
    # HSalsa20: the key for the last eight bytes of the nonce.
    lay_out(x, key, nonce)
    kas_twenty_rounds(x)
    for i in range(4):
        put_word(derived + 4 * i, x[5 * i])
        put_word(derived + 16 + 4 * i, x[6 + i])
    memset(middle, 0, 16)
    memcpy(middle, nonce + 16, 8)
    lay_out(start, derived, middle)
    while at < n:
        start[8], start[9] = <uint32_t>counter, <uint32_t>(counter >> 32)
        memcpy(x, start, sizeof(x))
        kas_twenty_rounds(x)
        for i in range(16):
            put_word(block + 4 * i, x[i] + start[i])
        part = n - at if n - at < 64 else 64
        for i in range(part):
            out[at + i] = text[at + i] ^ block[i]
        at += part
        counter += 1


def xsalsa20(bytes key not None, bytes nonce not None, bytes text not None) -> bytes:
    """Returns ``text`` XORed with the stream of a key of 32 bytes and a nonce of 24; applied twice, it returns the text.
    ValueError for other lengths."""
    if PyBytes_GET_SIZE(key) != KEY_LEN or PyBytes_GET_SIZE(nonce) != NONCE_LEN:
        raise ValueError("a key has 32 bytes, a nonce 24")
    cdef size_t n = PyBytes_GET_SIZE(text)
    cdef bytes out = PyBytes_FromStringAndSize(NULL, n)
    cdef uint8_t *to = <uint8_t *>PyBytes_AS_STRING(out)
    cdef const uint8_t *k = <const uint8_t *>PyBytes_AS_STRING(key)
    cdef const uint8_t *v = <const uint8_t *>PyBytes_AS_STRING(nonce)
    cdef const uint8_t *t = <const uint8_t *>PyBytes_AS_STRING(text)
    with nogil:
        xor_stream(k, v, t, n, to)
    return out
