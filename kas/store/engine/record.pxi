# Records: the stored form of an object.
#
# A record is two byte strings. The *head* (table `current`) is a fixed header, the key, the label block and the
# selectable-field block: small and dense, so that a selector over 5,000 objects reads 2 MB in order instead of touching 5,000
# pages. The *body* (table `body`, same key) is the JSON exactly as served, followed, if the writer supplied one, by the
# protobuf message as served (without envelope). The map holds sealed records in another form (seal.pxi); a Record is always
# open.
#
# A Record owns its two bytes objects. Trusted: a head that passed head_ok() once. All integers little-endian (x86-64, arm64).
# Benchmark: bench/test_store.py::test_get.

cdef enum:
    HEAD_MAGIC = 0x3152534B  # "KSR1"
    HEAD_SIZE = 72
    HEAD_SEALED = 1  # flags: the body is a sealed payload, which contains labels and fields


cdef inline bint head_ok(const char *p, size_t n) noexcept nogil:
    """Checks that the lengths in a head are consistent; everything else relies on it."""
    cdef const Head *h = <const Head *>p
    if n < HEAD_SIZE or h.magic != HEAD_MAGIC:
        return False
    return (<uint64_t>HEAD_SIZE + h.key_len + h.labels_len + h.fields_len == n
            and <uint64_t>h.rv_off + h.rv_len <= h.json_len
            and h.type_prefix_len <= h.json_len and h.meta_end <= h.json_len)


cdef inline bint body_ok(const Head *h, size_t n) noexcept nogil:
    return <uint64_t>h.json_len + h.proto_len == n


cdef inline const char *head_key(const char *p) noexcept nogil:
    return p + HEAD_SIZE


cdef inline const char *head_labels(const char *p) noexcept nogil:
    return p + HEAD_SIZE + (<const Head *>p).key_len


cdef inline const char *head_fields(const char *p) noexcept nogil:
    return p + HEAD_SIZE + (<const Head *>p).key_len + (<const Head *>p).labels_len


cdef inline const Head *head_of(Record r) noexcept:
    return <const Head *>PyBytes_AS_STRING(r.head)


