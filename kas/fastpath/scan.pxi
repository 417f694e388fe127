# Scans: key ranges into records or straight into the bytes of a list response.
#
# Two steps. Gather: walk `current`, test the matcher on the heads, note where heads and bodies lie in the map. Copy: allocate
# the answer once at its exact size and copy. For more than 512 records, or more than 256 KiB, both run without the GIL.
# A read at an older revision first collects the undo entries of newer revisions and lays them over the walk.

cdef struct Item:
    const char *head
    size_t head_len
    const char *body
    size_t body_len

cdef struct Gather:
    Item *items
    size_t n, cap
    const char *prefix
    size_t prefix_len
    const char *start      # full start key
    size_t start_len
    size_t limit           # 0: none
    int count              # whether to count what is left
    int want_body
    uint64_t revision
    int64_t remaining
    bint more
    const char *next_key   # in the map
    size_t next_len


cdef inline int push(Gather *g, const char *head, size_t head_len, const char *body, size_t body_len) noexcept nogil:
    cdef Item *grown
    if g.n == g.cap:
        grown = <Item *>realloc(g.items, (g.cap * 2 + 64) * sizeof(Item))
        if grown == NULL:
            return ENOMEM
        g.items = grown
        g.cap = g.cap * 2 + 64
    g.items[g.n].head = head
    g.items[g.n].head_len = head_len
    g.items[g.n].body = body
    g.items[g.n].body_len = body_len
    g.n += 1
    return 0


cdef inline bint same_run(const char *a, const char *b) noexcept nogil:
    """Whether two records have hashed keys that share their verbatim part."""
    return ((<const Head *>a).key_len > KEY_INLINE and (<const Head *>b).key_len > KEY_INLINE
            and memcmp(head_key(a), head_key(b), KEY_INLINE) == 0)


cdef int by_key(const void *a, const void *b) noexcept nogil:
    cdef const char *x = (<const Item *>a).head
    cdef const char *y = (<const Item *>b).head
    return compare(head_key(x), (<const Head *>x).key_len, head_key(y), (<const Head *>y).key_len)


cdef void sort_runs(Gather *g) noexcept nogil:
    cdef size_t i = 0, j
    while i < g.n:
        j = i + 1
        if (<const Head *>g.items[i].head).key_len > KEY_INLINE:
            while j < g.n and same_run(g.items[i].head, g.items[j].head):
                j += 1
            if j - i > 1:
                qsort(&g.items[i], j - i, sizeof(Item), by_key)
        i = j


cdef void cut(Gather *g) noexcept nogil:
    """Sorts runs, then cuts a run that went beyond the limit."""
    sort_runs(g)
    if g.limit and g.n > g.limit:
        g.next_key = head_key(g.items[g.limit].head)
        g.next_len = (<const Head *>g.items[g.limit].head).key_len
        g.remaining = g.remaining + g.n - g.limit if g.count else -1
        g.more = True
        g.n = g.limit


cdef inline bint beyond(Gather *g, const char *first, const char *head) noexcept nogil:
    """Notes a record behind a full page, `first` being the first of them; False when no further one is of interest."""
    if not g.more:
        g.more = True
        g.next_key = NULL
        g.remaining = 0 if g.count else -1
    if g.next_key == NULL or (same_run(first, head) and compare(
            head_key(head), (<const Head *>head).key_len, g.next_key, g.next_len) < 0):
        g.next_key, g.next_len = head_key(head), (<const Head *>head).key_len
    if g.count:
        g.remaining += 1
    return g.count or (<const Head *>first).key_len > KEY_INLINE and same_run(first, head)


