"""The reflector: lists a resource at a revision, then follows it, and lists anew when it lost its place (client-go's ``reflector.go``).

The list is read from the database and may be ahead of the hub, which has yet to dispatch what other workers wrote: events up to the
list's revision are known already and dropped, so that a target sees no event twice and never an older state after a newer one. A
revision is seen whole or not at all: the list holds all of its writes or none.
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
    """Keeps ``target`` like what is stored under ``prefix`` (which ends with "/"), from ``start`` to ``stop``.

    A list that the target fails over is given again without the records that are no objects of their kind, which are told in the log.
    With ``lists`` off ``replace`` is given nothing: for a target that remembers no objects and only has to hear that it may have missed
    some, or that reads them itself, in pages. Used on the loop's thread only.
    """

    def __init__(self, source: Source, prefix: str, target: Target, lists: bool = True) -> None:
        self._source, self.prefix, self._target, self._lists = source, prefix, target, lists
        self._end: Callable[[], None] | None = None
        self.revision = 0  # of the last list or event that the target has seen

    @property
    def has_synced(self) -> bool:
        """Whether the target has had the first list."""
        return self._end is not None and self.revision >= 0

    def start(self) -> None:
        """Lists and follows. Idempotent. When the list fails nothing is followed, and what the store raised is raised."""
        if self._end is not None:
            return
        self.revision = -1
        # Listening comes first, so that nothing is between the two.
        self._end = self._source.listen(self.prefix, self._changed, self._relist)
        try:
            self._relist()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Follows no longer; what the target has stays. Idempotent."""
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
        except Exception:  # of whatever kind: who reads an object does not expect what cannot be
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
    """Several as one: of what is kept in several places, whose revisions say nothing of one another. ``target`` is told of each place where
    it may have missed something. Where it is not shown at once what there is at the start ``fill`` shows that, in turns of the loop."""

    fill: Callable[[], Awaitable[None]] | None = None

    def __init__(self, sources: Sequence[Source], prefix: str, target: Target, lists: bool) -> None:
        if lists and len(sources) > 1:
            raise ValueError(f"{prefix}: what is kept in several places is not listed at once")
        self._all = [Reflector(source, prefix, target, lists) for source in sources]

    def start(self) -> None:
        """Follows all. Raises what the first raises that cannot list."""
        try:
            for reflector in self._all:
                reflector.start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Follows none of them any longer. Idempotent."""
        for reflector in self._all:
            reflector.stop()


class Handlers:
    """A target made of two functions."""

    __slots__ = ("apply", "replace")

    def __init__(self, replace: Callable[[Sequence[Record]], None], apply: Callable[[Sequence[Event]], None]) -> None:
        self.replace, self.apply = replace, apply


def left_out(rec: Record) -> bool:
    """Whether a record is no object of its kind and has to be left out, which is said: by its key, and the field."""
    return sound(rec) is None


def sound(rec: Record) -> dict[str, Any] | None:
    """The object of a record, None for one that is to be left out."""
    obj = object_of(rec)
    why = mistake(obj)
    if why:
        log.error("%s is stored with wrong types and left out: %s", rec.key, why)
        return None
    return obj


def split_key(prefix: str, key: str) -> tuple[str, str]:
    """(namespace, name) of a store key under a resource's ``prefix``; the namespace is "" when the resource has none."""
    namespace, _, name = key[len(prefix) :].rpartition("/")
    return namespace, name
