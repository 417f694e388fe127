# History: the undo log, events from it, and states at older revisions.
#
# log[revision, index] = LogHead, key, head and body of the record *before* the write (nothing for a create). The record after
# the write is the current one, or is in the next entry of the same key; a key is written once per revision. Compared with a
# log of new records, a create costs some bytes instead of a second copy of the object, a delete keeps the last state for its
# event, and a trimmed log loses no current data.
#
# Entries are in the map: their addresses are used only while the transaction is open. Not trusted: entries (log_ok, log_key)
# and the records in them. Benchmark: bench/test_store.py::test_read_events; the row `watch` of bench/end_to_end.py.

cdef enum:
    LOG_SIZE = 16
    LOG_KEY = 12


cdef inline bint log_ok(const char *p, size_t n) noexcept nogil:
    cdef const LogHead *e = <const LogHead *>p
    return n >= LOG_SIZE and <uint64_t>LOG_SIZE + e.key_len + e.head_len + e.body_len == n


cdef inline kas_val log_after(uint64_t revision, LogKey *buffer) noexcept nogil:
    """Returns the smallest key of the log with a revision greater than this one."""
    buffer.revision = be64(revision + 1)
    return val(buffer, 8)


cdef inline bint log_key(const kas_val *k, uint64_t *revision) noexcept nogil:
    """Parses a key of the log; keys of format 1 have no index."""
    if k.size != LOG_KEY and k.size != 8:
        return False
    memcpy(revision, k.data, 8)
    revision[0] = be64(revision[0])
    return True


cdef inline void log_state(const char *p, const char **head, size_t *head_len, const char **body, size_t *body_len) noexcept nogil:
    """Finds the record before the write in a log entry that log_ok() accepted."""
    cdef const LogHead *e = <const LogHead *>p
    head[0] = p + LOG_SIZE + e.key_len
    head_len[0] = e.head_len
    body[0] = p + LOG_SIZE + e.key_len + e.head_len
    body_len[0] = e.body_len


cdef dict undo_since(Env env, void *txn, uint64_t revision, bytes prefix):
    """Returns full key → address of the log entry with its state at `revision` (0: it was absent), for keys under prefix."""
    cdef void *cursor
    cdef kas_val k, v
    cdef LogKey first
    cdef const LogHead *e
    cdef bytes key
    cdef dict out = {}
    cdef Py_ssize_t n = PyBytes_GET_SIZE(prefix)
    cdef int rc = L.cursor_open(txn, env.log, &cursor)
    if rc == 0:
        k = log_after(revision, &first)
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


cdef int64_t keys_now(Env env, void *txn, uint64_t since, int64_t keys, uint64_t revision, uint64_t compacted, Gather *g) except -2:
    """Returns the number of keys of the range at `revision`, given that there were `keys` at the revision `since`; -1 if the
    log does not reach back, or if reading it costs as much as counting a quarter of the keys."""
    cdef void *cursor
    cdef kas_val k, v
    cdef LogKey first
    cdef const LogHead *e
    cdef const char *key
    cdef uint64_t at
    cdef int64_t left = 64 + keys // 4
    cdef int rc
    if since == revision:
        return keys
    if since > revision or since < compacted:
        return -1
    rc = L.cursor_open(txn, env.log, &cursor)
    if rc == 0:
        k = log_after(since, &first)
        rc = L.cursor_get(cursor, &k, &v, OP_SET_RANGE)
        while rc == 0:
            if not log_ok(<char *>v.data, v.size) or not log_key(&k, &at):
                rc = ERR_CORRUPTED
                break
            if at > revision or left == 0:
                break
            left -= 1
            e = <LogHead *>v.data
            key = <char *>v.data + LOG_SIZE
            if e.key_len >= g.prefix_len and memcmp(key, g.prefix, g.prefix_len) == 0 and compare(key, e.key_len, g.start, g.start_len) >= 0:
                keys += (e.op != 3) - (e.head_len != 0)
            rc = L.cursor_get(cursor, &k, &v, OP_NEXT)
        L.cursor_close(cursor)
    if rc and rc != ERR_NOTFOUND:
        raise engine_error(rc, "reading the log")
    return keys if left else -1