cdef int count_keys(Env env, void *txn, kas_val *start, Gather *g) noexcept nogil:
    """Adds the number of keys from `start` to the end of the prefix to g.remaining.

    Both tables have the same keys; the one with fewer leaf pages is walked. Large bodies lie outside of the leaves, so for pods
    that is `body`: 50,000 keys in 1.9 ms instead of 5.7.
    """
    cdef void *cursor
    cdef kas_val k = start[0], v
    cdef kas_stat heads, bodies
    cdef int rc = L.stat(txn, env.current, &heads)
    if rc == 0:
        rc = L.stat(txn, env.body, &bodies)
    if rc == 0:
        rc = L.cursor_open(txn, env.body if bodies.leaf < heads.leaf else env.current, &cursor)
    if rc:
        return rc
    rc = L.cursor_get(cursor, &k, &v, OP_SET_RANGE)
    while rc == 0 and k.size >= g.prefix_len and kas_same(<char *>k.data, g.prefix, g.prefix_len):
        g.remaining += 1
        rc = L.cursor_get(cursor, &k, NULL, OP_NEXT)  # without data the overflow pages stay untouched
    L.cursor_close(cursor)
    return 0 if rc == ERR_NOTFOUND else rc


cdef int gather(Env env, void *txn, Matcher matcher, Gather *g) noexcept nogil:
    """Fills g from the current records."""
    cdef void *cursor = NULL
    cdef void *bodies = NULL
    cdef kas_val k, h, bk, b
    cdef size_t step = 0, last_match = 0
    cdef bint skipping = g.start_len > KEY_INLINE
    cdef bint test = matcher is not None
    cdef const char *first
    cdef int rc = L.cursor_open(txn, env.current, &cursor)
    if rc == 0 and g.want_body:
        rc = L.cursor_open(txn, env.body, &bodies)
    if rc == 0:
        k = val(g.start, KEY_INLINE if skipping else g.start_len)
        rc = L.cursor_get(cursor, &k, &h, OP_SET_RANGE)
    while rc == 0:
        if k.size < g.prefix_len or not kas_same(<char *>k.data, g.prefix, g.prefix_len):
            rc = ERR_NOTFOUND
            break
        if not head_ok(<char *>h.data, h.size):
            rc = ERR_CORRUPTED
            break
        step += 1
        if skipping and compare(head_key(<char *>h.data), (<Head *>h.data).key_len, g.start, g.start_len) < 0:
            rc = L.cursor_get(cursor, &k, &h, OP_NEXT)
            continue
        if g.limit and g.n >= g.limit and not same_run(g.items[g.n - 1].head, <char *>h.data):
            first = <char *>h.data
            while rc == 0 and k.size >= g.prefix_len and kas_same(<char *>k.data, g.prefix, g.prefix_len):
                if g.next_key != NULL and not (k.size == KEY_HASHED and same_run(first, <char *>h.data)):
                    if g.count:
                        rc = count_keys(env, txn, &k, g)
                    break
                if not head_ok(<char *>h.data, h.size):
                    rc = ERR_CORRUPTED
                elif beyond(g, first, <char *>h.data):
                    rc = L.cursor_get(cursor, &k, &h, OP_NEXT)
                else:
                    break
            if rc == 0:
                rc = ERR_NOTFOUND
            break
        if not test or matcher.test(<char *>h.data):
            if g.want_body:
                # Bodies stand in the same order: the neighbour of the last match needs no search.
                if last_match and last_match + 1 == step:
                    rc = L.cursor_get(bodies, &bk, &b, OP_NEXT)
                else:
                    bk = k
                    rc = L.cursor_get(bodies, &bk, &b, OP_SET)
                    bk = k
                if rc == 0 and (bk.size != k.size or memcmp(bk.data, k.data, k.size) or not body_ok(<Head *>h.data, b.size)):
                    rc = ERR_CORRUPTED
                if rc:
                    rc = ERR_CORRUPTED if rc == ERR_NOTFOUND else rc
                    break
                last_match = step
            else:
                b = val(NULL, 0)
            rc = push(g, <char *>h.data, h.size, <char *>b.data, b.size)
            if rc:
                break
        rc = L.cursor_get(cursor, &k, &h, OP_NEXT)
    if cursor != NULL:
        L.cursor_close(cursor)
    if bodies != NULL:
        L.cursor_close(bodies)
    if rc != ERR_NOTFOUND:
        return rc
    cut(g)
    return 0


