# Upkeep: compaction of the history, and expired leases.
#
# Everything runs in bounded transactions, so that writers run in between. Results are only numbers and keys. Trusted:
# nothing; lengths are checked where they are read. Benchmark: bench/test_store.py::test_compact.


def compact_step(Env env not None, uint64_t revision, Py_ssize_t max_entries):
    """Removes at most max_entries log entries up to revision, in one transaction; returns ``(removed, done)``."""
    cdef Py_ssize_t removed = 0
    cdef bint done = False
    cdef int rc
    with nogil:
        rc = forget(env, revision, max_entries, &removed, &done)
        if rc == ERR_MAP_FULL:
            # Removing entries copies pages before it frees them.
            rc = grow_reserve(env)
            if rc == 0:
                rc = forget(env, revision, max_entries, &removed, &done)
    if rc:
        raise engine_error(rc, "compacting")
    return removed, done


cdef int forget(Env env, uint64_t revision, Py_ssize_t max_entries, Py_ssize_t *removed, bint *done) noexcept nogil:
    """The transaction of compact_step. It writes even if there is nothing to remove: pages freed by the previous transaction
    can be reused from the next but one on."""
    cdef void *txn
    cdef void *cursor = NULL
    cdef kas_val k, v
    cdef uint64_t newest = 0, compacted = 0, rev
    cdef int rc = env.begin_write(&txn)
    if rc:
        return rc
    removed[0] = 0
    done[0] = False
    rc = env.number(txn, b"kas.revision", &newest)
    if rc == 0:
        rc = env.number(txn, b"kas.compacted", &compacted)
    if revision > newest:
        revision = newest
    if rc == 0:
        rc = env.set_number(txn, b"kas.compacted", max(revision, compacted))
    if rc == 0:
        rc = L.cursor_open(txn, env.log, &cursor)
    if rc == 0:
        rc = L.cursor_get(cursor, &k, &v, OP_FIRST)
        while rc == 0:
            if not log_key(&k, &rev):
                rc = ERR_CORRUPTED
                break
            if rev > revision:
                done[0] = True
                break
            if removed[0] == max_entries:
                break
            rc = L.cursor_del(cursor, 0)
            removed[0] += 1
            if rc == 0:
                rc = L.cursor_get(cursor, &k, &v, OP_FIRST)
        if rc == ERR_NOTFOUND:
            done[0] = True
            rc = 0
        L.cursor_close(cursor)
    return env.end_write(txn, rc)


def due(Env env not None, uint64_t now_s, Py_ssize_t limit):
    """Returns the keys whose lease has ended: ``[(key, mod revision)]``, earliest first."""
    cdef void *txn
    cdef void *cursor = NULL
    cdef kas_val k, v
    cdef uint64_t deadline, rev
    cdef list out = []
    cdef int rc = env.begin_read(&txn)
    if rc:
        raise engine_error(rc, "reading the expiry table")
    try:
        rc = L.cursor_open(txn, env.expiry, &cursor)
        if rc == 0:
            rc = L.cursor_get(cursor, &k, &v, OP_FIRST)
        while rc == 0 and len(out) < limit:
            if k.size < 8 or v.size < 8:
                raise engine_error(ERR_CORRUPTED, "reading the expiry table")
            memcpy(&deadline, k.data, 8)
            if be64(deadline) > now_s:
                break
            memcpy(&rev, v.data, 8)
            out.append(((<char *>v.data + 8)[:v.size - 8].decode(), rev))
            rc = L.cursor_get(cursor, &k, &v, OP_NEXT)
        if rc and rc != ERR_NOTFOUND:
            raise engine_error(rc, "reading the expiry table")
        return out
    finally:
        if cursor != NULL:
            L.cursor_close(cursor)
        env.end_read(txn)
