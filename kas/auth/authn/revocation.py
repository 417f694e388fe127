"""Tokens that were found good are remembered for a while (``bearer.py``); whoever remembers forgets when what they speak for goes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kas.informers import Source
from kas.informers.reflector import Reflector
from kas.store import Event, Record

# What a token may be bound to, or be of.
RESOURCES = ("serviceaccounts", "secrets", "pods", "nodes")


class Revocation:
    """Calls everyone in ``listeners`` when a token may no longer be good. A reflector's target that remembers nothing itself."""

    def __init__(self, source: Source, prefixes: Iterable[str]) -> None:
        self.listeners: list[Callable[[], None]] = []
        self._reflectors = [Reflector(source, prefix, self, lists=False) for prefix in prefixes]

    def start(self) -> None:
        """Begin to follow what tokens are bound to."""
        for reflector in self._reflectors:
            reflector.start()

    def replace(self, records: Sequence[Record]) -> None:
        """What is followed was listed anew: anything may have gone meanwhile."""
        self.tell()

    def apply(self, events: Sequence[Event]) -> None:
        """Tell when something was deleted; other changes revoke nothing."""
        if any(e.record is None for e in events):
            self.tell()

    def tell(self) -> None:
        """Have everybody forget."""
        for forget in self.listeners:
            forget()
