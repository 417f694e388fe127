"""Which of many configurations name something, in the order of their own names: a request that they have nothing to do with passes by
however many there are, and one that comes or goes does not put all others in order anew."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from itertools import chain


class NameIndex:
    """Names under what they name."""

    def __init__(self) -> None:
        self._under: dict[str, list[str]] = {}

    def __contains__(self, what: str) -> bool:
        return what in self._under

    def put(self, name: str, named: Iterable[str]) -> None:
        """``name``, which is not there, names these."""
        for what in named:
            insort(self._under.setdefault(what, []), name)

    def drop(self, name: str, named: Iterable[str]) -> None:
        """Takes it back."""
        for what in named:
            names = self._under[what]
            del names[bisect_left(names, name)]
            if not names:
                del self._under[what]

    def of(self, *what: str) -> tuple[str, ...]:
        """Those that name any of these, as of now."""
        found = [self._under[one] for one in what if one in self._under]
        if len(found) < 2:
            return tuple(found[0]) if found else ()
        return tuple(dict.fromkeys(sorted(chain(*found))))  # what is in order by pieces is sorted in one pass
