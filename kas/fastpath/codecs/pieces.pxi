# Splits a large JSON text into pieces that are parsed one by one. A parser in C holds the GIL throughout: 20 to 50 ms per megabyte of small
# values.

cdef enum:
    PIECE_BYTES = 64 << 10  # one to three milliseconds
    PIECES_DEPTH = 1024     # orjson's


class NotCutError(ValueError):
    """The text is not JSON or is nested too deeply; the full parser has to report the error."""


# The text and the positions of its containers larger than PIECE_BYTES, in order. Only those are entered; anything else stays in one piece.
@cython.final
cdef class _Cut:
    cdef bytes data
    cdef object parse
    cdef const char* p
    cdef Py_ssize_t n
    cdef Py_ssize_t* large
    cdef Py_ssize_t count, room, entered

    def __dealloc__(self):
        free(self.large)

    cdef int mark(self) noexcept nogil:
        """Finds those containers. Returns -1 when nesting is too deep or memory is exhausted; mismatched brackets are detected later."""
        cdef Py_ssize_t[PIECES_DEPTH] open
        cdef Py_ssize_t i = 0
        cdef int depth = 0, marked = 0
        cdef Py_ssize_t* more
        while i < self.n:
            if self.p[i] == 34:
                i = _string_end(self.p, i + 1, self.n)
                continue
            if self.p[i] == 123 or self.p[i] == 91:
                if depth == PIECES_DEPTH:
                    return -1
                open[depth] = i
                depth += 1
            elif self.p[i] == 125 or self.p[i] == 93:
                if depth == 0:
                    return -1
                while marked < depth and i - open[marked] > PIECE_BYTES:
                    if self.count == self.room:
                        more = <Py_ssize_t*>realloc(self.large, (2 * self.room + 64) * sizeof(Py_ssize_t))
                        if more == NULL:
                            return -1
                        self.large, self.room = more, 2 * self.room + 64
                    self.large[self.count] = open[marked]
                    self.count += 1
                    marked += 1
                depth -= 1
                if marked > depth:
                    marked = depth
            i += 1
        return 0

    cdef Py_ssize_t space(self, Py_ssize_t i) noexcept:
        while i < self.n and (self.p[i] == 32 or self.p[i] == 10 or self.p[i] == 13 or self.p[i] == 9):
            i += 1
        return i

    cdef int at(self, Py_ssize_t i) noexcept:
        return <unsigned char>self.p[i] if i < self.n else -1

    cdef object parsed(self, Py_ssize_t start, Py_ssize_t stop, int opens):
        """Parses the text from ``start`` to ``stop`` as the members or items of a container of its own."""
        cdef bytes piece = PyBytes_FromStringAndSize(NULL, stop - start + 2)
        cdef char* to = PyBytes_AS_STRING(piece)
        to[0], to[stop - start + 1] = <char>opens, <char>(opens + 2)
        memcpy(to + 1, self.p + start, stop - start)
        found = self.parse(piece)
        yield_gil_if_due()
        return found

    cdef int take(self, object out, Py_ssize_t start, Py_ssize_t stop) except -1:
        """Parses the text from ``start`` to ``stop`` and adds the result to the container ``out``."""
        if isinstance(out, dict):
            (<dict>out).update(self.parsed(start, stop, 123))
        else:
            (<list>out).extend(self.parsed(start, stop, 91))
        return 0

    cdef object enter(self, Py_ssize_t* place):
        """Parses the container at ``place`` and advances ``place`` past it."""
        cdef int opens = self.at(place[0]), c
        cdef Py_ssize_t i = place[0] + 1, start = i, item, key, stop
        cdef object out = {} if opens == 123 else []
        cdef bint empty = True, waits = False  # empty: no item yet; waits: there is unparsed text between ``start`` and the item
        self.entered += 1
        while True:
            item = i = self.space(i)
            c = self.at(i)
            if c == opens + 2 and empty:
                break
            key = 0
            if opens == 123:
                if c != 34:
                    raise NotCutError
                key = i = _string_end(self.p, i + 1, self.n)
                i = self.space(i)
                if self.at(i) != 58:
                    raise NotCutError
                i = self.space(i + 1)
                c = self.at(i)
            if c < 0 or c == 44 or c == 93 or c == 125:
                raise NotCutError
            empty = False
            if self.entered < self.count and self.large[self.entered] == i:
                if waits:
                    stop = item - 1
                    while self.p[stop] != 44:  # the comma after the last one
                        stop -= 1
                    self.take(out, start, stop)
                value = self.enter(&i)
                if key:
                    (<dict>out)[self.parsed(item, key, 91)[0]] = value
                else:
                    (<list>out).append(value)
                start, waits = -1, False
            else:
                i = _value_end(self.p, i, self.n)
                waits = True
            i = self.space(i)
            c = self.at(i)
            if c != 44 and c != opens + 2:
                raise NotCutError
            if waits and (c != 44 or i - start > PIECE_BYTES):
                self.take(out, start, i)
                start, waits = -1, False
            if c != 44:
                break
            i += 1
            if start < 0:
                start = i
        place[0] = i + 1
        return out


def parse_in_pieces(bytes data not None, parse):
    """Parses a JSON text by calling ``parse`` for parts of it that are valid texts of their own, so that the GIL is not held longer than
    parsing some 64 KiB takes. Raises NotCutError, and what ``parse`` raises for a part.
    """
    cdef _Cut cut = _Cut()
    cdef Py_ssize_t i
    cdef int found
    cut.data, cut.parse = data, parse
    cut.p, cut.n = PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data)
    with nogil:
        found = cut.mark()
    if found < 0:
        raise NotCutError
    i = cut.space(0)
    if not cut.count or cut.large[0] != i:
        return parse(data)
    value = cut.enter(&i)
    if cut.space(i) != cut.n:
        raise NotCutError
    return value
