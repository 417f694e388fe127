# Calls of the C library and the system that concern the process itself.
#
#     prctl                                a child's relation to its parent
#     shorten_slice                        how soon a woken thread runs when others occupy the processor
#     mallopt, malloc_trim, used_bytes     glibc's allocator: thresholds, free memory, bytes in use; looked up by name, since musl has none
#     disconnect                           resets a TCP connection; Python's sockets cannot connect to "no address"
#
# Each function is a plain call; the only state is the addresses of the three allocator functions. ``malloc_trim`` and ``used_bytes`` take
# long and release the GIL meanwhile; any thread may call them.
#
# Why C: every process needs the first two before it does anything, and importing ``ctypes`` takes 3 ms and half a MiB in each.

from libc.stdint cimport int32_t, uint32_t, uint64_t


cdef struct Scheduling:  # the first version of struct sched_attr, sched_setattr(2)
    uint32_t size, policy
    uint64_t flags
    int32_t nice
    uint32_t priority
    uint64_t runtime, deadline, period


cdef struct Info:    # struct mallinfo2 of <malloc.h>
    size_t arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost


cdef int (*c_mallopt)(int, int) noexcept nogil
cdef int (*c_malloc_trim)(size_t) noexcept nogil
cdef Info (*c_mallinfo2)() noexcept nogil