cdef int gather_old(Env env, void *txn, Matcher matcher, Gather *g, dict undo) except? -1:
    """Fills g from the records as they were: `undo` maps each full key written since to its log entry's address, or 0."""
    cdef void *cursor = NULL
    cdef kas_val k, h, b
    cdef list back = sorted([key for key, at in undo.items() if at])
    cdef Py_ssize_t at = 0, n_back = len(back)
    cdef bytes full = b""
    cdef bytes old
    cdef const char *head
    cdef const char *body = NULL
    cdef const char *first = NULL
    cdef size_t head_len, body_len = 0
    cdef bint have, take_old
    cdef bytes start = g.start[:g.start_len]
    cdef int rc, out
    while at < n_back and <bytes>back[at] < start:
        at += 1
    out = L.cursor_open(txn, env.current, &cursor)
    if out:
        return out
    k = val(g.start, KEY_INLINE if g.start_len > KEY_INLINE else g.start_len)
    rc = L.cursor_get(cursor, &k, &h, OP_SET_RANGE)
    while True:
        if rc and rc != ERR_NOTFOUND:
            out = rc
            break
        have = rc == 0 and k.size >= g.prefix_len and memcmp(k.data, g.prefix, g.prefix_len) == 0
        if have:
            if not head_ok(<char *>h.data, h.size):
                out = ERR_CORRUPTED
                break
            full = head_key(<char *>h.data)[:(<Head *>h.data).key_len]
            if full < start or full in undo:
                # Written since: its old state, if it had one, comes from `back`.
                rc = L.cursor_get(cursor, &k, &h, OP_NEXT)
                continue
        elif at == n_back:
            break
        else:
            rc = ERR_NOTFOUND
        old = <bytes>back[at] if at < n_back else None
        # In a run of hashed keys the walk is not in key order; old keys of the run join it somewhere and cut() sorts it.
        take_old = old is not None and (not have or old < full)
        if take_old:
            at += 1
            log_state(<const char *><size_t>undo[old], &head, &head_len, &body, &body_len)
            if not head_ok(head, head_len):
                out = ERR_CORRUPTED
                break
        else:
            head, head_len = <char *>h.data, h.size
        if g.limit and g.n >= g.limit and not same_run(g.items[g.n - 1].head, head):
            if first == NULL:
                first = head
            if not beyond(g, first, head):
                break
        elif matcher is None or matcher.test(head):
            if not take_old:
                if L.get(txn, env.body, &k, &b):
                    out = ERR_CORRUPTED
                    break
                body, body_len = <char *>b.data, b.size
            if not body_ok(<const Head *>head, body_len):
                out = ERR_CORRUPTED
                break
            out = push(g, head, head_len, body, body_len)
            if out:
                break
        if not take_old:
            rc = L.cursor_get(cursor, &k, &h, OP_NEXT)
    L.cursor_close(cursor)
    if out == 0:
        cut(g)
    return out


cdef class RangeResult:
    """One page of a range.

    ``records``: list of records (empty for a JSON scan), ``count``: how many, ``revision``: the revision the page is
    consistent at, ``more``: whether keys follow, ``next_key``: the first of them (``start`` of the next page; "" at the end),
    ``remaining``: how many keys follow, without looking at the matcher (-1: not counted), ``body``: the bytes of a JSON or
    protobuf scan, ``size``: how many of them are the items, known to ``wrap`` already (-1: an item lacks what the scan needs).
    """

    cdef readonly list records
    cdef readonly Py_ssize_t count
    cdef readonly object revision
    cdef readonly bint more
    cdef readonly str next_key
    cdef readonly object remaining
    cdef readonly bytes body
    cdef readonly Py_ssize_t size

    def __repr__(self):
        return f"<RangeResult {self.count} at {self.revision}, more={self.more}, remaining={self.remaining}>"


cdef enum:
    MODE_RECORDS = 0
    MODE_JSON = 1
    MODE_METADATA = 2
    MODE_COUNT = 3
    MODE_PROTO = 4


cdef int copy_items(char *out, Gather *g, const char *lead, size_t lead_len, int mode) noexcept nogil:
    """Writes the items, comma separated, to `out`, which has the size that items_size() told."""
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
    """The bytes of the items; -1 when one has no known end of its metadata."""
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
    """The bytes of the items as protobuf field 2; -1 when one has no protobuf section."""
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


