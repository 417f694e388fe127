# Records: what stands behind a key, and the parts a writer hands over.
#
# A record is two byte strings. The *head* (table `current`) is a fixed header, the key, the label block and the
# selectable-field block: small and dense, so that a selector over 5,000 objects reads 2 MB in order instead of touching
# 5,000 pages. The *body* (table `body`, same key) is the JSON exactly as served, then, when the writer gave one, the
# protobuf message as served (without envelope). A block is a row of pairs sorted by name: u16 name length, u32 value length, name, value.
#
# Trusted input: a head that passed head_ok() once. All integers little-endian (x86-64, arm64).

cdef packed struct Head:
    uint32_t magic
    uint32_t flags
    uint64_t create_revision
    uint64_t mod_revision
    uint64_t lease_expiry
    uint64_t version
    uint32_t json_len
    uint32_t proto_len
    uint32_t rv_off
    uint32_t meta_end
    uint16_t rv_len
    uint16_t type_prefix_len
    uint32_t key_len
    uint32_t labels_len
    uint32_t fields_len

cdef enum:
    HEAD_MAGIC = 0x3152534B  # "KSR1"
    HEAD_SIZE = 72


cdef inline bint head_ok(const char *p, size_t n) noexcept nogil:
    """Whether the lengths of a head fit together; everything after relies on it."""
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


cdef inline int next_pair(const char **at, const char *end, const char **name, size_t *name_len,
                          const char **value, size_t *value_len) noexcept nogil:
    """Steps over one pair of a block; 0 at its end or where it is damaged."""
    cdef uint16_t n
    cdef uint32_t v
    cdef const char *p = at[0]
    if end - p < 6:
        return 0
    memcpy(&n, p, 2)
    memcpy(&v, p + 2, 4)
    if <uint64_t>(end - p) < <uint64_t>6 + n + v:
        return 0
    name[0] = p + 6
    name_len[0] = n
    value[0] = p + 6 + n
    value_len[0] = v
    at[0] = p + 6 + n + v
    return 1


cdef dict block_dict(const char *p, size_t n):
    cdef const char *end = p + n
    cdef const char *name
    cdef const char *value
    cdef size_t name_len, value_len
    cdef dict out = {}
    while next_pair(&p, end, &name, &name_len, &value, &value_len):
        out[name[:name_len].decode()] = value[:value_len].decode()
    return out


cdef bytes block_bytes(dict pairs):
    """The block of a str→str dict. Names are at most 65,535 bytes."""
    if not pairs:
        return b""
    cdef bytes name, value
    cdef uint16_t n
    cdef uint32_t v
    cdef list rows = sorted([(k.encode(), v_.encode()) for k, v_ in pairs.items()])
    cdef Py_ssize_t total = 0
    for name, value in rows:
        if PyBytes_GET_SIZE(name) > 65535:
            raise ValueError("the name of a label or field is longer than 65535 bytes")
        total += 6 + PyBytes_GET_SIZE(name) + PyBytes_GET_SIZE(value)
    cdef bytes out = PyBytes_FromStringAndSize(NULL, total)
    cdef char *p = PyBytes_AS_STRING(out)
    for name, value in rows:
        n = <uint16_t>PyBytes_GET_SIZE(name)
        v = <uint32_t>PyBytes_GET_SIZE(value)
        memcpy(p, &n, 2)
        memcpy(p + 2, &v, 4)
        memcpy(p + 6, PyBytes_AS_STRING(name), n)
        memcpy(p + 6 + n, PyBytes_AS_STRING(value), v)
        p += 6 + n + v
    return out


cdef size_t digits_of(uint64_t v, char *out) noexcept nogil:
    cdef char buffer[20]
    cdef size_t n = 0, i
    while True:
        buffer[n] = <char>(c'0' + v % 10)
        v //= 10
        n += 1
        if v == 0:
            break
    for i in range(n):
        out[i] = buffer[n - 1 - i]
    return n


# In a protobuf message the revision's digits stand two messages deep, so that their number shows in two lengths: that of the
# string, one byte, and that of the metadata, which as field 1 leads the message. Fields are in the order of their numbers.

cdef struct Splice:
    size_t meta      # where the content of the metadata begins
    size_t meta_len
    size_t at        # the length byte of metadata.resourceVersion
    size_t digits    # its value


