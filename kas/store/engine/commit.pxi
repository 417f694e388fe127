# Operations, from Python to the transaction and back.
#
# apply_batch() prepares a C array (with the GIL), runs write_batch() without it, and sets the result of each operation. The
# array points into the operations' drafts and into new bytes objects for heads and bodies, which the lists here keep alive
# until records are made of them. Trusted: drafts and keys, checked when they were created. Benchmark:
# bench/test_store.py::test_create.


cdef size_t used_bytes(Env env) noexcept nogil:
    """Returns the bytes of the file in use; the largest number if they cannot be determined."""
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


cdef inline size_t margin_of(size_t limit) noexcept nogil:
    return limit // 64 + 65536


def margin(size_t limit) -> int:
    """Returns how many bytes below the limit a store that was full must be before writes other than deletes are accepted again."""
    return margin_of(limit)


cdef class Op:
    """One write: a put (with a draft) or a delete. ``expected``: the mod revision that the current record must have, 0 for no
    record, None for no precondition; a delete of an absent key always fails with a conflict. With ``check`` nothing is
    written: the transaction is applied only if the key is as expected.

    After the commit: ``revision`` (0 if it failed), ``record`` (None for a delete), ``previous``; ``status``: 0 done, 1 its
    precondition failed (``previous`` is the current record), 2 another operation of its group failed, 3 its externally
    assigned revision is not newer than the newest. ``error``: why ``previous`` could not be opened.
    """

    def __init__(self, str key not None, Draft draft=None, expected=None, bint check=False):
        self.key, self.draft, self.expected, self.revision, self.check = key, draft, expected, 0, check
        self.full = key.encode()
        self.raw = key_bytes(key)
        if expected is not None and expected < 0:
            raise ValueError("expected is a revision, 0 or None")
        if check and (draft is not None or expected is None):
            raise ValueError("a check expects something, and writes nothing")

    def seal(self, transformer):
        """Prepares the sealed form, which is stored instead of the draft; None: the draft is stored as it is. For the
        backend, before each commit. Raises the store's TransformError."""
        self.sealed = None
        if transformer is not None and not transformer.plain and self.draft is not None:
            try:
                self.sealed = transformer.seal(payload_of(self.draft), self.full)
            except Exception as e:
                raise TransformError(self.key, str(e), "sealed") from e

    def resolve(self, uint64_t revision, Record record, Record previous):
        """Sets the result of an operation that another system committed; for backends that copy the outcome with ``apply``."""
        self.status, self.revision, self.record, self.previous = 0, revision, record, previous
        self.event = self.error = None

    @property
    def size(self) -> int:
        """The approximate number of bytes it writes; for bounds on batches and queues."""
        return 256 if self.draft is None else self.draft.size

    def __repr__(self):
        return f"<Op {'check' if self.check else 'delete' if self.draft is None else 'put'} {self.key} expected={self.expected}>"


cdef void prepare(Prepared *p, Op op, int group, int64_t at, list heads, list bodies):
    """Fills in the parameters of one operation (None: a revision without writes), and allocates room for its results."""
    cdef bytes head = None, body = None
    cdef Draft d
    p.group, p.at, p.index = group, at, 0
    p.status, p.op, p.revision = ST_SKIPPED, 0, 0
    p.old = NULL
    p.old_head_len = p.old_body_len = 0
    p.new_head = p.new_body = NULL
    p.sealed = NULL
    p.kind = NOTHING
    if op is not None:
        p.key, p.key_len = PyBytes_AS_STRING(op.raw), PyBytes_GET_SIZE(op.raw)
        p.full, p.full_len = PyBytes_AS_STRING(op.full), PyBytes_GET_SIZE(op.full)
        p.expected = -1 if op.expected is None else op.expected
        d = op.draft
        p.kind = CHECK if op.check else DEL if d is None else PUT
        if d is not None:
            parts_of(d, &p.parts)
            p.lease_s = d.lease_s
            if op.sealed is not None:
                p.sealed, p.sealed_len = PyBytes_AS_STRING(op.sealed), PyBytes_GET_SIZE(op.sealed)
            head = PyBytes_FromStringAndSize(NULL, head_room(&p.parts, p.full_len))
            body = PyBytes_FromStringAndSize(NULL, body_room(&p.parts))
            p.new_head, p.new_body = PyBytes_AS_STRING(head), PyBytes_AS_STRING(body)
    heads.append(head)
    bodies.append(body)


