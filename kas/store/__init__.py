"""The storage layer: the ``Store`` contract, in terms of bytes, keys and revisions. Nothing in this package parses an object.

The contract follows etcd's data model. Its type is ``Store`` (``contract.py``); ``open_store`` returns the implementation on
LMDB (``lmdb/``). Every read, list, watch and write goes through this interface. ``tests/contract`` runs the contract against
every backend that assigns its own revisions; ``tests/store/test_etcd_store.py`` tests the writes of the etcd backend.

**Revisions.** A single global revision increases with every successful write. Each logical write (create, update, delete,
expiry) has its own revision. A transaction (``commit_many``) may ask for *one revision* for all its keys, as an etcd Txn has.
Otherwise its writes get consecutive revisions in the order of the operations if the backend assigns revisions itself, and one
shared revision if it does not: an etcd cluster assigns the revisions, and leaves gaps for writes to keys that are not ours. A
writer must therefore rely on ``op.revision`` only. A reader must accept both several events with one revision and revisions
without events. A transaction that writes several keys *of one resource* should not ask for one revision: a client resumes a
watch from the last event it saw, and cannot name a position between two events of the same revision. (This is why the
allocation of addresses and ports does not ask for one.) A key is written at most once per revision. A group commit makes many
writes durable at once; it does not change their revisions.

**Keys** are upstream's paths (``/registry/pods/ns1/a``): ``str`` in the API, at most 4,096 bytes (``KeyTooLong``), ordered by
their bytes. A *prefix* is a path that ends with ``/``, at most 470 bytes.

**Records.** A ``Record`` has ``key``, ``revision`` (of the last write: the resourceVersion), ``create_revision``,
``version``, ``lease_expiry``, ``json`` (the object as served), ``json_line`` (with a newline), ``item_json``,
``metadata_json``, ``protobuf`` (the message without its envelope; None when the writer supplied none), ``labels`` and
``fields``. ``json_at(revision)``, ``protobuf_at(revision)`` and ``partial_protobuf_at(revision)`` (metadata only) return the
object with another revision in it. Writers submit a *draft*: ``build_record(head, tail, labels, fields, type_prefix_len,
…)``; the committer inserts ``"resourceVersion":"<rev>"`` between head and tail inside the transaction.

**Sealed records.** A backend opened with ``transformers`` (``transform.py``) stores drafts encrypted ("sealed") for the keys
that these select: values, labels and fields are not readable in its files, the revision is inserted after decryption, and
selectors decrypt the record. Records are returned as if they were plain, with ``sealed`` set; ``stale(record)`` says whether
a record should be rewritten although its object did not change. A record that cannot be decrypted raises ``TransformError``
from ``get``, from ranges that contain it, and as the result of a write whose precondition failed; for events, see below.
``commit`` itself refuses a write that cannot be encrypted. A delete does not need to decrypt.

**Reads.** Every read sees every write that any worker has acknowledged (it looks into the database itself), is consistent at
one revision, and holds a transaction only for the duration of the call. Reads may run on any thread. A ``revision`` of 0
means the current state; an older revision is rebuilt from the history. A read raises ``Compacted`` when the history does not
reach back far enough, ``FutureRevision`` when the revision has not happened yet. It sees all writes of a revision, or none of
them.

``get(key, revision=0) -> Record | None``

``range(prefix, start="", limit=0, revision=0, matcher=None, count=False, *, max_bytes=0) -> RangeResult``
    Records in key order from ``start`` (a whole key, inclusive). With a matcher, only the records that it accepts count
    against ``limit``.
    A page also ends with the record that brings the stored size of its records to ``max_bytes`` (0: no such bound).
    ``RangeResult`` has ``records``, ``count``, ``revision``, ``more``, ``next_key`` (the ``start`` of the next page: the last
    record's key and a NUL) and ``remaining``: how many keys follow, ignoring the matcher; 0 at the end, -1 when ``count`` was
    not set.

``range_json(prefix, …, lead=b"{", metadata_only=False, wrap=None, max_bytes=0) -> RangeResult``
    The same scan for the hot LIST path. ``body`` holds the items as they appear inside ``"items":[…]``, separated by commas:
    each is ``lead``, then the JSON without its type prefix. ``wrap(result) -> (before, after)`` is called once revision,
    ``next_key`` and the rest are known and before anything is copied, so that ``body`` is the complete answer, allocated once;
    if it returns a number as a third element, that many bytes at the end of the answer are in ``end`` instead. Large scans
    release the GIL: run them in a thread. ``metadata_only`` cuts each item after its metadata; ``range_protobuf`` returns
    field 2 of a list message. ``size`` is the length of the items, already known when ``wrap`` is called; a ``wrap`` that
    returns None asks for the size only. Each record counts towards ``max_bytes`` with the bytes returned for it: its JSON, or
    its message. ``body`` is None and ``size`` -1 when a record lacks what the form needs (the protobuf section, which states
    read from the history may lack, or the position where its metadata end).

``count(prefix) -> int``

**Writes.** ``commit(op) -> Future[Op]`` queues one write; ``commit_many(ops, one_revision=False) -> Future[list[Op]]`` queues
a transaction (all or nothing, different keys); ``commit_now(*ops)`` blocks, for start-up and tests. ``Op(key, draft,
expected)`` puts and ``Op(key, None, expected)`` deletes. ``Op(key, None, expected, check=True)`` writes nothing: the other
operations of its transaction are applied only if the key is as expected. ``expected`` is the mod revision that the current
record must have (0: the key must not exist; None: no precondition, but a delete still needs the key to exist).

The future resolves after the write is durable and its event was given to the hub, in revision order. Its result is the
operation, with ``revision``, ``record`` and ``previous`` set. It raises ``Conflict`` (with the current record, or None;
always None for a check; it fails only its own operation or transaction; GuaranteedUpdate retries above this layer), ``Full``
(map or disk; nothing was written, reads and deletes still work), ``Busy`` (the queue is at its bound) or ``Closed``.
Cancelling the future does not undo a queued write. A draft with ``lease_s`` makes a record that is deleted unless it is
rewritten within that many seconds.

**Events.** An ``Event`` has ``revision``, ``op`` (1 create, 2 update, 3 delete), ``type``, ``key``, ``record`` (None for a
delete), ``previous`` (None for a create), ``frames`` (a dict for the reader's encoded bytes, shared by all watchers of the
worker) and ``error`` (a ``TransformError`` when a sealed state could not be decrypted: both states are None then).

``events(prefix, after, limit, max_bytes=4 MiB) -> (list[Event], reached)`` returns every write under ``prefix`` with a
revision greater than ``after``, in order (within one revision, in the order of the transaction), without gaps or repeats, up
to the revision ``reached``. A revision is never split. The call stops early once it has ``limit`` events, and before a
revision whose states would exceed ``max_bytes``; at least one revision is returned whatever its size.

``watch(prefix, after, on_ready, key=None, limit=1024) -> Watcher``, ``listen(prefix, callback, reset)`` and
``catch_up(revision)`` are described in ``hub.py``. They never deliver part of a revision, so a bookmark
(``Watcher.progress``), or a watch resumed from the revision of any event, neither loses nor repeats an event. An event with
``error`` ends the watches that it belongs to, and is not shown to listeners.

**History.** ``revision`` and ``compacted_revision`` bound it. ``compact(revision, max_entries) -> bool`` removes history in
bounded steps, and returns True when done. ``expire(now_s=None, limit=500)`` deletes records whose lease has ended, as
ordinary writes with events. ``maintain(now_s, window_s, max_history_bytes)`` is called by the leading worker every few
seconds: the backend then drops history beyond that age or size in its own way. These calls block: run them in a thread.

**For backends.** Where another system (etcd) assigns revisions, ``LMDBStore.apply(revision, ops)`` copies its outcome into
the local replica: those writes under that one revision, which must be newer than all earlier ones. Without operations it
records that nothing else happened up to that revision.

Writers build drafts outside of any transaction; no transaction is ever held across an ``await``.
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
PAGE_BYTES = 4 << 20  # ``max_bytes`` for callers that read page by page


def open_store(
    path: str,
    *,
    max_size: int = DEFAULT_MAX_SIZE,
    sync: bool = True,
    shared: Shared | None = None,
    transformers: Transformers | None = None,
) -> LMDBStore:
    """Opens (or creates) the LMDB store in the directory ``path``; at most once per process and path.

    ``max_size`` bounds the data file. With ``sync=False`` a crash of the machine (not of the process) may lose the last
    writes. ``shared`` connects the workers of one supervisor; without it the store belongs to this process alone.
    ``transformers`` selects the keys that are stored sealed; all workers must use the same selection. Reads work at once;
    ``start(loop)`` begins writes and watches. A directory in the previous format is upgraded in place.

    Raises ``Corrupt`` for a damaged file or an unknown format, ``StoreError`` for errors of the operating system.
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
