# A call that is repeated with the same request, and of whose answer only the revision is used. Its connection and headers are
# looked up again only when the server or the credentials change.
#
# It is compiled because a read that must be as new as etcd waits for such a call; if few reads share it, it is most of the
# additional cost of such a read (bench/on_etcd.py, get-newest-1).


cdef class Question:
    """See ``kas.store.etcd.sharedcall.SharedCall``, which adds finding a connection."""

    def __init__(self, client, bytes message not None, double within_s):
        self._client, self._message, self._within_s = client, message, within_s

    def ask(self, on_end) -> bool:
        """Returns whether the call could be begun now; ``on_end(stream)``, which must not raise, is called at its end."""
        cdef Calls connection = self._connection
        if (
            connection is None or connection._http2.leaving
            or self._client._turn != self._turn or self._client._metadata is not self._metadata
        ):
            if not self._find():
                return False
            connection = self._connection
        try:
            connection.begin(self._block, self._message, self._within_s, on_end)
        except RpcError:  # it has not begun
            return False
        return True

    def revision(self, Stream stream not None) -> int:
        """Returns the revision in the header of the answer; -1 if there is no answer."""
        cdef bytes message
        if stream.error is not None or len(stream.messages) != 1:
            return -1
        message = <bytes>stream.messages[0]
        return _header_revision(<const unsigned char *>PyBytes_AS_STRING(message), PyBytes_GET_SIZE(message))


cdef long long _header_revision(const unsigned char *p, Py_ssize_t size) noexcept:
    """Returns the revision of a message whose first field is its header, as in all answers of etcd; -1 for an invalid message."""
    cdef const unsigned char *end = p + size
    cdef const unsigned char *within
    cdef Field field, inner
    cdef long long revision = 0
    while p < end:
        p = _field(p, end, &field)
        if p == NULL:
            return -1
        if field.number == 1 and field.kind == BYTES:
            within = field.data
            while within < field.data + field.size:
                within = _field(within, field.data + field.size, &inner)
                if within == NULL:
                    return -1
                if inner.number == 3 and inner.kind == VARINT:
                    revision = <long long>inner.value
    return revision


def succeeded_at(Stream stream not None) -> int:
    """Returns the revision of a successful transaction according to the answer of its call, a ``TxnResponse``; 0 in all other
    cases.

    It is compiled because it was a fifth of the cost of handling a write's answer.
    """
    cdef bytes message
    cdef const unsigned char *p
    cdef const unsigned char *end
    cdef Field field
    cdef bint succeeded = False
    if stream.error is not None or len(stream.messages) != 1:
        return 0
    message = <bytes>stream.messages[0]
    p = <const unsigned char *>PyBytes_AS_STRING(message)
    end = p + PyBytes_GET_SIZE(message)
    while p < end:
        p = _field(p, end, &field)
        if p == NULL:
            return 0
        if field.number == 2 and field.kind == VARINT:
            succeeded = field.value != 0
    return max(0, _header_revision(<const unsigned char *>PyBytes_AS_STRING(message), PyBytes_GET_SIZE(message))) if succeeded else 0