cdef void conclude(Env env, Prepared *p, Op op, Py_ssize_t i, list heads, list bodies):
    """Sets the result of an operation."""
    cdef object shrunk
    op.status = p.status
    op.record = op.previous = op.event = op.error = None
    op.revision = 0
    if p.old != NULL:
        if (<Head *>p.old).flags & HEAD_SEALED:
            try:
                op.previous = open_record(env, p.old, p.old + p.old_head_len, p.old_body_len)
            except TransformError as e:
                op.error = e
        else:
            op.previous = make_record(PyBytes_FromStringAndSize(p.old, p.old_head_len),
                                      PyBytes_FromStringAndSize(p.old + p.old_head_len, p.old_body_len))
    if p.status == ST_DONE and p.kind != CHECK:
        op.revision = p.revision
        if p.kind == PUT:
            shrunk = bodies[i]
            bodies[i] = None
            op.record = make_record(heads[i], shorten(shrunk, p.new_body_len))
            op.record.sealed = p.sealed != NULL
        if op.error is None:
            op.event = make_event(p.revision, p.op, op.key, op.record, op.previous)
        else:
            op.event = make_event(p.revision, p.op, op.key, None, None)
            op.event.error = op.error


cdef list NO_WRITE = [None]


def apply_batch(Env env not None, list units not None, list at not None, uint64_t now_s, bint only_deletes) -> tuple:
    """Applies units (lists of Op) in order, in one transaction; sets the results of the operations and returns ``(before,
    newest)``: the newest revision before and after.

    ``at`` has the revisions for each unit: 0, the next ones, one for each write; -1, the next one, for all writes; a number >
    0 is assigned externally: that one, for all, greater than the newest (gaps are allowed; for an empty unit it records that
    nothing happened up to it). Raises the store's Full (nothing written) and other engine errors. With ``only_deletes`` a
    full map may grow a little above its limit, so that space can be freed; while it is above, other batches are refused until
    there is space again.
    """
    cdef size_t n = 0, i = 0, filled = 0
    cdef uint64_t newest = 0, before = 0
    cdef int rc = 0, group = 0
    cdef Prepared *ops
    cdef Op op
    cdef list unit, heads = [], bodies = [], flat = []
    cdef kas_info info
    for unit in units:
        n += len(unit) or 1
        if len(unit) > 1 and len({(<Op>o).raw for o in unit}) != len(unit):
            raise ValueError("a group writes the same key twice")
    ops = <Prepared *>malloc((n + 1) * sizeof(Prepared))
    if ops == NULL:
        raise MemoryError
    try:
        for unit in units:
            for op in unit or NO_WRITE:
                flat.append(op)
                prepare(&ops[filled], op, group, at[group], heads, bodies)
                filled += 1
            group += 1
        with nogil:
            L.env_info(env.env, &info)
            # Above the limit only deletes may use the space; used_bytes() walks the free list, so it is called only in this case.
            if not only_deletes and info.mapsize > env.limit and used_bytes(env) + margin_of(env.limit) > env.limit:
                rc = ERR_MAP_FULL
            else:
                rc = write_batch(env, ops, n, now_s, &before, &newest)
                if rc == ERR_MAP_FULL and only_deletes:
                    rc = grow_reserve(env)
                    if rc == 0:
                        rc = write_batch(env, ops, n, now_s, &before, &newest)
        if rc:
            raise engine_error(rc, "writing")
        for i in range(n):
            op = <Op>flat[i]
            if op is not None:
                conclude(env, &ops[i], op, i, heads, bodies)
        return before, newest
    finally:
        for i in range(filled):
            free(ops[i].old)
        free(ops)


def load_batch(Env env not None, list ops not None, list states not None, uint64_t now_s):
    """Stores records with their states from elsewhere, in one transaction: ``states`` has ``(mod_revision, create_revision,
    version)`` for each operation. It makes no history and no events, and the newest revision does not change: for filling an
    environment before there are readers. A record loaded earlier is replaced. Leases count from ``now_s``."""
    cdef size_t n = len(ops), i
    cdef list heads = [], bodies = []
    cdef Prepared *given
    cdef uint64_t *numbers
    cdef Op op
    cdef int rc
    if len(states) != len(ops):
        raise ValueError("each operation needs its state")
    given = <Prepared *>malloc((n + 1) * sizeof(Prepared))
    numbers = <uint64_t *>malloc((n + 1) * 3 * sizeof(uint64_t))
    try:
        if given == NULL or numbers == NULL:
            raise MemoryError
        for i in range(n):
            op = <Op>ops[i]
            if op.draft is None:
                raise ValueError("only records can be loaded")
            prepare(&given[i], op, 0, EACH, heads, bodies)
            numbers[3 * i], numbers[3 * i + 1], numbers[3 * i + 2] = states[i]
        with nogil:
            rc = load_records(env, given, numbers, n, now_s)
        if rc:
            raise engine_error(rc, "loading")
    finally:
        free(given)
        free(numbers)


cdef int grow_reserve(Env env) noexcept nogil:
    """Lets the map grow above the operator's limit by a sixteenth (at least 1 MiB) each time, at most twice."""
    cdef kas_info info
    cdef size_t step = env.limit // 16 // 4096 * 4096
    if step < (1 << 20):
        step = 1 << 20
    L.env_info(env.env, &info)
    if info.mapsize + step > env.limit + 2 * step:
        return ERR_MAP_FULL
    return env.adopt_size(info.mapsize + step)