def scan(Env env not None, str prefix not None, str start="", size_t limit=0, uint64_t revision=0, Matcher matcher=None,
         bint count=False, int mode=MODE_RECORDS, bytes lead=b"{", wrap=None) -> RangeResult:
    """Reads a range in one transaction; see the store contract for the arguments.

    Modes: 0 records, 1 JSON items, 2 JSON items cut after the metadata, 3 count only, 4 protobuf items (field 2 of a list).
    ``lead`` replaces the type prefix of each JSON item. ``wrap(result) -> (before, after)`` is called once everything but
    ``body`` is known; ``body`` is then before + items + after, or None when an item lacks what the mode needs or
    ``wrap`` gives None: then only their size was of interest.
    Raises FutureRevisionError and CompactedError as LookupError(kind, requested, known) for the store to translate.
    """
    cdef bytes prefix_raw = prefix.encode()
    cdef bytes start_raw = start.encode()
    cdef void *txn
    cdef Gather g
    cdef kas_val first
    cdef uint64_t newest, compacted
    cdef int rc
    cdef size_t i
    cdef int64_t size
    cdef RangeResult out = RangeResult.__new__(RangeResult)
    cdef dict undo = None
    cdef bytes before = b"", after = b"", body
    cdef char *p
    cdef const char *lead_p = PyBytes_AS_STRING(lead)
    cdef size_t lead_n = PyBytes_GET_SIZE(lead)
    if PyBytes_GET_SIZE(prefix_raw) > KEY_INLINE:
        raise KeyTooLongError(f"a prefix of {len(prefix_raw)} bytes is longer than {KEY_INLINE}")
    if start_raw < prefix_raw:
        start_raw = prefix_raw
    out.records, out.next_key, out.remaining, out.body = [], "", 0, None
    if not start_raw.startswith(prefix_raw) and start_raw > prefix_raw:
        # Behind the range: an empty page, at a revision read below.
        limit = 0
    g.items = NULL
    g.n = g.cap = 0
    g.prefix, g.prefix_len = PyBytes_AS_STRING(prefix_raw), PyBytes_GET_SIZE(prefix_raw)
    g.start, g.start_len = PyBytes_AS_STRING(start_raw), PyBytes_GET_SIZE(start_raw)
    if g.start_len == 0:
        g.start, g.start_len = b"\x00", 1
    g.limit, g.count, g.want_body = limit, count, mode != MODE_COUNT
    g.remaining, g.more, g.next_key, g.next_len = 0, False, NULL, 0
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
            first = val(g.start, g.start_len)
            with nogil:
                rc = count_keys(env, txn, &first, &g)
            if rc:
                raise engine_error(rc, f"counting {prefix}")
            out.count, out.revision = g.remaining, newest
            return out
        if undo:
            rc = gather_old(env, txn, matcher, &g, undo)
        elif 0 < limit <= 512:
            rc = gather(env, txn, matcher, &g)
        else:
            with nogil:
                rc = gather(env, txn, matcher, &g)
        if rc:
            raise engine_error(rc, f"reading {prefix}")
        out.count, out.revision, out.more, out.remaining = g.n, newest, g.more, g.remaining
        if g.more:
            out.next_key = g.next_key[:g.next_len].decode()
        if mode == MODE_COUNT:
            return out
        if mode == MODE_RECORDS:
            for i in range(g.n):
                out.records.append(make_record(PyBytes_FromStringAndSize(g.items[i].head, g.items[i].head_len),
                                               PyBytes_FromStringAndSize(g.items[i].body, g.items[i].body_len)))
            return out
        size = proto_size(&g) if mode == MODE_PROTO else items_size(&g, lead_n, mode)
        out.size = size
        if size < 0:
            return out
        if wrap is not None:
            around = wrap(out)
            if around is None:
                return out
            before, after = around
        body = PyBytes_FromStringAndSize(NULL, PyBytes_GET_SIZE(before) + size + PyBytes_GET_SIZE(after))
        p = PyBytes_AS_STRING(body)
        if size > (4 << 20):
            kas_hugepages(p, PyBytes_GET_SIZE(body))
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
        out.body = body
        return out
    finally:
        env.end_read(txn)
        free(g.items)
