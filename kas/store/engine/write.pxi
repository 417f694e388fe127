# One transaction of the group commit, in a single nogil region.
#
# The caller prepares a C array from the operations. The steps here are: begin; for each unit (one operation, or an
# all-or-nothing group) check the preconditions and write log, head, body and expiry; commit with fdatasync. Heads and bodies
# are composed directly in the bytes objects that the events and answers will share; the file gets only the payload of a
# sealed record. Nothing of a batch is visible before the commit has returned, and all of it afterwards.
#
# Prepared points into bytes that apply_batch() keeps alive; `old` is allocated (malloc) here and freed there. Trusted: the
# operations; the records in the map are checked. Benchmark: bench/test_store.py::test_create.

cdef enum:
    ST_DONE = 0
    ST_CONFLICT = 1
    ST_SKIPPED = 2   # another operation of its group failed
    ST_STALE = 3     # the externally assigned revision is not newer than the newest
    NOTHING = 0
    PUT = 1
    DEL = 2
    CHECK = 3
    CREATE_OP = 1
    UPDATE_OP = 2
    DELETE_OP = 3
    EACH = 0         # Prepared.at: each write gets the next revision
    ONE = -1         # all writes of the group get the same next revision


cdef int load_old(Env env, void *txn, Prepared *p) noexcept nogil:
    """Copies the current record of p.key to p.old: pointers into the map do not survive the writes that follow."""
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
    # A hashed key could, in theory, equal the hash of another key: refuse to mix them.
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


cdef int check_revision(Env env, void *txn, Prepared *p) noexcept nogil:
    """Checks whether a key has the expected revision and sets the status; copies nothing of its record."""
    cdef kas_val k = val(p.key, p.key_len)
    cdef kas_val h
    cdef int rc = L.get(txn, env.current, &k, &h)
    if rc == ERR_NOTFOUND:
        p.status = ST_DONE if p.expected == 0 else ST_CONFLICT
        return 0
    if rc:
        return rc
    if not head_ok(<char *>h.data, h.size):
        return ERR_CORRUPTED
    p.status = ST_DONE if <uint64_t>p.expected == (<Head *>h.data).mod_revision else ST_CONFLICT
    return 0


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


cdef int write_log(Env env, void *txn, Prepared *p) noexcept nogil:
    """Adds the undo entry: the previous state of the key."""
    cdef kas_val k, v
    cdef LogKey at
    cdef LogHead e
    cdef char *buffer
    cdef int rc
    # The history keeps only JSON: a request for an old state as protobuf waits for its transcoding.
    e.op = p.op
    e.key_len = p.full_len
    e.head_len = p.old_head_len
    e.body_len = (<Head *>p.old).json_len if p.old != NULL else 0
    v.size = LOG_SIZE + p.full_len + p.old_head_len + e.body_len
    buffer = <char *>malloc(v.size)
    if buffer == NULL:
        return ENOMEM
    memcpy(buffer, &e, LOG_SIZE)
    memcpy(buffer + LOG_SIZE, p.full, p.full_len)
    if p.old != NULL:
        memcpy(buffer + LOG_SIZE + p.full_len, p.old, p.old_head_len + e.body_len)
        (<Head *>(buffer + LOG_SIZE + p.full_len)).proto_len = 0
    at.revision, at.index = be64(p.revision), __builtin_bswap32(p.index)
    k = val(&at, LOG_KEY)
    v.data = buffer
    rc = L.put(txn, env.log, &k, &v, PUT_APPEND)
    free(buffer)
    return rc


cdef int put_sealed(Env env, void *txn, Prepared *p) noexcept nogil:
    """Stores the payload under a head that reveals no more of the object than necessary."""
    cdef kas_val k = val(p.key, p.key_len)
    cdef kas_val v
    cdef char buffer[HEAD_SIZE + KEY_MAX]
    cdef Head *h = <Head *>buffer
    cdef int rc
    memcpy(h, p.new_head, HEAD_SIZE)
    h.flags = HEAD_SEALED
    h.json_len, h.proto_len = p.sealed_len, 0
    h.rv_off = h.meta_end = 0
    h.rv_len = h.type_prefix_len = 0
    h.labels_len = h.fields_len = 0
    memcpy(buffer + HEAD_SIZE, p.full, p.full_len)
    v = val(buffer, HEAD_SIZE + p.full_len)
    rc = L.put(txn, env.current, &k, &v, 0)
    if rc == 0:
        v = val(p.sealed, p.sealed_len)
        rc = L.put(txn, env.body, &k, &v, 0)
    return rc


cdef int put_record(Env env, void *txn, Prepared *p) noexcept nogil:
    """Stores the result of compose(), in plain form or sealed."""
    cdef kas_val k = val(p.key, p.key_len)
    cdef kas_val v
    cdef int rc
    if p.sealed != NULL:
        return put_sealed(env, txn, p)
    v = val(p.new_head, head_room(&p.parts, p.full_len))
    rc = L.put(txn, env.current, &k, &v, 0)
    if rc == 0:
        v = val(p.new_body, p.new_body_len)
        rc = L.put(txn, env.body, &k, &v, 0)
    return rc


