"""The promises of a watch, checked against a history: etcd's six promises by name, one function and one error each.

A ``Write`` is an acknowledged write; a ``Session`` is one watch from its start revision to its end; a ``Client`` is a sequence of
sessions, each resumed from the newest revision that the one before had seen. The checks know nothing of the server: tests also feed them
with falsified histories, to show that they detect these.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

ADDED, MODIFIED, DELETED, BOOKMARK = "ADDED", "MODIFIED", "DELETED", "BOOKMARK"


class BrokenOrdered(AssertionError):
    """Events did not come in the order of their revisions."""


class BrokenUnique(AssertionError):
    """An event came twice to one client."""


class BrokenAtomic(AssertionError):
    """A client saw a revision in part: two states of it, or one that no write made."""


class BrokenReliable(AssertionError):
    """An event between two that were seen is missing."""


class BrokenResumable(AssertionError):
    """A resumed watch repeated or skipped an event around the revision that it resumed from."""


class BrokenBookmarkable(AssertionError):
    """A bookmark promised that everything up to it had been sent, and an older event came later."""


class BrokenDigest(AssertionError):
    """The state that a client built from events differs from a list."""


@dataclass(frozen=True)
class Write:
    """An acknowledged write: the revision, the key, and the value that it left (None: deleted)."""

    revision: int
    key: str
    value: str | None


@dataclass(frozen=True, slots=True)
class Event:
    type: str
    revision: int
    key: str = ""
    value: str | None = None


@dataclass
class Session:
    """One watch: ``after`` is the revision it was started from."""

    after: int
    events: list[Event] = field(default_factory=list)
    _looked_at: int = field(default=0, repr=False)
    _newest: int = field(default=0, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)  # of these two

    def reached(self) -> int:
        """The newest revision that it knows of. Each event is examined once, however often this is called, from any thread."""
        with self._lock:
            new = self.events[self._looked_at :]
            self._looked_at += len(new)
            self._newest = max([self._newest, self.after, *(e.revision for e in new)])
            return self._newest


@dataclass
class Client:
    """What one client saw. ``initial`` is the list that it started with."""

    initial: dict[str, str]
    sessions: list[Session] = field(default_factory=list)

    def changes(self) -> list[Event]:
        return [e for s in self.sessions for e in s.events if e.type != BOOKMARK]

    def reached(self) -> int:
        """The revision up to which the client knows everything."""
        return max(s.reached() for s in self.sessions)

    def state(self) -> dict[str, str]:
        out = dict(self.initial)
        for e in self.changes():
            if e.type == DELETED:
                out.pop(e.key, None)
            else:
                out[e.key] = e.value or ""
        return out


def ordered(client: Client) -> None:
    for s in client.sessions:
        changes = [e.revision for e in s.events if e.type != BOOKMARK]
        if any(b < a for a, b in pairwise(changes)):
            raise BrokenOrdered(f"revisions {changes}")


def unique(client: Client) -> None:
    seen: set[tuple[str, int]] = set()
    for e in client.changes():
        if (e.key, e.revision) in seen:
            raise BrokenUnique(f"{e} came twice")
        seen.add((e.key, e.revision))


def atomic(client: Client, writes: Sequence[Write]) -> None:
    """A revision is one write: one event, with the value that was written. A write without an answer (its connection was cut) has an event
    whose value no other write left."""
    known = {w.revision: w for w in writes}
    revisions: dict[int, Event] = {}
    for e in client.changes():
        other = revisions.setdefault(e.revision, e)
        if other.key != e.key:
            raise BrokenAtomic(f"revision {e.revision} is of {other.key} and of {e.key}")
        w = known.get(e.revision)
        if w is None:
            continue
        if w.key != e.key or (w.value is None) != (e.type == DELETED) or (w.value is not None and w.value != e.value):
            raise BrokenAtomic(f"{e} is not what was written: {w}")


def reliable(client: Client, writes: Iterable[Write]) -> None:
    """Every acknowledged write between the start and the newest event seen has come."""
    seen = {e.revision for e in client.changes()}
    first, last = client.sessions[0].after, client.reached()
    missing = [w for w in writes if first < w.revision <= last and w.revision not in seen]
    if missing:
        raise BrokenReliable(f"{len(missing)} writes never came, the first: {missing[0]}")


def resumable(client: Client, writes: Iterable[Write]) -> None:
    """A session starts right after the revision that it was resumed from."""
    revisions = sorted(w.revision for w in writes)
    for s in client.sessions:
        changes = [e.revision for e in s.events if e.type != BOOKMARK]
        if not changes:
            continue
        if changes[0] <= s.after:
            raise BrokenResumable(f"resumed after {s.after}, got {changes[0]}")
        skipped = revisions[bisect_right(revisions, s.after) : bisect_left(revisions, changes[0])]
        if skipped:
            raise BrokenResumable(f"resumed after {s.after}, skipped {skipped[0]}")


def bookmarkable(client: Client) -> None:
    for s in client.sessions:
        newest = s.after
        for e in s.events:
            if e.type == BOOKMARK:
                if e.revision < newest:
                    raise BrokenBookmarkable(f"a bookmark of {e.revision} after {newest} had been seen")
                newest = e.revision
            elif e.revision <= newest and any(b.type == BOOKMARK and b.revision >= e.revision for b in s.events[: s.events.index(e)]):
                raise BrokenBookmarkable(f"{e} came after a bookmark of {newest}")
            else:
                newest = max(newest, e.revision)


def digest(client: Client, listed: dict[str, str]) -> None:
    """The client's state, when it has reached the list's revision, equals the list."""
    state = client.state()
    if state != listed:
        wrong = sorted(k for k in state.keys() | listed.keys() if state.get(k) != listed.get(k))
        raise BrokenDigest(f"{len(wrong)} keys differ, the first: {wrong[0]} is {state.get(wrong[0])!r}, not {listed.get(wrong[0])!r}")


def check(client: Client, writes: Sequence[Write], listed: dict[str, str] | None = None) -> None:
    """Checks all promises, those that explain the most first."""
    ordered(client)
    unique(client)
    resumable(client, writes)
    bookmarkable(client)
    atomic(client, writes)
    reliable(client, writes)
    if listed is not None:
        digest(client, listed)


def event_of(raw: dict[str, Any]) -> Event:
    """Returns a watch event of a ConfigMap whose data.v is the value."""
    meta = raw["object"]["metadata"]
    value = (raw["object"].get("data") or {}).get("v")
    return Event(raw["type"], int(meta["resourceVersion"]), meta.get("name", ""), None if raw["type"] == DELETED else value)
