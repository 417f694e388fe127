"""What a part of the server may know of stored objects: read them, list them from memory, follow them.

Admission plug-ins, controllers, authorizers, authenticators and endpoints are given one or more of these, never the server. Everything
that is derived from stored objects is kept by one mechanism, client-go's: a *reflector* lists a resource at a revision and follows it
from there (``reflector.py``); an *informer* is a reflector that fills an index (``informer.py``); a *lister* reads that index.

**Staleness.** ``Objects`` reads the store: it sees every write that any worker has acknowledged. Listers and everything else behind a
reflector are as new as the hub, which each request brings up to the newest acknowledged write before it is authenticated; between two
requests, in a task of its own, they may be behind by what has not been dispatched yet, never by more, and never go back.

**Errors.** A resource that is not stored here is a ``KeyError``, at the first use at the latest. Reads raise what the store raises
(``StoreError``: ``Corrupt``, ``Closed``). An object that is not there is None, or is missing from the mapping.

Objects from ``Objects`` are the caller's own; those of a lister are shared by everyone and must not be changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from kas.store import Event, RangeResult, Record

Obj = dict[str, Any]
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
# Now, as metav1.Time prints it ("2024-01-02T03:04:05Z").
Clock = Callable[[], str]
# What becomes of a stored object in memory. Two listers share an index when they are asked for with the same function.
Transform = Callable[[Obj], T]


class Objects(Protocol):
    """Stored objects by resource, read from the store at each call and decoded for the caller."""

    def get(self, group: str, resource: str, namespace: str, name: str) -> Obj | None:
        """The object in its storage version, None when absent. ``namespace`` is not looked at for a cluster-scoped resource."""
        ...

    def list(self, group: str, resource: str, namespace: str = "") -> list[Obj]:
        """All objects of a namespace, or everywhere, in key order. Costs a decode each."""
        ...

    def labelled(self, group: str, resource: str, namespace: str, label: str, value: str) -> Sequence[Record]:
        """The records of those that have this label, in key order. Others cost a look at their labels."""
        ...


class Lister(Protocol[T_co]):
    """A resource's objects as a transform made them, from memory: no read of the store, no decoding. Fills itself at its first use."""

    def namespace(self, namespace: str) -> Mapping[str, T_co]:
        """Name to value, sorted by name; empty for a namespace that has none."""
        ...

    def all(self) -> Mapping[str, T_co]:
        """What a cluster-scoped resource has, by name, sorted."""
        ...

    def by_index(self, index: str, value: str) -> Mapping[tuple[str, str], T_co]:
        """(namespace, name) to value of those that an indexer put under ``value``, in no order. KeyError for an unknown index."""
        ...


class Informers(Protocol):
    """Gives listers. Nothing is read before one of them is used, or the worker that has them is about to serve. ``follow`` is for what is
    derived from all objects of a resource."""

    def lister(
        self, group: str, resource: str, transform: Transform[T], indexers: Mapping[str, Callable[[T], Sequence[str]]] | None = None
    ) -> Lister[T]:
        """The lister of a resource; the one there is when it was asked for before with the same transform. An indexer gives the values
        an object is found under in ``by_index``."""
        ...

    def follow(self, group: str, resource: str, target: Target) -> Callable[[], None]:
        """What is to be called before ``target`` is asked anything: it is shown what there is, once, and what becomes of it from there on.
        Raises what reading the store raises, then as often as it is called until it can be read."""
        ...


class Source(Protocol):
    """What of the store a reflector uses (see ``kas.store``)."""

    def range(self, prefix: str, start: str = "", limit: int = 0, *, max_bytes: int = 0) -> RangeResult:
        """What is stored below ``prefix`` now, and the revision of that; from the key ``start`` on, a page of it."""
        ...

    def count(self, prefix: str, most: int = 0) -> int:
        """How many objects there are below ``prefix``; with ``most`` no more than that are looked at."""
        ...

    def listen(
        self, prefix: str, callback: Callable[[list[Event]], None], reset: Callable[[], None] | None = None
    ) -> Callable[[], None]:
        """Hand over events below ``prefix`` from now on; ``reset`` says that some are missing. Calling what comes back ends it."""
        ...


class Target(Protocol):
    """Where a reflector puts what it sees (client-go's ``ReflectorStore``). Called synchronously while the hub dispatches."""

    def replace(self, records: Sequence[Record]) -> None:
        """Everything there is, in key order: at the start, and again after events were lost. What is not among it is gone."""
        ...

    def apply(self, events: Sequence[Event]) -> None:
        """What happened since, in order, each event once; none that ``replace`` has shown already."""
        ...
