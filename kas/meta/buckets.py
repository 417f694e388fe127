"""Token buckets from which all workers of a server take: a file that each of them maps, and a lock on it for the time of one take.

A bucket is a slot of the file: a digest of its key, its tokens, when it was filled and used last. A key may stand in any slot of one
row, which its digest names, and takes the place of the bucket there that was not used for longest. So no list of all buckets has to
be kept in order between processes; beyond ``WIDTH`` buckets a few are forgotten before as many as asked for are remembered.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from hashlib import blake2b
from pathlib import Path
from struct import Struct

SLOT = Struct("<16sdd")
WIDTH = 16  # slots of a row
MAX_SLOTS = 1 << 20  # 32 MiB, of which only rows that are used take room


class Buckets:
    """``size`` buckets that hold ``burst`` tokens each and get ``rate`` of them a second.

    The file is new when the first worker comes, and stays when one dies; its lock does not. Times are of one clock for all.
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
        """Takes a token from the bucket of ``key``; False when there is none."""
        return self._took(key, now, 1.0) >= 1

    def reserve(self, key: str, now: float) -> float:
        """Takes a token that may come only later; how many seconds later."""
        return max(0.0, 1 - self._took(key, now, float("-inf"))) / self._rate

    def _took(self, key: str, now: float, least: float) -> float:
        """How many tokens there were; where they are no fewer than ``least`` there is one less now."""
        digest = blake2b(key.encode(), digest_size=16).digest()
        row = int.from_bytes(digest[:8], "little") % self._rows * self._width * SLOT.size
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            # A slot that was never used is all zero, and so older than any other.
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