cdef class Event:
    """One write. ``frames`` is for the reader: bytes built once per event, under any key that the reader chooses. ``error``:
    why a sealed state could not be opened; ``record`` and ``previous`` are None then."""

    @property
    def type(self) -> str:
        """ADDED, MODIFIED or DELETED, for a watcher without a selector."""
        return "ADDED" if self.op == 1 else "MODIFIED" if self.op == 2 else "DELETED"

    @property
    def frames(self) -> dict:
        """The cache of encoded frames; created on first use."""
        if self._frames is None:
            self._frames = {}
        return self._frames

    def values(self, str field not None) -> tuple:
        """Returns the values of a selectable field before and after the write: one value, or two that differ. "" for a state
        without the field."""
        cdef bytes name = field.encode()
        old = None if self.previous is None else field_value(self.previous, name)
        if self.record is None:
            return (old,) if self.previous is not None else ()
        new = field_value(self.record, name)
        return (new,) if old is None or old == new else (old, new)

    def __len__(self):
        cdef Py_ssize_t n = 0
        if self.record is not None:
            n += len(self.record)
        if self.previous is not None:
            n += len(self.previous)
        return n

    def __repr__(self):
        return f"<Event {self.revision} {self.type} {self.key}>"


cdef str field_value(Record record, bytes field):
    """Returns the value of a selectable field, "" if the record does not have it."""
    cdef const char *head = PyBytes_AS_STRING(record.head)
    cdef const char *at = head_fields(head)
    cdef const char *end = at + (<const Head *>head).fields_len
    cdef const char *name
    cdef const char *value
    cdef size_t name_len, value_len
    while next_pair(&at, end, &name, &name_len, &value, &value_len):
        if name_len == <size_t>PyBytes_GET_SIZE(field) and kas_same(name, PyBytes_AS_STRING(field), name_len):
            return value[:value_len].decode()
    return ""


cdef Event make_event(uint64_t revision, int op, str key, Record record, Record previous):
    cdef Event e = Event.__new__(Event)
    e.revision, e.op, e.key, e.record, e.previous = revision, op, key, record, previous
    return e


def read_events(Env env not None, str prefix not None, uint64_t after, Py_ssize_t limit, uint64_t max_bytes):
    """Returns ``(events, reached)``: the writes under prefix with revision > after, in order; at most ``limit`` of them, and
    no more than fit into ``max_bytes`` (states before and after), but whole revisions, and at least one. Every event up to
    the revision ``reached`` has been returned; ``reached`` is the newest revision when nothing is left. Raises
    LookupError("compacted" | "future", requested, known)."""
    cdef bytes pre = prefix.encode()
    cdef void *txn
    cdef void *cursor = NULL
    cdef kas_val k, v
    cdef uint64_t newest, compacted, reached
    cdef LogKey first
    cdef list found
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
        if after == newest or limit <= 0:
            return [], after
        rc = L.cursor_open(txn, env.log, &cursor)
        if rc:
            raise engine_error(rc, "reading the log")
        k = log_after(after, &first)
        rc = L.cursor_get(cursor, &k, &v, OP_SET_RANGE)
        found = find_entries(cursor, &k, &v, &rc, pre, limit, max_bytes)
        if rc == ERR_NOTFOUND:
            reached = newest
        elif rc:
            raise engine_error(rc, "reading the log")
        else:
            reached = (<tuple>found[len(found) - 1])[0]
        after_at = states_after(env, txn, cursor, &k, &v, rc, pre, found)
        return build_events(env, txn, found, after_at, max_bytes, reached)
    finally:
        if cursor != NULL:
            L.cursor_close(cursor)
        env.end_read(txn)


