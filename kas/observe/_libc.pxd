# What the C library and the system are told of the process itself.
#
#   prctl                                what a child asks of the system about who started it
#   shorten_slice                        how soon a thread that was woken runs beside others that keep the processor
#   mallopt, malloc_trim, used_bytes     the allocator's bounds, its free memory, and what is in use; glibc's, looked for by name: musl has none
#   disconnect                           the end of a TCP connection that waits for nobody; Python's sockets cannot say "no address"
#
# Each call goes straight through; nothing is kept but where the three functions are. ``malloc_trim`` and ``used_bytes`` take long, and let
# the interpreter's lock go meanwhile: any thread may call.
#
# Why C: every process needs the first two before it does anything, and ``ctypes`` takes 3 ms and half a MiB in each of them.

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
