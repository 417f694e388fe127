"""Waiting for file descriptors of any number: ``select.select`` ends at 1,024, which a program with many connections has long passed."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterable

LONGEST_S = 86400.0  # poll(2) counts milliseconds in 32 bits
BEAT = b"\0"  # what a child that shares no memory says each second on the pipe to its supervisor

def readable(fds: Iterable[int], timeout_s: float | None = None) -> set[int]:
    """Those of ``fds`` that can be read without waiting, because something came, or they ended or broke. Waits for the first of them;
    after ``timeout_s``, if that is given, or a day, if it is longer, the set may be empty. Not to be called on an event loop's thread."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return {fd for fd, _ in poll.poll(None if timeout_s is None else min(timeout_s, LONGEST_S) * 1000)}


def terminate_with(alive: int) -> None:
    """Sends this process SIGTERM when the pipe ``alive`` ends: when nobody has its other end any more. For a thread of its own."""
    os.read(alive, 1)
    os.kill(os.getpid(), signal.SIGTERM)
