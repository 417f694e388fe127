"""Where the entries of the audit log go, and what is put between: the contract of a backend, and the union of those configured."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from kas.audit._engine import Buffer
from kas.audit.event import Entry
from kas.observe.metrics import Counter

log = logging.getLogger("kas.audit")


class AuditError(Exception):
    """Entries could not be stored: ``lost`` of those that were given, None for all of them. ``plugin`` is who lost them, where that is not
    the backend itself."""

    def __init__(self, message: str, lost: int | None = None, plugin: str = "") -> None:
        super().__init__(message)
        self.lost, self.plugin = lost, plugin


class Backend(Protocol):
    """``process`` stores entries, at once or awaitable; it raises AuditError when it could not. ``close`` stores what still waits;
    when it is cancelled, what it could not store is told of as what ``process`` could not."""

    name: str

    def process(self, entries: Sequence[Entry]) -> Awaitable[None] | None:
        """Store these, in order."""

    async def close(self) -> None:
        """End, with nothing left behind that can still be stored."""


class Truncate:
    """Entries that are larger than ``max_event`` bytes lose their bodies, and what is too large even then is lost: ``failed`` is told of
    it, and nobody is refused for it, as upstream. Batches are cut to ``max_batch`` bytes (``plugin/pkg/audit/truncate``)."""

    def __init__(self, backend: Backend, max_event: int, max_batch: int, failed: Callable[[Backend, AuditError, int], None]) -> None:
        self.name, self._backend, self._max_event, self._max_batch = backend.name, backend, max_event, max_batch
        self._failed = failed

    def process(self, entries: Sequence[Entry]) -> Awaitable[None] | None:
        """Hand on what fits. Raises AuditError, or its awaitable does, when something of that could not be stored."""
        batches: list[list[Entry]] = [[]]
        size, lost = 0, 0
        for given in entries:
            entry = given if given.size <= self._max_event else given.truncated()
            if entry.size > self._max_event:
                lost += 1
                continue
            if size + entry.size > self._max_batch and batches[-1]:
                batches.append([])
                size = 0
            batches[-1].append(entry)
            size += entry.size
        if lost:
            self._failed(self, AuditError("event is too large even after truncating", lost, "truncate"), lost)
        failed: AuditError | None = None
        waiting: list[tuple[Awaitable[None], int]] = []
        for batch in filter(None, batches):
            try:
                pending = self._backend.process(batch)
            except AuditError as e:
                failed = _and(failed, e, len(batch))
                continue
            if pending is not None:
                waiting.append((pending, len(batch)))
        if waiting:
            return _all(waiting, failed)
        if failed is not None:
            raise failed
        return None

    async def close(self) -> None:
        """End what is behind it."""
        await self._backend.close()


async def _all(waiting: list[tuple[Awaitable[None], int]], failed: AuditError | None) -> None:
    for pending, given in waiting:
        try:
            await pending
        except AuditError as e:
            failed = _and(failed, e, given)
    if failed is not None:
        raise failed


def _and(failed: AuditError | None, e: AuditError, given: int) -> AuditError:
    """What failed first, with all that is lost by now."""
    lost = given if e.lost is None else e.lost
    return AuditError(str(e), lost) if failed is None else AuditError(str(failed), (failed.lost or 0) + lost)


class Union:
    """All backends: each gets every entry. Failures are counted and logged; those of a ``strict`` one are raised once all were asked."""

    def __init__(self, errors: Counter) -> None:
        self.backends: list[tuple[Backend, bool]] = []  # with whether it is strict
        self._errors = errors

    @property
    def buffer(self) -> Buffer | None:
        """Where entries wait, when there is one backend, for which nobody waits."""
        alone = self.backends[0][0] if len(self.backends) == 1 and not self.backends[0][1] else None
        return alone if isinstance(alone, Buffer) else None

    def process(self, entries: Sequence[Entry]) -> Awaitable[None] | None:
        """Store the entries everywhere. Raises AuditError, or its awaitable does."""
        if len(self.backends) == 1 and not self.backends[0][1]:
            return self._only(self.backends[0][0], entries)
        failed: AuditError | None = None
        waiting: list[tuple[Backend, bool, Awaitable[None]]] = []
        for backend, strict in self.backends:
            try:
                pending = backend.process(entries)
            except AuditError as e:
                self.failed(backend, e, len(entries))
                failed = e if strict else failed
                continue
            if pending is not None:
                waiting.append((backend, strict, pending))
        if waiting:
            return self._wait(waiting, failed, len(entries))
        if failed is not None:
            raise failed
        return None

    def _only(self, backend: Backend, entries: Sequence[Entry]) -> Awaitable[None] | None:
        """As ``process`` with this one, which is not strict."""
        try:
            pending = backend.process(entries)
        except AuditError as e:
            self.failed(backend, e, len(entries))
            return None
        return None if pending is None else self._wait([(backend, False, pending)], None, len(entries))

    async def _wait(self, waiting: list[tuple[Backend, bool, Awaitable[None]]], failed: AuditError | None, given: int) -> None:
        for backend, strict, pending in waiting:
            try:
                await pending
            except AuditError as e:
                self.failed(backend, e, given)
                failed = e if strict else failed
        if failed is not None:
            raise failed

    def failed(self, backend: Backend, e: AuditError, given: int) -> None:
        """Count and log what a backend could not store, of so many events that it was ``given``."""
        plugin, lost = e.plugin or backend.name, given if e.lost is None else e.lost
        self._errors.inc((plugin,), lost)
        log.error("Error in audit plugin '%s' affecting audit events: %s", plugin, e)

    async def close(self) -> None:
        """Store what waits in any of them; at the same time, so that none has less of it for another's sake."""
        # Not as a plain gather, which is over, when it is cancelled, with the first that is: the others have yet to tell what they lose.
        for end in await asyncio.gather(*(backend.close() for backend, _ in self.backends), return_exceptions=True):
            if isinstance(end, BaseException):
                raise end
