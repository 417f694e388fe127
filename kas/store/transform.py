"""The interface for encryption at rest: transformers stand between a stored value and the disk.

A backend that is given ``transformers`` seals (encrypts) the values of the keys for which that function returns a
transformer, and opens (decrypts) values that it finds sealed. The whole object and what selectors look at (labels, selectable
fields) are sealed; the key, revisions, sizes and the deadline of a lease stay in the clear. Values written before a key was
sealed stay readable in the history until compaction, and in free pages until these are reused: rewriting the objects and
compacting is left to the caller.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Transformer(Protocol):
    """Seals and opens values. May be called from any thread; a call takes as long as a cipher does, except for values whose
    key has to be requested."""

    @property
    def plain(self) -> bool:
        """Values are stored as they are, and ``seal`` is not called; sealed values are still opened."""
        ...

    @property
    def waits(self) -> bool:
        """Whether ``seal``, and ``open`` of a value that is not cached, call an external service that may be slow. A backend
        then seals in a thread, and values are decrypted before they are read on the event loop
        (``endpoints/decryptahead.py``)."""
        ...

    @property
    def refuses_plain(self) -> str:
        """Why values stored in plain form may not be read; "" when they may. Old states in the history always may."""
        ...

    def seal(self, plain: bytes, key: bytes) -> bytes:
        """Returns ``plain`` encrypted and authenticated. ``key``, the object's path in the store, is authenticated with it,
        so that a value copied to another key does not open. Any exception refuses the write as ``TransformError``."""
        ...

    def open(self, sealed: bytes, key: bytes) -> tuple[bytes, bool]:
        """Returns ``(plain, stale)`` for a value that ``seal`` made for this key. ``stale``: it was sealed with a key or a
        method other than the one ``seal`` uses now, so a write that changes nothing must not be skipped. Any exception
        reaches readers as ``TransformError``."""
        ...


class Rotating(Transformer, Protocol):
    """A transformer whose key an external service may change at any time, so processes may learn of the change at different times."""

    def key_of(self, sealed: bytes) -> bytes:
        """Returns which provider and key a sealed value names; b"" if that provider's key does not change in this way."""
        ...

    def writes_with(self, key: bytes) -> bool:
        """Returns whether ``seal`` uses this result of ``key_of`` now. If so, the value it is from is not stale."""
        ...


# Returns the transformer of a key (``/registry/secrets/ns/a``); None for keys stored in plain form. Called on every write and
# every sealed read.
Transformers = Callable[[str], Transformer | None]
