# What every call to etcd passes: a question that fits into one frame, and an answer of one message between headers that were seen before.
#
#   Stream      one call, its messages and its end
#   Wire        frames of calls out and in; kas.store.etcd.rpc.http2.Connection adds what is not every call's: settings, pings, ends, windows
#               that grow, what was padded or comes in pieces
#   Calls       a Wire on an event loop: calls begun, sent together at the end of the loop's turn where others are under way, and told that
#               they are over;
#               kas.store.etcd.rpc.looped.Looped adds the connection's life
#   Question    a call that is made again and again (wire/question.pxi)
#   PutIf       the transaction that most writes are, as protobuf
#   Watched     what a watch tells, with its Changes, read from protobuf
#
# Ownership: a Wire holds the beginning of a frame whose rest is still to come, and of each call what stands in http2's docstring, which also
# says what bounds it. It is used on one thread at a time.
# Input is what a peer sends: lengths are looked at before anything is read by them, and what breaks the protocol is ``Broken``, which ends
# the connection; it never reaches who fed it.


cdef class Stream:
    cdef public bytes _block            # its headers, until it has begun
    cdef public bytes _left             # what is still to be sent
    cdef public bint _ended             # nothing follows what is left
    cdef public object _headers         # the first of the answer, None while they have not come
    cdef public bytearray _buffer       # of messages in pieces
    cdef public long _id                # 0: it has not begun
    cdef public long _window
    cdef public long _got
    cdef public unsigned long most      # bytes of a message
    cdef public bint single             # one message is the answer
    cdef public bint over
    cdef public object error            # RpcError, of one that is over
    cdef public list messages
    cdef public object ended            # called when it is over, or None
    cdef public object waiter           # its owner's
    cdef double until                   # when it has taken too long; its owner's, too


cdef class Wire:
    cdef public list _out               # frames to be sent
    cdef public bytes _rest             # the beginning of a frame
    cdef public object _decoder
    cdef dict _seen                     # the decoder's: small blocks of headers, and what they say
    cdef object _usual                  # what the headers of the last good answer said
    cdef public dict _streams           # by number
    cdef public object _waiting         # a deque of those for which the peer has no room
    cdef public dict _blocked           # have more to send than the windows let
    cdef public long _next, _taken      # streams from ``_taken`` on have nothing in what was taken
    cdef public long _got, _room, _stream_room, _most
    cdef public object _block           # headers that are to be continued
    cdef public list held               # answers to pings that wait
    cdef public bint ready, closed
    cdef public str leaving
    cdef public long heard
    cdef tuple _handlers                # by kind of frame

    cpdef bytes take(self)
    cpdef Stream begin(self, bytes block, bytes message, bint last, bint single, object ended)
    cdef int _whole(self, Stream stream, bytes message) except -1
    cpdef _start(self, Stream stream)
    cpdef _pump(self, Stream stream)
    cdef int _pump_one(self, Stream stream) except -1
    cpdef _over(self, Stream stream, object error)
    cpdef feed(self, bytes data)
    cdef Stream _known(self, long number)
    cdef int _data(self, int flags, long number, bytes data, Py_ssize_t at, Py_ssize_t end) except -1
    cdef object _gather(self, Stream stream, bytes data, Py_ssize_t at, Py_ssize_t end)
    cdef int _told(self, Stream stream, int flags, bytes block) except -1


cdef class Change:
    cdef readonly bytes key
    cdef readonly bytes value
    cdef readonly long long mod_revision
    cdef readonly bint put              # else the key was deleted


cdef class Watched:
    cdef readonly list events           # Changes
    cdef readonly long long revision    # of the header, as cluster_id
    cdef readonly unsigned long long cluster_id
    cdef readonly long long watch_id
    cdef readonly long long compact_revision
    cdef readonly bint created, canceled, fragment
    cdef readonly str cancel_reason


cdef class Calls:
    cdef public object _loop
    cdef public Wire _http2
    cdef public object _transport       # None while there is none
    cdef public bint _flushing
    cdef public object _alive           # the timer that looks whether the server lives
    cdef public object _latest          # the timer that looks for calls that take too long, at ``_look_at``
    cdef double _look_at
    cdef object _call_soon, _call_later
    cdef public object _answering       # the timer that answers pings
    cdef public bint _greeting          # the peer has not greeted yet

    cpdef _flush(self)
    cdef int _watch(self, double until) except -1

    cpdef Stream begin(self, bytes block, bytes message, double within_s, object told=?)


cdef class Question:
    cdef readonly object _client        # kas.store.etcd.client.AsyncClient
    cdef bytes _message
    cdef readonly double _within_s
    cdef public Calls _connection       # what is asked; None until somebody was found
    cdef public bytes _block            # the headers there
    cdef public long _turn              # the client's, by which it was found
    cdef public object _metadata        # as whom
