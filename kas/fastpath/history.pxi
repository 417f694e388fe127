# History: the undo log, events from it, compaction, expiry and the clock.
#
# log[revision] = LogHead, key, head and body of the record *before* the write (nothing for a create). The record after the
# write is the current one, or stands in the next entry of the same key. Compared with a log of new records, a create costs
# some bytes instead of the object again, a delete keeps the last state for its event, and a trimmed log loses nothing current.

cdef packed struct LogHead:
    uint32_t op
    uint32_t key_len
    uint32_t head_len
    uint32_t body_len

cdef enum:
    LOG_SIZE = 16

CREATE = 1
UPDATE = 2
DELETE = 3


cdef inline bint log_ok(const char *p, size_t n) noexcept nogil:
    cdef const LogHead *e = <const LogHead *>p
    return n >= LOG_SIZE and <uint64_t>LOG_SIZE + e.key_len + e.head_len + e.body_len == n


cdef inline void log_state(const char *p, const char **head, size_t *head_len, const char **body, size_t *body_len) noexcept nogil:
    """The record before the write of a log entry that log_ok() accepted."""
    cdef const LogHead *e = <const LogHead *>p
    head[0] = p + LOG_SIZE + e.key_len
    head_len[0] = e.head_len
    body[0] = p + LOG_SIZE + e.key_len + e.head_len
    body_len[0] = e.body_len


cdef dict undo_since(Env env, void *txn, uint64_t revision, bytes prefix):
    """Full key → address of the log entry that holds its state at `revision` (0: it was absent), for keys under prefix."""
    cdef void *cursor
    cdef kas_val k, v
    cdef uint64_t first = be64(revision + 1)
    cdef const LogHead *e
    cdef bytes key
    cdef dict out = {}
    cdef Py_ssize_t n = PyBytes_GET_SIZE(prefix)
    cdef int rc = L.cursor_open(txn, env.log, &cursor)
    if rc == 0:
        k = val(&first, 8)
        rc = L.cursor_get(cursor, &k, &v, OP_SET_RANGE)
        while rc == 0:
            if not log_ok(<char *>v.data, v.size):
                rc = ERR_CORRUPTED
                break
            e = <LogHead *>v.data
            if e.key_len >= n and memcmp(<char *>v.data + LOG_SIZE, PyBytes_AS_STRING(prefix), n) == 0:
                key = (<char *>v.data + LOG_SIZE)[:e.key_len]
                if key not in out:
                    out[key] = <size_t>v.data if e.head_len else 0
            rc = L.cursor_get(cursor, &k, &v, OP_NEXT)
        L.cursor_close(cursor)
    if rc != ERR_NOTFOUND:
        raise engine_error(rc, "reading the log")
    return out


cdef class Event:
    """One write. ``frames`` is for the reader: bytes built once per event, under any key the reader likes."""

    cdef readonly object revision
    cdef readonly int op
    cdef readonly str key
    cdef readonly Record record
    cdef readonly Record previous
    cdef dict _frames

    @property
    def type(self) -> str:
        """ADDED, MODIFIED or DELETED, for a watcher without selector."""
        return "ADDED" if self.op == 1 else "MODIFIED" if self.op == 2 else "DELETED"

    @property
    def frames(self) -> dict:
        if self._frames is None:
            self._frames = {}
        return self._frames

    def __len__(self):
        cdef Py_ssize_t n = 0
        if self.record is not None:
            n += len(self.record)
        if self.previous is not None:
            n += len(self.previous)
        return n

    def __repr__(self):
        return f"<Event {self.revision} {self.type} {self.key}>"


cdef Event make_event(uint64_t revision, int op, str key, Record record, Record previous):
    cdef Event e = Event.__new__(Event)
    e.revision, e.op, e.key, e.record, e.previous = revision, op, key, record, previous
    return e


