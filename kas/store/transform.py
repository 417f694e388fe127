"""What stands between a stored value and the disk: the seam for encryption at rest.

A backend that is given ``transformers`` seals the values of the keys for which that function answers, and opens what it finds sealed.
Sealed are the whole object and what selectors look at (labels, selectable fields); in the clear stay the key, revisions, sizes and the
deadline of a lease. What was written before a key was sealed stays readable in the history until compaction, and in free pages until
they are used again: rewriting the objects and compacting is the caller's to do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Transformer(Protocol):
    """Seals and opens values. Any thread may call; a call stays in the time of a cipher, but for a value whose key has to be asked for."""

    @property
    def plain(self) -> bool:
        """Values are stored as they are, and ``seal`` is not asked: what is stored sealed is still opened."""
        ...

    @property
    def waits(self) -> bool:
        """``seal``, and ``open`` of what is not remembered, ask somebody who may take his time: a backend seals beside the loop then, and
        who reads on the loop has the values opened before (``endpoints/decryptahead.py``)."""
        ...

    @property
    def refuses_plain(self) -> str:
        """Why values that are stored as they are may not be read; "" when they may. Old states in the history may."""
        ...

    def seal(self, plain: bytes, key: bytes) -> bytes:
        """Returns ``plain`` in a form that tells nothing of it and cannot be changed unnoticed. ``key``, the object's path in the store,
        is authenticated with it, so that a value copied to another key does not open. Whatever it raises refuses the write as
        ``TransformError``."""
        ...

    def open(self, sealed: bytes, key: bytes) -> tuple[bytes, bool]:
        """Returns ``(plain, stale)`` of what ``seal`` made for this key. ``stale``: it was sealed with a key or a method that is not the
        one ``seal`` uses now, so that a write that changes nothing is not to be skipped. Whatever it raises reaches readers as
        ``TransformError``."""
        ...


# The transformer of a key (``/registry/secrets/ns/a``); None for what is stored as it is. Asked on every write and every sealed read.
Transformers = Callable[[str], Transformer | None]
