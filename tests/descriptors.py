"""Lists the open descriptors of this process, to find what leaves one open.

Their number alone would not do: descriptors of an earlier test may be closed by the garbage collector in the middle of this one.
"""

from __future__ import annotations

import contextlib
import os


def opened() -> set[int]:
    """Returns their numbers."""
    found = set()
    for fd in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):  # the descriptor of the listing itself
            os.fstat(fd)
            found.add(fd)
    return found
