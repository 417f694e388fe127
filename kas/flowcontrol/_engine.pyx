"""The compiled core of flow control. ``_engine.pxd`` describes the design; the types for Python callers are in ``_engine.pyi``."""

from collections import OrderedDict
from operator import attrgetter

from libc.math cimport sqrt
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from kas._fastpath cimport Request, RequestInfo
from kas.meta.offload import LARGE

cdef Py_ssize_t LARGE_BYTES = LARGE

cdef extern from *:
    """
    static inline int64_t flow_read(const int64_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
    static inline void flow_write(int64_t *p, int64_t v) { __atomic_store_n(p, v, __ATOMIC_RELEASE); }
    static inline int64_t flow_add(int64_t *p, int64_t d) { return __atomic_add_fetch(p, d, __ATOMIC_ACQ_REL); }
    """
    int64_t flow_read(const int64_t *p) noexcept nogil
    void flow_write(int64_t *p, int64_t v) noexcept nogil
    int64_t flow_add(int64_t *p, int64_t d) noexcept nogil

cdef enum:
    NEW = 0
    WAITING = 1
    RUNNING = 2
    ENDED = 3

    RUNS = 0
    WAITS = 1
    NO_SEATS = 2
    QUEUE_FULL = 3


cdef double SERVICE_S = 0.003        # assumed duration of a request before any has ended (upstream's estimatedServiceDuration)
cdef double MIXED_S = 1.0            # for how long after another user's request both users count as active
cdef double LEAST_SERVICE_S = 0.00001
cdef double LEARNING = 0.05          # weight of each ended request in the average duration


cdef inline double now_s() noexcept:
    """As ``time.monotonic()``."""
    cdef timespec t
    clock_gettime(CLOCK_MONOTONIC, &t)
    return t.tv_sec + t.tv_nsec * 1e-9


include "engine/board.pxi"
include "engine/demand.pxi"
include "engine/level.pxi"
include "engine/gate.pxi"
