# See _libc.pxd for the design.

cdef extern from "<dlfcn.h>" nogil:
    void *RTLD_DEFAULT
    void *dlsym(void *handle, const char *name)

cdef extern from "<sys/prctl.h>" nogil:
    int c_prctl "prctl"(int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d)

cdef extern from "<sys/socket.h>" nogil:
    ctypedef unsigned int socklen_t
    cdef struct sockaddr:
        unsigned short sa_family
    int AF_UNSPEC
    int c_connect "connect"(int fd, const sockaddr *address, socklen_t size)

cdef extern from *:
    """
    #include <sys/syscall.h>
    #include <unistd.h>
    """
    long c_syscall "syscall"(long number, ...) nogil
    long SYS_sched_getattr, SYS_sched_setattr

c_mallopt = <int (*)(int, int) noexcept nogil>dlsym(RTLD_DEFAULT, "mallopt")
c_malloc_trim = <int (*)(size_t) noexcept nogil>dlsym(RTLD_DEFAULT, "malloc_trim")
c_mallinfo2 = <Info (*)() noexcept nogil>dlsym(RTLD_DEFAULT, "mallinfo2")  # since glibc 2.33


def prctl(int option, unsigned long value) -> bool:
    """Calls prctl(2); returns whether the system accepted it."""
    return c_prctl(option, value, 0, 0, 0) == 0


def shorten_slice(uint64_t ns) -> bool:
    """Requests scheduling slices of ``ns`` nanoseconds for this thread; returns whether the system accepted it. Leaves a thread with a
    non-default policy unchanged.
    """
    cdef Scheduling now
    if c_syscall(SYS_sched_getattr, 0, &now, sizeof(now), 0) or now.policy:
        return False
    now.size, now.runtime = sizeof(now), ns
    return c_syscall(SYS_sched_setattr, 0, &now, 0) == 0


def disconnect(int fd) -> bool:
    """Disconnects a socket from its peer (``connect`` to AF_UNSPEC); returns whether the system accepted it."""
    cdef sockaddr nobody
    nobody.sa_family = AF_UNSPEC
    return c_connect(fd, &nobody, sizeof(nobody)) == 0


def mallopt(int option, int value) -> bool:
    """Calls ``mallopt``; returns whether the allocator accepted it, False where there is no such function."""
    return c_mallopt != NULL and c_mallopt(option, value) == 1


def trims() -> bool:
    """Whether ``malloc_trim`` is available."""
    return c_malloc_trim != NULL


def malloc_trim() -> None:
    """Returns free memory to the system, where ``malloc_trim`` is available."""
    if c_malloc_trim != NULL:
        with nogil:
            c_malloc_trim(0)


def used_bytes() -> int:
    """The bytes in use in the allocator's heaps; 0 where that is not available."""
    cdef Info info
    if c_mallinfo2 == NULL:
        return 0
    with nogil:
        info = c_mallinfo2()
    return info.uordblks
