"""Places where objects are stored: sources to read at one revision, and targets to fill.

A *place* is named ``lmdb:DIR`` (the ``--data-dir`` of a server) or ``etcd:URL,URL``. All keys are the store's own
(``/registry/…``). Objects are read as ``Entry``; its form depends on the place, and ``Forms`` converts to the other one.
Sources may be in use by servers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Protocol

from kas.meta import clock
from kas.registry.etcdvalues import MAGIC, StoredValues
from kas.registry.registries import Registries
from kas.store import Draft, StoreError, build_record
from kas.store.etcd.layout import Undecodable
from kas.types.scheme import Scheme

ROOT = "/registry/"
LAST = ROOT + "\U0010ffff"  # after every key
PAGE = 500


class Refused(StoreError):
    """The request is refused; the message says why, in one line."""


@dataclass(slots=True)
class Entry:
    """One object: a draft (LMDB), or etcd's value in plain form, or ``why`` it cannot be opened. ``lease_s`` is its remaining
    lifetime in seconds, 0 if unlimited."""

    key: str
    revision: int
    created: int
    version: int
    lease_s: int
    draft: Draft | None = None
    value: bytes | None = None
    why: str = ""


class Forms:
    """Converts between the two forms."""

    def __init__(self, as_json: bool = False) -> None:
        """``as_json``: see ``StoredValues``."""
        registries = Registries(None, clock.now)  # type: ignore[arg-type]  # for their strategies; nothing is read through them
        scheme = Scheme()
        registries.add_stored(scheme.resources, scheme.resource, 0, {})
        self.values, self._as_json = StoredValues(registries, as_json), as_json

    def draft(self, entry: Entry) -> Draft:
        """Returns the draft. Raises ``Undecodable``."""
        if entry.draft is not None:
            return entry.draft
        if entry.value is None:
            raise Undecodable(entry.why)
        return leased(self.values.decode(entry.key, entry.value), entry.lease_s)

    def value(self, entry: Entry) -> bytes:
        """Returns the value as kube-apiserver stores it; a value of etcd is not changed, unless JSON is requested. Raises
        ``Undecodable``."""
        if entry.value is not None:
            return self.values.today(entry.key, entry.value) if self._as_json and entry.value.startswith(MAGIC) else entry.value
        if entry.draft is None:
            raise Undecodable(entry.why)
        # Without the stored message: it has a resourceVersion, which values of etcd do not have.
        plain = build_record(entry.draft.head, entry.draft.tail, type_prefix_len=entry.draft.type_prefix_len)
        return self.values.encode(entry.key, plain)


def leased(draft: Draft, lease_s: int) -> Draft:
    """Returns the same object with a lease of ``lease_s`` seconds."""
    if draft.lease_s == lease_s:
        return draft
    return build_record(
        draft.head, draft.tail, draft.label_map, draft.field_map, draft.type_prefix_len, lease_s, draft.metadata_tail, draft.protobuf
    )


@dataclass(frozen=True)
class Note:
    """The progress of a copy, stored in its target: the source, the revision being read, the last key written (unless it is
    ``complete``), and the revision of the target itself at that time."""

    source: str
    revision: int
    at: str = ""
    complete: bool = False
    own: int = 0

    def to_json(self) -> bytes:
        """Returns the stored form."""
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def from_json(raw: bytes) -> Note:
        """Parses a note. Raises ``Refused`` for an invalid one."""
        try:
            return Note(**json.loads(raw))
        except (ValueError, TypeError):
            raise Refused("the target holds a note of a copy that is not understood") from None

    @property
    def caught_up(self) -> bool:
        """Whether the copy was complete at some time: only later changes may be missing."""
        return self.complete or self.at == LAST

    def moved(self, at: str) -> Note:
        """Returns the note with a later key."""
        return replace(self, at=at)


class Digest:
    """A digest of keys and forms, independent of their order: the sum of their SHA-256s. Objects with a lease are only
    counted: they may expire during the comparison."""

    def __init__(self) -> None:
        self._sum = self.count = self.leased = self.bytes = 0

    def add(self, entry: Entry, form: bytes) -> None:
        """Adds an object."""
        if entry.lease_s:
            self.leased += 1
            return
        digest = hashlib.sha256(entry.key.encode() + b"\0" + form).digest()
        self._sum = (self._sum + int.from_bytes(digest, "big")) % (1 << 256)
        self.count += 1
        self.bytes += len(form)

    def hex(self) -> str:
        """Returns 64 hexadecimal digits."""
        return f"{self._sum:064x}"


class Source(Protocol):
    """A place that can be read at one revision."""

    name: str
    identity: str  # the same for the same content, at any time

    def newest(self) -> int:
        """Returns the newest revision."""
        ...

    def count(self) -> int:
        """Returns the approximate number of objects."""
        ...

    def scan(self, revision: int, prefix: str = ROOT, *, start: str = "", end: str = "", after: int = 0) -> Iterator[list[Entry]]:
        """Yields everything under a prefix at a revision, in pages: keys after ``start`` up to ``end``, written after the
        revision ``after``. Raises ``Compacted`` if that state is gone."""
        ...

    def keys(self, revision: int) -> Iterator[str]:
        """Yields all keys at a revision."""
        ...

    def close(self) -> None:
        """Releases the source. Idempotent."""
        ...


class Target(Protocol):
    """A place that can be filled. Every write is made together with the note that records it, or before that."""

    name: str

    def overlaps(self, source: Source) -> bool:
        """Returns whether the source contains what is written here."""
        ...

    def begin(self, forms: Forms) -> Note | None:
        """Returns the note of a copy that was begun here; None for an empty place. Raises ``Refused`` for a place that must
        not be filled."""
        ...

    def put(self, entries: list[Entry], note: Note) -> list[tuple[str, str]]:
        """Writes a page; returns (key, why) of objects that cannot be stored here."""
        ...

    def remove(self, keys: list[str], note: Note) -> None:
        """Deletes keys."""
        ...

    def stored(self) -> Iterator[str]:
        """Yields all keys."""
        ...

    def complete(self, note: Note) -> None:
        """Records that everything at the note's revision is here."""
        ...

    def read(self) -> Iterator[tuple[Entry, bytes]]:
        """Yields all entries, each with the form for the digest."""
        ...

    def form(self, entry: Entry) -> bytes:
        """Returns the form that the digest expects for a source's entry. Raises ``Undecodable``."""
        ...

    def finish(self) -> str:
        """Makes the place usable by servers; returns a sentence about revisions for the user."""
        ...

    def close(self) -> None:
        """Releases the target. Idempotent."""
        ...


def chunks(items: Iterable[str], size: int) -> Iterator[list[str]]:
    """Yields lists of at most ``size`` items."""
    chunk: list[str] = []
    for item in items:
        chunk.append(item)
        if len(chunk) >= size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