def read_events(Env env not None, str prefix not None, uint64_t after, Py_ssize_t limit, uint64_t max_bytes):
    """``(events, reached)``: the writes under prefix with revision > after, in order; at most ``limit`` of them, and no more
    than fit into ``max_bytes`` (states before and after), but always one. Every event up to the revision ``reached`` has been
    given; ``reached`` is the newest revision when nothing is left.
    Raises LookupError("compacted" | "future", requested, known)."""
    cdef bytes pre = prefix.encode()
    cdef Py_ssize_t n = PyBytes_GET_SIZE(pre), i
    cdef void *txn
    cdef void *cursor = NULL
    cdef kas_val k, v, h, b
    cdef uint64_t newest, compacted, rev, reached
    cdef const LogHead *e
    cdef const char *head
    cdef const char *body
    cdef size_t head_len, body_len
    cdef uint64_t held = 0   # bytes of what was found
    cdef list found = []     # (revision, address)
    cdef list after_at = []  # for each, last first: address of the entry that holds the state after, or None: the current record
    cdef list out = []
    cdef dict next_at = {}   # full key → address of its next entry
    cdef dict cache = {}     # address → Record, so that one state is copied once
    cdef set open_keys
    cdef bytes key, ekey
    cdef Record record, previous
    cdef int rc = env.begin_read(&txn)
    if rc:
        raise engine_error(rc, "reading the log")
    try:
        rc = env.number(txn, b"kas.revision", &newest)
        if rc == 0:
            rc = env.number(txn, b"kas.compacted", &compacted)
        if rc:
            raise engine_error(rc, "reading the log")
        if after < compacted:
            raise LookupError("compacted", after, compacted)
        if after > newest:
            raise LookupError("future", after, newest)
        reached = newest
        if after == newest or limit <= 0:
            return out, after
        rc = L.cursor_open(txn, env.log, &cursor)
        rev = be64(after + 1)
        k = val(&rev, 8)
        if rc == 0:
            rc = L.cursor_get(cursor, &k, &v, OP_SET_RANGE)
        while rc == 0:
            if k.size != 8 or not log_ok(<char *>v.data, v.size):
                raise engine_error(ERR_CORRUPTED, "reading the log")
            e = <LogHead *>v.data
            if e.key_len >= n and memcmp(<char *>v.data + LOG_SIZE, PyBytes_AS_STRING(pre), n) == 0:
                # Only a first bound: the states after are not known yet.
                if len(found) == limit or (found and held + v.size > max_bytes):
                    break
                held += v.size
                memcpy(&rev, k.data, 8)
                reached = be64(rev)
                found.append((reached, <size_t>v.data))
            rc = L.cursor_get(cursor, &k, &v, OP_NEXT)
        if rc == ERR_NOTFOUND:
            reached = newest
        elif rc:
            raise engine_error(rc, "reading the log")
        # The state after the last found entry of a key: in a later entry, if there is one.
        open_keys = set()
        for _, at in found:
            e = <const LogHead *><size_t>at
            if e.op != 3:
                open_keys.add((<const char *>e + LOG_SIZE)[:e.key_len])
        while rc == 0 and open_keys:
            if not log_ok(<char *>v.data, v.size):
                raise engine_error(ERR_CORRUPTED, "reading the log")
            e = <LogHead *>v.data
            key = (<char *>v.data + LOG_SIZE)[:e.key_len]
            if key in open_keys:
                open_keys.discard(key)
                next_at[key] = <size_t>v.data
            rc = L.cursor_get(cursor, &k, &v, OP_NEXT)
        for _, at in reversed(found):
            e = <const LogHead *><size_t>at
            key = (<const char *>e + LOG_SIZE)[:e.key_len]
            after_at.append(next_at.get(key))
            next_at[key] = at
        held = 0
        for i in range(len(found)):
            at = (<tuple>found[i])[1]
            e = <const LogHead *><size_t>at
            key = (<const char *>e + LOG_SIZE)[:e.key_len]
            head_len = body_len = 0
            addr = after_at.pop()
            if e.op == 3:
                pass
            elif addr is not None:
                log_state(<const char *><size_t>addr, &head, &head_len, &body, &body_len)
            else:
                ekey = key_bytes(key.decode())
                k = val(PyBytes_AS_STRING(ekey), PyBytes_GET_SIZE(ekey))
                rc = L.get(txn, env.current, &k, &h)
                if rc == 0:
                    rc = L.get(txn, env.body, &k, &b)
                if rc:
                    raise engine_error(ERR_CORRUPTED, f"reading the record of {key.decode()}")
                head, head_len, body, body_len = <char *>h.data, h.size, <char *>b.data, b.size
            held += head_len + body_len + e.head_len + e.body_len
            if i and held > max_bytes:
                reached = (<tuple>found[i - 1])[0]
                break
            record = previous = None
            if e.op != 3:
                record = copy_record(head, head_len, body, body_len)
                if addr is not None:
                    cache[addr] = record
                if record.h().mod_revision != <uint64_t>(<tuple>found[i])[0]:
                    raise engine_error(ERR_CORRUPTED, f"the log and the record of {key.decode()} do not fit together")
            if e.head_len:
                previous = cache.pop(at, None)
                if previous is None:
                    log_state(<const char *>e, &head, &head_len, &body, &body_len)
                    previous = copy_record(head, head_len, body, body_len)
            out.append(make_event((<tuple>found[i])[0], e.op, key.decode(), record, previous))
        return out, reached
    finally:
        if cursor != NULL:
            L.cursor_close(cursor)
        env.end_read(txn)


