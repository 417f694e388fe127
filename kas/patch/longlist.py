"""A list stored in pieces, for patches to long lists.

Ten thousand insertions at the front of a list of a million items would move all of it ten thousand times. Here, reading, inserting and
deleting by position take time proportional to the square root of the length.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from math import isqrt
from typing import Any

# Up to this length moving the items of a plain list is faster than locating a piece.
LONG = 4_096


class LongList:
    """The list operations that patches need. Positions count from 0 and must be within the length; they are not checked."""

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
        """Return the index of the piece that holds a position and the offset in it, searching from the nearer end.

        The end of the list is a position in the last piece.
        """
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
        """Insert before the item at ``at``, or at the end if ``at`` is the length."""
        i, j = self._place(at)
        piece = self._pieces[i]
        piece.insert(j, value)
        if len(piece) > self._most:
            middle = len(piece) // 2
            self._pieces[i : i + 1] = [piece[:middle], piece[middle:]]
        self._length += 1

    def append(self, value: Any) -> None:
        """Append an item."""
        self.insert(self._length, value)
