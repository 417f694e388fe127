# The path of every usual call of a webhook: an open connection, a request written, a response like the last one.
#
#   Answered what the caller of a request awaits
#   Wire     a connection's requests, and the responses that arrive as a whole with the head of the one before; kas.client.exchange.Exchange
#            adds what only some responses need: parsing heads, bodies in pieces and chunks, handshakes, ends
#   Kept     the connections that stay open between requests; kas.client.pool.Pool adds how they are made and how they age
#   Shares   how many calls each backend may have in progress
#   Ends     the deadlines of responses
#   Asking   one request and its response
#   Asker    a whole call, if nothing about it is new; kas.client.hooks.HookClient adds everything else
#   Known    the existing clients; kas.client.hooks.HookClients adds how they are made
#
# Ownership: a Wire holds what has arrived and was not taken; of a response that was taken only its head remains. It is used in the event
# loop's thread only.
# Input is what a backend sends: only a response whose head equals, byte by byte, one that was parsed before is taken here; anything else is
# left to the parser.


cdef class Answered:
    cdef object _loop
    cdef object _callback, _context     # the task's callback, None if no task waits, and the context to run it in
    cdef bytes found
    cdef object error
    cdef bint over                      # one of these is set
    cdef public bint _asyncio_future_blocking  # the protocol of asyncio's tasks

    cdef int _tell_soon(self) except -1
    cdef int _came(self, bytes found) except -1


cdef class Wire:
    cdef public object _transport       # None while there is none
    cdef public object _tls             # the TLS connection, None without TLS
    cdef public object _sealed          # received data to be decrypted, and encrypted data to be sent
    cdef public object _sealing
    cdef public bytearray _got          # received data, decrypted
    cdef public bint _ended             # it takes no further request
    cdef public object ready            # a future, done once the connection can be used
    cdef public object _answer          # the future of the request in progress, None if there is none
    cdef public Py_ssize_t _limit       # of the response, in bytes; no more of it is read
    cdef public object _chunks
    cdef public int _informational
    cdef public Py_ssize_t _looked
    cdef public object head             # of the response, ``_none`` until it has arrived
    cdef public object _known           # the framing of the last response, and of this one
    cdef public object _framing
    cdef readonly bint plain            # whether the response was taken here, and nothing but its body matters
    cdef readonly long generation       # of the pool, when the connection was taken
    cdef object _loop, _none
    cdef bytes _raw                     # of ``_known``: the head's bytes, the length of the body (-1: unknown), whether it is plain
    cdef Py_ssize_t _length
    cdef bint _says_nothing

    cdef int _ask(self, answer, bytes head, bytes body, Py_ssize_t limit) except -1
    cdef int _write(self, bytes data) except -1
    cdef bytes _opened(self, bytes data)
    cdef bint _usual(self, bytes data) except -1


cdef class Kept:
    cdef public list _idle              # (since when, connection); the last one is taken first
    cdef Py_ssize_t _room
    cdef object _clock
    cdef public object _timer
    cdef public bint _closed
    cdef readonly long generation       # connections made before the last ``renew`` are not kept

    cdef Wire _take(self)
    cdef int _keep(self, Wire connection, long generation) except -1


cdef class Shares:
    cdef dict _running
    cdef Py_ssize_t _room, _total

    cdef bint _take(self, object backend) except -1
    cdef int _give(self, object backend) except -1


cdef class Ends:
    cdef dict _due                      # by connection, on the monotonic clock
    cdef object _timer
    cdef double _fires

    cdef int _add(self, Wire connection, double at) except -1


cdef class Asking


cdef class Asker:
    cdef public Shares _shares
    cdef public object _backend         # the key for the shares
    cdef public object _pool            # a Kept
    cdef public tuple _last             # of the last request: timeout in seconds and headers, target, head
    cdef public bint _fixed             # whether nothing of that but the timeout ever changes
    cdef Ends _ends
    cdef Py_ssize_t _most

    cdef Asking _begin(self, bytes body, double timeout_s, double left_s)
    cdef int _rest(self, Wire connection, bint good) except -1


cdef class Known:
    cdef object _known                  # an OrderedDict
    cdef public Asker _latest           # the one at its end

    cdef Asker _found(self, bytes key)


cdef class Asking:
    cdef Asker _asker
    cdef Wire _connection               # None once the response was taken, or is handed to ``_more``
    cdef Answered _answered
    cdef double _until                  # on the monotonic clock
    cdef bytes _body                    # the body that was sent; and the asker's ``_last``
    cdef tuple _last
    cdef bint _waits
    cdef bint bare                      # the body is left in ``found``: raising StopIteration with it costs a traceback
    cdef bytes found
    cdef object _more                   # the coroutine that handles an unusual response

    cdef int _over(self, bint good) except -1