cdef list find_entries(void *cursor, kas_val *k, kas_val *v, int *rc, bytes prefix, Py_ssize_t limit, uint64_t max_bytes):
    """Returns ``[(revision, address)]`` of the entries under prefix, from the cursor's position on. rc is 0 if it stopped
    before the end of the log: the cursor is then at the first entry that was not taken."""
    cdef Py_ssize_t n = PyBytes_GET_SIZE(prefix)
    cdef const LogHead *e
    cdef uint64_t revision, last = 0, held = 0
    cdef list found = []
    while rc[0] == 0:
        if not log_key(k, &revision) or not log_ok(<char *>v.data, v.size):
            raise engine_error(ERR_CORRUPTED, "reading the log")
        e = <LogHead *>v.data
        if e.key_len >= n and memcmp(<char *>v.data + LOG_SIZE, PyBytes_AS_STRING(prefix), n) == 0:
            # Only a first bound: the states after the writes are not known yet, nor the size of a sealed state once opened.
            if found and revision != last and (len(found) >= limit or held > max_bytes):
                break
            if e.head_len < HEAD_SIZE or not (<const Head *>(<char *>v.data + LOG_SIZE + e.key_len)).flags & HEAD_SEALED:
                held += e.head_len + e.body_len
            last = revision
            found.append((revision, <size_t>v.data))
        rc[0] = L.cursor_get(cursor, k, v, OP_NEXT)
    return found


cdef bint is_newest(Env env, void *txn, bytes key, uint64_t revision) except -1:
    """Whether the current record of a key has this revision."""
    cdef bytes raw = key_bytes(key.decode())
    cdef kas_val h, k = val(PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw))
    return L.get(txn, env.current, &k, &h) == 0 and head_ok(<char *>h.data, h.size) and (<Head *>h.data).mod_revision == revision


cdef list states_after(Env env, void *txn, void *cursor, kas_val *k, kas_val *v, int rc, bytes prefix, list found):
    """Returns for each found entry, last first: the address of the entry that holds the state after it, None if that is the
    current record.

    The rest of the log, from the cursor's position on, is read only for keys that were written again: after a page of a watch
    that starts far back there may be hundreds of thousands of entries, on as many pages.
    """
    cdef const LogHead *e
    cdef bytes key
    cdef Py_ssize_t n = PyBytes_GET_SIZE(prefix)
    cdef dict last = {}      # full key → revision of the last found entry, if that left a record
    cdef dict next_at = {}   # full key → address of its next entry
    cdef set open_keys
    cdef list out = []
    for revision, at in found:
        e = <const LogHead *><size_t>at
        key = (<const char *>e + LOG_SIZE)[:e.key_len]
        if e.op != 3:
            last[key] = revision
        else:
            last.pop(key, None)
    open_keys = {key for key, revision in last.items() if not is_newest(env, txn, key, revision)}
    while rc == 0 and open_keys:
        if not log_ok(<char *>v.data, v.size):
            raise engine_error(ERR_CORRUPTED, "reading the log")
        e = <LogHead *>v.data
        if e.key_len >= n and memcmp(<char *>v.data + LOG_SIZE, PyBytes_AS_STRING(prefix), n) == 0:
            key = (<char *>v.data + LOG_SIZE)[:e.key_len]
            if key in open_keys:
                open_keys.discard(key)
                next_at[key] = <size_t>v.data
        rc = L.cursor_get(cursor, k, v, OP_NEXT)
    if rc and rc != ERR_NOTFOUND:
        raise engine_error(rc, "reading the log")
    for _, at in reversed(found):
        e = <const LogHead *><size_t>at
        key = (<const char *>e + LOG_SIZE)[:e.key_len]
        out.append(next_at.get(key))
        next_at[key] = at
    return out


