"""Invalidation of cached tokens (``bearer.py``) when objects they depend on are deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kas.informers import Source
from kas.informers.reflector import Reflector
from kas.store import Event, Record

# Resources that a token may belong to or be bound to.
RESOURCES = ("serviceaccounts", "secrets", "pods", "nodes")


class Revocation:
    """Calls every listener when a token may have become invalid. It is the target of reflectors and caches nothing itself."""

    def __init__(self, source: Source, prefixes: Iterable[str]) -> None:
        self.listeners: list[Callable[[], None]] = []
        self._reflectors = [Reflector(source, prefix, self, lists=False) for prefix in prefixes]

    def start(self) -> None:
        """Start watching the objects that tokens depend on."""
        for reflector in self._reflectors:
            reflector.start()

    def replace(self, records: Sequence[Record]) -> None:
        """Notify after a relist: any object may have been deleted in the meantime."""
        self.notify()

    def apply(self, events: Sequence[Event]) -> None:
        """Notify after a deletion; other changes revoke nothing."""
        if any(e.record is None for e in events):
            self.notify()

    def notify(self) -> None:
        """Call all listeners."""
        for forget in self.listeners:
            forget()
