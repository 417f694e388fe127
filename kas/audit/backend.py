"""Audit backends: the contract, truncation, and the union of the configured ones."""

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
    """Entries could not be stored: ``lost`` of those passed, None for all of them. ``plugin`` names the plug-in that lost them, if it is
    not the backend itself."""

    def __init__(self, message: str, lost: int | None = None, plugin: str = "") -> None:
        super().__init__(message)
        self.lost, self.plugin = lost, plugin


class Backend(Protocol):
    """``process`` stores entries, at once or by an awaitable, and raises AuditError if it could not. ``close`` stores what still waits;
    if it is cancelled, entries it could not store are reported like those of ``process``."""

    name: str

    def process(self, entries: Sequence[Entry]) -> Awaitable[None] | None:
        """Store the entries in order."""

    async def close(self) -> None:
        """Store everything that can still be stored, and end."""


class Truncate:
    """Removes the bodies of entries larger than ``max_event`` bytes. Entries that are still too large are dropped and reported to
    ``failed``; as upstream, no request is refused for them. Batches are split at ``max_batch`` bytes (``plugin/pkg/audit/truncate``)."""

    def __init__(self, backend: Backend, max_event: int, max_batch: int, failed: Callable[[Backend, AuditError, int], None]) -> None:
        self.name, self._backend, self._max_event, self._max_batch = backend.name, backend, max_event, max_batch
        self._failed = failed

    def process(self, entries: Sequence[Entry]) -> Awaitable[None] | None:
        """Pass on what fits. Raises AuditError, or its awaitable does, if part of that could not be stored."""
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
        """Close the wrapped backend."""
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
    """Return the first failure, with the total of lost entries."""
    lost = given if e.lost is None else e.lost
    return AuditError(str(e), lost) if failed is None else AuditError(str(failed), (failed.lost or 0) + lost)


class Union:
    """All backends; each receives every entry. Failures are counted and logged; those of a ``strict`` backend are raised after all were
    called."""

    def __init__(self, errors: Counter) -> None:
        self.backends: list[tuple[Backend, bool]] = []  # (backend, strict)
        self._errors = errors

    @property
    def buffer(self) -> Buffer | None:
        """The buffer of the only backend, if that is not strict and has one."""
        alone = self.backends[0][0] if len(self.backends) == 1 and not self.backends[0][1] else None
        return alone if isinstance(alone, Buffer) else None

    def process(self, entries: Sequence[Entry]) -> Awaitable[None] | None:
        """Store the entries in all backends. Raises AuditError, or its awaitable does."""
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
        """Process with a single backend that is not strict."""
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
        """Count and log a failure to store ``given`` entries."""
        plugin, lost = e.plugin or backend.name, given if e.lost is None else e.lost
        self._errors.inc((plugin,), lost)
        log.error("Error in audit plugin '%s' affecting audit events: %s", plugin, e)

    async def close(self) -> None:
        """Close all backends concurrently, so that each has the full time."""
        # With return_exceptions: a cancelled plain gather ends with the first backend, before the others have reported their losses.
        for end in await asyncio.gather(*(backend.close() for backend, _ in self.backends), return_exceptions=True):
            if isinstance(end, BaseException):
                raise end
