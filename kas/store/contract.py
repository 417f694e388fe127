"""The ``Store`` protocol: what its members take and return. ``kas/store/__init__.py`` states their guarantees."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from kas.store._engine import Event, Matcher, Op, RangeResult, Record
from kas.store.hub import Hub, Watcher

if TYPE_CHECKING:
    import asyncio  # the supervisor loads this module, and no loop

# Returns what goes before and after the items of a list, once everything else about the page is known; None: only the size
# was wanted.
Wrap = Callable[[RangeResult], tuple[bytes, bytes] | tuple[bytes, bytes, int] | None]
# Default bound of one read from the history: as much as the hub queues for a watcher.
EVENTS_BYTES = 4 << 20


class Store(Protocol):
    """One worker's handle on the objects of a cluster."""

    hub: Hub
    # The largest number of operations in a transaction.
    most_ops: int

    def start(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Begins writes and, on the loop, watches. Idempotent."""
        ...

    def close(self) -> None:
        """Commits the queued writes, resolves their futures, and releases all resources. Idempotent."""
        ...

    # -- where several clusters are one store

    def part(self, key: str) -> Store:
        """Returns the store that holds a key, or the keys below a prefix. It is another store, with revisions of its own,
        when the resource is kept in a cluster of its own."""
        return self

    def parts(self) -> tuple[Store, ...]:
        """Returns all stores, first the one that holds every resource without a cluster of its own."""
        return (self,)

    def parts_below(self, prefix: str) -> tuple[Store, ...]:
        """Returns the stores that hold keys below a prefix: one, unless the prefix spans several resources."""
        return (self.part(prefix),)

    # -- reads

    async def fresh(self) -> None:
        """Waits until reads see everything that any server had acknowledged before this call. Raises ``Unavailable``. On a
        store of a single machine this is always so."""
        return

    @property
    def revision(self) -> int:
        """The newest durable revision that this worker knows."""
        ...

    @property
    def compacted_revision(self) -> int:
        """The oldest revision that can be read."""
        ...

    def get(self, key: str, revision: int = 0) -> Record | None:
        """Returns the record of a key, or None."""
        ...

    async def behind(self, revision: int) -> bool:
        """Returns whether anything, from any server, was written after ``revision`` and has become readable only now; asks
        the other servers if there are any. A caller that decided not to write at ``revision`` must look again then. Reads of
        a store of a single machine are never behind."""
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
        """Returns the number of keys under a prefix. With ``most``, at most that number is returned and no more keys are
        visited."""
        ...

    def stale(self, record: Record) -> bool:
        """Returns whether the record is stored in another form than a write would use today: sealed with an older key, or
        plain where it would be sealed. A write that changes nothing must not be skipped then."""
        ...

    @property
    def fills(self) -> bool:
        """Whether custom resources are stored as they were written, without defaults of the stored version, and get their
        defaults when read."""
        ...

    @property
    def as_protobuf(self) -> bool:
        """Whether objects of built-in kinds are stored as protobuf, even small ones: the message is then best encoded along
        with their JSON."""
        ...

    def bare(self, key: str, revision: int) -> bytes | None:
        """Returns the JSON written at ``revision``, the newest revision of ``key``, if the object as read has more than was
        written; otherwise None."""
        ...

    # -- writes

    def commit(self, op: Op) -> asyncio.Future[Op]:
        """Queues one write. Call it on the loop's thread."""
        ...

    def commit_many(self, ops: list[Op], one_revision: bool = False) -> asyncio.Future[list[Op]]:
        """Queues a transaction. Call it on the loop's thread."""
        ...

    def commit_now(self, *ops: Op, one_revision: bool = False) -> None:
        """Commits one write or a transaction, and blocks until it is done. Not for the loop's thread."""
        ...

    # -- events

    def events(self, prefix: str, after: int, limit: int = 1000, max_bytes: int = EVENTS_BYTES) -> tuple[list[Event], int]:
        """Returns the next events of the history, in whole revisions, and the revision up to which they are complete."""
        ...

    def watch(
        self, prefix: str, after: int, on_ready: Callable[[], None], key: str | None = None, limit: int = 1024,
        trigger: tuple[str, str] | None = None,
    ) -> Watcher:  # fmt: skip
        """Returns a bounded watcher of a prefix, or of one key, that the client's stream pulls from.

        With a ``trigger`` (a selectable field and its value) only events of objects that have or had that value need be
        delivered; more may be. Call this, ``listen`` and ``catch_up`` on the loop's thread.
        """
        ...

    def listen(
        self, prefix: str, callback: Callable[[list[Event]], None], reset: Callable[[], None] | None = None
    ) -> Callable[[], None]:
        """Calls ``callback`` with every later batch of events, and ``reset`` when some were lost; returns a function that
        ends this."""
        ...

    def catch_up(self, revision: int = 0) -> None:
        """Delivers to listeners and watchers everything that any worker has published, and everything up to ``revision``."""
        ...

    # -- upkeep

    def full(self) -> str:
        """Returns why writes other than deletes are refused for lack of space; "" while they are accepted."""
        ...

    def lost(self) -> str:
        """Returns why new writes would not be found by readers here or after the store is reopened, or why the store accepts
        no writes for a reason other than lack of space; otherwise ""."""
        ...

    def compact(self, revision: int, max_entries: int = 2000) -> bool:
        """Removes a bounded part of the history up to a revision; returns True when none of it is left. Blocks."""
        ...

    def expire(self, now_s: int | None = None, limit: int = 500) -> int:
        """Deletes at most ``limit`` records whose lease has ended; returns how many were due. ``now_s`` overrides the current
        time of the lease clock, which does not follow changes of the system clock while the server runs. Blocks."""
        ...

    def maintain(self, now_s: float, window_s: int = 600, max_history_bytes: int = 1 << 30) -> int:
        """Removes history beyond an age in seconds or a size in bytes; returns the compacted revision. For the leading
        worker. ``now_s`` is the time of a monotonic clock; age is counted from this worker's first call. Blocks."""
        ...

    def size(self) -> tuple[str, int]:
        """Returns the database, "lmdb" or "etcd", and the size of its file in bytes; -1 while that is unknown."""
        ...

    def statistics(self) -> dict[str, int]:
        """Returns numbers for metrics and health: at least ``revision``, ``compacted_revision``, ``entries``, ``queued``,
        ``batches``, ``operations``, ``watchers``, ``watchers_fallen_behind`` and ``hub_revision``. Costs a read
        transaction."""
        ...
