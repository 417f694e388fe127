# XSalsa20, the stream cipher of NaCl's secretbox: ``cryptography`` has none of the Salsa20 family.
#
#   lay_out        the sixteen words of a block: constants, key, nonce and counter
#   xor_stream     derives the key for the last eight bytes of the nonce (HSalsa20), then XORs block by block
#   xsalsa20       the entry point: checks lengths, and releases the GIL
#
# Source: D. J. Bernstein, "Salsa20 specification" and "Extending the Salsa20 nonce". No branch and no index depends on key or
# text. Nothing is kept or shared between calls: any thread may call. Data derived from the key are on the stack and are not
# erased.
#
# It is compiled because 64 bytes take 320 additions and rotations, for which a loop in Python takes some 100 µs.

from libc.stdint cimport uint8_t, uint32_t


cdef enum:
    KEY_LEN = 32      # bytes
    NONCE_LEN = 24


cdef uint32_t word(const uint8_t *p) noexcept nogil                     # four bytes, the lowest first
cdef void put_word(uint8_t *p, uint32_t v) noexcept nogil
cdef void lay_out(uint32_t *x, const uint8_t *key, const uint8_t *middle) noexcept nogil
cdef void xor_stream(const uint8_t *key, const uint8_t *nonce, const uint8_t *text, size_t n, uint8_t *out) noexcept nogil
