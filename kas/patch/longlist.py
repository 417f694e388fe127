"""A list in pieces, for patches: ten thousand operations at the front of a list of a million items would otherwise move it ten thousand
times. Reading, inserting and deleting by position take the square root of the length."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from math import isqrt
from typing import Any

# A list up to here is moved faster than it is found in.
LONG = 4_096


class LongList:
    """What patches need of a list. Positions are from 0 and within its length; nobody checks them here."""

    __slots__ = ("_length", "_most", "_pieces")

    def __init__(self, items: Iterable[Any]) -> None:
        whole = list(items)
        size = max(512, isqrt(len(whole)))
        self._most = 2 * size
        self._pieces = [whole[i : i + size] for i in range(0, len(whole), size)]
        self._length = len(whole)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(self._pieces)

    def _place(self, at: int) -> tuple[int, int]:
        """The piece of a position and where it is in there, found from the nearer end; the end of the list is in the last piece."""
        pieces = self._pieces
        if at <= self._length // 2:
            i = 0
            while at >= len(pieces[i]) and i + 1 < len(pieces):
                at -= len(pieces[i])
                i += 1
            return i, at
        i, left = len(pieces) - 1, self._length - at
        while left > len(pieces[i]):
            left -= len(pieces[i])
            i -= 1
        return i, len(pieces[i]) - left

    def __getitem__(self, at: int) -> Any:
        i, j = self._place(at)
        return self._pieces[i][j]

    def __setitem__(self, at: int, value: Any) -> None:
        i, j = self._place(at)
        self._pieces[i][j] = value

    def __delitem__(self, at: int) -> None:
        i, j = self._place(at)
        del self._pieces[i][j]
        if not self._pieces[i] and len(self._pieces) > 1:
            del self._pieces[i]
        self._length -= 1

    def insert(self, at: int, value: Any) -> None:
        """Before what is at ``at``; the length is the end."""
        i, j = self._place(at)
        piece = self._pieces[i]
        piece.insert(j, value)
        if len(piece) > self._most:
            middle = len(piece) // 2
            self._pieces[i : i + 1] = [piece[:middle], piece[middle:]]
        self._length += 1

    def append(self, value: Any) -> None:
        """At the end."""
        self.insert(self._length, value)
