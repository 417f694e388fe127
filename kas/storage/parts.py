"""Several etcd clusters of one server (``--etcd-servers-overrides``): several sources as one, and the part of a source for
each of several targets."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

from kas.storage.places import PAGE, ROOT, Entry, Source
from kas.store.errors import Compacted

# Prefixes of keys held by another cluster, with "/" at their ends.
Prefixes = tuple[str, ...]


class Part:
    """The objects of a source below some prefixes, or those below none of them."""

    def __init__(self, source: Source, prefixes: Prefixes, below: bool) -> None:
        self._source, self._prefixes, self._below = source, prefixes, below
        self.name = source.name
        self.identity = f"{source.identity} {'' if below else 'not '}below {','.join(prefixes)}"

    def _ours(self, key: str) -> bool:
        return key.startswith(self._prefixes) is self._below

    def newest(self) -> int:
        """See ``Source``."""
        return self._source.newest()

    def count(self) -> int:
        """See ``Source``; of the whole source."""
        return self._source.count()

    def scan(self, revision: int, prefix: str = ROOT, *, start: str = "", end: str = "", after: int = 0) -> Iterator[list[Entry]]:
        """See ``Source``. A scan of a given prefix, such as that of the definitions, is not divided."""
        for page in self._source.scan(revision, prefix, start=start, end=end, after=after):
            found = page if prefix != ROOT else [entry for entry in page if self._ours(entry.key)]
            if found:
                yield found

    def keys(self, revision: int) -> Iterator[str]:
        """See ``Source``."""
        return filter(self._ours, self._source.keys(revision))

    def close(self) -> None:
        """Does nothing: the source belongs to its owner."""


class Joined:
    """A main cluster, and others that hold the keys below their prefixes. Keys of the main cluster there are unused, and left out.

    Its revision is the sum of theirs: it grows with each of them, and none is ahead of it. The individual revisions are known
    for those that ``newest`` has returned; any other one counts as compacted.
    """

    def __init__(self, main: Source, others: Sequence[tuple[Source, Prefixes]]) -> None:
        kept = tuple(prefix for _, prefixes in others for prefix in prefixes)
        self.places = self._all = [main, *(source for source, _ in others)]
        self._parts = [Part(main, kept, False), *(Part(source, prefixes, True) for source, prefixes in others)]
        self.name, self.identity = "+".join(s.name for s in self._all), "+".join(p.identity for p in self._parts)
        self._told: dict[int, list[int]] = {}

    def newest(self) -> int:
        """See ``Source``."""
        revisions = [part.newest() for part in self._parts]
        self._told[sum(revisions)] = revisions
        return sum(revisions)

    def count(self) -> int:
        """See ``Source``."""
        return sum(part.count() for part in self._parts)

    def scan(self, revision: int, prefix: str = ROOT, *, start: str = "", end: str = "", after: int = 0) -> Iterator[list[Entry]]:
        """See ``Source``. After an unknown revision everything counts as written."""
        since = self._told.get(after) or [0] * len(self._parts)
        scans = [
            self._entries(part.scan(at, prefix, start=start, end=end, after=then))
            for part, at, then in zip(self._parts, self._at(revision), since, strict=True)
        ]
        page: list[Entry] = []
        for entry in heapq.merge(*scans, key=lambda entry: entry.key.encode()):
            page.append(entry)
            if len(page) >= PAGE:
                yield page
                page = []
        if page:
            yield page

    @staticmethod
    def _entries(pages: Iterator[list[Entry]]) -> Iterator[Entry]:
        for page in pages:
            yield from page

    def _at(self, revision: int) -> list[int]:
        if revision not in self._told:
            raise Compacted(revision, revision)
        return self._told[revision]

    def keys(self, revision: int) -> Iterator[str]:
        """See ``Source``."""
        for part, at in zip(self._parts, self._at(revision), strict=True):
            yield from part.keys(at)

    def close(self) -> None:
        """See ``Source``."""
        for source in self._all:
            source.close()
