"""The store contract: bytes, keys and revisions. Nothing here parses an object.

The contract is etcd's. One global revision grows by exactly one per logical write (create, update, delete, expiry). A
group commit makes many writes durable at once; each of them still has its own revision, consecutive and in queue order.

Keys are upstream's paths (``/registry/pods/ns1/a``), ``str`` in the API. A *prefix* always ends with ``/``.

Backends provide:

``get(key, revision=0) -> Record | None``
    The record of ``key`` now, or as it was at ``revision``. Linearizable for the caller's own process group: a write that
    any worker has acknowledged is seen. Raises ``Compacted`` when ``revision`` is older than the history,
    ``FutureRevision`` when it has not happened yet.

``range(prefix, start="", limit=0, revision=0, matcher=None) -> RangeResult``
    Records in key order at one consistent revision, from ``start`` (a whole key, inclusive) on. With a matcher only
    records it accepts count against ``limit``. ``RangeResult(records, revision, more, next_key, remaining)``:
    ``remaining`` is the number of records after the page without looking at the matcher, -1 when not counted.

``range_json(prefix, start, limit, revision, matcher, out) -> RangeResult``
    The same scan for the hot LIST path: appends each record's list-item bytes (the object as it stands inside
    ``"items":[…]``: without kind and apiVersion), comma separated, to ``out``; ``records`` of the result is the count.

``commit(op: Op) -> Future[Committed]``
    Queues one write. ``Op(kind, key, expected, record_parts, lease_s)``; ``expected`` is the mod revision the current
    record must have (0: the key must not exist; None: no precondition). The future resolves after the write is durable
    and published, in revision order, to ``Committed(revision, record, previous)``, or raises ``Conflict(current)`` (the
    precondition failed; carries the record as it is now, or None), ``Full`` (map or disk; nothing was written) or
    ``Closed``. A failed precondition fails only its own operation.

``events(prefix, after) -> list[Event]`` and ``subscribe(...)``
    Every write to a key under ``prefix`` with a revision greater than ``after``, in revision order, without gap or repeat.
    ``Event(revision, op, key, record, previous)``: for a delete ``record`` is None and ``previous`` the last state.
    Raises ``Compacted`` when ``after`` is older than the history.

``revision``, ``compacted_revision``: the newest durable revision, and the oldest that can still be read, both ``int``.

``compact(revision, max_entries)``: forgets history up to ``revision`` in bounded steps; returns True when done.

Writers build outside of any transaction; no transaction is ever held across an ``await``.
"""

from __future__ import annotations


class StoreError(Exception):
    """Base of all errors of a store. Mapped to API errors in one place, ``kas/endpoints/__init__.py``."""


class Conflict(StoreError):
    """The precondition on the mod revision failed. ``current`` is the record now, or None when the key is absent."""

    def __init__(self, current) -> None:
        super().__init__("precondition failed")
        self.current = current


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


class Corrupt(StoreError):
    """The data file cannot be read. The text says which file and what to do."""


class Closed(StoreError):
    """The store was closed before the write was made; it did not happen."""


class KeyTooLong(StoreError):
    """The key is longer than the backend's tested bound."""