def record_at(Env env not None, str key not None, uint64_t revision):
    """The record of a key as it was at a revision, or None. Raises LookupError as read_events does."""
    cdef bytes full = key.encode(), raw = key_bytes(key)
    cdef Py_ssize_t n = PyBytes_GET_SIZE(full)
    cdef void *txn
    cdef void *cursor = NULL
    cdef kas_val k, v, h, b
    cdef const char *head
    cdef const char *body
    cdef size_t head_len, body_len
    cdef uint64_t newest, compacted, first
    cdef int rc = env.begin_read(&txn)
    if rc:
        raise engine_error(rc, f"reading {key}")
    try:
        rc = env.number(txn, b"kas.revision", &newest)
        if rc == 0:
            rc = env.number(txn, b"kas.compacted", &compacted)
        if rc:
            raise engine_error(rc, f"reading {key}")
        if revision > newest:
            raise LookupError("future", revision, newest)
        if revision < compacted:
            raise LookupError("compacted", revision, compacted)
        k = val(PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw))
        rc = L.get(txn, env.current, &k, &h)
        if rc == 0 and head_ok(<char *>h.data, h.size) and (<Head *>h.data).mod_revision <= revision:
            rc = L.get(txn, env.body, &k, &b)
            if rc:
                raise engine_error(ERR_CORRUPTED, f"reading {key}")
            return copy_record(<char *>h.data, h.size, <char *>b.data, b.size)
        if rc and rc != ERR_NOTFOUND:
            raise engine_error(rc, f"reading {key}")
        # The first write after the revision knows what was before it.
        first = be64(revision + 1)
        k = val(&first, 8)
        rc = L.cursor_open(txn, env.log, &cursor)
        if rc == 0:
            rc = L.cursor_get(cursor, &k, &v, OP_SET_RANGE)
        while rc == 0:
            if not log_ok(<char *>v.data, v.size):
                raise engine_error(ERR_CORRUPTED, "reading the log")
            if (<LogHead *>v.data).key_len == n and memcmp(<char *>v.data + LOG_SIZE, PyBytes_AS_STRING(full), n) == 0:
                log_state(<char *>v.data, &head, &head_len, &body, &body_len)
                return copy_record(head, head_len, body, body_len) if head_len else None
            rc = L.cursor_get(cursor, &k, &v, OP_NEXT)
        if rc != ERR_NOTFOUND:
            raise engine_error(rc, "reading the log")
        return None
    finally:
        if cursor != NULL:
            L.cursor_close(cursor)
        env.end_read(txn)


