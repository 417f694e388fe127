# Drafts: an object before its revision is known, and the one function that makes a record of it.
#
# A Draft owns its bytes objects; Parts points into them (or into an opened payload) and must not outlive them. Trusted: the
# offsets, which build_record() and parse_payload() check. Benchmark: bench/test_store.py::test_build_record, test_create.


cdef class Draft:
    """The parts of a record before its revision is known. Made by build_record."""

    @property
    def label_map(self) -> dict:
        """The labels."""
        return block_dict(PyBytes_AS_STRING(self.labels), PyBytes_GET_SIZE(self.labels))

    @property
    def field_map(self) -> dict:
        """The selectable fields."""
        return block_dict(PyBytes_AS_STRING(self.fields), PyBytes_GET_SIZE(self.fields))

    @property
    def json(self) -> bytes:
        """The object without a resourceVersion."""
        if self.tail.startswith(b"}") and self.head.endswith(b","):
            return self.head[:len(self.head) - 1] + self.tail
        return self.head + self.tail

    @property
    def protobuf(self):
        """The message without envelope, None if the writer supplied none."""
        return self.proto

    @property
    def size(self) -> int:
        """The approximate number of bytes of the record."""
        return len(self.head) + len(self.tail) + len(self.labels) + len(self.fields) + len(self.proto or b"") + 160


def build_record(bytes head not None, bytes tail not None, dict labels=None, dict fields=None, int type_prefix_len=0,
                 int64_t lease_s=0, int metadata_tail=0, bytes protobuf=None) -> Draft:
    """Returns the draft of a record.

    ``head`` + ``"resourceVersion":"<rev>"`` + ``tail`` is the JSON as served; a comma follows the revision unless ``tail``
    starts with ``}``. ``type_prefix_len`` is the length of ``{"kind":…,"apiVersion":…,``. With ``lease_s`` > 0 the record
    expires that many seconds after the commit. ``metadata_tail`` is the number of bytes of ``tail`` that belong to the
    metadata object, including its closing brace (0: unknown; then ``metadata_json`` is None). ``protobuf`` is the same object
    as a message without envelope, as encode_protobuf() writes it; its resourceVersion, if any, is replaced at commit.
    """
    cdef Draft d = Draft.__new__(Draft)
    if len(head) + len(tail) > 0x7FFF0000:
        raise ValueError("the object is larger than 2 GiB")
    if not 0 <= type_prefix_len <= len(head) or type_prefix_len > 65535:
        raise ValueError("type_prefix_len lies outside of head")
    if not 0 <= metadata_tail <= len(tail):
        raise ValueError("metadata_tail lies outside of tail")
    if protobuf is not None and (len(protobuf) > 0x7FFF0000 or not find_splice(
            PyBytes_AS_STRING(protobuf), PyBytes_GET_SIZE(protobuf), &d.splice)):
        raise ValueError("protobuf has no metadata.resourceVersion")
    d.head, d.tail = head, tail
    d.labels = block_bytes(labels)
    d.fields = block_bytes(fields)
    d.type_prefix_len = type_prefix_len
    d.metadata_tail = metadata_tail
    d.lease_s = lease_s
    d.proto = protobuf
    return d


cdef void parts_of(Draft d, Parts *s) noexcept:
    s.head, s.head_len = PyBytes_AS_STRING(d.head), PyBytes_GET_SIZE(d.head)
    s.tail, s.tail_len = PyBytes_AS_STRING(d.tail), PyBytes_GET_SIZE(d.tail)
    s.labels, s.labels_len = PyBytes_AS_STRING(d.labels), PyBytes_GET_SIZE(d.labels)
    s.fields, s.fields_len = PyBytes_AS_STRING(d.fields), PyBytes_GET_SIZE(d.fields)
    s.proto, s.proto_len = NULL, 0
    if d.proto is not None:
        s.proto, s.proto_len = PyBytes_AS_STRING(d.proto), PyBytes_GET_SIZE(d.proto)
    s.splice = d.splice
    s.type_prefix_len, s.metadata_tail = d.type_prefix_len, d.metadata_tail


cdef inline size_t head_room(const Parts *s, size_t key_len) noexcept nogil:
    """Returns the exact size of the head that compose() writes."""
    return HEAD_SIZE + key_len + s.labels_len + s.fields_len


cdef inline size_t body_room(const Parts *s) noexcept nogil:
    """Returns the maximum size of the body that compose() writes: 19 + 1 + 1 for the member, 20 digits."""
    return s.head_len + s.tail_len + s.proto_len + 41 + SPLICE_ROOM


cdef size_t compose(const Parts *s, const char *key, size_t key_len, uint64_t revision, char *head, char *body) noexcept nogil:
    """Writes the record of a draft at a revision; returns the length of its body. The caller sets create_revision, version
    and lease_expiry in the head. The body: head "resourceVersion":"<digits>" [,] tail [protobuf]."""
    cdef Head *h = <Head *>head
    cdef char *q = body
    cdef size_t n
    memcpy(q, s.head, s.head_len)
    q += s.head_len
    memcpy(q, b'"resourceVersion":"', 19)
    n = digits_of(revision, q + 19)
    h.magic = HEAD_MAGIC
    h.flags = 0
    h.mod_revision = revision
    h.rv_off = s.head_len + 19
    h.rv_len = n
    q += 19 + n
    q[0] = c'"'
    q += 1
    if s.tail_len and s.tail[0] != c'}':
        q[0] = c','
        q += 1
    h.meta_end = (q - body) + s.metadata_tail if s.metadata_tail else 0
    memcpy(q, s.tail, s.tail_len)
    q += s.tail_len
    h.json_len = q - body
    h.proto_len = 0
    if s.proto_len:
        h.proto_len = splice(q, s.proto, s.proto_len, &s.splice, revision)
        q += h.proto_len
    h.type_prefix_len = s.type_prefix_len
    h.key_len = key_len
    h.labels_len = s.labels_len
    h.fields_len = s.fields_len
    n = q - body
    q = head + HEAD_SIZE
    memcpy(q, key, key_len)
    memcpy(q + key_len, s.labels, s.labels_len)
    memcpy(q + key_len + s.labels_len, s.fields, s.fields_len)
    return n
