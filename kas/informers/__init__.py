"""Interfaces by which parts of the server use stored objects: read them, list them from memory, follow them.

Admission plug-ins, controllers, authorizers, authenticators and endpoints get one or more of these, never the server. All
state derived from stored objects is maintained by the mechanism of client-go: a *reflector* lists a resource at a revision
and follows it from there (``reflector.py``); an *informer* is a reflector that fills an index (``informer.py``); a *lister*
reads that index.

**Staleness.** ``Objects`` reads the store: it sees every write that any worker has acknowledged. Listers and everything else
that uses a reflector are as new as the hub, which each request brings up to the newest acknowledged write before it is
authenticated. Between two requests, in a separate task, they may lack only what has not been dispatched yet, and they never
go back.

**Errors.** A resource that is not stored here is a ``KeyError``, at the latest on first use. Reads raise the store's errors
(``StoreError``: ``Corrupt``, ``Closed``). An absent object is None, or missing from the mapping.

Objects from ``Objects`` belong to the caller; those of a lister are shared and must not be changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from kas.store import Event, RangeResult, Record

Obj = dict[str, Any]
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
# The current time in the form of metav1.Time ("2024-01-02T03:04:05Z").
Clock = Callable[[], str]
# Converts a stored object to its form in memory. Listers requested with the same function share an index.
Transform = Callable[[Obj], T]


class Objects(Protocol):
    """Stored objects by resource, read from the store at each call. Nothing decoded is kept."""

    def get(self, group: str, resource: str, namespace: str, name: str) -> Obj | None:
        """Returns the object in its storage version, None if absent. ``namespace`` is ignored for a cluster-scoped resource."""
        ...

    def labels(self, group: str, resource: str, namespace: str, name: str) -> dict[str, str] | None:
        """Returns the labels of the object, None if it is absent. Decodes nothing else of it."""
        ...

    def list(self, group: str, resource: str, namespace: str = "") -> list[Obj]:
        """Returns all objects of a namespace, or of all namespaces, in key order. Decodes each of them."""
        ...

    def labelled(self, group: str, resource: str, namespace: str, label: str, value: str) -> Sequence[Record]:
        """Returns the records with this label, in key order. For the others only the labels are checked."""
        ...


class Lister(Protocol[T_co]):
    """The transformed objects of a resource, from memory: no read of the store, no decoding. Filled on first use."""

    def namespace(self, namespace: str) -> Mapping[str, T_co]:
        """Returns name → value, sorted by name; empty for a namespace without objects."""
        ...

    def all(self) -> Mapping[str, T_co]:
        """Returns name → value for a cluster-scoped resource, sorted by name."""
        ...

    def by_index(self, index: str, value: str) -> Mapping[tuple[str, str], T_co]:
        """Returns (namespace, name) → value of the objects that an indexer put under ``value``, unordered. KeyError for an
        unknown index."""
        ...


class Informers(Protocol):
    """Provides listers. Nothing is read before a lister is used, or before its worker is about to serve. ``follow`` is for
    state derived from all objects of a resource."""

    def lister(
        self, group: str, resource: str, transform: Transform[T], indexers: Mapping[str, Callable[[T], Sequence[str]]] | None = None
    ) -> Lister[T]:
        """Returns the lister of a resource; the existing one, if it was requested before with the same transform. An indexer
        returns the values under which ``by_index`` finds an object."""
        ...

    def follow(self, group: str, resource: str, target: Target) -> Callable[[], None]:
        """Returns a function to call before each use of ``target``: it passes the current objects to ``target`` once, and
        their changes from then on. It raises the store's errors, at each call until the objects can be read."""
        ...


class Source(Protocol):
    """The part of the store that a reflector uses (see ``kas.store``)."""

    def range(self, prefix: str, start: str = "", limit: int = 0, *, max_bytes: int = 0) -> RangeResult:
        """Returns the records below ``prefix`` and their revision; from the key ``start`` on, one page."""
        ...

    def count(self, prefix: str, most: int = 0) -> int:
        """Returns the number of objects below ``prefix``; with ``most`` no more than that are visited."""
        ...

    def listen(
        self, prefix: str, callback: Callable[[list[Event]], None], reset: Callable[[], None] | None = None
    ) -> Callable[[], None]:
        """Delivers events below ``prefix`` from now on; ``reset`` is called when some are missing. The returned function ends
        it."""
        ...


class Target(Protocol):
    """The destination of a reflector (client-go's ``ReflectorStore``). Called synchronously during the hub's dispatch."""

    def replace(self, records: Sequence[Record]) -> None:
        """Passes all current records, in key order: at the start, and again after events were lost. Other objects no longer
        exist."""
        ...

    def apply(self, events: Sequence[Event]) -> None:
        """Passes later events, in order, each once; none whose result ``replace`` has already passed."""
        ...
