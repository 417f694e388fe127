# One LMDB environment: opening, transactions, single reads, statistics.
#
# _engine.pxd describes the tables. Env owns the environment and one spare read transaction. Lock order: env.lock (rwlock,
# held for reading by every transaction) before LMDB's own. Trusted: nothing else opens the file in this process. Benchmark:
# bench/test_store.py::test_get.

cdef extern from "Python.h":
    ctypedef struct PyThreadState:
        pass
    int PyGILState_Check() noexcept nogil
    PyThreadState *PyEval_SaveThread() noexcept nogil
    void PyEval_RestoreThread(PyThreadState *state) noexcept nogil

cdef extern from *:
    """
    static inline void *kas_swap(void **p, void *v) { return __atomic_exchange_n(p, v, __ATOMIC_ACQ_REL); }
    """
    void *kas_swap(void **p, void *v) noexcept nogil

cdef extern from "<unistd.h>" nogil:
    ssize_t pwrite(int, const void *, size_t, long)
    long lseek(int, long, int)
    int SEEK_END

cdef char zeros[65536]

# Format 2 added an index to the revision in the keys of the log, and sealed records. Data of format 1 can be read as they
# are, so its directories are upgraded by changing the number alone; older programs refuse them from then on.
FORMAT = b"2"
UPGRADED = (b"1",)

cdef inline uint64_t be64(uint64_t v) noexcept nogil:
    return __builtin_bswap64(v)

cdef extern from *:
    uint64_t __builtin_bswap64(uint64_t) noexcept nogil
    uint32_t __builtin_bswap32(uint32_t) noexcept nogil

cdef inline kas_val val(const void *p, size_t n) noexcept nogil:
    cdef kas_val v
    v.size = n
    v.data = <void *>p
    return v


