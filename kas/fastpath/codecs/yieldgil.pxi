# Long walks release the GIL now and then so that other threads can run. Large documents are processed outside the event loop, and compiled
# code holds the GIL for as long as it runs: half a second for 3 MB of small values.
#
# The GIL is not released more often than a waiting thread requests it, which is after SWITCH_S (observe/process.py). A thread that is
# merely woken finds the GIL taken again and starts to wait anew: when it was released every half millisecond, no other thread got it for
# hundreds of releases.

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
    STEPS_PER_CHECK = 256    # members or items between two checks of the clock: a tenth to half a millisecond
    YIELD_INTERVAL_NS = 2_500_000

cdef int steps_since_check = 0      # shared by all threads, like the variables below
cdef long long gil_check_count = 0
cdef long long yielded_at_ns = 0


cdef inline void yield_gil(int steps) noexcept:
    """Counts ``steps`` and checks the clock every ``STEPS_PER_CHECK``. Call it per member or item, only where shared memory is in a
    consistent state.
    """
    global steps_since_check
    steps_since_check += steps
    if steps_since_check >= STEPS_PER_CHECK:
        yield_gil_if_due()


cdef void yield_gil_if_due() noexcept:
    """Releases the GIL if ``YIELD_INTERVAL_NS`` have passed since the last release. For callers that have just done many steps."""
    global steps_since_check, gil_check_count, yielded_at_ns
    steps_since_check = 0
    gil_check_count += 1
    if kas_now_ns() - yielded_at_ns >= YIELD_INTERVAL_NS:
        with nogil:
            pass
        yielded_at_ns = kas_now_ns()


def gil_checks() -> int:
    """How often this module has checked whether to release the GIL. For tests: it shows that a walk checks, whether or not a thread is
    waiting.
    """
    return gil_check_count
