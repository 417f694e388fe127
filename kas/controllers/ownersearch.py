"""Search for owners that exist in another namespace than their dependents. That is a mistake worth an event; nothing else depends on it.

Therefore the search runs apart from the collector: one scan of all objects of a kind serves all its owners requested by then, with pauses
between scans. With a scan per owner, any client that may write one object could block the event loop: 1,000 made-up references among
3,000 objects blocked it for 29 s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any

from kas.controllers.client import split_key
from kas.controllers.graph import uid_of
from kas.controllers.queue import WorkQueue
from kas.meta.records import NamedTuple
from kas.registry.generic import Registry
from kas.store import PAGE_BYTES, Store

MEMORY = 10_000  # limit of known owners, and of waiting dependents
PAGE = 500
REST_S, REST_TIMES = 1.0, 20  # pause after a scan: at least, and as a multiple of its duration

Report = Callable[[], Awaitable[None]]


class Waiting(NamedTuple):
    """A dependent in ``namespace`` that reports if its owner is in another namespace."""

    namespace: str
    report: Report


class OwnerSearch:
    """``queue`` must run with one worker; ``absent`` records what need not be searched."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self.queue = WorkQueue(self._work, name)  # queued are the roots of kinds
        self._known: dict[str, str] = {}  # uid of an owner -> its namespace, "" if it was found nowhere
        self._wanted: dict[str, tuple[Registry, dict[str, list[Waiting]]]] = {}  # by root and uid
        self._waiting = 0

    def absent(self, uid: str) -> None:
        """Record that this object was deleted."""
        remember(self._known, uid, "")

    async def find(self, owners: Registry, uid: str, waiting: Waiting) -> None:
        """Report at once if the owner's namespace is known, else after a scan. Dropped if too many wait already."""
        where = self._known.get(uid)
        if where is not None:
            await _report(where, waiting)
        elif self._waiting < MEMORY:
            self._waiting += 1
            self._wanted.setdefault(owners.root, (owners, {}))[1].setdefault(uid, []).append(waiting)
            self.queue.add(owners.root)

    async def _work(self, root: str) -> None:
        if root not in self._wanted:
            return  # a retry after a failed report
        owners, by_uid = self._wanted.pop(root)
        self._waiting -= sum(map(len, by_uid.values()))
        found, took = await self._look(owners, by_uid)
        for uid, where in found.items():
            remember(self._known, uid, where)
        try:
            for uid, where in found.items():
                for waiting in by_uid[uid]:
                    await _report(where, waiting)
        finally:
            await asyncio.sleep(max(REST_S, REST_TIMES * took))

    async def _look(self, owners: Registry, by_uid: dict[str, list[Waiting]]) -> tuple[dict[str, str], float]:
        """Scan all objects of a kind. Return the namespace of each uid, "" if not found, and the seconds the scan occupied the event
        loop."""
        found, start, took = dict.fromkeys(by_uid, ""), "", 0.0
        while True:
            began = perf_counter()
            page = self._store.range(owners.root, start, PAGE, max_bytes=PAGE_BYTES)
            for rec in page.records:
                uid = uid_of(rec.json)
                if uid in found:
                    found[uid] = split_key(owners, rec.key)[0]
            start = page.next_key if page.more else ""
            del page
            took += perf_counter() - began
            if not start:
                return found, took
            await asyncio.sleep(0)


async def _report(where: str, waiting: Waiting) -> None:
    if where and where != waiting.namespace:
        await waiting.report()


def remember(known: dict[Any, Any], key: Any, value: Any) -> None:
    """Add to a bounded cache; the oldest entry is evicted."""
    if len(known) >= MEMORY:
        known.pop(next(iter(known)))
    known[key] = value
