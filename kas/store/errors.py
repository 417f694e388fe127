"""The errors of a store. They are mapped to API errors in one place, ``kas/endpoints/__init__.py``."""

from __future__ import annotations

from kas.store._engine import Record


class StoreError(Exception):
    """Base class of all store errors."""


class Conflict(StoreError):
    """The precondition on the mod revision failed. ``current`` is the current record, or None when the key is absent; ``key``
    names the operation of a transaction that failed."""

    def __init__(self, current: Record | None, key: str = "") -> None:
        super().__init__("precondition failed")
        self.current, self.key = current, key


class Compacted(StoreError):
    """The requested revision is older than the history. ``compacted`` is the oldest that can still be read."""

    def __init__(self, requested: int, compacted: int) -> None:
        super().__init__(f"revision {requested} has been compacted (oldest: {compacted})")
        self.requested, self.compacted = requested, compacted


class FutureRevision(StoreError):
    """The requested revision has not happened yet."""

    def __init__(self, requested: int, current: int) -> None:
        super().__init__(f"revision {requested} is in the future (current: {current})")
        self.requested, self.current = requested, current


class Full(StoreError):
    """The map or the disk is full. Nothing of the write was kept; reads still work."""


class Failed(StoreError):
    """The disk failed during a write. Nothing of the write was kept; reads still work."""


class Damaged(StoreError):
    """The external store (etcd) has found its own data damaged, and accepts no writes. Nothing was written."""


class Busy(StoreError):
    """The write queue is at its bound. Nothing was written; retry a little later."""


class Unknown(StoreError):
    """The outcome of a write is unknown: the external store did not answer, or lost its leader meanwhile. A caller that
    retries must expect to find the write done."""


class Unavailable(StoreError):
    """The external store (etcd) could not be reached; nothing was written."""


class Behind(Unavailable):
    """The local data are older than what the external store has reported, though that store could be reached."""


class Corrupt(StoreError):
    """The data file cannot be read. The message says which file, and what to do."""


class Closed(StoreError):
    """The store was closed before the write was made; it did not happen."""


class KeyTooLong(StoreError):
    """The key is longer than the backend's tested bound."""


class TransformError(StoreError):
    """The value of ``key`` could not be sealed, or a sealed value could not be opened: no transformer recognizes it, or it
    was tampered with.

    ``why`` is the transformer's message; ``listed``: the value was met in a range; ``sealing``: it was to be written. With a
    ``revision``, the value written then can be opened, or was never sealed, but is not a valid object.
    """

    def __init__(self, key: str, why: str, done: str = "opened", revision: int = 0) -> None:
        super().__init__(f"{key} cannot be {done if not revision else 'decoded'}: {why}")
        self.key, self.why, self.listed, self.sealing, self.revision = key, why, False, done == "sealed", revision
