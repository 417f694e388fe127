"""Batch mode: entries wait in a bounded buffer and are sent together (``plugin/pkg/audit/buffered``).

Requests do not wait for them. An entry that finds the buffer full is lost, counted and logged.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Collection, Sequence

from kas.audit._engine import Buffer
from kas.audit.backend import AuditError, Backend, log
from kas.audit.event import Entry
from kas.meta.buckets import Buckets

MAX_UNDER_WAY = 16  # concurrent batches of a slow backend
# Limit of entries waiting or being sent. An entry with bodies may take 6 MB and more, and while a webhook is down all of them wait.
MOST_BYTES = 256 << 20
# Limit of a batch of more than one entry. A batch is assembled and copied by the sender; without a limit, entries with bodies would be
# copied all at once.
BATCH_BYTES = 4 << 20
ENDED = "events are lost: the server ends and the backend has not taken them"


def _fitting(batch: Sequence[Entry]) -> int:
    """Return how many of these entries make a batch."""
    size = 0
    for i, entry in enumerate(batch):
        size += len(entry.line)
        if size > BATCH_BYTES and i:
            return i
    return len(batch)


class Batch(Buffer):
    """Sends ``size`` entries at a time, or fewer after ``wait_s``; each batch takes a token of ``throttle``, None for no limit.

    ``failed`` is called for each batch with losses, with the number of its entries. ``joins`` is for a backend that takes any number of
    entries at once: all due entries are sent together, unless there is a throttle.
    """

    def __init__(
        self, backend: Backend, buffer: int, size: int, wait_s: float, throttle: Buckets | None,
        failed: Callable[[Backend, AuditError, int], None], joins: bool = False,
    ) -> None:
        self._full, self._closing = asyncio.Event(), asyncio.Event()
        super().__init__(buffer, size, self._full.set, MOST_BYTES)
        self.name, self._backend, self._failed = backend.name, backend, failed
        self._buffer, self._due, self._wait_s = buffer, size, wait_s
        self._throttle, self._joins = throttle, joins and throttle is None
        self._loop_task: asyncio.Task[None] | None = None
        self._sending: set[asyncio.Task[None]] = set()

    def process(self, entries: Sequence[Entry]) -> None:
        """Queue the entries. Raises AuditError if some did not fit."""
        if self._loop_task is None:
            self._loop_task = asyncio.get_running_loop().create_task(self._run())
            self.served = True
        waiting, lost = self.waiting, len(entries)
        for entry in entries:
            if len(waiting) >= self._buffer or self.held >= MOST_BYTES:
                break
            waiting.append(entry)
            self.held += len(entry.line)
            lost -= 1
        if len(waiting) >= self._due:
            self._full.set()
        if lost:
            raise AuditError("audit buffer queue blocked", lost, "buffered")

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._wait_s or None):
                    await self._full.wait()
            except TimeoutError:
                pass  # send what there is
            while self.waiting:
                cut = await self._send_one()
                if not cut and not self._closing.is_set() and len(self.waiting) < self._due:
                    break
            if self._closing.is_set():
                return
            if len(self.waiting) < self._due:
                self._full.clear()

    async def _send_one(self) -> bool:
        """Send one batch. Return whether due entries remain because of the byte limit."""
        if self._throttle is not None and not self._closing.is_set():
            await self._wait_for(self._throttle.reserve("", time.monotonic()))
        while len(self._sending) >= MAX_UNDER_WAY:
            await asyncio.wait(self._sending, return_when=asyncio.FIRST_COMPLETED)
        due = self._due
        if self._joins:
            due = max(due, len(self.waiting) // due * due)
        batch, cut = self.waiting[:due], False
        if self.held > BATCH_BYTES and (fits := _fitting(batch)) < len(batch):
            batch, cut = batch[:fits], True
        del self.waiting[: len(batch)]
        try:
            pending = self._backend.process(batch)
        except Exception as e:
            pending = None
            self._lost(e, batch)
        if pending is None:
            self._gone(batch)
        else:
            task = asyncio.get_running_loop().create_task(self._deliver(pending, batch))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)
        return cut

    async def _deliver(self, pending: Awaitable[None], batch: Sequence[Entry]) -> None:
        try:
            await pending
        except asyncio.CancelledError:
            self._lost(AuditError(f"{len(batch)} {ENDED}"), batch)
            raise
        except Exception as e:
            self._lost(e, batch)
        finally:
            self._gone(batch)

    def _gone(self, batch: Collection[Entry]) -> None:
        self.held -= sum(len(entry.line) for entry in batch)

    def _lost(self, e: Exception, batch: Collection[Entry]) -> None:
        """Report a lost batch. Any exception is caught, since no caller awaits the batch, and the following ones must be sent."""
        if not isinstance(e, AuditError):
            log.exception("a batch of audit events failed")
            e = AuditError(f"{type(e).__name__}: {e}")
        self._failed(self._backend, e, len(batch))

    async def _wait_for(self, seconds: float) -> None:
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._closing.wait()

    async def close(self) -> None:
        """Send what waits, without throttling, and return when the backend has it all. If cancelled, entries not stored yet are lost."""
        self._closing.set()
        self._full.set()
        try:
            if self._loop_task is not None:
                await self._loop_task
            if self._sending:
                await asyncio.wait(self._sending)
        finally:
            late = list(self._sending)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
            if self.waiting:
                self._lost(AuditError(f"{len(self.waiting)} {ENDED}"), self.waiting)
                self.waiting.clear()
            await self._backend.close()