def compact_step(Env env not None, uint64_t revision, Py_ssize_t max_entries):
    """Forgets at most max_entries log entries up to revision, in one transaction; ``(removed, done)``."""
    cdef void *txn
    cdef void *cursor = NULL
    cdef kas_val k, v
    cdef uint64_t newest = 0, compacted = 0, rev
    cdef Py_ssize_t removed = 0
    cdef bint done = False
    cdef int rc
    with nogil:
        rc = env.begin_write(&txn)
        if rc == 0:
            rc = env.number(txn, b"kas.revision", &newest)
            if rc == 0:
                rc = env.number(txn, b"kas.compacted", &compacted)
            if revision > newest:
                revision = newest
            if rc == 0 and revision > compacted:
                rc = env.set_number(txn, b"kas.compacted", revision)
            if rc == 0:
                rc = L.cursor_open(txn, env.log, &cursor)
            if rc == 0:
                rc = L.cursor_get(cursor, &k, &v, OP_FIRST)
                while rc == 0:
                    memcpy(&rev, k.data, 8)
                    if be64(rev) > revision:
                        done = True
                        break
                    if removed == max_entries:
                        break
                    rc = L.cursor_del(cursor, 0)
                    removed += 1
                    if rc == 0:
                        rc = L.cursor_get(cursor, &k, &v, OP_FIRST)
                if rc == ERR_NOTFOUND:
                    done = True
                    rc = 0
                L.cursor_close(cursor)
            rc = env.end_write(txn, rc)
    if rc:
        raise engine_error(rc, "compacting")
    return removed, done


def due(Env env not None, uint64_t now_s, Py_ssize_t limit):
    """Keys whose lease has ended: ``[(key, mod revision)]``, earliest first."""
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


def revision_before(Env env not None, uint64_t second):
    """The newest revision known to be older than a Unix second; 0 when none is. One sample a second is kept."""
    cdef void *txn
    cdef void *cursor = NULL
    cdef kas_val k, v
    cdef uint64_t at = be64(second), out = 0, newest
    cdef int rc = env.begin_read(&txn)
    if rc:
        raise engine_error(rc, "reading the clock table")
    try:
        rc = env.number(txn, b"kas.revision", &newest)
        if rc == 0:
            rc = L.cursor_open(txn, env.clock, &cursor)
        if rc == 0:
            k = val(&at, 8)
            rc = L.cursor_get(cursor, &k, &v, OP_SET_RANGE)
            if rc == ERR_NOTFOUND:
                out = newest  # no write since
            elif rc == 0:
                memcpy(&out, v.data, 8)
        if rc and rc != ERR_NOTFOUND:
            raise engine_error(rc, "reading the clock table")
        return out
    finally:
        if cursor != NULL:
            L.cursor_close(cursor)
        env.end_read(txn)


def trim_clock(Env env not None, uint64_t second, Py_ssize_t max_entries):
    """Forgets clock samples older than a Unix second."""
    cdef void *txn
    cdef void *cursor = NULL
    cdef kas_val k, v
    cdef uint64_t at
    cdef Py_ssize_t removed = 0
    cdef int rc
    with nogil:
        rc = env.begin_write(&txn)
        if rc == 0:
            rc = L.cursor_open(txn, env.clock, &cursor)
            if rc == 0:
                rc = L.cursor_get(cursor, &k, &v, OP_FIRST)
                while rc == 0 and removed < max_entries:
                    memcpy(&at, k.data, 8)
                    if be64(at) >= second:
                        break
                    rc = L.cursor_del(cursor, 0)
                    removed += 1
                    if rc == 0:
                        rc = L.cursor_get(cursor, &k, &v, OP_FIRST)
                if rc == ERR_NOTFOUND:
                    rc = 0
                L.cursor_close(cursor)
            rc = env.end_write(txn, rc)
    if rc:
        raise engine_error(rc, "trimming the clock table")
    return removed
