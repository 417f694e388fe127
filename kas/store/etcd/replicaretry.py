"""Decides when to try whether a new replica would fit where the present one is full.

Such an attempt reads all of etcd, and uses the free space of the disk meanwhile. So the pauses double, and an attempt is made
earlier only if the disk has gained enough free space.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

FIRST_S, MOST_S = 30.0, 900.0  # the disk may have space again before the first attempt
GROWN = 8  # more free space by size / GROWN bytes counts as a gain


class ReplicaRetry:
    """The attempts for one replica."""

    def __init__(self, path: Path, now: Callable[[], float] = time.monotonic) -> None:
        self._path, self._now = path, now
        self.over()

    def over(self) -> None:
        """Ends the attempts: the replica has space."""
        self._at, self._pause_s, self._free = 0.0, FIRST_S, -1

    def due(self, size: int) -> bool:
        """Returns whether to try now; ``size`` is that of the full replica in bytes."""
        now = self._now()
        if not self._at:
            self._at = now
        won = self._free >= 0 and self._room() >= self._free + size // GROWN
        return now - self._at >= (FIRST_S if won else self._pause_s)

    def failed(self) -> None:
        """Records an attempt that found no space."""
        self._pause_s = min(2 * self._pause_s, MOST_S)
        self._at, self._free = self._now(), self._room()

    def _room(self) -> int:
        try:
            return shutil.disk_usage(self._path).free
        except OSError:
            return 0
