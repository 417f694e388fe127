"""Processes of a test's server, as /proc shows them: a fresh machine has no ``ps``."""

from __future__ import annotations

import contextlib
from pathlib import Path


def children(pid: int) -> dict[int, str]:
    """The children of a process with their names, those that its other threads have started included. Empty when it is gone."""
    found: dict[int, str] = {}
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread, or the child, has ended
            for child in map(int, listed.read_text().split()):
                found[child] = Path(f"/proc/{child}/comm").read_text().strip()
    return found