cdef class Record:
    """One stored object at one revision. Immutable; shared freely between requests and watchers.

    ``head`` and ``body`` are the stored bytes (for a sealed record: those of its plain form). All other attributes are read
    from them on demand. ``sealed``: it is stored sealed; ``stale``: sealed with a key that writes no longer use.
    """

    @property
    def key(self) -> str:
        """The whole path, however long."""
        cdef const char *p = PyBytes_AS_STRING(self.head)
        return head_key(p)[:(<const Head *>p).key_len].decode()

    @property
    def revision(self) -> int:
        """The revision of the write that made this record: the object's resourceVersion."""
        return head_of(self).mod_revision

    @property
    def create_revision(self) -> int:
        """The revision of the create."""
        return head_of(self).create_revision

    @property
    def version(self) -> int:
        """1 after the create, one more with each update."""
        return head_of(self).version

    @property
    def lease_expiry(self) -> int:
        """The time in Unix seconds at which the record expires, 0 for never."""
        return head_of(self).lease_expiry

    @property
    def json(self) -> bytes:
        """The object as served, with kind, apiVersion and resourceVersion; no newline."""
        cdef const Head *h = head_of(self)
        if h.proto_len == 0:
            return self.body
        return PyBytes_FromStringAndSize(PyBytes_AS_STRING(self.body), h.json_len)

    @property
    def json_line(self) -> bytes:
        """The JSON and a newline: a complete response body."""
        cdef const Head *h = head_of(self)
        cdef bytes out = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>h.json_len + 1)
        memcpy(PyBytes_AS_STRING(out), PyBytes_AS_STRING(self.body), h.json_len)
        PyBytes_AS_STRING(out)[h.json_len] = c'\n'
        return out

    @property
    def protobuf(self):
        """The protobuf message (without envelope), or None if the writer supplied none."""
        cdef const Head *h = head_of(self)
        if h.proto_len == 0:
            return None
        return PyBytes_FromStringAndSize(PyBytes_AS_STRING(self.body) + h.json_len, h.proto_len)

    def protobuf_at(self, uint64_t revision):
        """Returns ``protobuf`` with another resourceVersion."""
        if revision == head_of(self).mod_revision:
            return self.protobuf
        return self.spliced(revision, False)

    def partial_protobuf_at(self, uint64_t revision):
        """Returns the object's PartialObjectMetadata as a message with the given resourceVersion, or None: it is the
        beginning of the object's own message."""
        return self.spliced(revision, True)

    cdef object spliced(self, uint64_t revision, bint partial):
        cdef const Head *h = head_of(self)
        cdef const char *p = PyBytes_AS_STRING(self.body) + h.json_len
        cdef Splice s
        cdef size_t n = h.proto_len
        cdef char *out
        if n == 0:
            return None
        if not find_splice(p, n, &s):
            raise CorruptError("a record's protobuf message is damaged")
        if partial:
            n = s.meta + s.meta_len
        out = <char *>malloc(n + SPLICE_ROOM)
        if out == NULL:
            raise MemoryError
        try:
            return PyBytes_FromStringAndSize(out, splice(out, p, n, &s, revision))
        finally:
            free(out)

    @property
    def type_prefix_len(self) -> int:
        """Length of ``{"kind":…,"apiVersion":…,``, which list items omit."""
        return head_of(self).type_prefix_len

    @property
    def item_json(self) -> bytes:
        """The object as an item of a list."""
        cdef const Head *h = head_of(self)
        cdef const char *p = PyBytes_AS_STRING(self.body)
        if h.type_prefix_len <= 1:
            return self.json
        return b"{" + p[h.type_prefix_len:h.json_len]

    @property
    def metadata_json(self):
        """The ``"metadata":{…}`` member, or None if the writer did not supply its end."""
        cdef const Head *h = head_of(self)
        cdef const char *p = PyBytes_AS_STRING(self.body)
        if h.meta_end <= h.type_prefix_len:
            return None
        return p[h.type_prefix_len:h.meta_end]

    @property
    def metadata_end(self) -> int:
        """The offset of the end of the metadata in the JSON, 0 if the writer did not supply it."""
        return head_of(self).meta_end

    @property
    def labels(self) -> dict:
        """metadata.labels, as selectors see them."""
        cdef const char *p = PyBytes_AS_STRING(self.head)
        return block_dict(head_labels(p), (<const Head *>p).labels_len)

    @property
    def fields(self) -> dict:
        """The selectable fields, including metadata.name and metadata.namespace."""
        cdef const char *p = PyBytes_AS_STRING(self.head)
        return block_dict(head_fields(p), (<const Head *>p).fields_len)

    def json_at(self, uint64_t revision) -> bytes:
        """Returns the JSON with another resourceVersion (events of deletions carry the revision of the delete)."""
        cdef const Head *h = head_of(self)
        cdef const char *p = PyBytes_AS_STRING(self.body)
        return p[:h.rv_off] + b"%d" % revision + p[h.rv_off + h.rv_len:h.json_len]

    def __len__(self):
        return PyBytes_GET_SIZE(self.head) + PyBytes_GET_SIZE(self.body)

    def __eq__(self, other):
        return isinstance(other, Record) and self.head == (<Record>other).head and self.body == (<Record>other).body

    def __hash__(self):
        return hash(self.body)

    def __repr__(self):
        return f"<Record {self.key} at {self.revision}, {len(self)} bytes>"

    def __reduce__(self):
        return _record_from, (self.head, self.body)


def _record_from(bytes head, bytes body):
    """Returns a record for its stored bytes. Raises the store's Corrupt if they are inconsistent."""
    if not head_ok(PyBytes_AS_STRING(head), PyBytes_GET_SIZE(head)):
        raise CorruptError("a record's head is damaged")
    if not body_ok(<const Head *>PyBytes_AS_STRING(head), PyBytes_GET_SIZE(body)):
        raise CorruptError("a record's body does not have the length its head tells")
    return make_record(head, body)


cdef inline Record make_record(bytes head, bytes body):
    cdef Record r = Record.__new__(Record)
    r.head = head
    r.body = body
    return r


cdef Record stored_record(Env env, const char *head, size_t head_len, const char *body, size_t body_len):
    """Returns a record copied from the map (or a buffer), checked, and opened if it is sealed."""
    if not head_ok(head, head_len) or not body_ok(<const Head *>head, body_len):
        raise CorruptError("a record is damaged; restore the data directory from a backup")
    if (<const Head *>head).flags & HEAD_SEALED:
        return open_record(env, head, body, body_len)
    return make_record(PyBytes_FromStringAndSize(head, head_len), PyBytes_FromStringAndSize(body, body_len))
