"""The copy from any place to any other.

The source is read at one revision, in order, and the target records the progress with every page. Then come rounds, which
copy writes and deletes since, until a round has few; then both sides are read again and compared. A copy that was killed
continues after the last recorded key, at the source's newest revision, after it has copied the changes before that key; so
does one whose revision the source has compacted meanwhile. A completed copy that is repeated copies the changes since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from kas.storage.places import LAST, ROOT, Digest, Entry, Forms, Note, Refused, Source, Target
from kas.store.errors import Compacted
from kas.store.etcd.layout import Undecodable

FEW_WRITES = 100  # a round with at most this many writes is the last
MOST_ROUNDS, MOST_ATTEMPTS = 10, 5
MOST_NAMED = 20

# (phase, done, approximate total; 0: unknown)
Progress = Callable[[str, int, int], None]


@dataclass
class Copied:
    """The result of a copy. ``unreadable`` are keys that the target cannot store, ``different`` those that differ between
    both sides."""

    revision: int = 0
    objects: int = 0
    leased: int = 0
    bytes: int = 0
    digest: str = ""
    revisions: str = ""
    resumed: bool = False
    unreadable: dict[str, str] = field(default_factory=dict)
    different: list[str] = field(default_factory=list)

    @property
    def verified(self) -> bool:
        """Whether both sides have the same content."""
        return not self.different


class Copy:
    """One run of a copy."""

    def __init__(self, source: Source, target: Target, progress: Progress, as_json: bool = False) -> None:
        """``as_json``: values are written to etcd as JSON."""
        self._source, self._target, self._progress = source, target, progress
        self._forms = Forms(as_json)
        self._out = Copied()
        self._note: Note

    def run(self) -> Copied:
        """Copies. Raises ``StoreError`` and its subclasses; may be run again then."""
        self._begin()
        self._definitions()
        for attempt in range(MOST_ATTEMPTS):
            try:
                if not self._note.complete:
                    self._all()
                self._rounds()
                self._verify()
                break
            except Compacted:
                if attempt == MOST_ATTEMPTS - 1:
                    raise Refused(f"{self._source.name} forgets its history faster than it can be read") from None
                self._catch_up_before(self._source.newest())
        if self._out.verified:
            self._out.revisions = self._target.finish()
        return self._out

    def _begin(self) -> None:
        found, newest = self._target.begin(self._forms), self._source.newest()
        if found is None:
            self._note = Note(self._source.identity, newest)
            return
        if found.source != self._source.identity:
            raise Refused(f"{self._target.name} holds a copy of another source ({found.source})")
        if newest < found.revision:
            raise Refused(f"{self._source.name} is at revision {newest}, but was copied at {found.revision}: it is not the same any more")
        self._out.resumed = True
        self._note = found
        if not found.complete:
            self._catch_up_before(newest)

    def _definitions(self) -> None:
        """Decodes the values that are needed to decode others."""
        for prefix in self._forms.values.first:
            for page in self._source.scan(self._source.newest(), prefix):
                for entry in page:
                    if entry.value is not None:
                        try:
                            self._forms.draft(entry)
                        except Undecodable:
                            continue  # reported later, with the other values

    def _catch_up_before(self, newest: int) -> None:
        """Brings everything up to the last recorded key to ``newest``, except for deletes, which rounds find."""
        note = self._note
        if note.complete:
            return
        for page in self._source.scan(newest, end=note.at, after=note.revision) if note.at else ():
            self._put(page, note)
        self._note = replace(note, revision=newest)

    def _all(self) -> None:
        begun = self._note.at  # by an earlier run: the number of objects before it is unknown
        done, phase, total = 0, "copying the rest" if begun else "copying", 0 if begun else self._source.count()
        for page in self._source.scan(self._note.revision, start=self._note.at):
            self._note = self._note.moved(page[-1].key)
            self._put(page, self._note)
            done += len(page)
            self._progress(phase, done, total)

    def _put(self, page: list[Entry], note: Note) -> None:
        for entry in page:
            self._out.unreadable.pop(entry.key, None)
        self._out.unreadable.update(self._target.put(page, note))

    def _rounds(self) -> None:
        """Copies the changes since, until there are few."""
        for _ in range(MOST_ROUNDS):
            newest, n = self._source.newest(), 0
            if newest > self._note.revision or not self._note.complete:
                if self._note.complete:  # from the first write of this round on, the target has no consistent revision
                    self._note = replace(self._note, complete=False, at=LAST)
                for page in self._source.scan(newest, after=self._note.revision):
                    self._put(page, self._note)
                    n += len(page)
                    self._progress("catching up", n, 0)
                n += self._remove(newest)
            self._note = replace(self._note, revision=newest, at="", complete=True)
            self._target.complete(self._note)
            if n <= FEW_WRITES:
                return

    def _remove(self, revision: int) -> int:
        """Deletes keys that the source no longer has. Holds all keys of the source meanwhile: some 150 bytes each."""
        there = set(self._source.keys(revision)).difference(self._out.unreadable)
        gone = [key for key in self._target.stored() if key not in there]
        self._target.remove(gone, self._note)
        return len(gone)

    # -- verification

    def _verify(self) -> None:
        out, revision = self._out, self._note.revision
        source = self._digest("checking the source", self._source_forms(revision))
        target = self._digest("checking the target", self._target.read())
        out.revision, out.objects, out.leased, out.bytes, out.digest = (
            revision, target.count, target.leased, target.bytes, target.hex(),
        )  # fmt: skip
        if (source.hex(), source.count) != (target.hex(), target.count):
            out.different = self._differences(revision)

    def _digest(self, phase: str, entries: Iterator[tuple[Entry, bytes]]) -> Digest:
        digest, total = Digest(), self._source.count()
        for n, (entry, form) in enumerate(entries, 1):
            digest.add(entry, form)
            if not n % 1000:
                self._progress(phase, n, total)
        return digest

    def _source_forms(self, revision: int) -> Iterator[tuple[Entry, bytes]]:
        for page in self._source.scan(revision, ROOT):
            for entry in page:
                if entry.key in self._out.unreadable:
                    continue
                try:
                    form = self._target.form(entry)
                except Undecodable as e:
                    self._out.unreadable[entry.key] = str(e)
                else:
                    yield entry, form

    def _differences(self, revision: int) -> list[str]:
        """Returns keys that differ between both sides, at most ``MOST_NAMED``."""
        here = {entry.key: hash(form) for entry, form in self._source_forms(revision) if not entry.lease_s}
        there = {entry.key: hash(form) for entry, form in self._target.read() if not entry.lease_s}
        different = sorted(key for key in here.keys() | there.keys() if here.get(key) != there.get(key))
        return different[:MOST_NAMED] or ["?"]
