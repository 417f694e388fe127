"""A record of the last commit beside the data file: it distinguishes an emptied or replaced data file from a new one.

``committed`` holds 16 bytes: a mark, and a revision that had been committed when it was written, in native byte order. It is
written after each commit and never synced, so it may be behind the durable state, but never ahead of it while commits are
synced. Each half is a single store instruction: neither a killed worker nor a concurrent one leaves half a number.
"""

from __future__ import annotations

import mmap
import os
import sys

from kas.store.errors import Corrupt

NAME = "committed"
MARK = b"kascommi"
SIZE = 16
_MARK = int.from_bytes(MARK, sys.byteorder)


class Committed:
    """The record of the store in the directory ``path``. The worker that commits calls ``note``; workers may overwrite one
    another with a value that is a moment older."""

    def __init__(self, path: str) -> None:
        self._path, self._data = os.path.join(path, NAME), os.path.join(path, "data.mdb")
        self._map: mmap.mmap | None = None
        self._words = memoryview(b"")

    def read(self) -> int:
        """Returns the revision in the record; 0 if there is no readable one."""
        try:
            with open(self._path, "rb") as f:
                raw = f.read(SIZE)
        except FileNotFoundError:
            return 0
        return int.from_bytes(raw[8:], sys.byteorder) if len(raw) == SIZE and raw[:8] == MARK else 0

    def check_present(self) -> int:
        """Called before the data file is opened, which would create a new one. Raises ``Corrupt`` if it is gone or empty
        though something was committed to it; returns the revision of the record."""
        had = self.read()
        if had and not (os.path.exists(self._data) and os.path.getsize(self._data)):
            raise Corrupt(
                f"{self._data} is empty or gone, but revision {had} was committed to it: restore it from a backup, "
                f"or remove {self._path} to start with nothing"
            )
        return had

    def check(self, had: int, newest: int) -> None:
        """Raises ``Corrupt`` if the data file, at revision ``newest``, is older than ``had``, the result of ``check_present``."""
        if newest < had:
            raise Corrupt(
                f"{self._data} is at revision {newest}, but revision {had} was committed to it: restore a newer backup, "
                f"or remove {self._path} to serve this one"
            )

    def open(self) -> None:
        """Prepares the record for ``note``."""
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if os.fstat(fd).st_size > SIZE:
                os.ftruncate(fd, SIZE)
            os.posix_fallocate(fd, 0, SIZE)  # a mapped page without space on the disk would kill the process that writes to it
            self._map = mmap.mmap(fd, SIZE)
            self._words = memoryview(self._map).cast("Q")
        finally:
            os.close(fd)

    def note(self, revision: int) -> None:
        """Records ``revision`` as committed. Takes some hundred nanoseconds; any thread."""
        if self._map is not None:
            self._words[0], self._words[1] = _MARK, revision

    def close(self) -> None:
        """Releases the record."""
        if self._map is not None:
            self._words.release()
            self._map.close()
            self._map = None
