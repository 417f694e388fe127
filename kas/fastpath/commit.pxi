# The group commit: a whole batch of writes in one transaction and one nogil region.
#
# The caller's thread prepares a C array from the operations (with the GIL), then: begin, for each unit (one operation, or an
# all-or-nothing group) check the preconditions, write log, head, body and expiry, commit with fdatasync. Heads and bodies are
# composed right in the bytes objects that the events and answers will share. Nothing of a batch is visible before the
# commit returned, and all of it after.

cdef enum:
    ST_DONE = 0
    ST_CONFLICT = 1
    ST_SKIPPED = 2   # another operation of its group failed
    PUT = 1
    DEL = 2
    CREATE_OP = 1
    UPDATE_OP = 2
    DELETE_OP = 3

cdef struct Prepared:
    int kind
    int group            # operations with the same number stand together; all or nothing
    const char *key
    size_t key_len
    const char *full
    size_t full_len
    int64_t expected     # -1: no precondition
    const char *head
    size_t head_len
    const char *tail
    size_t tail_len
    const char *labels
    size_t labels_len
    const char *fields
    size_t fields_len
    const char *proto
    size_t proto_len
    Splice *splice
    uint16_t type_prefix_len
    uint32_t metadata_tail
    int64_t lease_s
    # results
    int status
    int op
    uint64_t revision
    char *new_head
    char *new_body
    size_t new_body_len
    char *old            # malloc'd: head and body of the previous record
    size_t old_head_len
    size_t old_body_len


cdef int load_old(Env env, void *txn, Prepared *p) noexcept nogil:
    """Copies the current record of p.key to p.old: the pointers into the map do not survive the writes that follow."""
    cdef kas_val k = val(p.key, p.key_len)
    cdef kas_val h, b
    cdef int rc
    free(p.old)
    p.old = NULL
    p.old_head_len = p.old_body_len = 0
    rc = L.get(txn, env.current, &k, &h)
    if rc == ERR_NOTFOUND:
        return 0
    if rc == 0:
        rc = L.get(txn, env.body, &k, &b)
        if rc == ERR_NOTFOUND:
            rc = ERR_CORRUPTED
    if rc:
        return rc
    if not head_ok(<char *>h.data, h.size) or not body_ok(<Head *>h.data, b.size):
        return ERR_CORRUPTED
    # A hashed key could, in theory, be another key's: refuse to mix them.
    if (<Head *>h.data).key_len != p.full_len or memcmp(head_key(<char *>h.data), p.full, p.full_len):
        return ERR_CORRUPTED
    p.old = <char *>malloc(h.size + b.size)
    if p.old == NULL:
        return ENOMEM
    memcpy(p.old, h.data, h.size)
    memcpy(p.old + h.size, b.data, b.size)
    p.old_head_len, p.old_body_len = h.size, b.size
    return 0


cdef bint precondition(Prepared *p) noexcept nogil:
    if p.expected < 0:
        return p.kind == PUT or p.old != NULL
    if p.old == NULL:
        return p.expected == 0 and p.kind == PUT
    return p.expected != 0 and <uint64_t>p.expected == (<Head *>p.old).mod_revision


cdef int write_expiry(Env env, void *txn, Prepared *p, uint64_t deadline, uint64_t revision) noexcept nogil:
    """Adds the expiry entry (revision > 0) or removes it."""
    cdef char key[8 + 512]
    cdef uint64_t at = be64(deadline)
    cdef kas_val k, v
    cdef char *value
    cdef int rc
    memcpy(key, &at, 8)
    memcpy(key + 8, p.key, p.key_len)
    k = val(key, 8 + p.key_len)
    if revision == 0:
        rc = L.del_(txn, env.expiry, &k, NULL)
        return 0 if rc == ERR_NOTFOUND else rc
    value = <char *>malloc(8 + p.full_len)
    if value == NULL:
        return ENOMEM
    memcpy(value, &revision, 8)
    memcpy(value + 8, p.full, p.full_len)
    v = val(value, 8 + p.full_len)
    rc = L.put(txn, env.expiry, &k, &v, 0)
    free(value)
    return rc


