"""Reads the processes of a test's server from /proc, because a fresh machine has no ``ps``."""

from __future__ import annotations

import contextlib
from pathlib import Path


def children(pid: int) -> dict[int, str]:
    """Returns the children of a process with their names, including those started by its other threads. Empty if it has ended."""
    found: dict[int, str] = {}
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        pids: list[str] = []
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
            pids = listed.read_text().split()
        for child in pids:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # this child has ended; the others have not
                found[int(child)] = Path(f"/proc/{child}/comm").read_text().strip()
    return found
