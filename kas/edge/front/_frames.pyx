# See _frames.pxd, which is the design.

from libc.string cimport memcmp, memcpy

cdef enum:
    HEAD_BYTES = 9
    END_HEADERS = 4
    PADDED = 8
    DATA = 0
    HEADERS = 1
    PUSH_PROMISE = 5
    CONTINUATION = 9
    PREFACE_BYTES = 24
    # Frames that a client may send for each request without being counted: resets, priorities, window updates, and an
    # empty end of its body.
    FOR_REQUEST = 8
    # And for each piece of a response, or so many bytes of it. A client returns window, with two updates for each frame
    # or for some KiB.
    FOR_PIECE = 2
    FOR_BYTES = 128

cdef const char *PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


cdef inline Py_ssize_t passed(Head *head, const unsigned char[:] data, Py_ssize_t at) noexcept:
    """Consumes data at ``at`` and returns where the next header or payload begins; ``had`` is ``HEAD_BYTES`` behind
    a complete header."""
    cdef Py_ssize_t piece
    if head.left:
        piece = min(head.left, data.shape[0] - at)
        head.left -= piece
        return at + piece
    piece = min(<Py_ssize_t>(HEAD_BYTES - head.had), data.shape[0] - at)
    memcpy(head.data + head.had, &data[at], piece)
    head.had += <int>piece
    if head.had == HEAD_BYTES:
        head.left = head.data[0] << 16 | head.data[1] << 8 | head.data[2]
    return at + piece


cdef class Frames:
    """Follows what a server sends from its first byte on."""

    cpdef Py_ssize_t edge(self, const unsigned char[:] data):
        """How many bytes of ``data``, the next of the stream, precede the last place where a frame may be inserted;
        -1 if there is none."""
        cdef Py_ssize_t at = 0, found = -1, size = data.shape[0]
        cdef Head *head = &self._head
        while at < size:
            at = passed(head, data, at)
            if head.had == HEAD_BYTES:
                head.had = 0
                if head.data[3] == HEADERS or head.data[3] == PUSH_PROMISE or head.data[3] == CONTINUATION:
                    self._open = not head.data[4] & END_HEADERS
            if not head.had and not head.left and not self._open:
                found = at
        self.whole = found == size
        return found


cdef class Idle:
    """Counts the frames that request nothing in what a client sends from its first byte on."""

    def __cinit__(self):
        self.http2 = True

    cpdef long long add(self, const unsigned char[:] data):
        """How many there are, including these bytes, the next of the stream; 0 if it is not HTTP/2."""
        cdef Py_ssize_t at = 0, size = data.shape[0]
        cdef Head *head = &self._head
        if self._preface < PREFACE_BYTES and size:
            at = min(<Py_ssize_t>(PREFACE_BYTES - self._preface), size)
            if memcmp(PREFACE + self._preface, &data[0], at) != 0:
                self.http2 = False
            self._preface += <int>at
        if not self.http2:
            return 0
        while at < size:
            at = passed(head, data, at)
            if head.had == HEAD_BYTES:
                head.had = 0
                if head.data[3] == HEADERS:
                    self._count = max(0, self._count - FOR_REQUEST)
                elif head.data[3] != DATA or not head.left or head.data[4] & PADDED:
                    self._count += 1
        return self._count

    cpdef take(self, Py_ssize_t size):
        """Records that ``size`` bytes were sent to the client."""
        self._count = max(0, self._count - max(<Py_ssize_t>FOR_PIECE, size // FOR_BYTES))

    cpdef reset(self):
        """Resets the count."""
        self._count = 0
