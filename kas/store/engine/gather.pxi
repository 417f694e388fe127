# Walking a range: finds the positions of its records, without copying them.
#
# Walks `current`, tests the matcher on the heads, and records the positions of heads and bodies in the map. For more than 512
# records this runs without the GIL; it is acquired only to open a sealed record, and then the Item points into the opened
# one. A read at an older revision overlays the walk with the undo entries of newer revisions.
#
# Items belong to scan(), which frees them. They point into the map (valid until the transaction ends) or into the records in
# Gather.opened. Not trusted: heads and bodies (head_ok, body_ok). Benchmark: bench/test_store.py::test_list_5000,
# test_list_by_label.

cdef inline size_t weight(const Gather *g, const char *head, size_t body_len) noexcept nogil:
    """Returns the bytes of a record that count against max_bytes: those to be returned, not those of its other form."""
    cdef const Head *h = <const Head *>head
    if g.gives == GIVES_JSON:
        return h.json_len
    if g.gives == GIVES_PROTO and h.proto_len:
        return h.proto_len
    return body_len


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
    g.held += weight(g, head, body_len)
    return 0


cdef inline bint page_full(const Gather *g) noexcept nogil:
    """Whether the page is full: then only records in the run of its last record are still needed."""
    return (g.limit and g.n >= g.limit) or (g.max_bytes and g.held >= g.max_bytes)


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
    """Sorts runs, then cuts a run that exceeds the limits."""
    cdef size_t end = 0, held = 0
    sort_runs(g)
    while end < g.n and not (g.limit and end >= g.limit) and not (g.max_bytes and held >= g.max_bytes):
        held += weight(g, g.items[end].head, g.items[end].body_len)
        end += 1
    if end < g.n:
        g.remaining = g.remaining + g.n - end if g.count else -1
        g.more = True
        g.n = end


cdef int count_keys(Env env, void *txn, kas_val *start, Gather *g, Py_ssize_t most) noexcept nogil:
    """Adds the number of keys from `start` to the end of the prefix to g.remaining.

    Both tables have the same keys; the one with fewer leaf pages is walked. Large bodies are stored outside of the leaves, so
    for pods that is `body`: 50,000 keys in 1.9 ms instead of 5.7.
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
        if g.remaining == most:
            break
        rc = L.cursor_get(cursor, &k, NULL, OP_NEXT)  # without data, so overflow pages are not touched
    L.cursor_close(cursor)
    return 0 if rc == ERR_NOTFOUND else rc


cdef int open_item(Env env, Gather *g, Item *item) noexcept with gil:
    """Makes a sealed item point to its opened record, which g.opened keeps from then on. Called for a plain item to refuse it."""
    cdef Record record
    cdef list opened = <list>g.opened
    try:
        if not (<const Head *>item.head).flags & HEAD_SEALED:
            raise refused_plain(env, head_key(item.head)[:(<const Head *>item.head).key_len].decode())
        record = stored_record(env, item.head, item.head_len, item.body, item.body_len)
    except Exception as e:
        opened.append(e)
        return ERR_UNSEAL
    opened.append(record)
    item.head, item.head_len = PyBytes_AS_STRING(record.head), PyBytes_GET_SIZE(record.head)
    item.body, item.body_len = PyBytes_AS_STRING(record.body), PyBytes_GET_SIZE(record.body)
    return 0


cdef void drop_opened(Gather *g) noexcept with gil:
    """Removes the record opened last, which did not match."""
    (<list>g.opened).pop()


cdef int take(Env env, Gather *g, Matcher matcher, Item item) noexcept nogil:
    """Adds a record whose body is known. A sealed one is opened and matched here; others were matched before."""
    cdef int rc
    if (<const Head *>item.head).flags & HEAD_SEALED or g.refuses_plain:
        rc = open_item(env, g, &item)
        if rc:
            return rc
        if matcher is not None and not selected(matcher, item.head):
            drop_opened(g)
            return 0
    return push(g, item.head, item.head_len, item.body, item.body_len)


cdef int gather(Env env, void *txn, Matcher matcher, Gather *g) noexcept nogil:
    """Fills g from the current records."""
    cdef void *cursor = NULL
    cdef void *bodies = NULL
    cdef kas_val k, h, bk, b
    cdef size_t step = 0, last_match = 0
    cdef bint skipping = g.start_len > KEY_INLINE
    cdef bint test = matcher is not None
    cdef bint sealed
    cdef Item item
    cdef int rc = L.cursor_open(txn, env.current, &cursor)
    if rc == 0 and (g.want_body or test):
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
        if page_full(g) and not same_run(g.items[g.n - 1].head, <char *>h.data):
            g.more = True
            if g.count:
                rc = count_keys(env, txn, &k, g, 0)
            else:
                g.remaining = -1
            if rc == 0:
                rc = ERR_NOTFOUND
            break
        g.looked += 1
        sealed = ((<Head *>h.data).flags & HEAD_SEALED or g.refuses_plain) and (test or g.want_body)
        if sealed or not test or selected(matcher, <char *>h.data):
            if g.want_body or sealed:
                # Bodies are in the same order: the neighbour of the last match needs no search.
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
            if sealed:
                item.head, item.head_len, item.body, item.body_len = <char *>h.data, h.size, <char *>b.data, b.size
                rc = take(env, g, matcher, item)
            else:
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


cdef int gather_old(Env env, void *txn, Matcher matcher, Gather *g, dict undo) except? -2:
    """Fills g from the records at an older revision: `undo` maps each full key written since to the address of its log entry,
    or 0."""
    cdef void *cursor = NULL
    cdef kas_val k, h, b
    cdef list back = sorted([key for key, at in undo.items() if at])
    cdef Py_ssize_t at = 0, n_back = len(back)
    cdef bytes full = b""
    cdef bytes old
    cdef const char *head
    cdef const char *body = NULL
    cdef size_t head_len, body_len = 0
    cdef bint have, take_old
    cdef Item item
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
                # Written since: its old state, if any, comes from `back`.
                rc = L.cursor_get(cursor, &k, &h, OP_NEXT)
                continue
        elif at == n_back:
            break
        else:
            rc = ERR_NOTFOUND
        old = <bytes>back[at] if at < n_back else None
        # In a run of hashed keys the walk is not in key order; old keys of the run are inserted somewhere and cut() sorts it.
        take_old = old is not None and (not have or old < full)
        if take_old:
            at += 1
            log_state(<const char *><size_t>undo[old], &head, &head_len, &body, &body_len)
            if not head_ok(head, head_len):
                out = ERR_CORRUPTED
                break
        else:
            head, head_len = <char *>h.data, h.size
        if page_full(g) and not same_run(g.items[g.n - 1].head, head):
            g.more = True
            if not g.count:
                g.remaining = -1
                break
            g.remaining += 1
            if not take_old:
                rc = L.cursor_get(cursor, &k, &h, OP_NEXT)
            continue
        g.looked += 1
        if matcher is None or (<const Head *>head).flags & HEAD_SEALED or g.refuses_plain or selected(matcher, head):
            if not take_old:
                if L.get(txn, env.body, &k, &b):
                    out = ERR_CORRUPTED
                    break
                body, body_len = <char *>b.data, b.size
            if not body_ok(<const Head *>head, body_len):
                out = ERR_CORRUPTED
                break
            item.head, item.head_len, item.body, item.body_len = head, head_len, body, body_len
            out = take(env, g, matcher, item)
            if out:
                break
        if not take_old:
            rc = L.cursor_get(cursor, &k, &h, OP_NEXT)
    L.cursor_close(cursor)
    if out == 0:
        cut(g)
    return out
