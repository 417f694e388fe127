"""What work costs this process: instructions where the machine counts them, else processor time.

Instructions are those of user space, of every thread (Linux's ``perf_event_open``; virtual machines mostly have no such counters, and
``kernel.perf_event_paranoid`` above 2 forbids them). They are given as the seconds that
``PER_SECOND`` of them stand for, so that all bounds are the same in both; they hardly differ from time to time, whatever else the machine
does.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import struct
import sys
import time

PER_SECOND = 2_000_000_000
HARDWARE, INSTRUCTIONS = 0, 1
SOFTWARE, TASK_CLOCK = 1, 1
_SIZE = 112  # of perf_event_attr (PERF_ATTR_SIZE_VER5)
_INHERIT, _NO_KERNEL, _NO_HYPERVISOR = 1 << 1, 1 << 5, 1 << 6
_NUMBERS = {"x86_64": 298, "aarch64": 241}  # of the call


def _open(kind: int, config: int, tid: int) -> int:
    """A counter of a thread and of those that it begins. Raises OSError."""
    number = _NUMBERS.get(platform.machine())
    if number is None or sys.platform != "linux":
        raise OSError("no perf_event_open here")
    flags = _INHERIT | _NO_KERNEL | _NO_HYPERVISOR
    attr = struct.pack("IIQQQQQ", kind, _SIZE, config, 0, 0, 0, flags).ljust(_SIZE, b"\0")
    libc = ctypes.CDLL(None, use_errno=True)
    fd: int = libc.syscall(number, ctypes.create_string_buffer(attr, _SIZE), tid, -1, -1, 8)  # closed on exec
    if fd < 0:
        raise OSError(ctypes.get_errno(), "perf_event_open")
    return fd


class Events:
    """Events of a kind in every thread of this process, from now on. Raises OSError where they are not counted."""

    def __init__(self, kind: int = HARDWARE, config: int = INSTRUCTIONS) -> None:
        self._fds: list[int] = []
        try:
            for tid in map(int, os.listdir("/proc/self/task")):
                self._fds.append(_open(kind, config, tid))
        except OSError:
            self.close()
            raise

    def count(self) -> int:
        """How many there were."""
        return sum(int(struct.unpack("Q", os.read(fd, 8))[0]) for fd in self._fds)

    def close(self) -> None:
        """Counts no more."""
        for fd in self._fds:
            os.close(fd)
        self._fds = []


def available() -> bool:
    """Whether instructions are counted here."""
    with contextlib.suppress(OSError):
        events = Events()
        try:
            sum(range(1000))
            return events.count() > 0
        finally:
            events.close()
    return False


COUNTED = available()


class Spent:
    """A context manager; ``seconds`` is afterwards what was spent within it by all threads of the process."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> Spent:
        self._events = Events() if COUNTED else None
        self._began = time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.process_time() - self._began
        if self._events is not None:
            self.seconds = self._events.count() / PER_SECOND
            self._events.close()
