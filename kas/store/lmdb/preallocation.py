"""Room at the end of the data file that was written before it is needed.

A commit that makes the file longer, or writes to a block for the first time, has the file system write its journal, too, before the sync
comes back: on ext4 that takes milliseconds where a commit into blocks that are there takes a fraction of one, and most commits need a page
or two more. So zeros are put behind what the file holds, some megabytes at a time, and synced, between two commits. A small
file is left as it is: the first start of a server waits for its commits one after the other.
"""

from __future__ import annotations

import logging
import os
import threading

from kas.store._engine import Env
from kas.store.errors import StoreError
from kas.store.lmdb.ballast import LOW_BYTES

LEAST, MOST = 1 << 20, 4 << 20  # a small file doubles, a smaller one is left as it is
log = logging.getLogger("kas.store")


class Preallocation:
    """That of one data file; for one thread, but ``close``. Raises ``OSError`` when the file cannot be opened. What finds no room is
    left to the commits."""

    def __init__(self, env: Env, file: str) -> None:
        self._env, self._fd = env, os.open(file, os.O_WRONLY | os.O_CLOEXEC)
        self._lock = threading.Lock()  # the file is not closed while it is written
        self._size = 0  # of the file, as far as is known: other processes make it longer, too

    def keep(self, more: bool = False) -> None:
        """Puts room ahead where little is left; after a commit. Where the next one is about to come (``more``), whose sync is for all of
        the file, it is left to that."""
        end = self._env.end()
        step = min(end, MOST)
        least = min(step // 4, self._env.limit - end)
        if self._size - end >= least or end < LEAST:
            return
        with self._lock:
            if self._fd < 0:
                return
            self._size = os.fstat(self._fd).st_size
            disk = os.fstatvfs(self._fd)
            if self._size - end >= least or disk.f_bavail * disk.f_frsize <= LOW_BYTES:
                return
            try:
                self._size = self._env.put_ahead(self._fd, step)
                if not more:
                    os.fdatasync(self._fd)
            except (OSError, StoreError) as e:
                log.warning("the data file is no longer extended ahead of commits: %s", e)
                self._close()

    def close(self) -> None:
        """Lets go of the file. Idempotent."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
