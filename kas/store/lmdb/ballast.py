"""Room on the disk for deletes: a file beside the data that is given up when they find none.

A full map has a reserve above its limit; a full disk has none but what was put aside before. A delete writes before it frees anything: the
pages on its way, and what was deleted into the history. Once the ballast is gone, other writes have to find as much free inside of the
data file, else they would take what deletes need. The size of the file says to all workers how it stands: 0, none needed yet; 1 byte,
given up.
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

BYTES = 2 << 20  # the largest object that clients may make, and the pages on the way to it
LOW_BYTES = 1 << 30  # a disk with more room than that needs no ballast yet
LOOK_EVERY_S = 0.01
_GIVEN_UP = 1
PAGE = 4096
_NO_ROOM = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))  # on a file system that cannot put anything aside there is no ballast

log = logging.getLogger("kas.store")


def no_room(env: Env, file: str) -> bool:
    """Whether the data file cannot become a page longer for want of room: LMDB says of a write that the disk took only in part what it says
    of a disk that fails."""
    try:
        fd = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
        try:
            env.put_ahead(fd, max(0, os.fstat(fd).st_size - env.end()) + PAGE)
        finally:
            os.close(fd)
    except OSError as e:
        return e.errno in _NO_ROOM
    except StoreError as e:  # nobody can begin a write
        log.warning("cannot find out whether the disk has room for the store: %s", e)
    return False


class Ballast:
    """That of the store in the directory ``path``; any thread. Raises ``OSError`` when its file cannot be opened."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(os.path.join(path, "ballast"), os.O_RDWR | os.O_CREAT, 0o600)
        self._lock = threading.Lock()  # nobody is at the file while it is closed: its number may be another's then
        self._gone, self._looked_at = False, -LOOK_EVERY_S
        self.keep()

    def keep(self) -> None:
        """Puts the room aside when it is about to be scarce, or was given up; now and then, from any process."""
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
                if e.errno in _NO_ROOM:  # what there is belongs to deletes
                    self._give_up()

    def give_up(self) -> None:
        """Gives the room to deletes."""
        with self._lock:
            if self._fd >= 0:
                self._give_up()

    def _give_up(self) -> None:
        self._looked_at = -LOOK_EVERY_S
        with contextlib.suppress(OSError):  # a disk on which nothing goes any more
            os.ftruncate(self._fd, _GIVEN_UP)

    @property
    def given_up(self) -> bool:
        """Whether the room is gone. Of what another process did it hears a moment later: each write asks."""
        now = time.monotonic()
        if now - self._looked_at >= LOOK_EVERY_S:
            with self._lock:
                if self._fd >= 0:
                    self._gone, self._looked_at = os.fstat(self._fd).st_size == _GIVEN_UP, now
        return self._gone

    def close(self) -> None:
        """Lets go of the file, which stays."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
