# Sealing: the stored form of an object that must not be readable in the file.
#
# A transformer (kas/store/transform.py) seals a whole draft: both ends of the JSON, labels, fields and the protobuf message,
# with the key as authenticated data. The revision is not known at that time, and is not part of it: it is in the plain Head,
# and is spliced in after the payload has been opened, by the same compose() that a plain write uses. So an opened record
# equals, byte for byte, the record that would have been stored in plain form. In the map, the head of a sealed record has
# HEAD_SEALED and the key, but no labels and fields.
#
# The opened bytes are needed only during compose(); the record owns its own copy. Not trusted: a payload, even an authentic
# one (its lengths are checked). Needs the GIL; plain records never come here. Benchmark:
# bench/test_store.py::test_get_sealed.

cdef enum:
    PAYLOAD_MAGIC = 0x3150534B  # "KSP1"


cdef bytes payload_of(Draft d):
    """Returns the bytes for a transformer to seal."""
    cdef Payload p
    cdef Parts s
    parts_of(d, &s)
    p.magic = PAYLOAD_MAGIC
    p.head_len, p.tail_len, p.labels_len, p.fields_len, p.proto_len = s.head_len, s.tail_len, s.labels_len, s.fields_len, s.proto_len
    p.metadata_tail, p.type_prefix_len, p.unused = s.metadata_tail, s.type_prefix_len, 0
    return (<char *>&p)[:sizeof(Payload)] + d.head + d.tail + d.labels + d.fields + (d.proto or b"")


cdef bint parse_payload(const char *plain, size_t n, Parts *s) noexcept:
    """Points `s` into the payload; returns False if it is not valid."""
    cdef Payload p
    if n < sizeof(Payload):
        return False
    memcpy(&p, plain, sizeof(Payload))
    if p.magic != PAYLOAD_MAGIC or (<uint64_t>sizeof(Payload) + p.head_len + p.tail_len + p.labels_len + p.fields_len
                                    + p.proto_len != n):
        return False
    if p.type_prefix_len > p.head_len or p.metadata_tail > p.tail_len:
        return False
    s.head, s.head_len = plain + sizeof(Payload), p.head_len
    s.tail, s.tail_len = s.head + p.head_len, p.tail_len
    s.labels, s.labels_len = s.tail + p.tail_len, p.labels_len
    s.fields, s.fields_len = s.labels + p.labels_len, p.fields_len
    s.proto, s.proto_len = s.fields + p.fields_len, p.proto_len
    s.type_prefix_len, s.metadata_tail = p.type_prefix_len, p.metadata_tail
    return p.proto_len == 0 or find_splice(s.proto, s.proto_len, &s.splice)


cdef Record open_record(Env env, const char *head, const char *body, size_t body_len):
    """Returns the record of a sealed head and body, whose lengths were checked. Raises the store's TransformError."""
    cdef const Head *stored = <const Head *>head
    cdef bytes full = head_key(head)[:stored.key_len]
    cdef bytes plain, new_head, new_body
    cdef Parts s
    cdef Head *h
    cdef Record out
    cdef size_t n
    transformer = None if env.transformer_for is None else env.transformer_for(full.decode())
    if transformer is None:
        raise TransformError(full.decode(), "identity transformer tried to read encrypted data")
    try:
        plain, stale = transformer.open(body[:body_len], full)
    except Exception as e:  # of any kind: the only error after a commit has been made must be "cannot be opened"
        raise TransformError(full.decode(), str(e)) from e
    if not parse_payload(PyBytes_AS_STRING(plain), PyBytes_GET_SIZE(plain), &s):
        raise TransformError(full.decode(), "what was opened is no payload")
    new_head = PyBytes_FromStringAndSize(NULL, head_room(&s, stored.key_len))
    new_body = PyBytes_FromStringAndSize(NULL, body_room(&s))
    n = compose(&s, PyBytes_AS_STRING(full), stored.key_len, stored.mod_revision, PyBytes_AS_STRING(new_head), PyBytes_AS_STRING(new_body))
    h = <Head *>PyBytes_AS_STRING(new_head)
    h.create_revision, h.version, h.lease_expiry = stored.create_revision, stored.version, stored.lease_expiry
    out = make_record(new_head, shorten(new_body, n))
    out.sealed, out.stale = True, stale
    return out


cdef object refused_plain(Env env, str key):
    """Returns the TransformError if records stored in plain form at a key, or under a prefix, may not be read; otherwise None."""
    transformer = env.transformer_for(key)
    why = "" if transformer is None else transformer.refuses_plain
    return TransformError(key, why) if why else None


cdef bytes shorten(object body, size_t n):
    # A copy: the object is shared (with its list and this frame), and resizing in place requires sole ownership.
    return PyBytes_FromStringAndSize(PyBytes_AS_STRING(body), n)
