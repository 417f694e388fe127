"""Preallocates space at the end of the data file by writing to it before it is needed.

A commit that extends the file, or writes to a block for the first time, makes the file system write its journal as well
before the sync returns: on ext4 that takes milliseconds, where a commit to existing blocks takes a fraction of one, and most
commits need a page or two more. So zeros are written after the used part of the file, some megabytes at a time, and synced,
between two commits. A small file is left as it is: the first start of a server waits for its commits one after the other.
"""

from __future__ import annotations

import logging
import os
import threading

from kas.store._engine import Env
from kas.store.errors import StoreError
from kas.store.lmdb.ballast import LOW_BYTES

LEAST, MOST = 1 << 20, 4 << 20  # a file doubles up to MOST; one smaller than LEAST is left as it is
log = logging.getLogger("kas.store")


class Preallocation:
    """The preallocation of one data file; for one thread, except ``close``. Raises ``OSError`` when the file cannot be
    opened. Without space on the disk, extending the file is left to the commits."""

    def __init__(self, env: Env, file: str) -> None:
        self._env, self._fd = env, os.open(file, os.O_WRONLY | os.O_CLOEXEC)
        self._lock = threading.Lock()  # the file must not be closed while it is written
        self._size = 0  # of the file, as far as known: other processes extend it, too

    def keep(self, more: bool = False) -> None:
        """Preallocates after a commit if little is left. If the next commit is about to come (``more``), its sync, which
        covers the whole file, replaces the one here."""
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
        """Closes the file. Idempotent."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
