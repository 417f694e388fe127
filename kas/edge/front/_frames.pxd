# What passes the front over HTTP/2, frame by frame.
#
#   Frames       follows what a server sends from its first byte on: where another frame may be put in, which is after a whole one, and not
#                inside a block of headers
#     edge       how many bytes of the next piece come before the last such place; -1 without any
#     whole      what was sent so far, the first frame at least, ends at such a place
#   Idle         follows what a client sends from its first byte on: how many of its frames ask for nothing
#     add        the next piece; how many there are by now, beyond what requests and answers bring with them
#     take       a piece of so many bytes was sent to the client, which it may answer with windows
#     http2      False once it is known that the client speaks something else
#
# No input is trusted: a length says only how much is passed over, and nothing is read beyond the piece. Nothing is held but a head that came
# in pieces. One thread.
#
# Why C: pings are frames of 17 bytes, and so are their answers, 3,855 in a piece of 64 KiB: 2.5 ms of the front's loop for each piece in
# Python, and 20 ms before others were served where eight connections sent pings; 33 us here.


cdef struct Head:
    unsigned char data[9]       # length (3), type, flags, stream (4)
    int had                     # bytes of it
    Py_ssize_t left             # of the payload that follows


cdef class Frames:
    cdef Head _head
    cdef bint _open             # a block of headers goes on in the next frame
    cdef readonly bint whole

    cpdef Py_ssize_t edge(self, const unsigned char[:] data)


cdef class Idle:
    cdef Head _head
    cdef int _preface           # bytes of it that came
    cdef long long _count
    cdef readonly bint http2

    cpdef long long add(self, const unsigned char[:] data)
    cpdef take(self, Py_ssize_t size)
    cpdef reset(self)