cdef inline size_t put_varint(char *out, uint64_t v) noexcept nogil:
    cdef size_t n = 0
    while v >= 128:
        out[n] = <char>((v & 127) | 128)
        v >>= 7
        n += 1
    out[n] = <char>v
    return n + 1


cdef inline int get_varint(const char *p, size_t n, size_t *at, size_t *v) noexcept nogil:
    cdef int shift = 0
    v[0] = 0
    while at[0] < n and shift < 35:
        v[0] |= <size_t>(<unsigned char>p[at[0]] & 127) << shift
        at[0] += 1
        if not p[at[0] - 1] & 128:
            return 1
        shift += 7
    return 0


cdef bint find_splice(const char *p, size_t n, Splice *s) noexcept nogil:
    """Where the resourceVersion (field 6) of the metadata (field 1) stands; False for anything but an object's message."""
    cdef size_t i = 1, end, length
    if n < 2 or p[0] != 0x0A or not get_varint(p, n, &i, &s.meta_len) or s.meta_len > n - i:
        return False
    s.meta = i
    end = i + s.meta_len
    while i < end:
        if p[i] == 0x32:
            s.at = i + 1
            if s.at == end:
                return False
            s.digits = <unsigned char>p[s.at]
            return s.digits <= 20 and s.at + 1 + s.digits <= end
        if p[i] != 0x0A and p[i] != 0x12 and p[i] != 0x1A and p[i] != 0x22 and p[i] != 0x2A:
            return False  # name, generateName, namespace, selfLink, uid: strings
        i += 1
        if not get_varint(p, end, &i, &length) or length > end - i:
            return False
        i += length
    return False


cdef enum:
    SPLICE_ROOM = 32  # how much longer a message can become: 20 digits and the metadata's length


cdef size_t splice(char *out, const char *p, size_t n, const Splice *s, uint64_t revision) noexcept nogil:
    """Writes the message with another resourceVersion; returns its size."""
    cdef char digits[20]
    cdef char *q = out
    cdef size_t count = digits_of(revision, digits)
    cdef size_t rest = s.at + 1 + s.digits
    q[0] = 0x0A
    q += 1 + put_varint(q + 1, s.meta_len - s.digits + count)
    memcpy(q, p + s.meta, s.at - s.meta)
    q += s.at - s.meta
    q[0] = <char>count
    memcpy(q + 1, digits, count)
    q += 1 + count
    memcpy(q, p + rest, n - rest)
    return q - out + n - rest


