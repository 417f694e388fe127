# Request counts and durations, kept so that a request costs one dictionary look-up.
#
# A row stands for one combination of what upstream's metrics call a request; it is turned into series when somebody asks for
# /metrics. Why C: eight labels a request, three metrics over them (5.6 µs in Python, 0.9 µs here).

cdef class TallyRow:
    """Counts of one combination of labels. ``buckets`` are not cumulative; the last is what is above all bounds."""


    def duration_buckets(self, int n) -> list:
        return [self.durations[i] for i in range(n)]

    def size_buckets(self, int n) -> list:
        return [self.sizes[i] for i in range(n)]


cdef class Tally:
    """``add(request, status, body_bytes, method, sized)`` counts an answer; ``rows()`` gives what was counted.

    ``duration_bounds`` in seconds and ``size_bounds`` in bytes, ascending, at most 31 of each.
    """


    def __init__(self, duration_bounds, size_bounds):
        cdef int i
        if len(duration_bounds) >= MAX_BUCKETS or len(size_bounds) >= MAX_BUCKETS:
            raise ValueError("too many buckets")
        self._n, self._m = len(duration_bounds), len(size_bounds)
        for i in range(self._n):
            self._bounds[i] = duration_bounds[i]
        for i in range(self._m):
            self._sizes[i] = size_bounds[i]
        self._rows = {}

    def add(self, Request req not None, int status, Py_ssize_t size, str verb not None, bint anonymous, bint timed, bint sized):
        """``anonymous`` leaves out what the request names, for paths that do not exist; ``timed`` is False for long-running ones."""
        cdef RequestInfo info = req.info
        cdef tuple key
        cdef TallyRow row
        cdef int i
        cdef double took
        cdef bint dry = req.query != "" and "dryRun=" in req.query
        if anonymous:
            key = (status, verb, "", "", "", "", "", dry)
        else:
            key = (
                status, verb, info.api_group, info.api_version, info.resource, info.subresource,
                "resource" if info.name != "" else "namespace" if info.namespace != "" else "cluster", dry,
            )
        found = self._rows.get(key)
        if found is None:
            row = TallyRow.__new__(TallyRow)
            row.labels = key
            self._rows[key] = row
        else:
            row = <TallyRow>found
        row.count += 1
        if timed:
            took = _monotonic() - req.started
            row.seconds += took
            i = 0
            while i < self._n and took > self._bounds[i]:
                i += 1
            row.durations[i] += 1
        if sized:
            row.bytes_sent += size
            row.sized += 1
            i = 0
            while i < self._m and size > self._sizes[i]:
                i += 1
            row.sizes[i] += 1

    def rows(self) -> list:
        return list(self._rows.values())
