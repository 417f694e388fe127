"""When it is tried whether a new replica would have the room that the present one has not.

Such a trial reads the whole of etcd, and takes meanwhile what room the disk has left. So each comes twice as long after the one before, and
early only where the disk has won room since that may be what was missing.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

FIRST_S, MOST_S = 30.0, 900.0  # a disk may have room again before the first one, which costs nobody anything
GROWN = 8  # what part of the present replica is more room


class ReplicaRetry:
    """Of one replica."""

    def __init__(self, path: Path, now: Callable[[], float] = time.monotonic) -> None:
        self._path, self._now = path, now
        self.over()

    def over(self) -> None:
        """There is room."""
        self._at, self._pause_s, self._free = 0.0, FIRST_S, -1

    def due(self, size: int) -> bool:
        """Whether it is to be tried now; the replica that has no room is of ``size`` bytes."""
        now = self._now()
        if not self._at:
            self._at = now
        won = self._free >= 0 and self._room() >= self._free + size // GROWN
        return now - self._at >= (FIRST_S if won else self._pause_s)

    def failed(self) -> None:
        """There was none."""
        self._pause_s = min(2 * self._pause_s, MOST_S)
        self._at, self._free = self._now(), self._room()

    def _room(self) -> int:
        try:
            return shutil.disk_usage(self._path).free
        except OSError:
            return 0
