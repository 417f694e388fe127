# A priority level: its seats, and the queues of the requests that wait for seats in this worker.

cdef class Flow:
    """``distinguisher`` tells the flows of a schema apart; ``hand`` are the queues that may take its requests (empty for a level
    without queues)."""

    def __init__(self, Level level not None, Stats stats not None, str distinguisher not None, tuple hand not None, list headers not None):
        self.level, self.stats, self.schema, self.distinguisher = level, stats, stats.schema, distinguisher
        self.hand, self.headers = hand, headers


cdef class Ticket:

    cdef int64_t width(self) noexcept:
        return self.initial if self.initial > self.final else self.final

    cdef double work(self, double service) noexcept:
        """In seat-seconds, if it runs for ``service`` seconds."""
        return self.initial * service + self.final * self.latency

    def end(self):
        """Ends the request, or the initial events of a watch; further calls do nothing."""
        if self.state == RUNNING:
            self.flow.level.finish(self)

    def cancel(self, str reason not None) -> bool:
        """Takes the request out of its queue; returns False if it no longer waits."""
        if self.state != WAITING:
            return False
        self.flow.level.leave_queue(self)
        self.state = ENDED
        self.flow.stats.reject(reason)
        count_duration(self.flow.stats.waited_in_vain, now_s() - self.arrived)
        self.flow.stats.waited_in_vain_s += now_s() - self.arrived
        self.request = None
        return True


cdef class Queue:

    def __cinit__(self, int64_t index, double r):
        self.index, self.next_r = index, r
        self.waiting, self.executing = OrderedDict(), set()


