# The token list of a JSON text, with links past containers; input of the transcoder. It is made from text, or recorded while text is
# written.

cdef int tape_init(Tape* tape, Py_ssize_t tokens) except -1:
    """Allocates the tape. The caller must call tape_free() even when this raises."""
    tape.n = 0
    tape.cap = tokens
    tape.slots_n = 0
    tape.slots_cap = 1024
    tape.slots = NULL
    tape.t = <Token*>malloc(tape.cap * sizeof(Token))
    if tape.t != NULL:
        tape.slots = <int32_t*>malloc(tape.slots_cap * sizeof(int32_t))
    if tape.slots == NULL:
        raise MemoryError
    return 0


cdef void tape_free(Tape* tape) noexcept:
    free(tape.t)
    free(tape.slots)


cdef int tape_grow(Tape* tape) except -1:
    cdef Token* t = <Token*>realloc(tape.t, tape.cap * 2 * sizeof(Token))
    if t == NULL:
        raise MemoryError
    tape.t = t
    tape.cap *= 2
    return 0


cdef inline Py_ssize_t tape_open(Tape* tape, char type, Py_ssize_t start) except -1:
    """Adds a token whose end is not known yet; returns its index."""
    cdef Token* t
    if tape.n == tape.cap:
        tape_grow(tape)
    t = tape.t + tape.n
    t.type = type
    t.escaped = 0
    t.place = -1
    t.start = <int32_t>start
    tape.n += 1
    t.next = <int32_t>tape.n
    return tape.n - 1


cdef inline void tape_close(Tape* tape, Py_ssize_t at, Py_ssize_t stop) noexcept:
    tape.t[at].stop = <int32_t>stop
    tape.t[at].next = <int32_t>tape.n


cdef int tape_note(Tape* tape, Buf* b, Py_ssize_t start) except -1:
    """Adds the token of a value that was written to ``b`` from ``start`` on without recording tokens."""
    cdef char c = b.p[start]
    cdef bint text = c == 34
    cdef Py_ssize_t at = tape_open(tape, 48 if c == 45 or 48 <= c <= 57 else c, start + text)
    tape.t[at].escaped = text and b.escaped
    tape_close(tape, at, b.n - text)
    return 0
