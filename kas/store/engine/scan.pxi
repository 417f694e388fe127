# Scans: a range as records, or directly as the bytes of a list response.
#
# gather() has found the positions of the records; here the answer is allocated once, at its exact size, and copied, without
# the GIL above 256 KiB. scan() owns the items and the transaction around both steps. Trusted: the lengths that gathering
# checked. Benchmark: bench/test_store.py::test_list_500, test_list_5000.

cdef class RangeResult:
    """One page of a range.

    - ``records``: the list of records (empty for a JSON scan)
    - ``count``: the number of records or items
    - ``looked``: the number of records that were tested for selection
    - ``revision``: the revision at which the page is consistent
    - ``more``: whether keys follow
    - ``next_key``: the ``start`` of the next page, directly after the last record ("" at the end)
    - ``remaining``: how many keys follow, ignoring the matcher (-1: not counted)
    - ``body``: the bytes of a JSON or protobuf scan
    - ``end``: its last bytes, if ``wrap`` asked for them separately
    - ``size``: the bytes of the items, known when ``wrap`` is called (-1: an item lacks what the scan needs)
    """

    def __repr__(self):
        return f"<RangeResult {self.count} at {self.revision}, more={self.more}, remaining={self.remaining}>"


cdef extern from "Python.h":
    # Declared with PyObject *, not object: Cython would count references to it, and it could not be resized.
    PyObject *new_bytes "PyBytes_FromStringAndSize" (const char *, Py_ssize_t) except NULL
    char *bytes_at "PyBytes_AS_STRING" (PyObject *) nogil
    int _PyBytes_Resize(PyObject **, Py_ssize_t) except -1
    void Py_XDECREF(PyObject *)


cdef enum:
    MODE_RECORDS = 0
    MODE_JSON = 1
    MODE_METADATA = 2
    MODE_COUNT = 3
    MODE_PROTO = 4


cdef int copy_items(char *out, Gather *g, const char *lead, size_t lead_len, int mode) noexcept nogil:
    """Writes the items, separated by commas, to `out`, which has the size that items_size() returned."""
    cdef size_t i, n, lead_n
    cdef const Head *h
    cdef const char *s
    for i in range(g.n):
        h = <const Head *>g.items[i].head
        s = g.items[i].body
        if i:
            out[0] = c','
            out += 1
        memcpy(out, lead, lead_len)
        out += lead_len
        if mode == MODE_METADATA:
            n = h.meta_end - h.type_prefix_len
            memcpy(out, s + h.type_prefix_len, n)
            out[n] = c'}'
            out += n + 1
        else:
            n = h.json_len - h.type_prefix_len
            memcpy(out, s + h.type_prefix_len, n)
            out += n
    return 0


cdef int64_t items_size(Gather *g, size_t lead_len, int mode) noexcept nogil:
    """Returns the bytes of the items; -1 if the end of the metadata is unknown for one of them."""
    cdef size_t i
    cdef int64_t total = g.n - 1 if g.n else 0
    cdef const Head *h
    for i in range(g.n):
        h = <const Head *>g.items[i].head
        if mode == MODE_METADATA:
            if h.meta_end <= h.type_prefix_len:
                return -1
            total += lead_len + h.meta_end - h.type_prefix_len + 1
        else:
            total += lead_len + h.json_len - h.type_prefix_len
    return total


cdef inline size_t varint_size(uint64_t v) noexcept nogil:
    cdef size_t n = 1
    while v >= 128:
        v >>= 7
        n += 1
    return n


cdef int64_t proto_size(Gather *g) noexcept nogil:
    """Returns the bytes of the items as protobuf field 2; -1 if one has no protobuf section."""
    cdef size_t i
    cdef int64_t total = 0
    cdef const Head *h
    for i in range(g.n):
        h = <const Head *>g.items[i].head
        if h.proto_len == 0:
            return -1
        total += 1 + varint_size(h.proto_len) + h.proto_len
    return total


cdef void copy_proto(char *out, Gather *g) noexcept nogil:
    cdef size_t i
    cdef const Head *h
    for i in range(g.n):
        h = <const Head *>g.items[i].head
        out[0] = 0x12
        out += 1
        out += put_varint(out, h.proto_len)
        memcpy(out, g.items[i].body + h.json_len, h.proto_len)
        out += h.proto_len


