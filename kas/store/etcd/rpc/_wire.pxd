# The path of every call to etcd: a request that fits into one frame, and an answer of one message between headers that were seen
# before.
#
#   Stream      one call, its messages and its end
#   Wire        frames of calls, sent and received; kas.store.etcd.rpc.http2.Connection adds the rest: settings, pings, ends, growing
#               windows, and frames that are padded or come in pieces
#   Calls       a Wire on an event loop: begins calls, sends them together at the end of the loop iteration if others are in progress, and
#               reports their ends; kas.store.etcd.rpc.looped.Looped adds the connection's lifetime
#   Question    a call that is repeated with the same request (wire/question.pxi)
#   PutIf       the transaction of most writes, as protobuf
#   Watched     a response of a watch, with its Changes, parsed from protobuf
#
# Ownership: a Wire holds the beginning of an incomplete frame, and for each call the data that http2's docstring describes and
# bounds. It is used on one thread at a time.
# Input is what a peer sends: lengths are checked before they are used, and a violation of the protocol raises ``Broken``, which
# ends the connection; it never reaches the caller of ``feed``.
# the connection; it never reaches who fed it.


cdef class Stream:
    cdef public bytes _block            # its headers, until it has begun
    cdef public bytes _left             # the data still to be sent
    cdef public bint _ended             # nothing follows these data
    cdef public object _headers         # the first headers of the answer, None until they arrive
    cdef public bytearray _buffer       # for messages in pieces
    cdef public long _id                # 0: not begun
    cdef public long _window
    cdef public long _got
    cdef public unsigned long most      # maximum bytes of a message
    cdef public bint single             # the answer is one message
    cdef public bint over
    cdef public object error            # RpcError, of a call that failed
    cdef public list messages
    cdef public object ended            # called at the end of the call, or None
    cdef public object waiter           # set by the owner
    cdef double until                   # the deadline; set by the owner


cdef class Wire:
    cdef public list _out               # frames to be sent
    cdef public bytes _rest             # an incomplete frame
    cdef public object _decoder
    cdef dict _seen                     # the decoder's cache: small header blocks, and their content
    cdef object _usual                  # the header content of the last good answer
    cdef public dict _streams           # by number
    cdef public object _waiting         # a deque of calls beyond the peer's limit of streams
    cdef public dict _blocked           # calls with more to send than the windows permit
    cdef public long _next, _taken      # streams from ``_taken`` on have no data in the bytes taken
    cdef public long _got, _room, _stream_room, _most
    cdef public object _block           # headers to be continued
    cdef public list held               # answers to pings that wait
    cdef public bint ready, closed
    cdef public str leaving
    cdef public long heard
    cdef tuple _handlers                # by frame type

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
    cdef int _read_headers(self, Stream stream, int flags, bytes block) except -1


cdef class Change:
    cdef readonly bytes key
    cdef readonly bytes value
    cdef readonly long long mod_revision
    cdef readonly bint put              # otherwise the key was deleted


cdef class Watched:
    cdef readonly list events           # Changes
    cdef readonly long long revision    # from the header, like cluster_id
    cdef readonly unsigned long long cluster_id
    cdef readonly long long watch_id
    cdef readonly long long compact_revision
    cdef readonly bint created, canceled, fragment
    cdef readonly str cancel_reason


cdef class Calls:
    cdef public object _loop
    cdef public Wire _http2
    cdef public object _transport       # None if not connected
    cdef public bint _flushing
    cdef public object _alive           # the keepalive timer
    cdef public object _latest          # the timer that checks for timeouts, at ``_look_at``
    cdef double _look_at
    cdef object _call_soon, _call_later
    cdef public object _answering       # the timer that answers pings
    cdef public bint _greeting          # the peer has not sent its greeting yet

    cpdef _flush(self)
    cdef int _watch(self, double until) except -1

    cpdef Stream begin(self, bytes block, bytes message, double within_s, object on_end=?)


cdef class Question:
    cdef readonly object _client        # kas.store.etcd.client.AsyncClient
    cdef bytes _message
    cdef readonly double _within_s
    cdef public Calls _connection       # the connection to use; None until one was found
    cdef public bytes _block            # the call's headers on it
    cdef public long _turn              # the client's ``_turn`` when it was found
    cdef public object _metadata        # the credentials
