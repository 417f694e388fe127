"""The store as a type. What its members promise stands in ``kas/store/__init__.py``; this file says what they take and give."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from kas.store._engine import Event, Matcher, Op, RangeResult, Record
from kas.store.hub import Hub, Watcher

if TYPE_CHECKING:
    import asyncio  # the supervisor loads this module, and no loop

# What goes around the items of a list, once everything else about the page is known; None: only its size was of interest.
Wrap = Callable[[RangeResult], tuple[bytes, bytes] | tuple[bytes, bytes, int] | None]
# Read from the history at once, unless told: as much as the hub lets wait for a watcher.
EVENTS_BYTES = 4 << 20


class Store(Protocol):
    """One worker's handle on the objects of a cluster."""

    hub: Hub
    # How many operations a transaction may have.
    most_ops: int

    def start(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Begins writes, and on the loop the watches. Idempotent."""
        ...

    def close(self) -> None:
        """Makes what is queued durable, answers it, and lets go of everything. Idempotent."""
        ...

    # -- where several clusters are one store

    def part(self, key: str) -> Store:
        """The store that keeps a key, or what is below a prefix: another one when its resource is kept in a cluster of its own, with
        revisions of its own."""
        return self

    def parts(self) -> tuple[Store, ...]:
        """All of them, the one that keeps most first."""
        return (self,)

    def parts_below(self, prefix: str) -> tuple[Store, ...]:
        """Those that keep something below a prefix: one, unless it spans several resources."""
        return (self.part(prefix),)

    # -- reads

    async def fresh(self) -> None:
        """Waits until reads see everything that any server had been acknowledged before this call. Raises ``Unavailable``. On a store of
        one machine they do."""
        return

    @property
    def revision(self) -> int:
        """The newest durable revision that this worker knows of."""
        ...

    @property
    def compacted_revision(self) -> int:
        """The oldest revision that can be read."""
        ...

    def get(self, key: str, revision: int = 0) -> Record | None:
        """Returns the record of a key, or None."""
        ...

    async def behind(self, revision: int) -> bool:
        """Whether something was written after ``revision``, by whomever, that is read only now: asks the other servers where there are
        some. Who found no reason to write at ``revision`` looks again then. On a store of one machine reads are never behind."""
        return False

    def range(
        self, prefix: str, start: str = "", limit: int = 0, revision: int = 0, matcher: Matcher | None = None, count: bool = False,
        *, max_bytes: int = 0,
    ) -> RangeResult:
        """Returns a page of records in key order."""
        ...

    def range_json(
        self,
        prefix: str,
        start: str = "",
        limit: int = 0,
        revision: int = 0,
        matcher: Matcher | None = None,
        count: bool = False,
        *,
        lead: bytes = b"{",
        metadata_only: bool = False,
        wrap: Wrap | None = None,
        max_bytes: int = 0,
    ) -> RangeResult:
        """Returns a page as the bytes of JSON items."""
        ...

    def range_protobuf(
        self,
        prefix: str,
        start: str = "",
        limit: int = 0,
        revision: int = 0,
        matcher: Matcher | None = None,
        count: bool = False,
        *,
        wrap: Wrap | None = None,
        max_bytes: int = 0,
    ) -> RangeResult:
        """Returns a page as field 2 of a protobuf list."""
        ...

    def count(self, prefix: str, most: int = 0) -> int:
        """Returns how many keys stand under a prefix; with ``most`` no more than that, and no more are looked at."""
        ...

    def stale(self, record: Record) -> bool:
        """Whether the record is stored otherwise than a write would store it today: sealed with an older key, or plain where it would be
        sealed. A write that changes nothing is not to be skipped then."""
        ...

    @property
    def fills(self) -> bool:
        """Whether custom resources are kept as they were written, without defaults of the stored version, and read with them."""
        ...

    @property
    def as_protobuf(self) -> bool:
        """Whether objects of built-in kinds are written as protobuf, small ones, too: it is best made with their JSON."""
        ...

    def bare(self, key: str, revision: int) -> bytes | None:
        """The JSON that was written at ``revision``, the newest of ``key``, where what is read has more; else None."""
        ...

    # -- writes

    def commit(self, op: Op) -> asyncio.Future[Op]:
        """Queues one write. On the loop's thread."""
        ...

    def commit_many(self, ops: list[Op], one_revision: bool = False) -> asyncio.Future[list[Op]]:
        """Queues a transaction. On the loop's thread."""
        ...

    def commit_now(self, *ops: Op, one_revision: bool = False) -> None:
        """Commits one write or a transaction and waits. Not on the loop's thread."""
        ...

    # -- events

    def events(self, prefix: str, after: int, limit: int = 1000, max_bytes: int = EVENTS_BYTES) -> tuple[list[Event], int]:
        """Returns the next events of the history, whole revisions, and the revision they reach up to."""
        ...

    def watch(
        self, prefix: str, after: int, on_ready: Callable[[], None], key: str | None = None, limit: int = 1024,
        trigger: tuple[str, str] | None = None,
    ) -> Watcher:  # fmt: skip
        """Follows a prefix, or one key, for a client: pulled, bounded. On the loop's thread, as the next two. With a ``trigger`` (a
        selectable field and its value) only what has, or had, that value need be given; more may be."""
        ...

    def listen(
        self, prefix: str, callback: Callable[[list[Event]], None], reset: Callable[[], None] | None = None
    ) -> Callable[[], None]:
        """Calls back with every later batch of events, and with ``reset`` when some were lost; returns what ends it."""
        ...

    def catch_up(self, revision: int = 0) -> None:
        """Lets listeners and watchers see everything that any worker has published, and up to ``revision``."""
        ...

    # -- upkeep

    def full(self) -> str:
        """Why writes other than deletes are refused for want of room; "" while they are not."""
        ...

    def lost(self) -> str:
        """Why what is written now would not be found by who reads here, or opens the store next, or why it takes no writes but for
        want of room; "" when it would."""
        ...

    def compact(self, revision: int, max_entries: int = 2000) -> bool:
        """Forgets a bounded part of the history up to a revision; True when nothing of it is left. Blocks."""
        ...

    def expire(self, now_s: int | None = None, limit: int = 500) -> int:
        """Deletes what outlived its lease, at most ``limit``; returns how many were due. ``now_s``: as if it were then, by the clock of
        leases, which nobody sets while the server runs. Blocks."""
        ...

    def maintain(self, now_s: float, window_s: int = 600, max_history_bytes: int = 1 << 30) -> int:
        """Forgets history beyond an age in seconds or a size in bytes; returns the compacted revision. ``now_s`` is of a clock that is
        never set; age is counted from when the leading worker, for whom this is, first asks. Blocks."""
        ...

    def size(self) -> tuple[str, int]:
        """What keeps the objects, "lmdb" or "etcd", and how many bytes of its file they take; -1 while that is not known."""
        ...

    def statistics(self) -> dict[str, int]:
        """Numbers for metrics and health; at least ``revision``, ``compacted_revision``, ``entries``, ``queued``, ``batches``,
        ``operations``, ``watchers``, ``watchers_fallen_behind`` and ``hub_revision``. Costs a transaction."""
        ...
