# The text of audit events, as the JSON that Go writes.
#
#   Entry       the event at one stage, ready for a backend
#   Record      an audited request: what all requests have in common; kas.audit.event.Event adds the rest
#   Buffer      entries waiting for a backend; kas.audit.batch.Batch adds the consumer
#   Verdicts    the cached verdicts of the policy
#   Recording   the fast path of the audit filter, for requests that need nothing else
#
# Ownership: a Record references its request and lives as long; an Entry holds only bytes. The text is assembled in one buffer per module.
# No Python code may run between its first and its last byte: a worker has one event loop, and the writer holds the GIL. Input is
# untrusted: any code point and any length is possible. Each character is examined once and becomes six bytes at most.

from kas._fastpath cimport Request, Response


cdef class Entry:
    cdef readonly bytes line            # the log line: the event as a JSON object and the line's end
    cdef Py_ssize_t _from, _to          # the range of the bodies in it, empty if there are none
    cdef bytes _bare                    # the event without bodies, if it was made of fields and had bodies


cdef class Record:
    cdef public str level
    cdef public str panicked            # the exception of a server bug, "" for none
    cdef public bint handed_on          # another server answers the request
    cdef public bytes request_object
    cdef public bytes response_object
    cdef public dict response_status    # fields of the response's Status, None if it is none
    cdef public int code                # of the response; 0 before there is one
    cdef public dict took               # seconds by phase (kas.observe.latencies)
    cdef public dict ref                # the object reference; None while it follows from the request line
    cdef public bint omit_managed_fields
    cdef readonly object user           # the authenticated user, before impersonation
    cdef readonly Request req
    cdef double _received
    cdef tuple _omitted

    cdef int _begin(self, Request req, str level, tuple omitted, bint omit_managed_fields, double received) except -1
    cdef bint _is_plain(self, Response resp) except -1
    cpdef Entry entry(self, str stage)


cdef class Buffer:
    cdef readonly list waiting
    cdef public bint served             # whether a consumer is running
    cdef public Py_ssize_t held         # bytes of entries that the backend has not taken yet
    cdef Py_ssize_t _limit, _size, _most
    cdef object _filled

    cdef bint _has_room(self) noexcept
    cdef int _put(self, Entry entry) except -1
