"""The store contract: bytes, keys and revisions. Nothing here parses an object.

The contract is etcd's, as a type it is ``Store`` (``contract.py``), and ``open_store`` gives the one on LMDB (``lmdb/``). Everything that
reads, lists, watches or writes goes through this front; ``tests/contract`` holds to it every backend that numbers its revisions itself,
``tests/store/test_etcd_store.py`` the writes of the one on etcd.

**Revisions.** One global revision grows with every write that succeeded. Each logical write (create, update, delete, expiry) has a
revision of its own. A transaction (``commit_many``) may ask for *one revision* for all its keys, which is what a Txn of etcd gives;
without asking, its writes have consecutive ones in the order of the operations where the backend counts for itself, and one where it does
not (an etcd cluster dictates revisions, and leaves gaps where it wrote what is not ours). So a writer relies on ``op.revision`` only, and
a reader copes with both: several events of one revision, and revisions nobody sees. Who writes several keys *of one resource* had better
not ask: a client resumes a watch from the last event it saw, and cannot name a place between two of one revision. (That is why the
allocation of addresses and ports does not.) A key is written once in a revision. A group commit makes many writes durable at once; it
changes nothing about their revisions.

**Keys** are upstream's paths (``/registry/pods/ns1/a``), ``str`` in the API, at most 4,096 bytes (``KeyTooLong``), ordered by
their bytes. A *prefix* is a path that ends with ``/``, at most 470 bytes.

**Records.** ``Record``: ``key``, ``revision`` (of the last write: the resourceVersion), ``create_revision``,
``version``, ``lease_expiry``, ``json`` (the object as served), ``json_line`` (with a newline), ``item_json``, ``metadata_json``,
``protobuf`` (the message without envelope, None when the writer gave none), ``labels``, ``fields``; ``json_at(revision)``,
``protobuf_at(revision)`` and ``partial_protobuf_at(revision)`` (metadata only) show the object under another revision. Writers hand
over a *draft*: ``build_record(head, tail, labels, fields, type_prefix_len, …)``; the committer puts
``"resourceVersion":"<rev>"`` between head and tail inside the transaction.

**Sealed records.** A backend that was opened with ``transformers`` (``transform.py``) stores the drafts of the keys they name sealed:
values, labels and fields are not readable in its files, the revision is put in after opening, and selectors work by opening. Records come
out as if they were plain, with ``sealed`` set; ``stale(record)`` says whether one should be written again though nothing changed. What
cannot be opened raises ``TransformError`` in ``get``, in ranges that meet it, and as the answer to a write whose precondition failed; in
events see below. A write that cannot be sealed is refused by ``commit`` itself. To delete needs no opening.

**Reads.** All see every write that any worker has acknowledged (they look into the database itself), are consistent at one
revision, and hold a transaction only for the call. Any thread may read. A ``revision`` of 0 means now; an older one
is rebuilt from the history and raises ``Compacted`` when the history does not reach back, ``FutureRevision`` when it has not
happened yet. All writes of one revision are seen, or none.

``get(key, revision=0) -> Record | None``

``range(prefix, start="", limit=0, revision=0, matcher=None, count=False, *, max_bytes=0) -> RangeResult``
    Records in key order from ``start`` (a whole key, inclusive) on. With a matcher only the records it accepts count against
    ``limit``. A page ends with the record that brings what is stored of its records to ``max_bytes``, too, 0 for no such
    bound. ``RangeResult``: ``records``, ``count``, ``revision``, ``more``, ``next_key`` (``start`` of the next page: the last
    record's key and a NUL) and
    ``remaining``: how many keys follow, without looking at the matcher; 0 at the end, -1 when ``count`` was not set.

``range_json(prefix, …, lead=b"{", metadata_only=False, wrap=None, max_bytes=0) -> RangeResult``
    The same scan for the hot LIST path; ``body`` holds the items as they stand inside ``"items":[…]``, comma separated: ``lead``,
    then the JSON without its type prefix. ``wrap(result) -> (before, after)`` is asked once revision, ``next_key`` and the rest
    are known and before anything is copied, so that ``body`` is the complete answer, allocated once; with a number as a third the last
    so many bytes stand in ``end`` instead. Large scans release
    the GIL: run them in a thread. ``metadata_only`` cuts each item after its metadata; ``range_protobuf`` gives field 2
    of a list message. ``size`` is the length of the items, known to ``wrap`` already; a ``wrap`` that returns None asks for no more than
    that. Of ``max_bytes`` a record takes what is given of it: its JSON, or its message. ``body`` is None and ``size`` -1 when a
    record lacks what the form needs (no protobuf section, which states read from the history may lack; unknown metadata end).

``count(prefix) -> int``

**Writes.** ``commit(op) -> Future[Op]``; ``commit_many(ops, one_revision=False) -> Future[list[Op]]`` is a transaction (all or nothing,
different keys); ``commit_now(*ops)`` blocks, for start-up and tests. ``Op(key, draft, expected)`` puts, ``Op(key, None, expected)``
deletes, ``Op(key, None, expected, check=True)`` writes nothing and lets the others of its transaction happen only while the key is as
expected; ``expected`` is the mod revision the current record must have (0: the key must not exist; None: no precondition, but
a delete still needs the key to exist). Who awaits the future goes on after the write is durable and its event was given to the hub, in
revision order, to the operation, whose ``revision``, ``record`` and ``previous`` are set then. It raises ``Conflict`` (carries the
record as it is now, or None, of a check always None; fails only its own operation or transaction; GuaranteedUpdate retries above), ``Full``
(map or disk; nothing was written, reads and deletes go on), ``Busy`` (the queue is at its bound) or ``Closed``. Cancelling the
future does not undo a queued write. A draft with ``lease_s`` makes a record that is deleted when it was not written again for so long.

**Events.** ``Event``: ``revision``, ``op`` (1 create, 2 update, 3 delete), ``type``, ``key``, ``record`` (None for a delete),
``previous`` (None for a create), ``frames`` (a dict for the reader's bytes, shared by all watchers of the worker), ``error`` (a
``TransformError`` when a sealed state could not be opened: both states are None then).

``events(prefix, after, limit, max_bytes=4 MiB) -> (list[Event], reached)``: every write under ``prefix`` with a revision greater than
``after``, in order (those of one revision in the order of their transaction), without gap or repeat, up to the revision ``reached``.
Revisions come whole. It ends early when it has ``limit`` events, and before a revision whose states would make it more than ``max_bytes``;
one revision is given whatever its size.

``watch(prefix, after, on_ready, key=None, limit=1024) -> Watcher``, ``listen(prefix, callback, reset)`` and ``catch_up(revision)``: see
``hub.py``. What they hand over never ends inside a revision, so a bookmark (``Watcher.progress``), and a watch resumed from the revision of
any event, neither lose nor repeat one. An event with ``error`` ends the watches it belongs to, and is not shown to listeners.

**History.** ``revision`` and ``compacted_revision``; ``compact(revision, max_entries) -> bool`` forgets history in bounded steps, True
when done; ``expire(now_s=None, limit=500)`` deletes what outlived its lease, as ordinary writes with events; ``maintain(now_s, window_s,
max_history_bytes)`` is for the worker that leads, every few seconds: it lets the backend forget what is older or more than that, its own
way. They block: call them in a thread.

**For backends.** Where another system decides (etcd), ``LMDBStore.apply(revision, ops)`` takes its outcome into the local replica: those
writes under that one revision, which must be newer than all before; without operations it says that up to it nothing else happened.

Writers build outside of any transaction; no transaction is ever held across an ``await``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kas.store._engine import (
    Draft,
    Event,
    Forward,
    Matcher,
    Op,
    RangeResult,
    Record,
    Sent,
    build_record,
    compile_matcher,
    frame_json,
    frame_record,
    seen_as,
)
from kas.store.contract import Store
from kas.store.errors import (
    Behind,
    Busy,
    Closed,
    Compacted,
    Conflict,
    Corrupt,
    Damaged,
    Failed,
    Full,
    FutureRevision,
    KeyTooLong,
    StoreError,
    TransformError,
    Unavailable,
    Unknown,
)
from kas.store.hub import Hub, Watcher
from kas.store.transform import Transformer, Transformers

if TYPE_CHECKING:
    from kas.store.lmdb import LMDBStore
    from kas.store.shared import Shared

DEFAULT_MAX_SIZE = 64 << 30
PAGE_BYTES = 4 << 20  # ``max_bytes`` of who reads page by page


def open_store(
    path: str,
    *,
    max_size: int = DEFAULT_MAX_SIZE,
    sync: bool = True,
    shared: Shared | None = None,
    transformers: Transformers | None = None,
) -> LMDBStore:
    """Opens (or makes) the LMDB store in the directory ``path``; at most once per process and path.

    ``max_size`` bounds the data file. With ``sync=False`` a crash of the machine (not of the process) may lose the last
    writes. ``shared`` joins the workers of one supervisor; without it the store is this process's own. ``transformers`` says which keys
    are stored sealed; all workers must agree about it.
    Reads work at once; ``start(loop)`` begins writes and watches. A directory of the format before is upgraded in place. Raises
    ``Corrupt`` for a damaged file or a format it does not know, ``StoreError`` for what the system refuses.
    """
    from kas.store.lmdb import LMDBStore

    return LMDBStore(path, max_size=max_size, sync=sync, shared=shared, transformers=transformers)


__all__ = [
    "DEFAULT_MAX_SIZE",
    "PAGE_BYTES",
    "Behind",
    "Busy",
    "Closed",
    "Compacted",
    "Conflict",
    "Corrupt",
    "Damaged",
    "Draft",
    "Event",
    "Failed",
    "Forward",
    "Full",
    "FutureRevision",
    "Hub",
    "KeyTooLong",
    "Matcher",
    "Op",
    "RangeResult",
    "Record",
    "Sent",
    "Store",
    "StoreError",
    "TransformError",
    "Transformer",
    "Transformers",
    "Unavailable",
    "Unknown",
    "Watcher",
    "build_record",
    "compile_matcher",
    "frame_json",
    "frame_record",
    "open_store",
    "seen_as",
]
