# A question that is asked again and again, of which only the revision matters that its answer tells: whose headers are looked up anew only
# when somebody else is to be asked, or as somebody else.
#
# Why C: a read that has to be as new as etcd waits for one, and where few share it, it is most of what such a read costs more than another
# (bench/on_etcd.py, get-newest-1).


cdef class Question:
    """See ``kas.store.etcd.client.Asked``, which it is but for finding out whom to ask."""

    def __init__(self, client, bytes message not None, double within_s):
        self._client, self._message, self._within_s = client, message, within_s

    def ask(self, told) -> bool:
        """Whether it leaves now; ``told(stream)``, which must not raise, is called once the call is over."""
        cdef Calls connection = self._connection
        if (
            connection is None or connection._http2.leaving
            or self._client._turn != self._turn or self._client._metadata is not self._metadata
        ):
            if not self._find():
                return False
            connection = self._connection
        try:
            connection.begin(self._block, self._message, self._within_s, told)
        except RpcError:  # it has not begun
            return False
        return True

    def revision(self, Stream stream not None) -> int:
        """What the header of its answer says; -1 where it was not answered."""
        cdef bytes message
        if stream.error is not None or len(stream.messages) != 1:
            return -1
        message = <bytes>stream.messages[0]
        return _header_revision(<const unsigned char *>PyBytes_AS_STRING(message), PyBytes_GET_SIZE(message))


cdef long long _header_revision(const unsigned char *p, Py_ssize_t size) noexcept:
    """That of a message whose first field is its header, as of each answer of etcd's; -1 for what is none."""
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
    """The revision of the transaction that a call has made, as its answer, a ``TxnResponse``, says; 0 for everything else.

    Why C: of what an answer brought a write this was a fifth."""
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