cdef int write_one(Env env, void *txn, Prepared *p, uint64_t revision, uint64_t now_s) noexcept nogil:
    cdef kas_val k, v
    cdef LogHead e
    cdef Head *old = <Head *>p.old
    cdef Head *h
    cdef uint64_t at = be64(revision)
    cdef char *buffer
    cdef char *q
    cdef size_t n
    cdef int rc
    p.revision = revision
    # The history keeps the JSON only: who still reads an old state as protobuf waits for its transcoding.
    cdef size_t old_json_len = old.json_len if old != NULL else 0
    p.op = DELETE_OP if p.kind == DEL else (UPDATE_OP if p.old != NULL else CREATE_OP)
    e.op = p.op
    e.key_len = p.full_len
    e.head_len = p.old_head_len
    e.body_len = old_json_len
    n = LOG_SIZE + p.full_len + p.old_head_len + old_json_len
    buffer = <char *>malloc(n)
    if buffer == NULL:
        return ENOMEM
    memcpy(buffer, &e, LOG_SIZE)
    memcpy(buffer + LOG_SIZE, p.full, p.full_len)
    if p.old != NULL:
        memcpy(buffer + LOG_SIZE + p.full_len, p.old, p.old_head_len + old_json_len)
        (<Head *>(buffer + LOG_SIZE + p.full_len)).proto_len = 0
    k = val(&at, 8)
    v = val(buffer, n)
    rc = L.put(txn, env.log, &k, &v, PUT_APPEND)
    free(buffer)
    if rc:
        return rc
    if p.old != NULL and old.lease_expiry:
        rc = write_expiry(env, txn, p, old.lease_expiry, 0)
        if rc:
            return rc
    k = val(p.key, p.key_len)
    if p.kind == DEL:
        rc = L.del_(txn, env.current, &k, NULL)
        return rc if rc else L.del_(txn, env.body, &k, NULL)
    # The body: head "resourceVersion":"<digits>" [,] tail [protobuf]
    q = p.new_body
    memcpy(q, p.head, p.head_len)
    q += p.head_len
    memcpy(q, b'"resourceVersion":"', 19)
    n = digits_of(revision, q + 19)
    h = <Head *>p.new_head
    h.rv_off = p.head_len + 19
    h.rv_len = n
    q += 19 + n
    q[0] = c'"'
    q += 1
    if p.tail_len and p.tail[0] != c'}':
        q[0] = c','
        q += 1
    h.meta_end = (q - p.new_body) + p.metadata_tail if p.metadata_tail else 0
    memcpy(q, p.tail, p.tail_len)
    q += p.tail_len
    h.json_len = q - p.new_body
    h.proto_len = 0
    if p.proto_len:
        h.proto_len = splice(q, p.proto, p.proto_len, p.splice, revision)
        q += h.proto_len
    p.new_body_len = q - p.new_body
    h.magic = HEAD_MAGIC
    h.flags = 0
    h.create_revision = old.create_revision if p.old != NULL else revision
    h.version = old.version + 1 if p.old != NULL else 1
    h.mod_revision = revision
    h.lease_expiry = now_s + p.lease_s if p.lease_s > 0 else 0
    h.type_prefix_len = p.type_prefix_len
    h.key_len = p.full_len
    h.labels_len = p.labels_len
    h.fields_len = p.fields_len
    q = p.new_head + HEAD_SIZE
    memcpy(q, p.full, p.full_len)
    memcpy(q + p.full_len, p.labels, p.labels_len)
    memcpy(q + p.full_len + p.labels_len, p.fields, p.fields_len)
    v = val(p.new_head, HEAD_SIZE + p.full_len + p.labels_len + p.fields_len)
    rc = L.put(txn, env.current, &k, &v, 0)
    if rc == 0:
        v = val(p.new_body, p.new_body_len)
        rc = L.put(txn, env.body, &k, &v, 0)
    if rc == 0 and h.lease_expiry:
        rc = write_expiry(env, txn, p, h.lease_expiry, revision)
    return rc

