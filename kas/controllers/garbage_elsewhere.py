"""Owners that are not where their dependents are: are they in another namespace? That is a mistake worth an event, and nothing else depends
on it, so it is found out beside the collector: one look at everything of a kind for all owners of it that are asked for by then, with
rests between. One look for each would let anybody who may write one object hold the loop: 1,000 made-up references among 3,000 objects
held it for 29 s.
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

MEMORY = 10_000  # owners that are known, and dependents that wait to know
PAGE = 500
REST_S, REST_TIMES = 1.0, 20  # after a look, and by how much longer than it took

Tell = Callable[[], Awaitable[None]]


class Waiting(NamedTuple):
    """Somebody in ``namespace`` who wants to tell of an owner that is in another."""

    namespace: str
    tell: Tell


class Elsewhere:
    """``queue`` is worked on by one; ``absent`` says what need not be looked for."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self.queue = WorkQueue(self._work, name)  # of kinds, by their roots
        self._known: dict[str, str] = {}  # uids of owners that were looked for everywhere, to the namespace they are in
        self._wanted: dict[str, tuple[Registry, dict[str, list[Waiting]]]] = {}  # by root and uid
        self._waiting = 0

    def absent(self, uid: str) -> None:
        """It was here and is gone."""
        remember(self._known, uid, "")

    async def find(self, owners: Registry, uid: str, waiting: Waiting) -> None:
        """Tells at once where it is known, otherwise after a look; never when too many wait already."""
        where = self._known.get(uid)
        if where is not None:
            await _told(where, waiting)
        elif self._waiting < MEMORY:
            self._waiting += 1
            self._wanted.setdefault(owners.root, (owners, {}))[1].setdefault(uid, []).append(waiting)
            self.queue.add(owners.root)

    async def _work(self, root: str) -> None:
        if root not in self._wanted:
            return  # it comes again because somebody could not be told
        owners, by_uid = self._wanted.pop(root)
        self._waiting -= sum(map(len, by_uid.values()))
        found, took = await self._look(owners, by_uid)
        for uid, where in found.items():
            remember(self._known, uid, where)
        try:
            for uid, where in found.items():
                for waiting in by_uid[uid]:
                    await _told(where, waiting)
        finally:
            await asyncio.sleep(max(REST_S, REST_TIMES * took))

    async def _look(self, owners: Registry, by_uid: dict[str, list[Waiting]]) -> tuple[dict[str, str], float]:
        """Goes through everything of a kind: in what namespaces they are, "" for nowhere, and how long that had the loop."""
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


async def _told(where: str, waiting: Waiting) -> None:
    if where and where != waiting.namespace:
        await waiting.tell()


def remember(known: dict[Any, Any], key: Any, value: Any) -> None:
    """A bounded memory; the oldest entry makes room."""
    if len(known) >= MEMORY:
        known.pop(next(iter(known)))
    known[key] = value
