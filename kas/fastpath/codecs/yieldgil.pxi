# Long walks let other threads have the interpreter's lock every now and then. What is large is walked beside the event loop, and compiled
# code keeps the lock for as long as it takes: 3 MB of small values half a second.
#
# Not more often than somebody who waits asks for it, which is after SWITCH_S (observe/process.py): who is only woken finds the lock taken
# again, and begins to wait anew. Given away each half millisecond it was had by nobody else for hundreds of them.

cdef extern from *:
    """
    #include <time.h>

    static inline long long kas_now_ns(void)
    {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return t.tv_sec * 1000000000LL + t.tv_nsec;
    }
    """
    long long kas_now_ns() noexcept

cdef enum:
    STEPS_PER_CHECK = 256    # members or items between two looks at the clock: a tenth of a millisecond, or half of one
    YIELD_INTERVAL_NS = 2_500_000

cdef int steps_since_check = 0      # of all threads, as what follows
cdef long long gil_check_count = 0
cdef long long yielded_at_ns = 0


cdef inline void yield_gil(int steps) noexcept:
    """To be called with each member, where shared memory is as it should be."""
    global steps_since_check
    steps_since_check += steps
    if steps_since_check >= STEPS_PER_CHECK:
        yield_gil_if_due()


cdef void yield_gil_if_due() noexcept:
    """As ``yield_gil``, after many steps."""
    global steps_since_check, gil_check_count, yielded_at_ns
    steps_since_check = 0
    gil_check_count += 1
    if kas_now_ns() - yielded_at_ns >= YIELD_INTERVAL_NS:
        with nogil:
            pass
        yielded_at_ns = kas_now_ns()


def gil_checks() -> int:
    """How often walks of this module have looked whether it is time to let others go first: what tells that a walk does, whoever waits."""
    return gil_check_count