cdef int load_records(Env env, Prepared *ops, const uint64_t *numbers, size_t n, uint64_t now_s) noexcept nogil:
    """The transaction of load_batch."""
    cdef void *txn
    cdef size_t i
    cdef Head *h
    cdef kas_val k, before
    cdef int rc = env.begin_write(&txn)
    if rc:
        return rc
    for i in range(n):
        ops[i].new_body_len = compose(&ops[i].parts, ops[i].full, ops[i].full_len, numbers[3 * i], ops[i].new_head, ops[i].new_body)
        h = <Head *>ops[i].new_head
        h.create_revision, h.version = numbers[3 * i + 1], numbers[3 * i + 2]
        h.lease_expiry = now_s + ops[i].lease_s if ops[i].lease_s > 0 else 0
        k = val(ops[i].key, ops[i].key_len)
        rc = L.get(txn, env.current, &k, &before)
        if rc == 0:  # loaded earlier, by an interrupted load
            if not head_ok(<char *>before.data, before.size):
                rc = ERR_CORRUPTED
            elif (<Head *>before.data).lease_expiry:
                rc = write_expiry(env, txn, &ops[i], (<Head *>before.data).lease_expiry, 0)
        elif rc == ERR_NOTFOUND:
            rc = 0
        if rc == 0:
            rc = put_record(env, txn, &ops[i])
        if rc == 0 and h.lease_expiry:
            rc = write_expiry(env, txn, &ops[i], h.lease_expiry, numbers[3 * i])
        if rc:
            break
    return env.end_write(txn, rc)


cdef int write_one(Env env, void *txn, Prepared *p, uint64_t revision, uint64_t now_s) noexcept nogil:
    cdef kas_val k
    cdef Head *old = <Head *>p.old
    cdef Head *h = <Head *>p.new_head
    cdef int rc
    p.revision = revision
    if p.kind == NOTHING:
        return 0
    p.op = DELETE_OP if p.kind == DEL else (UPDATE_OP if p.old != NULL else CREATE_OP)
    rc = write_log(env, txn, p)
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
    p.new_body_len = compose(&p.parts, p.full, p.full_len, revision, p.new_head, p.new_body)
    h.create_revision = old.create_revision if p.old != NULL else revision
    h.version = old.version + 1 if p.old != NULL else 1
    h.lease_expiry = now_s + p.lease_s if p.lease_s > 0 else 0
    rc = put_record(env, txn, p)
    if rc == 0 and h.lease_expiry:
        rc = write_expiry(env, txn, p, h.lease_expiry, revision)
    return rc


cdef int check_unit(Env env, void *txn, Prepared *ops, size_t n, uint64_t newest, bint *good) noexcept nogil:
    """Reads the records that the operations of a unit will replace, and checks for each whether it may be applied."""
    cdef size_t j
    cdef int rc
    good[0] = True
    for j in range(n):
        if ops[j].kind == NOTHING:
            ops[j].status = ST_DONE  # a revision that has been reached already is no error: no event is repeated
            continue
        if ops[j].kind == CHECK:
            rc = check_revision(env, txn, &ops[j])
            if rc:
                return rc
            if ops[j].status:
                good[0] = False
            continue
        rc = load_old(env, txn, &ops[j])
        if rc:
            return rc
        if ops[j].at > 0 and <uint64_t>ops[j].at <= newest:
            ops[j].status = ST_STALE
        else:
            ops[j].status = ST_DONE if precondition(&ops[j]) else ST_CONFLICT
        if ops[j].status:
            good[0] = False
    if not good[0]:
        for j in range(n):
            if ops[j].status == ST_DONE:
                ops[j].status = ST_SKIPPED
    return 0


cdef int write_unit(Env env, void *txn, Prepared *ops, size_t n, uint64_t now_s, uint64_t *revision) noexcept nogil:
    """Writes a checked unit, and raises the revision."""
    cdef size_t j
    cdef uint32_t written = 0
    cdef uint64_t at = ops[0].at if ops[0].at > 0 else revision[0] + 1
    cdef int rc
    if ops[0].kind == NOTHING and at < revision[0]:
        at = revision[0]
    for j in range(n):
        if ops[j].kind == CHECK:
            continue
        ops[j].index = 0 if ops[0].at == EACH else written
        rc = write_one(env, txn, &ops[j], at + written if ops[0].at == EACH else at, now_s)
        if rc:
            return rc
        written += 1
        revision[0] = ops[j].revision
    return 0


cdef int write_batch(Env env, Prepared *ops, size_t n, uint64_t now_s, uint64_t *before, uint64_t *newest) noexcept nogil:
    """Applies all units and commits; `before` and `newest` are the revisions before and after. On an error nothing was
    written, whatever the statuses are."""
    cdef void *txn
    cdef size_t i = 0, end
    cdef uint64_t revision
    cdef bint good
    cdef int rc = env.begin_write(&txn)
    if rc:
        return rc
    rc = env.number(txn, b"kas.revision", &revision)
    before[0] = revision
    while rc == 0 and i < n:
        end = i + 1
        while end < n and ops[end].group == ops[i].group:
            end += 1
        rc = check_unit(env, txn, &ops[i], end - i, revision, &good)
        if rc == 0 and good:
            rc = write_unit(env, txn, &ops[i], end - i, now_s, &revision)
        i = end
    if rc == 0 and revision == before[0]:
        # Only failed preconditions: there is nothing to make durable.
        env.end_write(txn, ERR_NOTFOUND)
        newest[0] = revision
        return 0
    if rc == 0:
        rc = env.set_number(txn, b"kas.revision", revision)
    newest[0] = revision
    return env.end_write(txn, rc)
