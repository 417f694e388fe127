"""The informer: a resource's objects in memory, decoded and transformed for their reader, with indexes (client-go's
``shared_informer.go`` and ``thread_safe_store.go``)."""

from __future__ import annotations

import logging
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence, ValuesView
from typing import Any, Generic, TypeVar

from kas.informers import Lister, Source, Target, Transform
from kas.informers.reflector import Reflector, split_key
from kas.meta.stored import object_of
from kas.store import Event, Record, StoreError

log = logging.getLogger("kas")

T = TypeVar("T")
# Returns the values of an object under one index.
Indexer = Callable[[T], Iterable[str]]
Key = tuple[str, str]  # namespace ("" for a cluster-scoped object), name


class _Space(dict[str, T]):
    """Objects by name, in the order of their names. Sorted when they are iterated: sorting at each insertion would take
    longer the more there are."""

    __slots__ = ("_mixed",)

    def __init__(self) -> None:
        self._mixed = False

    def put(self, name: str, value: T) -> None:
        """Adds or replaces an object."""
        if not self._mixed and name not in self and self and name < next(reversed(self)):
            self._mixed = True
        self[name] = value

    def _sort(self) -> None:
        if self._mixed:
            self._mixed = False
            ordered = sorted(super().items())
            self.clear()
            self.update(ordered)

    def __iter__(self) -> Iterator[str]:
        self._sort()
        return super().__iter__()

    def keys(self) -> KeysView[str]:  # type: ignore[override]
        """Returns the names, in order."""
        self._sort()
        return super().keys()

    def values(self) -> ValuesView[T]:  # type: ignore[override]
        """Returns the objects, in the order of their names."""
        self._sort()
        return super().values()

    def items(self) -> ItemsView[str, T]:  # type: ignore[override]
        """Returns names and objects, in order."""
        self._sort()
        return super().items()


class Informer(Generic[T]):
    """Lister and target in one: all objects of one resource, transformed by ``transform``.

    It starts with the first read, so it costs nothing if it is never used. Values are shared: do not change them.
    """

    def __init__(self, source: Source, prefix: str, transform: Transform[T]) -> None:
        self._transform = transform
        self._spaces: dict[str, _Space[T]] = {}
        self._indexers: dict[str, Indexer[T]] = {}
        self._indexes: dict[str, dict[str, dict[Key, T]]] = {}
        self._reflector = Reflector(source, prefix, self)
        self.has_synced = False  # whether the first list is complete

    def fill(self) -> None:
        """Lists the objects and follows them from now on, as the first read would. Idempotent."""
        self._reflector.start()
        self.has_synced = True

    def add_indexers(self, indexers: Mapping[str, Indexer[T]]) -> None:
        """Adds indexes, at any time. An existing index of the same name is kept."""
        for index, values_of in indexers.items():
            if index in self._indexers:
                continue
            self._indexers[index] = values_of
            found = self._indexes[index] = {}
            for namespace, space in self._spaces.items():
                for name, value in space.items():
                    for under in values_of(value):
                        found.setdefault(under, {})[namespace, name] = value

    # --- the lister

    def namespace(self, namespace: str) -> Mapping[str, T]:
        """Returns the objects of one namespace by name, empty if there are none; the first call fills the index."""
        if not self.has_synced:
            self.fill()
        return self._spaces.get(namespace) or {}

    def all(self) -> Mapping[str, T]:
        """Returns the objects of a cluster-scoped resource by name; the first call fills the index."""
        if not self.has_synced:
            self.fill()
        return self._spaces.get("") or {}

    def by_index(self, index: str, value: str) -> Mapping[Key, T]:
        """Returns the objects whose index ``index`` has ``value``, by (namespace, name); KeyError for an unknown index."""
        if not self.has_synced:
            self.fill()
        return self._indexes[index].get(value) or {}

    # --- the target

    def replace(self, records: Sequence[Record]) -> None:
        """Replaces all objects by those of the records."""
        self._spaces.clear()
        for values in self._indexes.values():
            values.clear()
        for record in records:
            self._put(record)

    def apply(self, events: Sequence[Event]) -> None:
        """Applies writes and deletes, in order."""
        for e in events:
            if e.record is not None:
                self._put(e.record)
            else:
                self._delete(*split_key(self._reflector.prefix, e.key))

    def _put(self, record: Record) -> None:
        namespace, name = split_key(self._reflector.prefix, record.key)
        value = self._transform(object_of(record))
        space = self._spaces.get(namespace)
        if space is None:
            space = self._spaces[namespace] = _Space()
        if name in space:
            self._unindex(namespace, name, space[name])
        space.put(name, value)
        for index, values_of in self._indexers.items():
            for under in values_of(value):
                self._indexes[index].setdefault(under, {})[namespace, name] = value

    def _delete(self, namespace: str, name: str) -> None:
        space = self._spaces.get(namespace)
        if space is None or name not in space:
            return
        self._unindex(namespace, name, space.pop(name))
        if not space:
            del self._spaces[namespace]

    def _unindex(self, namespace: str, name: str, value: T) -> None:
        for index, values_of in self._indexers.items():
            for under in values_of(value):
                found = self._indexes[index].get(under)
                if found is not None:
                    found.pop((namespace, name), None)
                    if not found:
                        del self._indexes[index][under]


class InformerFactory:
    """One informer for each resource and transform, shared by all users (client-go's ``SharedInformerFactory``).

    ``prefix_of(group, resource)`` returns the key prefix of a resource, and raises ``KeyError`` for one that is not stored.
    """

    def __init__(self, source: Source, prefix_of: Callable[[str, str], str]) -> None:
        self._source, self._prefix_of = source, prefix_of
        self._made: dict[tuple[str, str, Any], Informer[Any]] = {}
        self._followed: list[Reflector] = []

    def lister(
        self, group: str, resource: str, transform: Transform[T], indexers: Mapping[str, Callable[[T], Sequence[str]]] | None = None
    ) -> Lister[T]:
        """See ``Informers``."""
        key = (group, resource, transform)
        found = self._made.get(key)
        if found is None:
            found = self._made[key] = Informer(self._source, self._prefix_of(group, resource), transform)
        if indexers is not None:
            found.add_indexers(indexers)
        return found

    def fill(self) -> None:
        """Fills the listers in use, and passes the current objects to the targets, before there are requests: the first
        request would otherwise wait for all of it, and all others with it. Also for empty resources: another worker may write
        many objects before this one gets a request. Read errors are left to the users."""
        for begin in (*(informer.fill for informer in self._made.values()), *(reflector.start for reflector in self._followed)):
            try:
                begin()
            except StoreError as e:
                log.warning("state derived from stored objects is built on first use: %s", e)

    def follow(self, group: str, resource: str, target: Target) -> Callable[[], None]:
        """See ``Informers``."""
        reflector = Reflector(self._source, self._prefix_of(group, resource), target)
        self._followed.append(reflector)
        return reflector.start


def whole(obj: dict[str, Any]) -> dict[str, Any]:
    """The transform that keeps the object as it is stored."""
    return obj
