"""The reflector: lists a resource, follows it from there, and lists again if events were lost (client-go's ``reflector.go``).

The list is read from the database and may be ahead of the hub, which has yet to dispatch writes of other workers: events up
to the list's revision are dropped, so that a target sees no event twice and never an older state after a newer one. A
revision is atomic: the list has all of its writes or none.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from kas.informers import Source, Target
from kas.meta.stored import object_of
from kas.store import Event, Record
from kas.types.mistakes import mistake

log = logging.getLogger("kas")


class Reflector:
    """Keeps ``target`` in sync with the records under ``prefix`` (which ends with "/"), from ``start`` to ``stop``.

    If the target raises on a list, it gets the list again without the records that are no valid objects of their kind, which
    are logged. With ``lists`` off ``replace`` gets an empty list: for a target that stores no objects and only needs to know
    that it may have missed events, or that reads the objects itself, in pages. Used on the loop's thread only.
    """

    def __init__(self, source: Source, prefix: str, target: Target, lists: bool = True) -> None:
        self._source, self.prefix, self._target, self._lists = source, prefix, target, lists
        self._end: Callable[[], None] | None = None
        self.revision = 0  # of the last list or event passed to the target

    @property
    def has_synced(self) -> bool:
        """Whether the target has got the first list."""
        return self._end is not None and self.revision >= 0

    def start(self) -> None:
        """Lists and follows. Idempotent. If the list fails, nothing is followed, and the store's error is raised."""
        if self._end is not None:
            return
        self.revision = -1
        # Listening starts first, so that no event between the two is lost.
        self._end = self._source.listen(self.prefix, self._changed, self._relist)
        try:
            self._relist()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stops following; the target keeps its state. Idempotent."""
        end, self._end = self._end, None
        if end is not None:
            end()

    def _relist(self) -> None:
        if not self._lists:
            self.revision = 0
            self._target.replace(())
            return
        found = self._source.range(self.prefix)
        try:
            self._target.replace(found.records)
        except Exception:  # of any kind: code that reads an object does not expect an invalid one
            sound = [rec for rec in found.records if not left_out(rec)]
            if len(sound) == len(found.records):
                raise
            self._target.replace(sound)
        self.revision = found.revision

    def _changed(self, events: list[Event]) -> None:
        if events[0].revision <= self.revision:
            events = [e for e in events if e.revision > self.revision]
            if not events:
                return
        self.revision = events[-1].revision
        self._target.apply(events)


class Reflectors:
    """Several reflectors as one, for a resource in several stores with independent revisions. ``target`` is notified for each
    store where events may be missing. If it does not get the current objects at the start, ``fill`` passes them, in turns of
    the loop."""

    fill: Callable[[], Awaitable[None]] | None = None

    def __init__(self, sources: Sequence[Source], prefix: str, target: Target, lists: bool) -> None:
        if lists and len(sources) > 1:
            raise ValueError(f"{prefix}: what is kept in several places is not listed at once")
        self._all = [Reflector(source, prefix, target, lists) for source in sources]

    def start(self) -> None:
        """Starts all. Raises the error of the first that cannot list."""
        try:
            for reflector in self._all:
                reflector.start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stops all. Idempotent."""
        for reflector in self._all:
            reflector.stop()


class Handlers:
    """A target made of two functions."""

    __slots__ = ("apply", "replace")

    def __init__(self, replace: Callable[[Sequence[Record]], None], apply: Callable[[Sequence[Event]], None]) -> None:
        self.replace, self.apply = replace, apply


def left_out(rec: Record) -> bool:
    """Returns whether a record is no valid object of its kind and must be skipped; logs its key and the field if so."""
    return sound(rec) is None


def sound(rec: Record) -> dict[str, Any] | None:
    """Returns the object of a record, None for one to be skipped."""
    obj = object_of(rec)
    why = mistake(obj)
    if why:
        log.error("%s is stored with wrong types and left out: %s", rec.key, why)
        return None
    return obj


def split_key(prefix: str, key: str) -> tuple[str, str]:
    """Returns (namespace, name) for a store key under a resource's ``prefix``; the namespace is "" for a cluster-scoped
    resource."""
    namespace, _, name = key[len(prefix) :].rpartition("/")
    return namespace, name
