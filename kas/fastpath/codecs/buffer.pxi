# A growing output buffer. Invariant: n <= cap, and reserve() runs before every write, so writes never leave the block.

# Every walk refuses deeper documents: orjson stops at the same order of magnitude, and the C stack stays bounded.
cdef enum:
    MAX_DEPTH = 1000

cdef int buf_init(Buf* b, Py_ssize_t cap) except -1:
    b.p = <char*>malloc(cap)
    if b.p == NULL:
        raise MemoryError
    b.n = 0
    b.cap = cap
    b.escaped = False
    b.deepest = MAX_DEPTH
    return 0


cdef int buf_grow(Buf* b, Py_ssize_t need) except -1:
    cdef Py_ssize_t cap = b.cap * 2
    if cap < b.n + need:
        cap = b.n + need + 256
    cdef char* p = <char*>realloc(b.p, cap)
    if p == NULL:
        raise MemoryError
    b.p = p
    b.cap = cap
    return 0


cdef inline int reserve(Buf* b, Py_ssize_t need) except -1:
    if b.cap - b.n < need:
        return buf_grow(b, need)
    return 0


cdef inline int put(Buf* b, const char* p, Py_ssize_t n) except -1:
    reserve(b, n)
    memcpy(b.p + b.n, p, n)
    b.n += n
    return 0


cdef inline int put_c(Buf* b, char c) except -1:
    reserve(b, 1)
    b.p[b.n] = c
    b.n += 1
    return 0


cdef inline int put_bytes(Buf* b, bytes s) except -1:
    return put(b, PyBytes_AS_STRING(s), PyBytes_GET_SIZE(s))


cdef inline int put_int(Buf* b, int64_t v) except -1:
    cdef char digits[24]
    cdef int i = 24
    cdef uint64_t u = <uint64_t>v if v >= 0 else <uint64_t>0 - <uint64_t>v
    while True:
        i -= 1
        digits[i] = <char>(48 + u % 10)
        u //= 10
        if u == 0:
            break
    if v < 0:
        i -= 1
        digits[i] = 45
    return put(b, digits + i, 24 - i)
