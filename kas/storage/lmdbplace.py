"""The store in a server's ``--data-dir`` as a place (``places.py``).

A target is filled in ``store.copying`` beside the store's final place, to which it is moved when it is complete: a server
never finds half a copy.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO

from kas.config.datadir import StartError, check_data_dir, claim_data_dir
from kas.meta.files import private
from kas.storage.places import PAGE, ROOT, Entry, Forms, Note, Refused, Source, chunks, leased
from kas.store import Op, Record, TransformError, open_store
from kas.store.etcd.layout import Undecodable
from kas.store.lmdb import LMDBStore
from kas.store.rewrite import redraft
from kas.store.transform import Transformers
from kas.store.unfinished import COPYING

NOTE = "copied.json"
COMPARED = 470  # bytes of a key that determine its position in the order (see the engine's key_bytes)
REMOVED = 1000


def claim(data_dir: Path) -> IO[str]:
    """Makes a directory a data directory unless it is one, and locks it as a server does. Raises ``Refused``."""
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        check_data_dir(data_dir)
        held = lock(data_dir)
        try:
            claim_data_dir(data_dir)
        except StartError:
            held.close()
            raise
    except StartError as e:
        raise Refused(str(e).removeprefix("--data-dir: ")) from None
    return held


def lock(data_dir: Path) -> IO[str]:
    """Locks a data directory as a server does. Raises ``Refused``."""
    held = open(data_dir / "lock", "a+", opener=private)  # noqa: SIM115
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        held.close()
        raise Refused(f"{data_dir} is in use by another kas: stop it first") from None
    return held


class LMDBSource:
    """A store that may be in use."""

    def __init__(self, store_dir: Path, name: str, max_size: int, transformers: Transformers | None = None) -> None:
        if not (store_dir / "data.mdb").is_file():
            raise Refused(f"{name} holds no store")
        self.name, self.identity = name, f"lmdb:{store_dir.resolve()}"
        self.store = open_store(str(store_dir), max_size=max_size, transformers=transformers)

    def newest(self) -> int:
        """See ``Source``."""
        self.store.refresh()
        return self.store.revision

    def count(self) -> int:
        """See ``Source``."""
        return self.store.count(ROOT)

    def scan(self, revision: int, prefix: str = ROOT, *, start: str = "", end: str = "", after: int = 0) -> Iterator[list[Entry]]:
        """See ``Source``."""
        key, last, limit = (start + "\0" if start else ""), end.encode()[:COMPARED], PAGE
        while True:
            try:
                page = self.store.range(prefix, key, limit, revision)
            except TransformError as e:
                # A page that contains an unreadable record is read record by record up to that one.
                if limit == 1:
                    yield [Entry(e.key, 0, 0, 0, 0, why=f"cannot be opened: {e.why}")]
                    key, limit = e.key + "\0", PAGE
                else:
                    limit = 1
                continue
            found = [r for r in page.records if r.revision > after and (not end or r.key.encode()[:COMPARED] <= last)]
            if found:
                yield [entry(r) for r in found]
            if not page.more or (end and page.records[-1].key.encode()[:COMPARED] > last):
                return
            key = page.next_key

    def keys(self, revision: int) -> Iterator[str]:
        """See ``Source``."""
        for page in self.scan(revision):
            for found in page:
                yield found.key

    def close(self) -> None:
        """See ``Source``."""
        self.store.close()


def entry(record: Record) -> Entry:
    """Returns a record as an entry that can be written again."""
    now_s = int(time.time())
    left = max(1, record.lease_expiry - now_s) if record.lease_expiry else 0
    return Entry(record.key, record.revision, record.create_revision, record.version, left, draft=redraft(record, now_s))


def move_on(store: LMDBStore, revision: int) -> None:
    """Advances a store to a revision and drops its history, so that clients that saw later revisions than the store had list
    again instead of continuing at numbers with another meaning."""
    store.start()
    if store.revision < revision:
        store.apply(revision, [])
    while not store.compact(store.revision):
        pass


class LMDBTarget:
    """A store to be created, or one that the same copy created and that was not used since."""

    def __init__(self, data_dir: Path, max_size: int, transformers: Transformers | None = None, bump: int = 0) -> None:
        """``bump``: how far above the source's revision the store continues."""
        self.name, self.data_dir, self._bump = f"lmdb:{data_dir}", data_dir, bump
        self._max_size, self._transformers = max_size, transformers
        self._at, self._final = data_dir / COPYING, data_dir / "store"
        self._lock: IO[str] | None = None
        self._store: LMDBStore | None = None
        self._forms: Forms
        self._further: int  # the revision at which it continues, if not the source's

    @property
    def store(self) -> LMDBStore:
        """The store; available after ``begin``."""
        assert self._store is not None
        return self._store

    def overlaps(self, source: Source) -> bool:
        """See ``Target``: never, because a source is never a store that is being created."""
        return False

    def begin(self, forms: Forms) -> Note | None:
        """See ``Target``."""
        self._forms = forms
        self._lock = claim(self.data_dir)
        if self._final.exists():
            if self._at.exists() or not (self._final / NOTE).exists():
                raise Refused(f"{self.data_dir} holds a store already: name a directory without one")
            note = Note.from_json((self._final / NOTE).read_bytes())
            self._open(self._final)
            if self.store.revision != note.own:
                raise Refused(f"{self.data_dir} was written to since it was copied: nothing is copied over that")
            self.store.close()
            os.replace(self._final, self._at)
        self._open(self._at)
        if (self._at / NOTE).exists():
            return Note.from_json((self._at / NOTE).read_bytes())
        if self.store.revision or self.store.count(ROOT):
            raise Refused(f"{self._at} is no copy that can be continued: remove it")
        return None

    def _open(self, path: Path) -> None:
        self._store = open_store(str(path), max_size=self._max_size, sync=False, transformers=self._transformers)

    def put(self, entries: list[Entry], note: Note) -> list[tuple[str, str]]:
        """See ``Target``."""
        ops, states, refused = [], [], []
        for e in entries:
            try:
                ops.append(Op(e.key, leased(self._forms.draft(e), e.lease_s)))
                states.append((e.revision, e.created, e.version))
            except Undecodable as why:
                refused.append((e.key, str(why)))
        self._own(note)
        if ops:
            self.store.load(ops, states)
        self._take(note)
        return refused

    def remove(self, keys: list[str], note: Note) -> None:
        """See ``Target``."""
        for chunk in chunks(keys, REMOVED):
            self.store.commit_now(*(Op(key, None) for key in chunk), one_revision=True)

    def _own(self, note: Note) -> None:
        """Records the origin of the copy before it has any content: an interrupted copy can then be continued, and is not
        taken for a foreign store."""
        if not (self._at / NOTE).exists():
            self._take(replace(note, at="", complete=False))

    def _take(self, note: Note) -> None:
        new = self._at / (NOTE + ".new")
        new.write_bytes(note.to_json())
        os.replace(new, self._at / NOTE)

    def stored(self) -> Iterator[str]:
        """See ``Target``."""
        for found, _ in self.read():
            yield found.key

    def complete(self, note: Note) -> None:
        """See ``Target``. Deletes have advanced the store's revision; it continues at that of the source."""
        self._own(note)
        self._further = note.revision + self._bump
        if self.store.revision < note.revision:
            self.store.apply(note.revision, [])
        while not self.store.compact(self.store.revision):
            pass
        self._take(replace(note, complete=True, own=self.store.revision))

    def read(self) -> Iterator[tuple[Entry, bytes]]:
        """See ``Target``."""
        key, more = "", True
        while more:
            page = self.store.range(ROOT, key, PAGE)
            for record in page.records:
                found = entry(record)
                assert found.draft is not None
                yield found, found.draft.json
            key, more = page.next_key, page.more

    def form(self, entry: Entry) -> bytes:
        """See ``Target``."""
        return self._forms.draft(entry).json

    def finish(self) -> str:
        """See ``Target``. Advances the revision before the store is moved to its place: an interrupt never leaves a store
        that continues too early."""
        if self._bump:
            move_on(self.store, self._further)
        revision = self.store.revision
        self.store.close()
        for path in (self._at / "data.mdb", self._at):
            fd = os.open(path, os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)
        os.replace(self._at, self._final)
        if self._bump:
            return f"restored; the store goes on at revision {revision}"
        return f"objects keep their resourceVersions; the store goes on at revision {revision}, and watches from before it list anew"

    def close(self) -> None:
        """See ``Target``."""
        if self._store is not None:
            self._store.close()
        if self._lock is not None:
            self._lock.close()
            self._lock = None
