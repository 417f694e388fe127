# The board: for each level a row with what all workers agree on, and for each worker a row with what it uses. Trusts the other workers.


cdef class Board:
    """``common`` and ``tables`` are writable buffers shared by the workers; ``index`` is the number of this worker's table."""

    def __init__(self, common, tables, int index):
        cdef unsigned char[::1] view = common
        cdef int i
        if view.shape[0] < LEVELS * <Py_ssize_t>sizeof(Common) or not 0 <= index < len(tables):
            raise ValueError("the board is too small")
        self.workers, self.index = len(tables), index
        self.common = <Common *>&view[0]
        self.tables = <Share **>calloc(self.workers, sizeof(Share *))
        if self.tables == NULL:
            raise MemoryError
        for i in range(self.workers):
            view = tables[i]
            if view.shape[0] < LEVELS * <Py_ssize_t>sizeof(Share):
                raise ValueError("the board is too small")
            self.tables[i] = <Share *>&view[0]
        self.keep = (common, tables)

    def __dealloc__(self):
        free(self.tables)

    def claim(self, uint64_t key) -> int:
        """Returns the row of a level, which this worker also uses from now on; -1 if none is left. Callers in all workers must exclude
        one another. ``key`` is not 0."""
        cdef int i, w, unused = -1
        cdef bint held
        for i in range(LEVELS):
            if self.common[i].key == key:
                self.tables[self.index][i].held = 1
                return i
            held = False
            for w in range(self.workers):
                held = held or flow_read(&self.tables[w][i].held) != 0
            if not held and unused < 0:
                unused = i
        if unused >= 0:
            flow_write(&self.common[unused].limit, 0)
            self.common[unused].key = key
            self.tables[self.index][unused].held = 1
        return unused