cdef class Env:
    """The open environment of one data directory. At most one per process and path (LMDB's rule)."""

    def __cinit__(self):
        pthread_rwlock_init(&self.lock, NULL)

    def __init__(self, str path, size_t map_size, unsigned int max_readers=4096, bint sync=True):
        cdef int rc
        cdef bytes raw = path.encode()
        cdef unsigned int flags = ENV_NOTLS | ENV_NORDAHEAD | (0 if sync else ENV_NOSYNC)
        cdef const char *p = raw
        load_engine()
        self.path = path
        map_size = map_size // 4096 * 4096
        while True:
            rc = L.env_create(&self.env)
            if rc == 0:
                L.env_set_maxdbs(self.env, 8)
                L.env_set_maxreaders(self.env, max_readers)
                rc = L.env_set_mapsize(self.env, map_size)
            if rc == 0:
                with nogil:
                    rc = L.env_open(self.env, p, flags, 0o600)
            if rc == 0:
                break
            if self.env != NULL:
                L.env_close(self.env)
                self.env = NULL
            # The map is only address space; if a limit refuses it (ulimit -v, 32 bits), a smaller one is sufficient.
            if rc == ENOMEM and map_size > (64 << 20):
                map_size //= 2
                continue
            raise engine_error(rc, f"cannot open {path}")
        self.limit = map_size
        try:
            self._check_size()
            self._open_tables()
            self._check_ends()
        except BaseException:
            self.close()
            raise

    def _check_size(self):
        # LMDB maps the file and trusts its length: a truncated one would be a SIGBUS at some later read.
        import os

        cdef kas_info info
        cdef kas_stat st
        L.env_info(self.env, &info)
        L.env_stat(self.env, &st)
        size = os.stat(os.path.join(self.path, "data.mdb")).st_size
        if info.last_txnid and size < <object>((info.last_pgno + 1) * st.psize):
            raise CorruptError(f"{self.path}/data.mdb is cut off: {size} bytes of at least {(info.last_pgno + 1) * st.psize}; "
                               "restore the data directory from a backup")

    def _open_tables(self):
        cdef int rc
        cdef bint write = False
        cdef void *txn
        cdef kas_val k, v
        cdef kas_stat st
        while True:
            rc = L.txn_begin(self.env, NULL, 0 if write else TXN_RDONLY, &txn)
            if rc == ERR_MAP_RESIZED:
                rc = L.env_set_mapsize(self.env, 0)
                if rc == 0:
                    continue
            if rc == ERR_READERS_FULL:
                rc = L.reader_check(self.env, NULL)
                if rc == 0:
                    rc = L.txn_begin(self.env, NULL, TXN_RDONLY, &txn)
            if rc:
                raise engine_error(rc, f"cannot read {self.path}")
            try:
                rc = L.dbi_open(txn, NULL, 0, &self.main)
                k = val(b"kas.format", 10)
                if rc == 0:
                    rc = L.get(txn, self.main, &k, &v)
                if rc == ERR_NOTFOUND:
                    L.stat(txn, self.main, &st)
                    if st.entries:
                        raise CorruptError(f"{self.path}/data.mdb is another program's database: serve another directory")
                if rc == 0 or rc == ERR_NOTFOUND:
                    found = FORMAT if rc else (<char *>v.data)[:v.size]
                    if found != FORMAT and found not in UPGRADED:
                        raise CorruptError(f"{self.path} has data format {found.decode('utf-8', 'replace')}, this program reads format "
                                           f"{FORMAT.decode()}: use the program version that wrote it, or another data directory")
                    if rc or found != FORMAT:
                        rc = ERR_NOTFOUND  # to be written: in the next iteration
                        if write:
                            v = val(PyBytes_AS_STRING(FORMAT), PyBytes_GET_SIZE(FORMAT))
                            rc = L.put(txn, self.main, &k, &v, 0)
                for name in ("current", "body", "log", "expiry"):
                    if rc == 0:
                        rc = self._open_table(txn, name, write)
                if rc == 0:
                    rc = L.txn_commit(txn)
                    txn = NULL
                    if rc == 0:
                        return
            finally:
                if txn != NULL:
                    L.txn_abort(txn)
            if rc == ERR_NOTFOUND and not write:
                write = True
                continue
            raise engine_error(rc, f"cannot read {self.path}")

    def _check_ends(self):
        # Reads the path to the first and the last entry of each table, not the whole file, which would take too long. A copy
        # that was interrupted but has the full length lacks one of them.
        cdef void *txn
        cdef void *cursor
        cdef kas_val k, v
        cdef int rc, op
        cdef unsigned int dbi
        rc = self.begin_read(&txn)
        if rc:
            raise engine_error(rc, f"cannot read {self.path}")
        try:
            for dbi in (self.current, self.body, self.log, self.expiry):
                rc = L.cursor_open(txn, dbi, &cursor)
                if rc == 0:
                    for op in (OP_FIRST, OP_LAST):
                        if rc == 0:
                            rc = L.cursor_get(cursor, &k, &v, op)
                    L.cursor_close(cursor)
                if rc and rc != ERR_NOTFOUND:
                    raise engine_error(rc, f"cannot read {self.path}/data.mdb")
        finally:
            self.end_read(txn)

    cdef int _open_table(self, void *txn, str name, bint write) except? -1:
        cdef bytes raw = name.encode()
        cdef unsigned int *slot
        if name == "current":
            slot = &self.current
        elif name == "body":
            slot = &self.body
        elif name == "log":
            slot = &self.log
        else:
            slot = &self.expiry
        return L.dbi_open(txn, PyBytes_AS_STRING(raw), DBI_CREATE if write else 0, slot)

    def close(self):
        """Closes the environment after the current reads. Idempotent; later calls raise the store's error."""
        cdef void *env
        cdef void *txn
        with nogil:
            pthread_rwlock_wrlock(&self.lock)
            env = self.env
            self.env = NULL
            txn = kas_swap(&self.spare, NULL)
            if txn != NULL:
                L.txn_abort(txn)
            if env != NULL:
                L.env_close(env)
            pthread_rwlock_unlock(&self.lock)

    def __dealloc__(self):
        if self.spare != NULL:
            L.txn_abort(self.spare)
        if self.env != NULL:
            L.env_close(self.env)
        pthread_rwlock_destroy(&self.lock)

    # -- transactions -------------------------------------------------------------------------------------------------

    cdef int begin_read(self, void **txn) noexcept nogil:
        """Starts a read transaction and holds env.lock; end_read must follow when it returns 0."""
        cdef int rc, attempt = 0
        cdef void *t
        while True:
            pthread_rwlock_rdlock(&self.lock)
            if self.env == NULL:
                pthread_rwlock_unlock(&self.lock)
                return EINVAL
            t = kas_swap(&self.spare, NULL)
            if t != NULL:
                rc = L.txn_renew(t)
                if rc:
                    L.txn_abort(t)
            else:
                rc = L.txn_begin(self.env, NULL, TXN_RDONLY, &t)
            if rc == 0:
                txn[0] = t
                return 0
            if rc == ERR_READERS_FULL and attempt < 3:
                L.reader_check(self.env, NULL)
            pthread_rwlock_unlock(&self.lock)
            attempt += 1
            if attempt > 3 or (rc != ERR_MAP_RESIZED and rc != ERR_READERS_FULL):
                return rc
            if rc == ERR_MAP_RESIZED:
                rc = self.adopt_size(0)
                if rc:
                    return rc

    cdef void end_read(self, void *txn) noexcept nogil:
        L.txn_reset(txn)
        txn = kas_swap(&self.spare, txn)
        if txn != NULL:
            L.txn_abort(txn)
        pthread_rwlock_unlock(&self.lock)

    cdef int begin_write(self, void **txn) noexcept nogil:
        """Waits to become the only writer of all processes; holds env.lock. end_write must follow when it returns 0."""
        cdef int rc, attempt
        for attempt in range(4):
            pthread_rwlock_rdlock(&self.lock)
            if self.env == NULL:
                pthread_rwlock_unlock(&self.lock)
                return EINVAL
            rc = L.txn_begin(self.env, NULL, 0, txn)
            if rc == 0:
                return 0
            pthread_rwlock_unlock(&self.lock)
            if rc != ERR_MAP_RESIZED:
                return rc
            rc = self.adopt_size(0)
            if rc:
                return rc
        return rc

    cdef int end_write(self, void *txn, int rc) noexcept nogil:
        """Commits when rc is 0, otherwise aborts; returns the result code."""
        if rc == 0:
            rc = L.txn_commit(txn)
        else:
            L.txn_abort(txn)
        pthread_rwlock_unlock(&self.lock)
        return rc

    cdef int adopt_size(self, size_t size) noexcept nogil:
        """Remaps: to the size that another process has given the map (0), or to a larger size. Waits for running reads.

        A running read may wait for the GIL (to open a sealed record, or to call ``wrap``), so a thread that waits for reads
        here must release it.
        """
        cdef int rc = EINVAL
        cdef void *txn
        cdef PyThreadState *python = PyEval_SaveThread() if PyGILState_Check() else NULL
        pthread_rwlock_wrlock(&self.lock)
        if self.env != NULL:
            txn = kas_swap(&self.spare, NULL)
            if txn != NULL:
                L.txn_abort(txn)
            rc = L.env_set_mapsize(self.env, size)
        pthread_rwlock_unlock(&self.lock)
        if python != NULL:
            PyEval_RestoreThread(python)
        return rc

    cdef int number(self, void *txn, const char *name, uint64_t *out) noexcept nogil:
        """Reads a number of the unnamed table; 0 if it was never written."""
        cdef kas_val k, v
        cdef size_t n = 0
        cdef int rc
        while name[n]:
            n += 1
        k = val(name, n)
        out[0] = 0
        rc = L.get(txn, self.main, &k, &v)
        if rc == ERR_NOTFOUND:
            return 0
        if rc == 0:
            if v.size != 8:
                return ERR_CORRUPTED
            memcpy(out, v.data, 8)
        return rc

    cdef int set_number(self, void *txn, const char *name, uint64_t value) noexcept nogil:
        cdef kas_val k, v
        cdef size_t n = 0
        while name[n]:
            n += 1
        k = val(name, n)
        v = val(&value, 8)
        return L.put(txn, self.main, &k, &v, 0)

    # -- reads --------------------------------------------------------------------------------------------------------

    def revisions(self):
        """Returns ``(newest revision, compacted revision)``, read from the store itself."""
        cdef void *txn
        cdef uint64_t newest, compacted
        cdef int rc = self.begin_read(&txn)
        if rc == 0:
            rc = self.number(txn, b"kas.revision", &newest)
            if rc == 0:
                rc = self.number(txn, b"kas.compacted", &compacted)
            self.end_read(txn)
        if rc:
            raise engine_error(rc, "reading the revision")
        return newest, compacted

    def get(self, str key not None):
        """Returns the current record of a key, or None. One transaction, two lookups, two copies."""
        cdef bytes raw = key_bytes(key)
        cdef void *txn
        cdef kas_val k, h, b
        cdef Record record
        cdef int rc = self.begin_read(&txn)
        if rc:
            raise engine_error(rc, f"reading {key}")
        try:
            k = val(PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw))
            rc = L.get(txn, self.current, &k, &h)
            if rc == ERR_NOTFOUND:
                return None
            if rc == 0:
                rc = L.get(txn, self.body, &k, &b)
                if rc == ERR_NOTFOUND:
                    rc = ERR_CORRUPTED
            if rc:
                raise engine_error(rc, f"reading {key}")
            record = stored_record(self, <char *>h.data, h.size, <char *>b.data, b.size)
        finally:
            self.end_read(txn)
        if self.transformer_for is not None and not record.sealed:
            error = refused_plain(self, key)
            if error is not None:
                raise error
        return record

    def has(self, str key not None) -> bool:
        """Returns whether there is a record of a key. One transaction, one lookup; nothing is decrypted."""
        cdef bytes raw = key_bytes(key)
        cdef void *txn
        cdef kas_val k, h
        cdef int rc = self.begin_read(&txn)
        if rc:
            raise engine_error(rc, f"reading {key}")
        k = val(PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw))
        rc = L.get(txn, self.current, &k, &h)
        self.end_read(txn)
        if rc and rc != ERR_NOTFOUND:
            raise engine_error(rc, f"reading {key}")
        return rc == 0

    def check_readers(self) -> int:
        """Frees the reader slots of processes that died in a read, which pin old pages until then; returns their number."""
        cdef int dead = 0, rc = EINVAL
        with nogil:
            pthread_rwlock_rdlock(&self.lock)
            if self.env != NULL:
                rc = L.reader_check(self.env, &dead)
            pthread_rwlock_unlock(&self.lock)
        if rc:
            raise engine_error(rc, "checking readers")
        return dead

    def nearly_full(self) -> bool:
        """Returns whether the file has grown to seven eighths of the limit; how much of it is free takes longer to find out."""
        cdef kas_info info
        cdef kas_stat st
        cdef void *txn
        cdef int rc = self.begin_read(&txn)
        if rc:
            raise engine_error(rc, "reading statistics")
        L.env_info(self.env, &info)
        L.env_stat(self.env, &st)
        self.end_read(txn)
        return (info.last_pgno + 1) * st.psize > self.limit // 8 * 7

    def end(self) -> int:
        """Returns the end of the used part of the file; what follows was preallocated."""
        cdef kas_info info
        cdef kas_stat st
        cdef size_t end = 0
        pthread_rwlock_rdlock(&self.lock)
        if self.env != NULL:
            L.env_info(self.env, &info)
            L.env_stat(self.env, &st)
            end = (info.last_pgno + 1) * st.psize
        pthread_rwlock_unlock(&self.lock)
        return end

    def put_ahead(self, int fd, size_t step) -> int:
        """Writes up to ``step`` bytes of zeros after the used part of the data file, not beyond the limit, while nothing else
        writes; ``fd`` is the file. Returns the file's size. Raises ``OSError`` for errors of the system, and the store's
        error when it is closed."""
        cdef kas_info info
        cdef kas_stat st
        cdef void *txn
        cdef size_t at = 0, upto, n
        cdef ssize_t wrote
        cdef int rc, failed = 0
        with nogil:
            rc = self.begin_write(&txn)
            if rc == 0:
                L.env_info(self.env, &info)
                L.env_stat(self.env, &st)
                at = (info.last_pgno + 1) * st.psize
                upto = at + step
                if upto > self.limit:
                    upto = self.limit
                at = max(at, <size_t>max(lseek(fd, 0, SEEK_END), 0))
                while at < upto:
                    n = upto - at
                    wrote = pwrite(fd, zeros, n if n < sizeof(zeros) else sizeof(zeros), at)
                    if wrote <= 0:
                        failed = errno or EIO
                        break
                    at += wrote
                self.end_write(txn, -1)
        if rc:
            raise engine_error(rc, "writing ahead")
        if failed:
            raise OSError(failed, f"{self.path}/data.mdb")
        return at

    def statistics(self):
        """Returns the sizes of the tables and the map, as a dict of ints."""
        cdef void *txn
        cdef kas_stat st
        cdef kas_info info
        cdef int rc = self.begin_read(&txn)
        if rc:
            raise engine_error(rc, "reading statistics")
        out = {}
        try:
            L.env_info(self.env, &info)
            for name, dbi in (("entries", self.current), ("body", self.body), ("log", self.log), ("expiry", self.expiry)):
                rc = L.stat(txn, dbi, &st)
                if rc:
                    raise engine_error(rc, "reading statistics")
                if name == "entries":
                    out["entries"] = st.entries
                else:
                    out[f"{name}_entries"] = st.entries
                    out[f"{name}_bytes"] = (st.branch + st.leaf + st.overflow) * st.psize
            out["map_size"] = info.mapsize
            out["limit"] = self.limit
            out["file_bytes"] = (info.last_pgno + 1) * st.psize
            out["free_bytes"] = self.free_pages(txn) * st.psize
            out["readers"] = info.numreaders
            out["max_readers"] = info.maxreaders
        finally:
            self.end_read(txn)
        return out

    cdef size_t free_pages(self, void *txn) noexcept nogil:
        """Counts the pages that later transactions can reuse: the sum of LMDB's free list (table 0: txn id → page numbers)."""
        cdef void *cursor
        cdef kas_val k, v
        cdef size_t total = 0
        cdef int rc = L.cursor_open(txn, 0, &cursor)
        if rc:
            return 0
        rc = L.cursor_get(cursor, &k, &v, OP_FIRST)
        while rc == 0:
            if v.size >= sizeof(size_t):
                total += (<size_t *>v.data)[0]
            rc = L.cursor_get(cursor, &k, &v, OP_NEXT)
        L.cursor_close(cursor)
        return total