cdef class Level:
    """Without queues (``queues`` 0) no request waits. ``hooks`` is the worker's ``Hooks``. ``row`` is the row of the board; with -1
    the worker counts for itself, and the limit is divided by the number of workers."""

    def __init__(self, Board board not None, int row, str name not None, bint exempt, tuple queuing, hooks):
        self.board, self.row, self.name, self.exempt, self.hooks = board, row, name, exempt, hooks
        self.active, self.demand = {}, Demand()
        self.service = SERVICE_S
        if row < 0:
            self.own = <Share *>calloc(1, sizeof(Share))
            self.common = <Common *>calloc(1, sizeof(Common))
            if self.own == NULL or self.common == NULL:
                raise MemoryError
        else:
            self.own, self.common = &board.tables[board.index][row], &board.common[row]
        self.configure(queuing)

    def __dealloc__(self):
        if self.row < 0:
            free(self.own)
            free(self.common)

    def configure(self, tuple queuing):
        """Takes (queues, hand size, maximum queue length) or None. Requests that wait keep their places."""
        self.queued = queuing is not None
        if queuing is not None:
            self.queues, self.hand_size, self.length_limit = queuing

    @property
    def limit(self) -> int:
        """The seats of all workers."""
        return self.limit_now()

    @limit.setter
    def limit(self, int64_t seats):
        flow_write(&self.common.limit, seats)

    @property
    def is_set(self) -> bool:
        """Whether a limit was computed for it."""
        return flow_read(&self.common.limit) != 0

    @property
    def idle(self) -> bool:
        """Whether no request of this worker runs or waits in it."""
        return self.own.seats == 0 and self.own.waiting == 0 and self.own.executing == 0

    @property
    def waits(self) -> bool:
        return self.own.waiting != 0

    def close(self):
        """Frees the row of the board. The level must be idle, and must not be used any more."""
        self.own.held = 0

    def totals(self) -> tuple:
        """(seats in use, executing, waiting, seats waited for, active queues), summed over all workers."""
        cdef int w
        cdef int64_t seats = 0, executing = 0, waiting = 0, wanted = 0, queues = 0
        cdef Share *s
        for w in range(self.board.workers if self.row >= 0 else 1):
            s = &self.board.tables[w][self.row] if self.row >= 0 else self.own
            seats += flow_read(&s.seats)
            executing += flow_read(&s.executing)
            waiting += flow_read(&s.waiting)
            wanted += flow_read(&s.wanted)
            queues += flow_read(&s.queues)
        return seats, executing, waiting, wanted, queues

    def publish_demand(self):
        """Publishes the demand of this worker since the last time."""
        _, average, deviation, highest = self.demand.take()
        flow_write(&self.own.average, <int64_t>(average * 1e6))
        flow_write(&self.own.deviation, <int64_t>(deviation * 1e6))
        flow_write(&self.own.highest, <int64_t>(highest * 1e6))

    def total_demand(self) -> tuple:
        """(average, deviation, highest) of the seats wanted in the last period in all workers: the deviation as if the workers were
        independent, the highest as if they had peaked at the same time."""
        cdef int w
        cdef double average = 0, squares = 0, highest = 0
        cdef Share *s
        for w in range(self.board.workers if self.row >= 0 else 1):
            s = &self.board.tables[w][self.row] if self.row >= 0 else self.own
            average += flow_read(&s.average) * 1e-6
            squares += (flow_read(&s.deviation) * 1e-6) ** 2
            highest += flow_read(&s.highest) * 1e-6
        return average, sqrt(squares), highest

    # --- seats

    cdef int64_t limit_now(self) noexcept:
        cdef int64_t limit = flow_read(&self.common.limit)
        if limit == 0:
            limit = self.nominal
        if self.row < 0:
            limit = (limit + self.board.workers - 1) // self.board.workers
        return limit

    cdef int64_t in_use(self) noexcept:
        cdef int w
        cdef int64_t seats = 0
        if self.row < 0:
            return self.own.seats
        for w in range(self.board.workers):
            seats += flow_read(&self.board.tables[w][self.row].seats)
        return seats

    cdef bint fits(self, int64_t seats) noexcept:
        """Takes the seats if they are free. A request wider than the level runs when nothing else does."""
        cdef int64_t total
        total = self.in_use()
        if total > 0 and total + seats > self.limit_now():
            return False
        if self.queued and self.yields(seats):
            return False
        flow_add(&self.own.seats, seats)
        if self.row >= 0 and self.board.workers > 1:
            total = self.in_use()
            if total > seats and total > self.limit_now():
                flow_add(&self.own.seats, -seats)
                return False
        return True

    cdef bint yields(self, int64_t seats) noexcept:
        """Whether this worker has used up its part of the level and another worker with waiting requests has not."""
        cdef int w
        cdef int64_t queues = 0
        cdef double limit, part
        cdef bint waits = False
        cdef Share *s
        if self.row < 0 or self.board.workers == 1 or self.own.seats == 0:
            return False
        for w in range(self.board.workers):
            s = &self.board.tables[w][self.row]
            queues += flow_read(&s.queues)
            waits = waits or (w != self.board.index and flow_read(&s.waiting) > 0)
        if not waits or queues == 0:
            return False
        limit = self.limit_now()
        if self.own.seats + seats <= limit * max(1, self.own.queues) / queues:
            return False
        for w in range(self.board.workers):
            s = &self.board.tables[w][self.row]
            part = limit * flow_read(&s.queues) / queues
            if w != self.board.index and flow_read(&s.waiting) > 0 and (flow_read(&s.seats) == 0 or flow_read(&s.seats) + 1 <= part):
                return True
        return False

    cdef void changed(self, double now) noexcept:
        self.demand.observe(self.own.seats + self.own.wanted, now)
        flow_write(&self.own.queues, len(self.active))

    # --- virtual time

    cdef Queue pick(self, tuple hand):
        """The queue of the hand with the least work in it; the one to look at first rotates."""
        cdef Py_ssize_t n = len(hand), i, offset
        cdef Queue q, best = None
        offset = self.enqueued % n
        self.enqueued += 1
        for i in range(n):
            found = self.active.get(hand[(offset + i) % n])
            if found is None:
                q = Queue.__new__(Queue, hand[(offset + i) % n], self.r)
                return q
            q = <Queue>found
            if best is None or q.queued_work < best.queued_work:
                best = q
            if q.queued_work <= 0:
                break
        return best

    # --- the life of a request

    cdef int admit(self, Ticket t) except -1:
        """Returns RUNS, WAITS, NO_SEATS or QUEUE_FULL."""
        cdef double now = t.arrived
        cdef int64_t width = t.width()
        cdef Queue q
        cdef Stats stats = t.flow.stats
        cdef int i = 0
        while i < WIDTHS and width > SEATS[i]:
            i += 1
        stats.widths[i] += 1
        stats.widths_sum += width
        if self.exempt:
            flow_add(&self.own.seats, width)
            return self.execute(t, None, now)
        if not self.queued or not t.flow.hand:
            if self.fits(width):
                return self.execute(t, None, now)
            stats.reject("concurrency-limit")
            return NO_SEATS
        q = self.pick(t.flow.hand)
        t.arrival_r = self.r
        if self.own.waiting == 0 and self.fits(width):
            self.active[q.index] = q
            return self.execute(t, q, now)
        if <int64_t>len(q.waiting) >= self.length_limit:
            stats.reject("queue-full")
            return QUEUE_FULL
        self.active[q.index] = q
        q.waiting[t] = None
        t.charged = t.work(self.service)
        q.queued_work += t.charged
        q.queued_initial += t.initial
        q.queued_max += width
        t.queue, t.state = q, WAITING
        stats.waiting += 1
        stats.wanted += width
        i = 0
        while i < LONGS and <int64_t>len(q.waiting) > LENGTHS[i]:
            i += 1
        stats.lengths[i] += 1
        stats.lengths_sum += len(q.waiting)
        flow_add(&self.own.wanted, width)
        flow_add(&self.own.waiting, 1)
        self.changed(now)
        return WAITS

    cdef int execute(self, Ticket t, Queue q, double now) except -1:
        """Runs a request whose seats have been taken."""
        flow_add(&self.own.executing, 1)
        t.began, t.state, t.queue = now, RUNNING, q
        t.flow.stats.dispatched += 1
        t.flow.stats.executing += 1
        t.flow.stats.seats += t.width()
        count_duration(t.flow.stats.waited, now - t.arrived)
        t.flow.stats.waited_s += now - t.arrived
        if q is not None:
            q.executing.add(t)
            q.seats += t.width()
            if q.next_r > self.r:
                self.r = q.next_r
            t.charged = t.work(self.service)
            q.next_r += t.charged
            self.bound(q)
        self.changed(now)
        return RUNS

    cdef int finish(self, Ticket t) except -1:
        """The request has ended. Its seats are free, or will be when its watchers have been served."""
        cdef double now = now_s(), took = now - t.began
        cdef int64_t width = t.width()
        cdef Queue q = t.queue
        cdef Stats stats = t.flow.stats
        t.state, t.request = ENDED, None
        flow_add(&self.own.executing, -1)
        stats.executing -= 1
        stats.seats -= width
        if t.watching:
            count_duration(stats.watched, took)
            stats.watched_s += took
        else:
            count_duration(stats.ran, took)
            stats.ran_s += took
        if q is not None:
            q.executing.discard(t)
            q.next_r += t.work(took) - t.charged
            self.bound(q)
            self.service += (max(took, LEAST_SERVICE_S) - self.service) * LEARNING
        if t.final > 0 and t.latency > 0:
            self.released(q, width - t.final, now)
            self.hooks.later(t.latency, self, q, t.final)
        else:
            self.released(q, width, now)
            if q is not None:
                self.dispatch()
                self.tell()
        return 0

    cdef void bound(self, Queue q):
        """A queue is not charged for the time before its oldest waiting request arrived."""
        if q.waiting:
            head = <Ticket>next(iter(q.waiting))
            if q.next_r < head.arrival_r:
                q.next_r = head.arrival_r

    cdef int released(self, Queue q, int64_t seats, double now) except -1:
        flow_add(&self.own.seats, -seats)
        if q is not None:
            q.seats -= seats
            if q.seats == 0 and not q.waiting and not q.executing:
                self.active.pop(q.index, None)
        self.changed(now)
        return 0

    def give_back(self, q, int64_t seats):
        """Releases ``seats`` of a request that went through ``q`` (or None)."""
        self.released(q, seats, now_s())
        self.dispatch()
        self.tell()

    def tell(self):
        """Wakes the workers that wait for seats of this level."""
        cdef int w
        if self.row >= 0 and self.board.workers > 1:
            for w in range(self.board.workers):
                if w != self.board.index and flow_read(&self.board.tables[w][self.row].waiting) > 0:
                    self.hooks.wake(w)

    def dispatch(self):
        """Runs the waiting requests for which there are seats."""
        cdef Ticket t
        cdef double now
        if self.own.waiting:
            now = now_s()
            while self.own.waiting:
                t = self.next()
                if t is None:
                    break
                self.leave_queue(t)
                self.active[t.queue.index] = t.queue
                limit = self.limit_now()
                if t.final > limit > 0:  # the same work, with the seats there are
                    t.latency, t.final = t.latency * t.final / limit, limit
                self.execute(t, t.queue, now)
                if not t.future.done():
                    t.future.set_result(True)

    cdef Ticket next(self):
        """The head of the queue that would finish first in virtual time, with its seats taken; None if there are no seats."""
        cdef Queue q, best = None
        cdef Ticket head, chosen = None
        cdef double ends, soonest = 0
        cdef int64_t distance, nearest = 0, n = max(1, self.queues)
        for found in self.active.values():
            q = <Queue>found
            if not q.waiting:
                continue
            head = <Ticket>next(iter(q.waiting))
            ends = q.next_r + head.charged
            distance = (q.index - self.robin - 1 + n) % n
            if best is None or ends < soonest or (ends == soonest and distance < nearest):
                best, chosen, soonest, nearest = q, head, ends, distance
        if chosen is None or not self.fits(chosen.width()):
            return None
        self.robin = best.index
        return chosen

    cdef int leave_queue(self, Ticket t) except -1:
        cdef Queue q = t.queue
        cdef int64_t width = t.width()
        cdef double now = now_s()
        q.waiting.pop(t, None)
        q.queued_work -= t.charged
        q.queued_initial -= t.initial
        q.queued_max -= width
        t.flow.stats.waiting -= 1
        t.flow.stats.wanted -= width
        flow_add(&self.own.wanted, -width)
        flow_add(&self.own.waiting, -1)
        if q.seats == 0 and not q.waiting and not q.executing:
            self.active.pop(q.index, None)
        self.changed(now)
        return 0

    def dump(self) -> list:
        """Each active queue by index: (index, next dispatch R, seats in use, sums of initial seats, of maximum seats and of work,
        executing tickets, waiting tickets)."""
        cdef Queue q
        out = []
        for index in sorted(self.active):
            q = <Queue>self.active[index]
            out.append((
                index, q.next_r, q.seats, q.queued_initial, q.queued_max, max(0.0, q.queued_work),
                sorted(q.executing, key=attrgetter("began")), list(q.waiting),
            ))
        return out
