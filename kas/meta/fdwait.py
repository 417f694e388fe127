"""Waits for file descriptors with poll(2): ``select.select`` supports descriptors below 1,024 only."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterable

LONGEST_S = 86400.0  # poll(2) counts milliseconds in 32 bits
BEAT = b"\0"  # heartbeat that a child without shared memory writes each second to its supervisor's pipe

def readable(fds: Iterable[int], timeout_s: float | None = None) -> set[int]:
    """Returns those of ``fds`` that can be read without blocking (data, end of file or an error).

    Blocks until there is one. After ``timeout_s``, but at most a day, the set may be empty. Must not be called on an event loop's thread.
    """
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return {fd for fd, _ in poll.poll(None if timeout_s is None else min(timeout_s, LONGEST_S) * 1000)}


def terminate_with(alive: int) -> None:
    """Blocks until the other end of the pipe ``alive`` is closed by all its holders, then sends this process SIGTERM. For a thread of its
    own.
    """
    os.read(alive, 1)
    os.kill(os.getpid(), signal.SIGTERM)