cdef int write_batch(Env env, Prepared *ops, size_t n, uint64_t now_s, uint64_t *newest) noexcept nogil:
    """Applies all units and commits. On an error nothing was written, whatever the statuses say."""
    cdef void *txn
    cdef size_t i = 0, j, end
    cdef uint64_t revision, before, at = be64(now_s)
    cdef bint good
    cdef kas_val k, v
    cdef int rc = env.begin_write(&txn)
    if rc:
        return rc
    rc = env.number(txn, b"kas.revision", &revision)
    before = revision
    while rc == 0 and i < n:
        end = i + 1
        while end < n and ops[end].group == ops[i].group:
            end += 1
        good = True
        for j in range(i, end):
            rc = load_old(env, txn, &ops[j])
            if rc:
                break
            ops[j].status = ST_DONE if precondition(&ops[j]) else ST_CONFLICT
            if ops[j].status:
                good = False
        if rc:
            break
        for j in range(i, end):
            if good:
                rc = write_one(env, txn, &ops[j], revision + 1, now_s)
                if rc:
                    break
                revision += 1
            elif ops[j].status == ST_DONE:
                ops[j].status = ST_SKIPPED
        i = end
    if rc == 0 and revision == before:
        # Only failed preconditions: nothing to make durable.
        env.end_write(txn, ERR_NOTFOUND)
        newest[0] = revision
        return 0
    if rc == 0:
        rc = env.set_number(txn, b"kas.revision", revision)
    if rc == 0:
        k = val(&at, 8)
        rc = L.get(txn, env.clock, &k, &v)
        if rc == ERR_NOTFOUND:
            v = val(&before, 8)
            rc = L.put(txn, env.clock, &k, &v, 0)
    newest[0] = revision
    return env.end_write(txn, rc)


cdef size_t used_bytes(Env env) noexcept nogil:
    """Bytes of the file that hold something; the largest number when they cannot be told."""
    cdef kas_info info
    cdef kas_stat st
    cdef void *txn
    cdef size_t free_
    if env.begin_read(&txn):
        return <size_t>-1
    L.env_info(env.env, &info)
    L.env_stat(env.env, &st)
    free_ = env.free_pages(txn)
    env.end_read(txn)
    return (info.last_pgno + 1 - free_) * st.psize


cdef class Op:
    """One write: a put (draft given) or a delete. ``expected``: the mod revision the current record must have, 0 for no record,
    None for no precondition; a delete of an absent key is always a conflict.

    After the commit: ``revision``, ``record`` (None for a delete), ``previous``; ``status`` 0 done, 1 its precondition failed
    (``previous`` is the current record), 2 another operation of its group failed.
    """

    cdef readonly str key
    cdef readonly object expected
    cdef readonly Draft draft
    cdef readonly int status
    cdef readonly object revision
    cdef readonly Record record
    cdef readonly Record previous
    cdef readonly Event event
    cdef bytes raw, full

    def __init__(self, str key not None, Draft draft=None, expected=None):
        self.key, self.draft, self.expected = key, draft, expected
        self.full = key.encode()
        self.raw = key_bytes(key)
        if expected is not None and expected < 0:
            raise ValueError("expected is a revision, 0 or None")

    @property
    def size(self) -> int:
        """About how many bytes it writes; for bounds on batches and queues."""
        return 256 if self.draft is None else self.draft.size

    def __repr__(self):
        return f"<Op {'delete' if self.draft is None else 'put'} {self.key} expected={self.expected}>"


