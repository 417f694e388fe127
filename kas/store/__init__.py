"""The store contract: bytes, keys and revisions. Nothing here parses an object.

The contract is etcd's. One global revision grows by exactly one per logical write (create, update, delete, expiry). A
group commit makes many writes durable at once; each of them still has its own revision, consecutive and in queue order.

Keys are upstream's paths (``/registry/pods/ns1/a``), ``str`` in the API, at most 4,096 bytes (``KeyTooLong``), ordered by
their bytes. A *prefix* is a path that ends with ``/``, at most 470 bytes.

**Records.** ``Record`` (``kas._fastpath``): ``key``, ``revision`` (of the last write: the resourceVersion), ``create_revision``,
``version``, ``lease_expiry``, ``json`` (the object as served), ``json_line`` (with a newline), ``item_json``, ``metadata_json``,
``protobuf`` (the message without envelope, None when the writer gave none), ``labels``, ``fields``; ``json_at(revision)``,
``protobuf_at(revision)`` and ``partial_protobuf_at(revision)`` (metadata only) show the object under another revision. Writers hand
over a *draft*: ``build_record(head, tail, labels, fields, type_prefix_len, …)``; the committer puts
``"resourceVersion":"<rev>"`` between head and tail inside the transaction.

**Reads.** All see every write that any worker has acknowledged (they look into the database itself), are consistent at one
revision, and hold a transaction only for the call. Any thread may read. A ``revision`` of 0 means now; an older one
is rebuilt from the history and raises ``Compacted`` when the history does not reach back, ``FutureRevision`` when it has not
happened yet.

``get(key, revision=0) -> Record | None``

``range(prefix, start="", limit=0, revision=0, matcher=None, count=False) -> RangeResult``
    Records in key order from ``start`` (a whole key, inclusive) on. With a matcher only the records it accepts count against
    ``limit``. ``RangeResult``: ``records``, ``count``, ``revision``, ``more``, ``next_key`` (``start`` of the next page) and
    ``remaining``: how many keys follow, without looking at the matcher; 0 at the end, -1 when ``count`` was not set.

``range_json(prefix, …, lead=b"{", metadata_only=False, wrap=None) -> RangeResult``
    The same scan for the hot LIST path; ``body`` holds the items as they stand inside ``"items":[…]``, comma separated: ``lead``,
    then the JSON without its type prefix. ``wrap(result) -> (before, after)`` is asked once revision, ``next_key`` and the rest
    are known and before anything is copied, so that ``body`` is the complete answer, allocated once. Large scans release
    the GIL: run them in a thread. ``metadata_only`` cuts each item after its metadata; ``range_protobuf`` gives field 2
    of a list message. ``size`` is the length of the items, known to ``wrap`` already; a ``wrap`` that returns None asks for no more than
    that. ``body`` is None and ``size`` -1 when a record lacks what the form needs (no protobuf section, which states read from the
    history never have; unknown metadata end).

``count(prefix) -> int``

**Writes.** ``commit(op) -> Future[Op]``; ``commit_many(ops) -> Future[list[Op]]`` (all or nothing, different keys);
``commit_now(*ops)`` blocks, for start-up and tests. ``Op(key, draft, expected)`` puts, ``Op(key, None, expected)`` deletes;
``expected`` is the mod revision the current record must have (0: the key must not exist; None: no precondition, but
a delete still needs the key to exist). Who awaits the future goes on after the write is durable and its event was given to the hub, in
revision order, to the operation, whose ``revision``, ``record`` and ``previous`` are set then. It raises ``Conflict`` (carries the
record as it is now, or None; fails only its own operation or group; GuaranteedUpdate retries above), ``Full``
(map or disk; nothing was written, reads and deletes go on), ``Busy`` (the queue is at its bound) or ``Closed``. Cancelling the
future does not undo a queued write.

**Events.** ``Event``: ``revision``, ``op`` (1 create, 2 update, 3 delete), ``type``, ``key``, ``record`` (None for a delete),
``previous`` (None for a create), ``frames`` (a dict for the reader's bytes, shared by all watchers of the worker).

``events(prefix, after, limit, max_bytes=4 MiB) -> (list[Event], reached)``: every write under ``prefix`` with a revision greater than
``after``, in order, without gap or repeat, up to the revision ``reached``. It ends early at ``limit`` events, and before one whose
states would make it more than ``max_bytes``; one event is given whatever its size.

``watch(prefix, after, on_ready, key=None, limit=1024) -> Watcher`` and ``listen(prefix, callback)``: see ``hub.py``.

**History.** ``revision`` and ``compacted_revision``; ``compact(revision, max_entries) -> bool`` forgets history in bounded steps, True
when done; ``expire(now_s, limit)`` deletes what outlived its lease, as ordinary writes with events. Both block: call them in a thread.

Writers build outside of any transaction; no transaction is ever held across an ``await``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kas.store.lmdb import LMDBStore
    from kas.store.shared import Shared

DEFAULT_MAX_SIZE = 64 << 30


class StoreError(Exception):
    """Base of all errors of a store. Mapped to API errors in one place, ``kas/endpoints/__init__.py``."""


class Conflict(StoreError):
    """The precondition on the mod revision failed. ``current`` is the record now, or None when the key is absent; ``key``
    says which operation of a group it was."""

    def __init__(self, current: Any, key: str = "") -> None:
        super().__init__("precondition failed")
        self.current, self.key = current, key


class Compacted(StoreError):
    """The revision asked for is older than the history. ``compacted`` is the oldest that can still be read."""

    def __init__(self, requested: int, compacted: int) -> None:
        super().__init__(f"revision {requested} has been compacted (oldest: {compacted})")
        self.requested, self.compacted = requested, compacted


class FutureRevision(StoreError):
    """The revision asked for has not happened yet."""

    def __init__(self, requested: int, current: int) -> None:
        super().__init__(f"revision {requested} is in the future (current: {current})")
        self.requested, self.current = requested, current


class Full(StoreError):
    """The map or the disk is full. Nothing of the write was kept; reads go on."""


class Busy(StoreError):
    """The write queue is at its bound. Nothing was written; try again a little later."""


class Corrupt(StoreError):
    """The data file cannot be read. The text says which file and what to do."""


class Closed(StoreError):
    """The store was closed before the write was made; it did not happen."""


class KeyTooLong(StoreError):
    """The key is longer than the backend's tested bound."""


def open_store(path: str, *, max_size: int = DEFAULT_MAX_SIZE, sync: bool = True, shared: Shared | None = None) -> LMDBStore:
    """Opens (or makes) the LMDB store in the directory ``path``; at most once per process and path.

    ``max_size`` bounds the data file. With ``sync=False`` a crash of the machine (not of the process) may lose the last
    writes. ``shared`` joins the workers of one supervisor; without it the store is this process's own.
    Reads work at once; ``start(loop)`` begins writes and watches. Raises ``Corrupt`` for a damaged file or another data
    format, ``StoreError`` for what the system refuses.
    """
    from kas.store.lmdb import LMDBStore

    return LMDBStore(path, max_size=max_size, sync=sync, shared=shared)


__all__ = [
    "DEFAULT_MAX_SIZE",
    "Busy",
    "Closed",
    "Compacted",
    "Conflict",
    "Corrupt",
    "Full",
    "FutureRevision",
    "KeyTooLong",
    "StoreError",
    "open_store",
]
