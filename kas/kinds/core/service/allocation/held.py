"""The taken addresses or ports as numbers, for ranges that are nearly full. Read once, and then updated from the store's history.

Reading all keys for each Service took 25 ms of the event loop in a range of 4,094 addresses that was nearly full. The result is only a
hint: the keys decide in the commit.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable

from kas.store import Compacted, Store

MAPPED = 1 << 20  # the largest part of a range of which there is a map, and of how many parts
MOST_MAPS = 64
EVENTS = 1000  # events read at once; if more have happened than this and than numbers are held, everything is read again


class Held:
    """The numbers of the keys below ``root``, current at each call. Thread-safe.

    ``number`` maps the part of a key after the root to a number; None for keys to ignore.
    """

    def __init__(self, store: Store, root: str, number: Callable[[str], int | None]) -> None:
        self._store, self._root, self._number = store.part(root), root, number
        self._lock = threading.Lock()
        self._revision = -1  # the numbers are current up to this revision
        self._numbers: set[int] = set()
        self._maps: dict[tuple[int, int], bytearray] = {}  # maps of parts of ranges: a byte is 1 if the number is held

    def numbers(self) -> set[int]:
        """Return all numbers; use the set for lookups only."""
        with self._lock:
            self._follow()
            return self._numbers

    def free(self, low: int, high: int) -> int | None:
        """Return the first free number after a random start; None if there is none from ``low`` to ``high``."""
        span = high - low + 1
        if span <= 0:
            return None
        start = secrets.randbelow(span)
        with self._lock:
            self._follow()
            if span > MAPPED:
                tried = (low + (start + i) % span for i in range(min(span, len(self._numbers) + 1)))
                return next((number for number in tried if number not in self._numbers), None)
            taken = self._map(low, high)
            found = taken.find(0, start)
            if found < 0:
                found = taken.find(0, 0, start)
        return low + found if found >= 0 else None

    def _map(self, low: int, high: int) -> bytearray:
        taken = self._maps.get((low, high))
        if taken is None:
            if len(self._maps) >= MOST_MAPS:
                self._maps.clear()
            taken = self._maps[low, high] = bytearray(high - low + 1)
            for number in self._numbers:
                if low <= number <= high:
                    taken[number - low] = 1
        return taken

    def _follow(self) -> None:
        """Apply the changes since the last call."""
        newest = self._store.revision
        if self._revision < 0 or newest - self._revision > max(EVENTS, len(self._numbers)):
            self._read()
            return
        try:
            while self._revision < newest:
                events, self._revision = self._store.events(self._root, self._revision, EVENTS)
                for event in events:
                    number = self._number(event.key[len(self._root) :])
                    if number is not None:
                        self._note(number, event.type != "DELETED")
        except Compacted:
            self._read()

    def _read(self) -> None:
        found = self._store.range(self._root)
        self._maps.clear()
        numbers = (self._number(record.key[len(self._root) :]) for record in found.records)
        self._numbers = {number for number in numbers if number is not None}
        self._revision = found.revision

    def _note(self, number: int, held: bool) -> None:
        (self._numbers.add if held else self._numbers.discard)(number)
        for (low, high), taken in self._maps.items():
            if low <= number <= high:
                taken[number - low] = held
