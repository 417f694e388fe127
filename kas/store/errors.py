"""What a store may answer instead of what was asked. Mapped to API errors in one place, ``kas/endpoints/__init__.py``."""

from __future__ import annotations

from kas.store._engine import Record


class StoreError(Exception):
    """Base of all errors of a store."""


class Conflict(StoreError):
    """The precondition on the mod revision failed. ``current`` is the record now, or None when the key is absent; ``key``
    says which operation of a transaction it was."""

    def __init__(self, current: Record | None, key: str = "") -> None:
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


class Failed(StoreError):
    """The disk failed at a write. Nothing of it was kept; what is there is read on."""


class Damaged(StoreError):
    """The system that decides has found its own data damaged, and takes no writes. Nothing was written."""


class Busy(StoreError):
    """The write queue is at its bound. Nothing was written; try again a little later."""


class Unknown(StoreError):
    """What another system was asked to do may have happened or not: it did not answer, or lost its leader meanwhile. Who asks again must
    be ready to find it done."""


class Unavailable(StoreError):
    """The system that decides could not be asked; nothing was written."""


class Behind(Unavailable):
    """What is here is older than what the system that decides has told of; that one could be asked."""


class Corrupt(StoreError):
    """The data file cannot be read. The text says which file and what to do."""


class Closed(StoreError):
    """The store was closed before the write was made; it did not happen."""


class KeyTooLong(StoreError):
    """The key is longer than the backend's tested bound."""


class TransformError(StoreError):
    """The value of ``key`` could not be sealed, or a sealed one not be opened: no transformer knows it, or it was tampered with.

    ``why`` is what the transformer said; ``listed``: it stood in a range; ``sealing``: it was to be written. With a ``revision`` the value,
    written then, can be opened, or was never sealed, and is no object.
    """

    def __init__(self, key: str, why: str, done: str = "opened", revision: int = 0) -> None:
        super().__init__(f"{key} cannot be {done if not revision else 'decoded'}: {why}")
        self.key, self.why, self.listed, self.sealing, self.revision = key, why, False, done == "sealed", revision
