"""Where objects are kept, as the commands that move and look after them see it: something to read at one revision, or to fill.

A *place* is named ``lmdb:DIR`` (the ``--data-dir`` of a server) or ``etcd:URL,URL``. All keys are the store's own (``/registry/…``). What
is read comes as ``Entry``; in which form is the place's, and ``Forms`` makes the other one. Sources may be in use by servers meanwhile.
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
LAST = ROOT + "\U0010ffff"  # behind every key
PAGE = 500


class Refused(StoreError):
    """What was asked is not done; the text says why, in one line."""


@dataclass(slots=True)
class Entry:
    """One object: a draft (LMDB) or etcd's value, opened, or ``why`` it cannot be. ``lease_s`` is what is left of its life in seconds, 0
    for ever."""

    key: str
    revision: int
    created: int
    version: int
    lease_s: int
    draft: Draft | None = None
    value: bytes | None = None
    why: str = ""


class Forms:
    """From each form to the other."""

    def __init__(self, as_json: bool = False) -> None:
        """``as_json``: see ``StoredValues``."""
        registries = Registries(None, clock.now)  # type: ignore[arg-type]  # for their strategies; nothing is read through them
        scheme = Scheme()
        registries.add_stored(scheme.resources, scheme.resource, 0, {})
        self.values, self._as_json = StoredValues(registries, as_json), as_json

    def draft(self, entry: Entry) -> Draft:
        """Raises ``Undecodable``."""
        if entry.draft is not None:
            return entry.draft
        if entry.value is None:
            raise Undecodable(entry.why)
        return leased(self.values.decode(entry.key, entry.value), entry.lease_s)

    def value(self, entry: Entry) -> bytes:
        """As kube-apiserver stores it; what etcd gave stays as it is, unless it is to be JSON. Raises ``Undecodable``."""
        if entry.value is not None:
            return self.values.today(entry.key, entry.value) if self._as_json and entry.value.startswith(MAGIC) else entry.value
        if entry.draft is None:
            raise Undecodable(entry.why)
        # Without the message that was stored, whose resourceVersion etcd's has not.
        plain = build_record(entry.draft.head, entry.draft.tail, type_prefix_len=entry.draft.type_prefix_len)
        return self.values.encode(entry.key, plain)


def leased(draft: Draft, lease_s: int) -> Draft:
    """The same object, ending after so many seconds."""
    if draft.lease_s == lease_s:
        return draft
    return build_record(
        draft.head, draft.tail, draft.label_map, draft.field_map, draft.type_prefix_len, lease_s, draft.metadata_tail, draft.protobuf
    )


@dataclass(frozen=True)
class Note:
    """How far a copy is, kept in its target: what it is of, the revision it reads, the last key it wrote (unless it is ``complete``), and
    the revision of the target itself then."""

    source: str
    revision: int
    at: str = ""
    complete: bool = False
    own: int = 0

    def to_json(self) -> bytes:
        """What is kept."""
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def from_json(raw: bytes) -> Note:
        """Raises ``Refused`` for what is no note."""
        try:
            return Note(**json.loads(raw))
        except (ValueError, TypeError):
            raise Refused("the target holds a note of a copy that is not understood") from None

    @property
    def caught_up(self) -> bool:
        """Whether there was a time when all had been copied: it is only of what happened since that something may be missing."""
        return self.complete or self.at == LAST

    def moved(self, at: str) -> Note:
        """The same, up to a further key."""
        return replace(self, at=at)


class Digest:
    """Of keys and forms, whatever order they come in: the sum of their SHA-256s. What has a lease is counted only: it may end while one
    looks."""

    def __init__(self) -> None:
        self._sum = self.count = self.leased = self.bytes = 0

    def add(self, entry: Entry, form: bytes) -> None:
        """Takes in one object."""
        if entry.lease_s:
            self.leased += 1
            return
        digest = hashlib.sha256(entry.key.encode() + b"\0" + form).digest()
        self._sum = (self._sum + int.from_bytes(digest, "big")) % (1 << 256)
        self.count += 1
        self.bytes += len(form)

    def hex(self) -> str:
        """64 digits."""
        return f"{self._sum:064x}"


class Source(Protocol):
    """What can be read at one revision."""

    name: str
    identity: str  # the same for the same objects, whenever they are read

    def newest(self) -> int:
        """The newest revision."""
        ...

    def count(self) -> int:
        """About how many objects there are."""
        ...

    def scan(self, revision: int, prefix: str = ROOT, *, start: str = "", end: str = "", after: int = 0) -> Iterator[list[Entry]]:
        """Everything under a prefix as of a revision, page by page: keys behind ``start`` up to ``end``, written after a revision. Raises
        ``Compacted`` when that state is forgotten."""
        ...

    def keys(self, revision: int) -> Iterator[str]:
        """All keys as of a revision."""
        ...

    def close(self) -> None:
        """Lets go of it. Idempotent."""
        ...


class Target(Protocol):
    """What can be filled. Everything is written with the note that tells so, or before it."""

    name: str

    def overlaps(self, source: Source) -> bool:
        """Whether the source would show what is written here."""
        ...

    def begin(self, forms: Forms) -> Note | None:
        """The note of the copy that was begun here; None for an empty place. Raises ``Refused`` for one that is not ours to fill."""
        ...

    def put(self, entries: list[Entry], note: Note) -> list[tuple[str, str]]:
        """Writes a page; returns (key, why) of what cannot be kept here."""
        ...

    def remove(self, keys: list[str], note: Note) -> None:
        """Deletes keys."""
        ...

    def stored(self) -> Iterator[str]:
        """All keys."""
        ...

    def complete(self, note: Note) -> None:
        """Everything as of the note's revision is here."""
        ...

    def read(self) -> Iterator[tuple[Entry, bytes]]:
        """All entries, each with what the digest looks at."""
        ...

    def form(self, entry: Entry) -> bytes:
        """What the digest is to find of a source's entry. Raises ``Undecodable``."""
        ...

    def finish(self) -> str:
        """Makes it a place that servers may use; a sentence about revisions for who moves."""
        ...

    def close(self) -> None:
        """Lets go of it. Idempotent."""
        ...


def chunks(items: Iterable[str], size: int) -> Iterator[list[str]]:
    """In lists of at most ``size``."""
    chunk: list[str] = []
    for item in items:
        chunk.append(item)
        if len(chunk) >= size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