cdef tuple build_events(Env env, void *txn, list found, list after_at, uint64_t max_bytes, uint64_t reached):
    """Returns the events of the found entries, cut at the end of a revision when they exceed max_bytes."""
    cdef const LogHead *e
    cdef uint64_t held = 0, revision, last = 0
    cdef Py_ssize_t whole = 0  # the number of events in earlier revisions
    cdef list out = []
    cdef dict cache = {}       # address → Record, so that each state is copied once
    cdef str key
    cdef Event event
    cdef Record record, previous
    for found_at in found:
        revision, at = <tuple>found_at
        e = <const LogHead *><size_t>at
        key = (<const char *>e + LOG_SIZE)[:e.key_len].decode()
        addr = after_at.pop()
        if revision != last:
            whole, last = len(out), revision
        record = previous = None
        event = make_event(revision, e.op, key, None, None)
        try:
            if e.op != 3:
                record = current_state(env, txn, key) if addr is None else logged_state(env, <const char *><size_t>addr)
                if addr is not None:
                    cache[addr] = record
                if head_of(record).mod_revision != revision:
                    raise engine_error(ERR_CORRUPTED, f"the log and the record of {key} do not fit together")
            if e.head_len:
                previous = cache.pop(at, None)
                if previous is None:
                    previous = logged_state(env, <const char *>e)
            event.record, event.previous = record, previous
        except TransformError as error:
            event.error = error
        held += len(event)
        if whole and held > max_bytes:
            return out[:whole], out[whole - 1].revision
        out.append(event)
    return out, reached


cdef Record logged_state(Env env, const char *entry):
    """Returns the record before the write of a log entry."""
    cdef const char *head
    cdef const char *body
    cdef size_t head_len, body_len
    log_state(entry, &head, &head_len, &body, &body_len)
    return stored_record(env, head, head_len, body, body_len)


cdef Record current_state(Env env, void *txn, str key):
    cdef bytes raw = key_bytes(key)
    cdef kas_val k = val(PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw))
    cdef kas_val h, b
    cdef int rc = L.get(txn, env.current, &k, &h)
    if rc == 0:
        rc = L.get(txn, env.body, &k, &b)
    if rc:
        raise engine_error(ERR_CORRUPTED, f"reading the record of {key}")
    return stored_record(env, <char *>h.data, h.size, <char *>b.data, b.size)


def record_at(Env env not None, str key not None, uint64_t revision):
    """Returns the record of a key at a revision, or None. Raises LookupError as read_events does."""
    cdef bytes full = key.encode(), raw = key_bytes(key)
    cdef Py_ssize_t n = PyBytes_GET_SIZE(full)
    cdef void *txn
    cdef void *cursor = NULL
    cdef kas_val k, v, h, b
    cdef LogKey first
    cdef uint64_t newest, compacted
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
            return stored_record(env, <char *>h.data, h.size, <char *>b.data, b.size)
        if rc and rc != ERR_NOTFOUND:
            raise engine_error(rc, f"reading {key}")
        # The first write after the revision has the state before it.
        k = log_after(revision, &first)
        rc = L.cursor_open(txn, env.log, &cursor)
        if rc == 0:
            rc = L.cursor_get(cursor, &k, &v, OP_SET_RANGE)
        while rc == 0:
            if not log_ok(<char *>v.data, v.size):
                raise engine_error(ERR_CORRUPTED, "reading the log")
            if (<LogHead *>v.data).key_len == n and memcmp(<char *>v.data + LOG_SIZE, PyBytes_AS_STRING(full), n) == 0:
                return logged_state(env, <char *>v.data) if (<LogHead *>v.data).head_len else None
            rc = L.cursor_get(cursor, &k, &v, OP_NEXT)
        if rc != ERR_NOTFOUND:
            raise engine_error(rc, "reading the log")
        return None
    finally:
        if cursor != NULL:
            L.cursor_close(cursor)
        env.end_read(txn)
