# Wanted seats over time, and durations of requests, added up as they are observed.

cdef double DURATIONS[BUCKETS]
DURATIONS[:] = [0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30]
cdef int64_t SEATS[WIDTHS]
SEATS[:] = [1, 2, 4, 8, 16, 32, 64, 100]
cdef int64_t LENGTHS[LONGS]
LENGTHS[:] = [0, 10, 25, 50, 100, 250, 500, 1000]

DURATION_BUCKETS = tuple([DURATIONS[i] for i in range(BUCKETS)])
SEAT_BUCKETS = tuple([SEATS[i] for i in range(WIDTHS)])
LENGTH_BUCKETS = tuple([LENGTHS[i] for i in range(LONGS)])


cdef class Demand:
    """An integral over time: ``take()`` returns (seconds, average, deviation, highest) since the last call."""

    def __init__(self):
        self.begun = self.since = now_s()

    cdef void observe(self, double value, double now) noexcept:
        cdef double dt = now - self.since
        if dt > 0:
            self.total += self.value * dt
            self.squares += self.value * self.value * dt
            self.since = now
        self.value = value
        if value > self.highest:
            self.highest = value

    def take(self) -> tuple:
        cdef double now = now_s(), length, mean
        self.observe(self.value, now)
        length = now - self.begun
        mean = self.total / length if length > 0 else self.value
        found = (length, mean, sqrt(max(0.0, self.squares / length - mean * mean)) if length > 0 else 0.0, self.highest)
        self.begun, self.total, self.squares, self.highest = now, 0, 0, self.value
        return found


cdef inline void count_duration(int64_t *row, double took) noexcept:
    cdef int i = 0
    while i < BUCKETS and took > DURATIONS[i]:
        i += 1
    row[i] += 1


cdef list row_of(int64_t *row, int n, double total):
    """A row in the form of a histogram of kas.observe.metrics: count per bucket, above the last, sum."""
    return [*[<double>row[i] for i in range(n)], total]


cdef class Stats:
    """What this worker has counted of the requests of one FlowSchema in one level."""

    def __init__(self, str schema not None, str level not None):
        self.schema, self.level, self.rejected = schema, level, {}

    def execution(self, bint watch) -> list:
        return row_of(self.watched, BUCKETS + 1, self.watched_s) if watch else row_of(self.ran, BUCKETS + 1, self.ran_s)

    def wait(self, bint executed) -> list:
        return row_of(self.waited, BUCKETS + 1, self.waited_s) if executed else row_of(
            self.waited_in_vain, BUCKETS + 1, self.waited_in_vain_s
        )

    def work(self) -> list:
        return row_of(self.widths, WIDTHS + 1, self.widths_sum)

    def queue_lengths(self) -> list:
        return row_of(self.lengths, LONGS + 1, self.lengths_sum)

    def reject(self, str reason not None):
        self.rejected[reason] = self.rejected.get(reason, 0) + 1
