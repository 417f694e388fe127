# The HTTP/2 frames that pass through the front.
#
#   Frames       follows what a server sends from its first byte on: where another frame may be inserted, which is after a complete one, and
#                not inside a header block
#     edge       how many bytes of the next piece precede the last such place; -1 if there is none
#     whole      everything sent so far, which is one frame at least, ends at such a place
#   Idle         follows what a client sends from its first byte on: how many of its frames request nothing
#     add        takes the next piece; returns how many there are by now, beyond those that go with requests and responses
#     take       a piece of so many bytes was sent to the client, which may answer it with window updates
#     reset      starts the count again
#     http2      False once it is known that the client speaks another protocol
#
# No input is trusted: a length says only how many bytes are skipped, and nothing is read beyond the piece. Nothing is kept but a frame
# header that arrives in pieces. For one thread.
#
# Why C: pings are frames of 17 bytes, and so are their answers, 3,855 in a piece of 64 KiB. In Python that was 2.5 ms of the front's event
# loop for each piece, and 20 ms of delay for other clients while eight connections sent pings; here it is 33 us.


cdef struct Head:
    unsigned char data[9]       # length (3), type, flags, stream (4)
    int had                     # bytes of it
    Py_ssize_t left             # of the payload that follows


cdef class Frames:
    cdef Head _head
    cdef bint _open             # a header block continues in the next frame
    cdef readonly bint whole

    cpdef Py_ssize_t edge(self, const unsigned char[:] data)


cdef class Idle:
    cdef Head _head
    cdef int _preface           # bytes of it that have arrived
    cdef long long _count
    cdef readonly bint http2

    cpdef long long add(self, const unsigned char[:] data)
    cpdef take(self, Py_ssize_t size)
    cpdef reset(self)
