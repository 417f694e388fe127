# Priority levels with fair queues, whose seats all workers share.
#
#   Board     the counters of all levels in the workers' shared memory                          engine/board.pxi
#   Demand    how many seats were wanted, over time                                             engine/demand.pxi
#   Level     a priority level: seats, shuffle-sharded queues, virtual time                     engine/level.pxi
#   Gate      the entry point of requests: classifies, seats, queues or rejects them            engine/gate.pxi
#
# Seats. Each worker adds what it uses to its own row of the board. What a level uses is the sum of the rows, so the seats of a
# worker that died are freed by zeroing its table. A worker first adds its seats, then checks the sum, and takes back what was too
# much: the limit is never exceeded, but two workers that come at once may both have to try again. A request waits in a queue of the
# worker that received it. A worker that releases seats serves its own queues first, unless another worker with waiting requests has
# less than its part of the level, which is the limit times its share of all active queues. Workers with waiting requests are woken,
# and also look by themselves 50 times a second, in case a wake-up is lost.
#
# Turns. A request holds its seats while it is served. One that is answered at once releases them before the next one is looked at,
# so there is never more than one of these, however many arrive; the event loop's time for them is shared out before
# (kas/edge/dispatch.py).
#
# Virtual time. A queue has the R at which its next request begins. A dispatched request charges it the seats times the average
# duration of the level's requests (corrected when it ends), and its R never lags behind the R at which its oldest request arrived.
# The level's R is that of the request dispatched last (start-time fair queueing). Upstream's R runs with the clock, as fast as all
# seats together could work. A busy event loop is slower than that: R would overtake all queues, and they would be served in order
# of arrival, flood first (measured: a GET next to 245 connections of a flood waited 22 ms). A queue exists while one of its
# requests waits or runs.
#
# Why C: with flow control a GET costs 1.5 µs more than with max-in-flight, a list 3.2 µs (bench/test_flowcontrol.py).
# Nothing here waits and nothing is thread-safe: a worker has one event loop. Bounds: the queues by the requests in them, those by
# the connections.

from libc.stdint cimport int64_t, uint64_t


cdef enum:
    LEVELS = 128          # rows of the board
    BUCKETS = 13          # of durations
    WIDTHS = 8            # of seats
    LONGS = 8             # of queues


cdef struct Common:       # of a level, for all workers
    uint64_t key          # 0: free
    int64_t limit         # seats, as last computed by worker 0; 0: not computed yet
    int64_t unused[6]


cdef struct Share:        # of a level, for one worker
    int64_t held          # whether the worker uses the row
    int64_t seats         # in use
    int64_t executing     # requests
    int64_t waiting       # requests
    int64_t wanted        # seats that these want
    int64_t queues        # active ones
    int64_t average       # of the demand in the last period, in millionths of a seat
    int64_t deviation
    int64_t highest
    int64_t unused[7]


cdef class Board:
    cdef object keep      # the buffers
    cdef Common *common
    cdef Share **tables
    cdef readonly int workers
    cdef readonly int index


cdef class Demand:
    cdef double value, since, begun, total, squares, highest

    cdef void observe(self, double value, double now) noexcept


cdef class Stats:         # of a FlowSchema and a level
    cdef readonly str schema
    cdef readonly str level
    cdef readonly int64_t dispatched
    cdef readonly int64_t executing
    cdef readonly int64_t seats
    cdef readonly int64_t waiting
    cdef readonly int64_t wanted
    cdef readonly dict rejected               # reason → count
    cdef int64_t ran[BUCKETS + 1]
    cdef int64_t watched[BUCKETS + 1]
    cdef int64_t waited[BUCKETS + 1]
    cdef int64_t waited_in_vain[BUCKETS + 1]
    cdef int64_t widths[WIDTHS + 1]
    cdef int64_t lengths[LONGS + 1]
    cdef readonly double ran_s, watched_s, waited_s, waited_in_vain_s, widths_sum, lengths_sum


cdef class Flow:          # the flow of requests of one user, verb, resource and namespace
    cdef readonly Level level
    cdef readonly Stats stats
    cdef readonly str schema
    cdef readonly str distinguisher
    cdef readonly tuple hand
    cdef readonly list headers


cdef class Ticket:        # a request that waits or runs
    cdef readonly Flow flow
    cdef readonly object request
    cdef readonly int64_t initial             # seats while it runs
    cdef readonly int64_t final               # seats afterwards
    cdef readonly double latency              # for how many seconds the final seats are held
    cdef readonly double arrived              # time.monotonic()
    cdef readonly double began
    cdef double arrival_r, charged
    cdef Queue queue
    cdef readonly int state
    cdef readonly bint watching               # it is a watch whose stream runs
    cdef readonly bint answering              # a large response is being sent
    cdef readonly bint mutating
    cdef public object future                 # of a request that waits: True when it may run

    cdef int64_t width(self) noexcept
    cdef double work(self, double service) noexcept


cdef class Queue:
    cdef readonly int64_t index
    cdef double next_r
    cdef int64_t seats                        # in use
    cdef double queued_work
    cdef int64_t queued_initial, queued_max
    cdef object waiting                       # OrderedDict of Ticket
    cdef set executing


cdef class Level:
    cdef readonly str name
    cdef readonly bint exempt
    cdef readonly bint queued
    cdef public bint quiescing
    cdef readonly int64_t queues, hand_size, length_limit
    cdef public int64_t nominal
    cdef public int64_t max_seats
    cdef Board board
    cdef int row
    cdef Common *common
    cdef Share *own
    cdef Demand demand
    cdef dict active                          # index → Queue
    cdef double r                             # of the request dispatched last
    cdef double service                       # average duration of the level's recent requests, in seconds
    cdef int64_t robin, enqueued
    cdef object hooks

    cdef int64_t limit_now(self) noexcept
    cdef int64_t in_use(self) noexcept
    cdef bint fits(self, int64_t seats) noexcept
    cdef bint yields(self, int64_t seats) noexcept
    cdef void changed(self, double now) noexcept
    cdef void bound(self, Queue q)
    cdef Queue pick(self, tuple hand)
    cdef int admit(self, Ticket t) except -1
    cdef int execute(self, Ticket t, Queue q, double now) except -1
    cdef int finish(self, Ticket t) except -1
    cdef int released(self, Queue q, int64_t seats, double now) except -1
    cdef int leave_queue(self, Ticket t) except -1
    cdef Ticket next(self)