def apply_batch(Env env not None, list units not None, uint64_t now_s, bint only_deletes) -> int:
    """Applies units (lists of Op) in order, one transaction; fills the operations in and returns the newest revision.

    Raises the store's Full (nothing written) and other engine errors. With ``only_deletes`` a full map may grow a little
    above its limit, so that space can be made; while it stands above, other batches are refused until there is room again.
    """
    cdef size_t n = 0, i = 0
    cdef uint64_t newest = 0
    cdef int rc = 0, group = 0
    cdef Prepared *ops
    cdef Prepared *p
    cdef Op op
    cdef Draft d
    cdef list unit, heads = [], bodies = [], flat = []
    cdef bytes head, body
    cdef object shrunk
    cdef kas_info info
    for unit in units:
        n += len(unit)
        if len(unit) > 1 and len({(<Op>o).raw for o in unit}) != len(unit):
            raise ValueError("a group writes the same key twice")
    ops = <Prepared *>malloc((n + 1) * sizeof(Prepared))
    if ops == NULL:
        raise MemoryError
    try:
        for i in range(n):
            ops[i].old = NULL
        i = 0
        for unit in units:
            for op in unit:
                p = &ops[i]
                flat.append(op)
                p.group = group
                p.key, p.key_len = PyBytes_AS_STRING(op.raw), PyBytes_GET_SIZE(op.raw)
                p.full, p.full_len = PyBytes_AS_STRING(op.full), PyBytes_GET_SIZE(op.full)
                p.expected = -1 if op.expected is None else op.expected
                p.status, p.op, p.revision = ST_SKIPPED, 0, 0
                p.old_head_len = p.old_body_len = 0
                p.new_head = p.new_body = NULL
                d = op.draft
                if d is None:
                    p.kind = DEL
                    head = body = None
                else:
                    p.kind = PUT
                    p.head, p.head_len = PyBytes_AS_STRING(d.head), PyBytes_GET_SIZE(d.head)
                    p.tail, p.tail_len = PyBytes_AS_STRING(d.tail), PyBytes_GET_SIZE(d.tail)
                    p.labels, p.labels_len = PyBytes_AS_STRING(d.labels), PyBytes_GET_SIZE(d.labels)
                    p.fields, p.fields_len = PyBytes_AS_STRING(d.fields), PyBytes_GET_SIZE(d.fields)
                    p.proto, p.proto_len = NULL, 0
                    if d.proto is not None:
                        p.proto, p.proto_len = PyBytes_AS_STRING(d.proto), PyBytes_GET_SIZE(d.proto)
                    p.splice = &d.splice
                    p.type_prefix_len, p.metadata_tail, p.lease_s = d.type_prefix_len, d.metadata_tail, d.lease_s
                    head = PyBytes_FromStringAndSize(NULL, HEAD_SIZE + p.full_len + p.labels_len + p.fields_len)
                    # 19 + 1 + 1 for the member, 20 digits; shortened below.
                    body = PyBytes_FromStringAndSize(NULL, p.head_len + p.tail_len + p.proto_len + 41 + SPLICE_ROOM)
                    p.new_head, p.new_body = PyBytes_AS_STRING(head), PyBytes_AS_STRING(body)
                heads.append(head)
                bodies.append(body)
                i += 1
            group += 1
        head = body = None
        with nogil:
            L.env_info(env.env, &info)
            # Above the limit only deletes may use the room; used_bytes() walks the free list, so it is asked only then.
            if not only_deletes and info.mapsize > env.limit and used_bytes(env) + env.limit // 64 + 65536 > env.limit:
                rc = ERR_MAP_FULL
            else:
                rc = write_batch(env, ops, n, now_s, &newest)
                if rc == ERR_MAP_FULL and only_deletes:
                    rc = grow_reserve(env)
                    if rc == 0:
                        rc = write_batch(env, ops, n, now_s, &newest)
        if rc:
            raise engine_error(rc, "writing")
        for i in range(n):
            p = &ops[i]
            op = <Op>flat[i]
            op.status = p.status
            op.record = op.previous = op.event = op.revision = None
            if p.old != NULL:
                op.previous = make_record(PyBytes_FromStringAndSize(p.old, p.old_head_len),
                                          PyBytes_FromStringAndSize(p.old + p.old_head_len, p.old_body_len))
            if p.status == ST_DONE:
                op.revision = p.revision
                if p.kind == PUT:
                    shrunk = bodies[i]
                    bodies[i] = None
                    op.record = make_record(heads[i], shorten(shrunk, p.new_body_len))
                op.event = make_event(p.revision, p.op, op.key, op.record, op.previous)
        return newest
    finally:
        for i in range(n):
            free(ops[i].old)
        free(ops)


cdef bytes shorten(object body, size_t n):
    # A copy: the object is shared by now (the list it came from, this frame), and resizing in place asks for sole ownership.
    return PyBytes_FromStringAndSize(PyBytes_AS_STRING(body), n)


cdef int grow_reserve(Env env) noexcept nogil:
    """Lets the map grow above the operator's limit by a sixteenth (at least 1 MiB) each time, twice at most."""
    cdef kas_info info
    cdef size_t step = env.limit // 16 // 4096 * 4096
    if step < (1 << 20):
        step = 1 << 20
    L.env_info(env.env, &info)
    if info.mapsize + step > env.limit + 2 * step:
        return ERR_MAP_FULL
    return env.adopt_size(info.mapsize + step)
