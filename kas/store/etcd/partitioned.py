"""Several etcd clusters as one store, divided by prefixes (``--etcd-servers-overrides``).

Each part has its own replica, revisions, watches and history: a caller that reads a resource uses ``part`` of its prefix,
independently of the others. Calls here are passed to the part that holds the key; calls without a key go to the main part.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from kas.store._engine import Event, Op, RangeResult, Record
from kas.store.contract import EVENTS_BYTES, Store
from kas.store.etcd.store import EtcdStore
from kas.store.hub import Hub, Watcher


class Partitioned(Store):
    """``main`` holds everything but the keys below the prefixes (with "/" at their ends) of ``others``. A part that holds
    nothing is still maintained, since it was configured: it has health checks and metrics."""

    fills, as_protobuf = True, False  # each part decides about its values

    def __init__(self, main: EtcdStore, others: Sequence[tuple[EtcdStore, Sequence[str]]]) -> None:
        self.main, self._others = main, {prefix: store for store, prefixes in others for prefix in prefixes}
        self._prefixes = tuple(self._others)
        self._parts = (main, *(store for store, _ in others))
        self._keeping = (main, *(store for store, prefixes in others if prefixes))
        self.hub: Hub = main.hub
        self.most_ops = main.most_ops

    def part(self, key: str) -> EtcdStore:
        """See the contract."""
        if key.startswith(self._prefixes):
            for prefix, store in self._others.items():
                if key.startswith(prefix):
                    return store
        return self.main

    def parts(self) -> tuple[EtcdStore, ...]:
        """See the contract."""
        return self._parts

    def parts_below(self, prefix: str) -> tuple[EtcdStore, ...]:
        """See the contract."""
        return tuple(dict.fromkeys((self.part(prefix), *(store for kept, store in self._others.items() if kept.startswith(prefix)))))

    def start(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """See the contract."""
        for store in self._parts:
            store.start(loop)

    def close(self) -> None:
        """See the contract."""
        for store in self._parts:
            store.close()

    # -- reads

    async def fresh(self) -> None:
        """See the contract; waits for all parts that hold something."""
        await asyncio.gather(*(store.fresh() for store in self._keeping))

    @property
    def revision(self) -> int:
        """The main part's."""
        return self.main.revision

    @property
    def compacted_revision(self) -> int:
        """The main part's."""
        return self.main.compacted_revision

    def get(self, key: str, revision: int = 0) -> Record | None:
        """See the contract."""
        return self.part(key).get(key, revision)

    async def behind(self, revision: int) -> bool:
        """The main part's."""
        return await self.main.behind(revision)

    def range(self, prefix: str, *args: Any, **more: Any) -> RangeResult:
        """See the contract; of one part."""
        return self.part(prefix).range(prefix, *args, **more)

    def range_json(self, prefix: str, *args: Any, **more: Any) -> RangeResult:
        """See the contract; of one part."""
        return self.part(prefix).range_json(prefix, *args, **more)

    def range_protobuf(self, prefix: str, *args: Any, **more: Any) -> RangeResult:
        """See the contract; of one part."""
        return self.part(prefix).range_protobuf(prefix, *args, **more)

    def count(self, prefix: str, most: int = 0) -> int:
        """See the contract; of one part."""
        return self.part(prefix).count(prefix, most)

    def stale(self, record: Record) -> bool:
        """See the contract."""
        return self.part(record.key).stale(record)

    def bare(self, key: str, revision: int) -> bytes | None:
        """See the contract."""
        return self.part(key).bare(key, revision)

    def at_revision(self, prefix: str, one: bool, revision: int) -> Store:
        """See ``EtcdStore.at_revision``."""
        return self.part(prefix).at_revision(prefix, one, revision)

    # -- writes

    def commit(self, op: Op) -> asyncio.Future[Op]:
        """See the contract."""
        return self.part(op.key).commit(op)

    def commit_many(self, ops: list[Op], one_revision: bool = False) -> asyncio.Future[list[Op]]:
        """See the contract; operations on several parts become several transactions (``_turns``), as the writes of
        kube-apiserver are."""
        turns = self._turns(ops)
        if len(turns) == 1:
            return turns[0][0].commit_many(ops, one_revision)

        async def each() -> list[Op]:
            for store, part in turns:
                await store.commit_many(part, one_revision)
            return ops

        return asyncio.ensure_future(each())

    def commit_now(self, *ops: Op, one_revision: bool = False) -> None:
        """See the contract; for several parts, see ``commit_many``."""
        for store, part in self._turns(ops):
            store.commit_now(*part, one_revision=one_revision)

    def _turns(self, ops: Sequence[Op]) -> list[tuple[EtcdStore, list[Op]]]:
        """Returns one transaction for each part. The part of the first operation, which is the object's, comes last, so that
        its allocations exist before it does, and a failure leaves only unused allocations, which the repair loops find; on a
        delete it comes first."""
        turns: dict[EtcdStore, list[Op]] = {}
        for op in ops:
            turns.setdefault(self.part(op.key), []).append(op)
        out = list(turns.items())
        return out if ops[0].draft is None else [*out[1:], out[0]]

    # -- events

    def events(self, prefix: str, after: int, limit: int = 1000, max_bytes: int = EVENTS_BYTES) -> tuple[list[Event], int]:
        """See the contract; of one part."""
        return self.part(prefix).events(prefix, after, limit, max_bytes)

    def watch(
        self, prefix: str, after: int, on_ready: Callable[[], None], key: str | None = None, limit: int = 1024,
        trigger: tuple[str, str] | None = None,
    ) -> Watcher:  # fmt: skip
        """See the contract; of one part."""
        return self.part(prefix).watch(prefix, after, on_ready, key, limit, trigger)

    def listen(
        self, prefix: str, callback: Callable[[list[Event]], None], reset: Callable[[], None] | None = None
    ) -> Callable[[], None]:
        """See the contract; of one part."""
        return self.part(prefix).listen(prefix, callback, reset)

    def catch_up(self, revision: int = 0) -> None:
        """See the contract; for all parts, up to what has been published."""
        for store in self._parts:
            store.catch_up()

    # -- upkeep

    def full(self) -> str:
        """See the contract; of the first part that is full and holds something."""
        return next(filter(None, (store.full() for store in self._keeping)), "")

    def lost(self) -> str:
        """See the contract; of the parts that hold something."""
        return next(filter(None, (store.lost() for store in self._keeping)), "")

    async def probe(self, least_s: float = 0.0) -> None:
        """See ``EtcdStore.probe``."""
        await asyncio.gather(*(store.probe(least_s) for store in self._parts))

    def unreachable(self, limit_s: float) -> str:
        """The main part's; the others have their own health checks."""
        return self.main.unreachable(limit_s)

    def compact(self, revision: int, max_entries: int = 2000) -> bool:
        """The main part's."""
        return self.main.compact(revision, max_entries)

    def expire(self, now_s: int | None = None, limit: int = 500) -> int:
        """See the contract."""
        return sum(store.expire(now_s, limit) for store in self._parts)

    def maintain(self, now_s: float, window_s: int = 600, max_history_bytes: int = 1 << 30) -> int:
        """See the contract; returns the main part's revision."""
        for store in self._parts[1:]:
            store.maintain(now_s, window_s, max_history_bytes)
        return self.main.maintain(now_s, window_s, max_history_bytes)

    def size(self) -> tuple[str, int]:
        """The main part's."""
        return self.main.size()

    def statistics(self) -> dict[str, int]:
        """The main part's."""
        return self.main.statistics()
