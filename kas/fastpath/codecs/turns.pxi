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
    STEPS_AT_ONCE = 256    # members or items between two looks at the clock: a tenth of a millisecond, or half of one
    KEPT_NS = 2_500_000

cdef int steps_done = 0      # of all threads, as what follows
cdef long long looks_done = 0
cdef long long given_at = 0


cdef inline void let_others(int steps) noexcept:
    """To be called with each member, where shared memory is as it should be."""
    global steps_done
    steps_done += steps
    if steps_done >= STEPS_AT_ONCE:
        rest()


cdef void rest() noexcept:
    """As ``let_others``, after many steps."""
    global steps_done, looks_done, given_at
    steps_done = 0
    looks_done += 1
    if kas_now_ns() - given_at >= KEPT_NS:
        with nogil:
            pass
        given_at = kas_now_ns()


def looks() -> int:
    """How often walks of this module have looked whether it is time to let others go first: what tells that a walk does, whoever waits."""
    return looks_done
