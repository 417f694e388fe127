# What an audited request says of itself, written as the JSON that Go writes.
#
#   Entry    the event at one stage, ready for a backend
#   Record   a request that is recorded: what every request has to say; kas.audit.event.Event adds what only some have
#   Buffer   entries that wait for a backend; kas.audit.batch.Batch adds who takes them
#   Said     what the policy says of requests whose like it was asked about
#   Recording   the audit filter, for requests of which there is nothing more to say
#
# Ownership: a Record holds its request, and so for as long as that lives; an Entry holds bytes alone. The text is put together in one
# buffer of the unit, in which nothing that runs Python may happen between the first byte and the last: a worker has one loop, and whoever
# writes holds the interpreter's lock.
# Input is what clients sent: any code point may come and any length; each is looked at once, and a character becomes six bytes at most.

from kas._fastpath cimport Request, Response


cdef class Entry:
    cdef readonly bytes line            # of the log: the event as an object of its own, with the line's end
    cdef Py_ssize_t _from, _to          # where in it the bodies are, alike where there are none
    cdef bytes _bare                    # of one that was made of fields and had bodies: what it has beside them


cdef class Record:
    cdef public str level
    cdef public str panicked            # the exception that was a bug, "" for none
    cdef public bint handed_on          # another server answers
    cdef public bytes request_object
    cdef public bytes response_object
    cdef public dict response_status    # what the answer says beside its code, None for nothing
    cdef public int code                # of the answer; 0 before there is one
    cdef public dict took               # seconds that went to something (kas.observe.latencies)
    cdef public dict ref                # the object's reference; None while it is what the request line says
    cdef public bint omit_managed_fields
    cdef readonly object user           # who really asked, whatever impersonation makes of it
    cdef readonly Request req
    cdef double _received
    cdef tuple _omitted

    cdef int _begin(self, Request req, str level, tuple omitted, bint omit_managed_fields, double received) except -1
    cdef bint _is_plain(self, Response resp) except -1
    cpdef Entry entry(self, str stage)


cdef class Buffer:
    cdef readonly list waiting
    cdef public bint served             # whether there is who takes what waits
    cdef public Py_ssize_t held         # bytes of entries that the backend has not taken yet
    cdef Py_ssize_t _limit, _size, _most
    cdef object _filled

    cdef bint _has_room(self) noexcept
    cdef int _put(self, Entry entry) except -1
