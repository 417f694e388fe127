# What every usual question to a webhook passes: a connection that is open, a message written, an answer like the last one.
#
#   Answered what who has asked waits for
#   Wire     a connection's questions, and the answers that come as a whole behind the head of the one before; kas.client.exchange.Exchange
#            adds what only some answers need: their heads read, bodies in pieces and chunks, handshakes, ends
#   Kept     the connections that stay open between questions; kas.client.pool.Pool adds how they are made and how they age
#   Shares   who may ask how much at once
#   Ends     whose time is up
#   Asking   one question and its answer
#   Asker    a question as a whole, where nothing about it is new; kas.client.hooks.HookClient adds what is done otherwise
#   Known    the askers there are; kas.client.hooks.HookClients adds how they are made
#
# Ownership: a Wire holds what has come and nobody has taken; of an answer that was taken nothing but its head stays. It is used on the
# loop's thread only.
# Input is what a backend sends: only what equals a head that has been read as a whole, byte by byte, is taken here; anything else is
# left to what reads heads.


cdef class Answered:
    cdef object _loop
    cdef object _told, _context         # the task's callback, None when nobody waits, and the context to run it in
    cdef bytes found
    cdef object error
    cdef bint over                      # there is the one or the other
    cdef public bint _asyncio_future_blocking  # a task looks for it, and sets it

    cdef int _tell_soon(self) except -1
    cdef int _came(self, bytes found) except -1


cdef class Wire:
    cdef public object _transport       # None while there is none
    cdef public object _tls             # the connection as TLS knows it, None without
    cdef public object _sealed          # what has come and is to be opened, and what is sealed and to be sent
    cdef public object _sealing
    cdef public bytearray _got          # what has come, opened
    cdef public bint _ended             # it takes no further question
    cdef public object ready            # the future of who waits for the connection to be made
    cdef public object _answer          # the future of who has asked, None when nobody waits
    cdef public Py_ssize_t _limit       # of the answer: no more of it is wanted
    cdef public object _chunks
    cdef public int _informational
    cdef public Py_ssize_t _looked
    cdef public object head             # of the answer, ``_none`` while it has not come
    cdef public object _known           # what the head of the last answer says, and what that of this one does
    cdef public object _framing
    cdef readonly bint plain            # whether the answer was taken here, and says nothing but its body
    cdef readonly long generation       # of those that are kept, when it was taken
    cdef object _loop, _none
    cdef bytes _raw                     # of what is known: its bytes, the length of the body it tells (-1: none), whether it is plain
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
    cdef readonly long generation       # what was made before the last ``renew`` is not kept

    cdef Wire _take(self)
    cdef int _keep(self, Wire connection, long generation) except -1


cdef class Shares:
    cdef dict _running
    cdef Py_ssize_t _room, _total

    cdef bint _take(self, object backend) except -1
    cdef int _give(self, object backend) except -1


cdef class Ends:
    cdef dict _due                      # by connection, of the monotonic clock
    cdef object _timer
    cdef double _fires

    cdef int _add(self, Wire connection, double at) except -1


cdef class Asking


cdef class Asker:
    cdef public Shares _shares
    cdef public object _backend         # who answers, for the shares
    cdef public object _pool            # a Kept
    cdef public tuple _last             # what was shown last: for how many seconds and with which headers, to whom, the head
    cdef public bint _fixed             # whether nothing of that but the seconds ever changes
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
    cdef Wire _connection               # None once the answer was taken, or is to be looked at
    cdef Answered _answered
    cdef double _until                  # of the monotonic clock
    cdef bytes _body                    # what was sent, and before that, as the asker knows it
    cdef tuple _last
    cdef bint _waits
    cdef bint bare                      # the body is left in ``found``: to raise it, as what is awaited returns it, costs a traceback
    cdef bytes found
    cdef object _more                   # how the rest is found out, where the answer is none of the usual ones

    cdef int _over(self, bint good) except -1