cdef list found_records(Gather *g, list opened):
    """Returns the records of a range, some of which were sealed."""
    cdef Record record
    cdef dict by_head = {<size_t>PyBytes_AS_STRING((<Record>r).head): r for r in opened}
    cdef list out = []
    cdef size_t i
    for i in range(g.n):
        record = by_head.get(<size_t>g.items[i].head)
        if record is None:
            record = make_record(PyBytes_FromStringAndSize(g.items[i].head, g.items[i].head_len),
                                 PyBytes_FromStringAndSize(g.items[i].body, g.items[i].body_len))
        out.append(record)
    return out


def scan(Env env not None, str prefix not None, str start="", size_t limit=0, uint64_t revision=0, Matcher matcher=None,
         bint count=False, int mode=MODE_RECORDS, bytes lead=b"{", wrap=None, size_t max_bytes=0, known=None) -> RangeResult:
    """Reads a range in one transaction; see the store contract for the arguments.

    Modes: 0 records, 1 JSON items, 2 JSON items cut after the metadata, 3 count only, 4 protobuf items (field 2 of a list).
    ``lead`` replaces the type prefix of each JSON item. ``wrap(result) -> (before, after)`` is called once everything but
    ``body`` is known; ``body`` is then before + items + after. It is None if an item lacks what the mode needs, or if
    ``wrap`` returns None because only the size was wanted. With a number as a third element, that many of the last bytes (or
    all, if there are fewer) are in ``end`` instead of ``body``, which then need not be cut, and so copied, later. ``known``
    is ``(revision, keys)``: the number of keys of the prefix from ``start`` on at a revision, so that the remaining keys need
    not be counted if little was written since.

    Raises LookupError("compacted" | "future", requested, known) for the store to translate, and its TransformError when a
    sealed record cannot be opened.
    """
    cdef bytes prefix_raw = prefix.encode()
    cdef bytes start_raw = start.encode()
    cdef void *txn
    cdef Gather g
    cdef kas_val first
    cdef uint64_t newest, compacted
    cdef int rc
    cdef size_t i
    cdef int64_t size, total = -1
    cdef RangeResult out = RangeResult.__new__(RangeResult)
    cdef dict undo = None
    cdef list opened = []
    cdef bytes before = b"", after = b""
    cdef Py_ssize_t whole, kept = 0
    cdef PyObject *body = NULL
    cdef char *p
    cdef const char *last
    cdef const char *lead_p = PyBytes_AS_STRING(lead)
    cdef size_t lead_n = PyBytes_GET_SIZE(lead)
    if PyBytes_GET_SIZE(prefix_raw) > KEY_INLINE:
        raise KeyTooLongError(f"a prefix of {len(prefix_raw)} bytes is longer than {KEY_INLINE}")
    if start_raw < prefix_raw:
        start_raw = prefix_raw
    out.records, out.next_key, out.remaining, out.body = [], "", 0, None
    out.end = b""
    if not start_raw.startswith(prefix_raw) and start_raw > prefix_raw:
        # Beyond the range: an empty page, at a revision read below.
        limit = 0
    g.items = NULL
    g.opened = <void *>opened
    g.n = g.cap = g.looked = 0
    g.prefix, g.prefix_len = PyBytes_AS_STRING(prefix_raw), PyBytes_GET_SIZE(prefix_raw)
    g.start, g.start_len = PyBytes_AS_STRING(start_raw), PyBytes_GET_SIZE(start_raw)
    if g.start_len == 0:
        g.start, g.start_len = b"\x00", 1
    g.limit, g.count, g.want_body = limit, count, mode != MODE_COUNT
    g.max_bytes, g.held = max_bytes, 0
    g.gives = GIVES_JSON if mode == MODE_JSON else GIVES_PROTO if mode == MODE_PROTO else GIVES_ALL
    g.remaining, g.more = 0, False
    g.refuses_plain = env.transformer_for is not None and mode != MODE_COUNT and refused_plain(env, prefix) is not None
    rc = env.begin_read(&txn)
    if rc:
        raise engine_error(rc, f"reading {prefix}")
    try:
        rc = env.number(txn, b"kas.revision", &newest)
        if rc == 0:
            rc = env.number(txn, b"kas.compacted", &compacted)
        if rc:
            raise engine_error(rc, f"reading {prefix}")
        if revision and revision != newest:
            if revision > newest:
                raise LookupError("future", revision, newest)
            if revision < compacted:
                raise LookupError("compacted", revision, compacted)
            undo = undo_since(env, txn, revision, prefix_raw)
            newest = revision
        if mode == MODE_COUNT and not undo and matcher is None and g.start_len <= KEY_INLINE:
            if known is not None:
                total = keys_now(env, txn, known[0], known[1], newest, compacted, &g)
            if total >= 0:
                out.count, out.revision = min(total, <int64_t>limit) if limit else total, newest
                return out
            first = val(g.start, g.start_len)
            with nogil:
                rc = count_keys(env, txn, &first, &g, limit)
            if rc:
                raise engine_error(rc, f"counting {prefix}")
            out.count, out.revision = g.remaining, newest
            return out
        if count and known is not None and matcher is None:
            total = keys_now(env, txn, known[0], known[1], newest, compacted, &g)
            g.count = total < 0
        if undo:
            rc = gather_old(env, txn, matcher, &g, undo)
        elif 0 < limit <= 512 and matcher is None:  # selected records may be far apart
            rc = gather(env, txn, matcher, &g)
        else:
            with nogil:
                rc = gather(env, txn, matcher, &g)
        if rc == ERR_UNSEAL:
            error = opened[len(opened) - 1]
            if isinstance(error, TransformError):
                error.listed = True
            raise error
        if rc:
            raise engine_error(rc, f"reading {prefix}")
        out.count, out.looked, out.revision, out.more, out.remaining = g.n, g.looked, newest, g.more, g.remaining
        if total >= 0:
            out.remaining = total - g.n
        if g.more:
            last = g.items[g.n - 1].head
            out.next_key = head_key(last)[:(<const Head *>last).key_len].decode() + "\x00"
        if mode == MODE_COUNT:
            return out
        if mode == MODE_RECORDS:
            if opened:
                out.records = found_records(&g, opened)
                return out
            for i in range(g.n):
                out.records.append(make_record(PyBytes_FromStringAndSize(g.items[i].head, g.items[i].head_len),
                                               PyBytes_FromStringAndSize(g.items[i].body, g.items[i].body_len)))
            return out
        if g.n > 512:  # heads are scattered: for a whole list of which only the size is wanted, 100,000 cache misses
            with nogil:
                size = proto_size(&g) if mode == MODE_PROTO else items_size(&g, lead_n, mode)
        else:
            size = proto_size(&g) if mode == MODE_PROTO else items_size(&g, lead_n, mode)
        out.size = size
        if size < 0:
            return out
        if wrap is not None:
            around = wrap(out)
            if around is None:
                return out
            before, after = around[0], around[1]
            kept = around[2] if len(around) > 2 else 0
        whole = PyBytes_GET_SIZE(before) + size + PyBytes_GET_SIZE(after)
        body = new_bytes(NULL, whole)
        p = bytes_at(body)
        if size > (4 << 20):
            kas_hugepages(p, whole)
        memcpy(p, PyBytes_AS_STRING(before), PyBytes_GET_SIZE(before))
        p += PyBytes_GET_SIZE(before)
        if size > (256 << 10):
            with nogil:
                if mode == MODE_PROTO:
                    copy_proto(p, &g)
                else:
                    copy_items(p, &g, lead_p, lead_n, mode)
        elif mode == MODE_PROTO:
            copy_proto(p, &g)
        else:
            copy_items(p, &g, lead_p, lead_n, mode)
        memcpy(p + size, PyBytes_AS_STRING(after), PyBytes_GET_SIZE(after))
        if kept > 0:
            kept = min(kept, whole)
            out.end = PyBytes_FromStringAndSize(bytes_at(body) + whole - kept, kept)
            _PyBytes_Resize(&body, whole - kept)  # in place: nothing else refers to it yet
        out.body = <bytes>body
        return out
    finally:
        Py_XDECREF(body)
        env.end_read(txn)
        free(g.items)
