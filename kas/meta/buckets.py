"""Token buckets shared by all workers of a server: a memory-mapped file, locked for the duration of each operation.

A bucket is a slot of the file: a digest of its key, its tokens, and when it was last filled and used. A key may occupy any slot of one row,
chosen by its digest, and replaces that row's least recently used bucket. So no global list of buckets has to be kept in order between
processes. With more than ``WIDTH`` buckets, a few are evicted before the requested number is reached.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from hashlib import blake2b
from pathlib import Path
from struct import Struct

SLOT = Struct("<16sdd")
WIDTH = 16  # slots per row
MAX_SLOTS = 1 << 20  # 32 MiB; rows that are never used take no memory


class Buckets:
    """``size`` buckets of capacity ``burst`` that are refilled at ``rate`` tokens per second.

    The file is created by the first worker and survives the death of one; the lock is released then. All workers must pass times of the
    same clock.
    """

    def __init__(self, path: Path, size: int, rate: float, burst: float) -> None:
        self._rate, self._burst = rate, burst
        self._width = min(size, WIDTH)
        self._rows = -(-min(size, MAX_SLOTS) // self._width)
        self._lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        length = self._rows * self._width * SLOT.size
        os.ftruncate(self._lock, length)
        self._memory = mmap.mmap(self._lock, length)

    def take(self, key: str, now: float) -> bool:
        """Takes a token from the bucket of ``key``; returns False when there is none."""
        return self._took(key, now, 1.0) >= 1

    def reserve(self, key: str, now: float) -> float:
        """Reserves a token that may become available only later; returns in how many seconds."""
        return max(0.0, 1 - self._took(key, now, float("-inf"))) / self._rate

    def _took(self, key: str, now: float, least: float) -> float:
        """Returns the number of tokens before the call, and takes one if there are at least ``least``."""
        digest = blake2b(key.encode(), digest_size=16).digest()
        row = int.from_bytes(digest[:8], "little") % self._rows * self._width * SLOT.size
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            # An unused slot is all zeros and thus older than any other.
            at, filled, tokens = row, float("inf"), self._burst
            for offset in range(row, row + self._width * SLOT.size, SLOT.size):
                known, left, when = SLOT.unpack_from(self._memory, offset)
                if known == digest:
                    at, tokens = offset, min(self._burst, left + max(0.0, now - when) * self._rate)
                    break
                if when < filled:
                    at, filled = offset, when
            SLOT.pack_into(self._memory, at, digest, tokens - (tokens >= least), now)
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)
        return tokens
