# Audit IDs: random version 4 UUIDs. They distinguish requests in logs and are not secret, so a fast generator seeded from the system's is
# enough: xoshiro256** (Blackman and Vigna, 2018). Why C: os.urandom and formatting cost 4 µs per request.

from libc.stdint cimport uint8_t, uint64_t

import os as _os

cdef uint64_t _state[4]
cdef int _seeded_for = -1


cdef inline uint64_t _rotl(uint64_t x, int k) noexcept nogil:
    return (x << k) | (x >> (64 - k))


cdef uint64_t _next() noexcept nogil:
    cdef uint64_t result = _rotl(_state[1] * 5, 7) * 9
    cdef uint64_t t = _state[1] << 17
    _state[2] ^= _state[0]
    _state[3] ^= _state[1]
    _state[1] ^= _state[2]
    _state[0] ^= _state[3]
    _state[2] ^= t
    _state[3] = _rotl(_state[3], 45)
    return result


cdef _seed():
    global _seeded_for
    cdef bytes fresh = _os.urandom(32)
    cdef int i, j
    for i in range(4):
        _state[i] = 0
        for j in range(8):
            _state[i] = (_state[i] << 8) | <uint8_t>fresh[i * 8 + j]
    _state[0] |= 1  # the all-zero state would repeat forever
    _seeded_for = _os.getpid()


def reseed():
    """Seeds the generator anew: a forked process must not repeat its parent's IDs."""
    _seed()


def audit_id() -> str:
    """A random version 4 UUID in its canonical text form, for an audit ID. Not suitable for secrets."""
    cdef char out[36]
    cdef uint64_t word = 0
    cdef int i, digit, at = 0
    cdef const char *digits = b"0123456789abcdef"
    if _seeded_for < 0:
        _seed()
    for i in range(32):
        if i % 16 == 0:
            word = _next()
        if i == 8 or i == 12 or i == 16 or i == 20:
            out[at] = c"-"
            at += 1
        digit = <int>(word & 15)
        word >>= 4
        if i == 12:
            digit = 4
        elif i == 16:
            digit = 8 | (digit & 3)
        out[at] = digits[digit]
        at += 1
    return out[:36].decode("ascii")


# The limit on a client's own audit ID, which upstream accepts at any length: it is part of each of the request's audit events and of its
# answer.
cdef enum:
    MOST_OF_ID = 1024


def take_audit_id(Request req not None):
    """Sets the request's audit ID: the client's Audit-ID header, cut to 1,024 characters, or a new one."""
    given = req.names().get(b"audit-id")
    req.audit_id = (<bytes>given).decode("latin-1")[:MOST_OF_ID] if given else audit_id()


def show_audit_id(Request req not None, Response resp not None):
    """Adds the request's audit ID to the headers of its answer."""
    resp.headers.append((b"audit-id", req.audit_id.encode("latin-1", "replace")))


_os.register_at_fork(after_in_child=reseed)


# Values that must be unguessable and unique: UIDs, name suffixes. They come from the system's generator, read in blocks, because a call
# each time costs more than its bytes. Fork-safe: a child starts with an empty block. Thread-safe: the GIL is not released between checking
# the block and copying from it.
cdef bytes _block = b""
cdef Py_ssize_t _given = 0  # bytes of the block that have been handed out

cdef enum:
    BLOCK_B = 4096


cdef int _draw(unsigned char *out, Py_ssize_t n) except -1:
    """Copies ``n`` fresh random bytes, at most ``BLOCK_B``, to ``out``."""
    global _block, _given
    cdef bytes fresh
    if PyBytes_GET_SIZE(_block) - _given < n:
        fresh = _os.urandom(BLOCK_B)
        _block, _given = fresh, 0
    memcpy(out, PyBytes_AS_STRING(_block) + _given, n)
    _given += n
    return 0


def forget_drawn():
    """Drops the block: a forked process must not repeat its parent's bytes."""
    global _block, _given
    _block, _given = b"", 0


def random_bytes() -> bytes:
    """16 random bytes from the system's generator."""
    cdef unsigned char out[16]
    _draw(out, 16)
    return out[:16]


def new_uid() -> str:
    """A random version 4 UUID as text, from the system's generator."""
    cdef unsigned char raw[16]
    cdef char out[36]
    cdef int i, at = 0
    cdef const char *digits = b"0123456789abcdef"
    _draw(raw, 16)
    raw[6] = 0x40 | (raw[6] & 15)
    raw[8] = 0x80 | (raw[8] & 63)
    for i in range(16):
        if i == 4 or i == 6 or i == 8 or i == 10:
            out[at] = c"-"
            at += 1
        out[at], out[at + 1] = digits[raw[i] >> 4], digits[raw[i] & 15]
        at += 2
    return out[:36].decode("ascii")


_os.register_at_fork(after_in_child=forget_drawn)
