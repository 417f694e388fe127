# Shared memory of the workers: the committed revision, in-flight counters, heartbeats.
#
# One page of a mapped file for the revision, then one 128-byte slot per worker: pid, mutating and read-only requests in
# flight, heartbeats. Then a table that all workers may write, and a table per worker; their users define the content
# (kas.flowcontrol). A slot and a worker's table are written only by their own worker (and zeroed by the process that reaps a
# dead one), so a crashed worker's share can be reclaimed. All accesses are atomic; loads and stores of the worker's own cache
# line take some nanoseconds. The mapping belongs to kas.store.shared.Shared; a SharedMemory keeps it alive. Trusted: the
# other workers. Benchmark: the row `get` of bench/end_to_end.py.

cdef extern from *:
    """
    static inline uint64_t kas_load(const uint64_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
    static inline void kas_store(uint64_t *p, uint64_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
    static inline int64_t kas_add(int64_t *p, int64_t d) { return __atomic_add_fetch(p, d, __ATOMIC_ACQ_REL); }
    static inline int64_t kas_read(const int64_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
    static inline void kas_max(uint64_t *p, uint64_t v) {
        uint64_t old = __atomic_load_n(p, __ATOMIC_RELAXED);
        while (old < v && !__atomic_compare_exchange_n(p, &old, v, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) ;
    }
    """
    uint64_t kas_load(const uint64_t *p) noexcept nogil
    void kas_store(uint64_t *p, uint64_t v) noexcept nogil
    int64_t kas_add(int64_t *p, int64_t d) noexcept nogil
    int64_t kas_read(const int64_t *p) noexcept nogil
    void kas_max(uint64_t *p, uint64_t v) noexcept nogil

cdef enum:
    SLOT_AT = 4096
    COMMON_BYTES = 8192   # the table shared by all
    TABLE_BYTES = 16384   # each worker's own table


def shared_size(int workers) -> int:
    """Returns the size of the shared file in bytes for this number of workers."""
    return SLOT_AT + COMMON_BYTES + workers * (<int>sizeof(Slot) + TABLE_BYTES)


cdef class SharedMemory:
    """A view of the mapped file, for worker number ``index``."""

    def __init__(self, map, int workers, int index):
        cdef unsigned char[::1] view = map
        if workers < 1 or not 0 <= index < workers or view.shape[0] < shared_size(workers):
            raise ValueError("the shared file does not fit the number of workers")
        self.map = map
        self.base = <char *>&view[0]
        self.workers, self.index = workers, index
        self.own = <Slot *>(self.base + SLOT_AT) + index

    @property
    def revision(self) -> int:
        """The newest revision that any worker has published. Costs one atomic load."""
        return kas_load(<uint64_t *>(self.base + 64))

    def publish(self, uint64_t revision):
        """Raises the shared revision; never lowers it."""
        kas_max(<uint64_t *>(self.base + 64), revision)

    def enter(self, bint mutating) -> int:
        """Counts a request in; returns how many of its kind are in flight in all workers, including this one."""
        kas_add(&self.own.mutating if mutating else &self.own.readonly, 1)
        return self.in_flight(mutating)

    def leave(self, bint mutating):
        """Counts a request out."""
        kas_add(&self.own.mutating if mutating else &self.own.readonly, -1)

    def in_flight(self, bint mutating) -> int:
        """Returns the requests of a kind in flight in all workers."""
        cdef Slot *s = <Slot *>(self.base + SLOT_AT)
        cdef int64_t total = 0
        cdef int i
        for i in range(self.workers):
            total += kas_read(&s[i].mutating if mutating else &s[i].readonly)
        return total

    def beat(self):
        """Counts a heartbeat of this worker's loop."""
        kas_add(&self.own.beats, 1)

    def beats(self, int index) -> int:
        """Returns the number of a worker's heartbeats."""
        if not 0 <= index < self.workers:
            raise IndexError(index)
        return kas_read(&((<Slot *>(self.base + SLOT_AT)) + index).beats)

    def common(self) -> memoryview:
        """The table that all workers write."""
        at = SLOT_AT + self.workers * <int>sizeof(Slot)
        return memoryview(self.map)[at:at + COMMON_BYTES]

    def table(self, int index) -> memoryview:
        """Returns a worker's own table: zero when the worker starts, and again after it has died."""
        if not 0 <= index < self.workers:
            raise IndexError(index)
        at = SLOT_AT + self.workers * <int>sizeof(Slot) + COMMON_BYTES + index * TABLE_BYTES
        return memoryview(self.map)[at:at + TABLE_BYTES]

    def claim(self, int64_t pid):
        """Assigns this worker's slot to the process ``pid``, with empty counters."""
        self.reap(self.index)
        self.own.pid = pid

    def reap(self, int index):
        """Empties the slot of a worker that died."""
        if not 0 <= index < self.workers:
            raise IndexError(index)
        cdef Slot *s = <Slot *>(self.base + SLOT_AT) + index
        s.pid = 0
        kas_store(<uint64_t *>&s.mutating, 0)
        kas_store(<uint64_t *>&s.readonly, 0)
        kas_store(<uint64_t *>&s.beats, 0)
        memset(self.base + SLOT_AT + self.workers * sizeof(Slot) + COMMON_BYTES + index * TABLE_BYTES, 0, TABLE_BYTES)

    def pid(self, int index) -> int:
        """Returns the process that holds a slot, 0 for none."""
        if not 0 <= index < self.workers:
            raise IndexError(index)
        return (<Slot *>(self.base + SLOT_AT))[index].pid