cdef class Record:
    """One stored object at one revision. Immutable; shared freely between requests and watchers.

    ``head`` and ``body`` are the stored bytes. All other attributes are read from them on demand.
    """

    cdef readonly bytes head
    cdef readonly bytes body

    cdef inline const Head *h(self) noexcept:
        return <const Head *>PyBytes_AS_STRING(self.head)

    @property
    def key(self) -> str:
        cdef const char *p = PyBytes_AS_STRING(self.head)
        return head_key(p)[:(<const Head *>p).key_len].decode()

    @property
    def revision(self) -> int:
        """The revision of the write that made this record: the object's resourceVersion."""
        return self.h().mod_revision

    @property
    def create_revision(self) -> int:
        return self.h().create_revision

    @property
    def version(self) -> int:
        """1 after the create, one more with each update."""
        return self.h().version

    @property
    def lease_expiry(self) -> int:
        """Unix seconds at which the record expires, 0 for never."""
        return self.h().lease_expiry

    @property
    def json(self) -> bytes:
        """The object as served, with kind, apiVersion and resourceVersion; no newline."""
        cdef const Head *h = self.h()
        if h.proto_len == 0:
            return self.body
        return PyBytes_FromStringAndSize(PyBytes_AS_STRING(self.body), h.json_len)

    @property
    def json_line(self) -> bytes:
        """The JSON and a newline: a whole answer."""
        cdef const Head *h = self.h()
        cdef bytes out = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>h.json_len + 1)
        memcpy(PyBytes_AS_STRING(out), PyBytes_AS_STRING(self.body), h.json_len)
        PyBytes_AS_STRING(out)[h.json_len] = c'\n'
        return out

    @property
    def protobuf(self):
        """The protobuf message (without envelope), or None when the writer gave none."""
        cdef const Head *h = self.h()
        if h.proto_len == 0:
            return None
        return PyBytes_FromStringAndSize(PyBytes_AS_STRING(self.body) + h.json_len, h.proto_len)

    def protobuf_at(self, uint64_t revision):
        """As ``protobuf``, with another resourceVersion."""
        if revision == self.h().mod_revision:
            return self.protobuf
        return self.spliced(revision, False)

    def partial_protobuf_at(self, uint64_t revision):
        """The object's PartialObjectMetadata as a message with some resourceVersion, or None: it begins the object's own message."""
        return self.spliced(revision, True)

    cdef spliced(self, uint64_t revision, bint partial):
        cdef const Head *h = self.h()
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
        """Length of ``{"kind":…,"apiVersion":…,``: what a list item leaves out."""
        return self.h().type_prefix_len

    @property
    def item_json(self) -> bytes:
        """The object as it stands in the items of a list."""
        cdef const Head *h = self.h()
        cdef const char *p = PyBytes_AS_STRING(self.body)
        if h.type_prefix_len <= 1:
            return self.json
        return b"{" + p[h.type_prefix_len:h.json_len]

    @property
    def metadata_json(self):
        """The ``"metadata":{…}`` member, or None when the writer did not say where it ends."""
        cdef const Head *h = self.h()
        cdef const char *p = PyBytes_AS_STRING(self.body)
        if h.meta_end <= h.type_prefix_len:
            return None
        return p[h.type_prefix_len:h.meta_end]

    @property
    def labels(self) -> dict:
        cdef const char *p = PyBytes_AS_STRING(self.head)
        return block_dict(head_labels(p), (<const Head *>p).labels_len)

    @property
    def fields(self) -> dict:
        """The selectable fields, metadata.name and metadata.namespace among them."""
        cdef const char *p = PyBytes_AS_STRING(self.head)
        return block_dict(head_fields(p), (<const Head *>p).fields_len)

    def json_at(self, uint64_t revision) -> bytes:
        """The JSON with another resourceVersion (deletions carry the revision of the delete)."""
        cdef const Head *h = self.h()
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
    """A record from its stored bytes. Raises the store's Corrupt when they do not fit together."""
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


cdef Record copy_record(const char *head, size_t head_len, const char *body, size_t body_len):
    """A record copied out of the map (or a buffer), checked."""
    if not head_ok(head, head_len) or not body_ok(<const Head *>head, body_len):
        raise CorruptError("a record is damaged; restore the data directory from a backup")
    return make_record(PyBytes_FromStringAndSize(head, head_len), PyBytes_FromStringAndSize(body, body_len))


cdef class Draft:
    """The parts of a record before its revision is known. Made by build_record."""

    cdef readonly bytes head, tail
    cdef bytes labels, fields, proto
    cdef readonly int type_prefix_len
    cdef readonly int metadata_tail
    cdef readonly int64_t lease_s
    cdef Splice splice

    @property
    def label_map(self) -> dict:
        return block_dict(PyBytes_AS_STRING(self.labels), PyBytes_GET_SIZE(self.labels))

    @property
    def field_map(self) -> dict:
        return block_dict(PyBytes_AS_STRING(self.fields), PyBytes_GET_SIZE(self.fields))

    @property
    def size(self) -> int:
        return len(self.head) + len(self.tail) + len(self.labels) + len(self.fields) + len(self.proto or b"") + 160


def build_record(bytes head not None, bytes tail not None, dict labels=None, dict fields=None, int type_prefix_len=0,
                 int64_t lease_s=0, int metadata_tail=0, bytes protobuf=None) -> Draft:
    """The draft of a record.

    ``head`` + ``"resourceVersion":"<rev>"`` + ``tail`` is the JSON as served; a comma is put behind the revision unless
    ``tail`` starts with ``}``. ``type_prefix_len`` counts ``{"kind":…,"apiVersion":…,``. ``lease_s`` > 0 lets the record
    expire that many seconds after the commit. ``metadata_tail`` is how many bytes of ``tail`` still belong to the metadata
    object, closing brace included (0: not told; then ``metadata_json`` is None). ``protobuf`` is the same
    object as a message without envelope, as encode_protobuf() writes it; whatever resourceVersion it has is replaced at commit.
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
