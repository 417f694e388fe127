"""An index of configurations by the values they name, each entry sorted by the configurations' own names.

A request skips unrelated configurations however many there are, and adding or removing one does not sort the others again.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from itertools import chain


class NameIndex:
    """Sorted lists of names by value."""

    def __init__(self) -> None:
        self._under: dict[str, list[str]] = {}

    def __contains__(self, what: str) -> bool:
        return what in self._under

    def put(self, name: str, named: Iterable[str]) -> None:
        """Add ``name``, which must not be in the index, under these values."""
        for what in named:
            insort(self._under.setdefault(what, []), name)

    def drop(self, name: str, named: Iterable[str]) -> None:
        """Remove ``name`` from under these values."""
        for what in named:
            names = self._under[what]
            del names[bisect_left(names, name)]
            if not names:
                del self._under[what]

    def of(self, *what: str) -> tuple[str, ...]:
        """Return a snapshot of the names under any of these values, sorted."""
        found = [self._under[one] for one in what if one in self._under]
        if len(found) < 2:
            return tuple(found[0]) if found else ()
        return tuple(dict.fromkeys(sorted(chain(*found))))  # sorting concatenated sorted runs takes one pass
