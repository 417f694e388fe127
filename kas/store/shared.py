"""State shared by the workers of one supervisor besides the database: the revision, in-flight counters, wake-ups, the lease clock.

Where several clusters form one store (``kas.store.etcd.partitioned``), each has its own page.

The supervisor calls ``Shared.create(workers)`` before it starts workers, and passes each of them the descriptors
(``pass_fds=shared.fds``) and the text ``shared.spec``; a worker calls ``Shared.attach(spec, index)``. ``Shared.private()``
does all of it for a single process. The lease clock shows the time of day at the start of the server plus the time that has
passed since, including suspend: setting the system clock meanwhile neither ends nor prolongs a lease. Wake-ups are eventfds,
one per worker, that every process may write; pipes where the system has no eventfds.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable
from struct import Struct

from kas.store._engine import SharedMemory, shared_size

_REFUSED_AT = Struct("d")  # its offset: after the counters
_MISSED = Struct("Q")  # its offset: after _REFUSED_AT
_FILES = Struct("4Q")  # its offset: after _MISSED
NO_FILES = (0, 0, 0, 0)
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def _uptime() -> float:
    """Seconds since boot, including suspend. Linux' CLOCK_MONOTONIC stops during suspend: leases would lag behind the time of
    day, and would all have ended when the server restarts."""
    return time.clock_gettime(_CLOCK)


def _size(workers: int) -> int:
    return shared_size(workers) + _REFUSED_AT.size + _MISSED.size + _FILES.size


class Shared:
    """The handle of one worker, or of the supervisor. ``memory`` has the counters (``enter``, ``leave``, ``in_flight``,
    ``reap``)."""

    __slots__ = ("_began", "_end", "_map", "_pipes", "_wake", "fds", "memory", "spec", "wake_fd", "woken")

    def __init__(self, memory_fd: int, wake: list[tuple[int, int]], index: int, began: float | None = None) -> None:
        # The time of day at boot: the zero of a clock that cannot be set and that all processes share.
        self._began = time.time() - _uptime() if began is None else began
        workers = max(1, len(wake))
        self._end = shared_size(workers)
        self._map = mmap.mmap(memory_fd, _size(workers))
        self._wake = wake
        self._pipes = any(r != w for r, w in wake)
        self.memory = SharedMemory(self._map, workers, index)
        self.fds: tuple[int, ...] = tuple({fd for fd in (memory_fd, *(fd for pair in wake for fd in pair)) if fd >= 0})
        self.spec = f"{memory_fd}:{self._began!r}:" + ",".join(f"{r}/{w}" for r, w in wake)
        self.wake_fd = wake[index][0] if wake else -1
        self.woken: list[Callable[[], None]] = []  # further callbacks after a wake-up

    @classmethod
    def create(cls, workers: int) -> Shared:
        """Creates the memory and the wake-ups. For the supervisor, whose own handle counts as worker 0's."""
        if hasattr(os, "memfd_create"):
            memory_fd = os.memfd_create("kas-shared")
        else:
            import tempfile  # imported here: it costs a third of a MiB

            memory_fd, name = tempfile.mkstemp(prefix="kas-shared-")
            os.unlink(name)
        os.ftruncate(memory_fd, _size(workers))
        wake = []
        for _ in range(workers):
            if hasattr(os, "eventfd"):
                fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
                wake.append((fd, fd))
            else:
                reader, writer = os.pipe()
                os.set_blocking(reader, False)
                os.set_blocking(writer, False)
                wake.append((reader, writer))
        return cls(memory_fd, wake, 0)

    @classmethod
    def attach(cls, spec: str, index: int) -> Shared:
        """Returns a worker's handle from the inherited descriptors, and claims the worker's slot."""
        memory, began, rest = spec.split(":")
        wake = [(int(r), int(w)) for r, _, w in (pair.partition("/") for pair in rest.split(","))]
        shared = cls(int(memory), wake, index, float(began))
        shared.memory.claim(os.getpid())
        return shared

    @classmethod
    def private(cls) -> Shared:
        """Returns a handle for one process without a supervisor; it has no wake-ups."""
        shared = cls(-1, [], 0)
        shared.memory.claim(os.getpid())
        return shared

    def lease_clock(self) -> float:
        """Seconds since the epoch by the lease clock."""
        return self._began + _uptime()

    @property
    def refused_at(self) -> float:
        """When any worker last refused a write for lack of space, by ``time.monotonic``; 0.0 if a later write found space."""
        return float(_REFUSED_AT.unpack_from(self._map, self._end)[0])

    @refused_at.setter
    def refused_at(self, when: float) -> None:
        """Sets it for all workers."""
        _REFUSED_AT.pack_into(self._map, self._end, when)

    @property
    def missed(self) -> int:
        """The newest etcd revision that any worker waited for in vain; 0 for none. If workers set it at the same time, the
        older value may remain until it is set again."""
        return int(_MISSED.unpack_from(self._map, self._end + _REFUSED_AT.size)[0])

    @missed.setter
    def missed(self, revision: int) -> None:
        """Sets it for all workers."""
        _MISSED.pack_into(self._map, self._end + _REFUSED_AT.size, revision)

    @property
    def files(self) -> tuple[int, ...]:
        """The device and inode of the store's data file and of its lock file, as the last process that opened them found them;
        zeros before."""
        return _FILES.unpack_from(self._map, self._end + _REFUSED_AT.size + _MISSED.size)

    @files.setter
    def files(self, files: tuple[int, ...]) -> None:
        """Sets them for all workers."""
        _FILES.pack_into(self._map, self._end + _REFUSED_AT.size + _MISSED.size, *files)

    @property
    def revision(self) -> int:
        """The newest revision that any worker has published."""
        return self.memory.revision

    def publish(self, revision: int) -> None:
        """Raises the shared revision and wakes the other workers."""
        self.memory.publish(revision)
        self.wake_others()

    def wake_others(self) -> None:
        """Makes the ``wake_fd`` of every other worker readable. Never blocks; several wake-ups of a busy worker merge into one."""
        own = self.memory.index
        for index, (_, writer) in enumerate(self._wake):
            if index != own:
                self._write(writer)

    def wake(self, index: int) -> None:
        """As ``wake_others``, for one worker."""
        self._write(self._wake[index][1])

    @staticmethod
    def _write(writer: int) -> None:
        try:  # no ``suppress``: this runs with each commit
            os.write(writer, b"\1\0\0\0\0\0\0\0")
        except BlockingIOError:  # the worker already has wake-ups pending
            return

    def drain(self) -> None:
        """Consumes the pending wake-ups. Call it before reading the revision."""
        try:
            os.read(self.wake_fd, 8)
            while self._pipes:  # one read empties an eventfd, a pipe may hold more
                os.read(self.wake_fd, 4096)
        except BlockingIOError:
            return

    def close(self) -> None:
        """Closes the descriptors. The counters must not be used afterwards."""
        for fd in self.fds:
            os.close(fd)
        self.fds = ()
