"""Disk space reserved for deletes: a file beside the data that is truncated when deletes find no space.

A full map has a reserve above its limit; a full disk has none but what was reserved before. A delete writes before it frees
anything: the pages on its path in the tree, and the deleted object into the history. Once the ballast is gone, other writes
need as much free space inside the data file, because they would otherwise take what deletes need. The size of the file tells
all workers its state: 0, not needed yet; 1 byte, given up.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
import time

from kas.store._engine import Env
from kas.store.errors import StoreError

BYTES = 2 << 20  # the largest object that clients may create, and the pages on the path to it
LOW_BYTES = 1 << 30  # a disk with more free space needs no ballast yet
LOOK_EVERY_S = 0.01
_GIVEN_UP = 1
PAGE = 4096
_NO_ROOM = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))  # no ballast on a file system that cannot allocate in advance

log = logging.getLogger("kas.store")


def no_room(env: Env, file: str) -> bool:
    """Returns whether the data file cannot be extended by a page for lack of space: LMDB reports a partial write as it
    reports a failing disk."""
    try:
        fd = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
        try:
            env.put_ahead(fd, max(0, os.fstat(fd).st_size - env.end()) + PAGE)
        finally:
            os.close(fd)
    except OSError as e:
        return e.errno in _NO_ROOM
    except StoreError as e:  # no write transaction can begin
        log.warning("cannot find out whether the disk has room for the store: %s", e)
    return False


class Ballast:
    """The ballast of the store in the directory ``path``; any thread. Raises ``OSError`` when its file cannot be opened."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(os.path.join(path, "ballast"), os.O_RDWR | os.O_CREAT, 0o600)
        self._lock = threading.Lock()  # the file must not be used once it is closed: its descriptor may have been reused
        self._gone, self._looked_at = False, -LOOK_EVERY_S
        self.keep()

    def keep(self) -> None:
        """Reserves the space if the disk is getting full, or if the ballast was given up. Called now and then, from any process."""
        with self._lock:
            if self._fd < 0:
                return
            self._looked_at = -LOOK_EVERY_S
            size, disk = os.fstat(self._fd).st_size, os.fstatvfs(self._fd)
            if size >= BYTES or (not size and disk.f_bavail * disk.f_frsize > LOW_BYTES):
                return
            try:
                os.posix_fallocate(self._fd, 0, BYTES)
            except OSError as e:
                if e.errno in _NO_ROOM:  # the remaining space belongs to deletes
                    self._give_up()

    def give_up(self) -> None:
        """Releases the space for deletes."""
        with self._lock:
            if self._fd >= 0:
                self._give_up()

    def _give_up(self) -> None:
        self._looked_at = -LOOK_EVERY_S
        with contextlib.suppress(OSError):  # a disk on which nothing works any more
            os.ftruncate(self._fd, _GIVEN_UP)

    @property
    def given_up(self) -> bool:
        """Whether the space is released. Called for each write, so changes by other processes are seen a moment later."""
        now = time.monotonic()
        if now - self._looked_at >= LOOK_EVERY_S:
            with self._lock:
                if self._fd >= 0:
                    self._gone, self._looked_at = os.fstat(self._fd).st_size == _GIVEN_UP, now
        return self._gone

    def close(self) -> None:
        """Closes the file, which stays."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
