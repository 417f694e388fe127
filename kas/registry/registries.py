"""All registries of a server: one for each stored resource, shared by its served versions."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

from kas.informers import Clock, Obj
from kas.informers.informer import InformerFactory
from kas.meta.selectors import Requirement
from kas.meta.stored import object_of
from kas.observe.metrics import Registry as Metrics
from kas.registry.generic import Registry
from kas.registry.requests import StorageMetrics
from kas.store import Record, Store, compile_matcher

# (resource's record, store, clock, lease of an Event in seconds) -> its registry
Make = Callable[..., Registry]


class Registries:
    """Finds the registry of a resource, reads stored objects by resource (``informers.Objects``) and provides their listers
    (``informers.Informers``). ``store`` holds all of them, ``now`` is the clock of their writes, ``metrics`` receives the
    durations of store requests."""

    def __init__(self, store: Store, now: Clock, metrics: Metrics | None = None) -> None:
        self.store, self.now = store, now
        self._requests = StorageMetrics(metrics) if metrics is not None else None
        # Versions of one resource share a registry. Events have one per group over the same keys: their rules differ.
        self.by_prefix: dict[tuple[str, str], Registry] = {}
        self._by_resource: dict[tuple[str, str], Registry] = {}
        self._by_kind: dict[tuple[str, str], tuple[str, str]] = {}  # (apiVersion, kind), any version -> key in by_prefix
        # (group, kind) of a registry that was ``put`` -> its key in by_prefix, and its versions; there may be thousands of either.
        self._put: dict[tuple[str, str], tuple[tuple[str, str], Container[str]]] = {}
        factory = InformerFactory(store, lambda group, resource: self.of(group, resource).root)
        self.lister, self.follow, self.fill = factory.lister, factory.follow, factory.fill

    def add_stored(
        self, resources: Iterable[Any], find: Callable[[str, str, str], Any], event_ttl_s: int, makers: Mapping[str, Make]
    ) -> None:
        """Adds a registry for each stored one of the ``resources`` (records, of any version) that has none yet.

        ``find(group, version, resource)`` returns the record of the storage version; ``makers`` are the constructors, by
        kind, for kinds that need more than the generic registry.
        """
        for r in resources:
            if r.etcd_prefix is None or r.storage_gvk is None:
                continue
            if "get" in r.verbs:
                self._by_kind[f"{r.group}/{r.version}" if r.group else r.version, r.kind] = (r.group, r.etcd_prefix)
            if (r.group, r.etcd_prefix) in self.by_prefix:
                continue
            home = (find(r.group, r.storage_gvk[1], r.resource) if r.storage_gvk[0] == r.group else None) or r
            lease_s = event_ttl_s if home.kind == "Event" else 0
            registry = self._measured(makers.get(home.kind, Registry)(home, self.store, self.now, lease_s))
            self.by_prefix[r.group, r.etcd_prefix] = registry
            self._by_resource[home.group, home.resource] = registry

    def disable_sharing(self) -> None:
        """From now on, objects read to be rewritten share no parts with other objects: the caller may change them in place."""
        for registry in self.by_prefix.values():
            registry.parse = object_of

    def put(self, registry: Registry, versions: Container[str]) -> None:
        """Adds a registry created while the server runs, in the place of an existing one; ``versions`` are all versions of
        its objects."""
        r = registry.resource
        assert r.etcd_prefix is not None
        self.drop(r.group, r.resource)
        self._measured(registry)
        self.by_prefix[r.group, r.etcd_prefix] = self._by_resource[r.group, r.resource] = registry
        self._put[r.group, r.kind] = (r.group, r.etcd_prefix), versions

    def _measured(self, registry: Registry) -> Registry:
        if self._requests is not None:
            registry.measure(self._requests)
        return registry

    def drop(self, group: str, resource: str) -> None:
        """Removes a registry that was ``put``; does nothing if there is none."""
        registry = self._by_resource.pop((group, resource), None)
        if registry is not None:
            prefix = (group, registry.resource.etcd_prefix or "")
            self.by_prefix.pop(prefix, None)
            known = self._put.get((group, registry.resource.kind))
            if known is not None and known[0] == prefix:  # otherwise another registry has the kind now
                del self._put[group, registry.resource.kind]

    # --- finding

    def of(self, group: str, resource: str) -> Registry:
        """Returns the registry of a resource. Raises ``KeyError`` if it is not stored."""
        return self._by_resource[group, resource]

    def __iter__(self) -> Iterator[Registry]:
        """Yields every stored resource once, in however many groups or versions it is served."""
        seen = set()
        for registry in list(self.by_prefix.values()):
            if registry.root not in seen:
                seen.add(registry.root)
                yield registry

    def by_resource(self) -> list[tuple[tuple[str, str], Registry]]:
        """Returns ((group, resource), registry) of all, including registries that share their keys with another."""
        return list(self._by_resource.items())

    def of_kind(self, api_version: str, kind: str) -> Registry | None:
        """Returns the registry for the kind of an owner reference; None for an unknown kind."""
        found = self._by_kind.get((api_version, kind))
        if found is None:
            group, _, version = api_version.rpartition("/")
            found, versions = self._put.get((group, kind), (None, ()))
            if found is None or version not in versions:
                return None
        return self.by_prefix[found]

    # --- reading

    def get(self, group: str, resource: str, namespace: str, name: str) -> Obj | None:
        """Returns the object in the storage version, or None; it must not be changed. Raises KeyError for a resource that is
        not served."""
        rec = self._record(group, resource, namespace, name)
        return object_of(rec) if rec is not None else None

    def labels(self, group: str, resource: str, namespace: str, name: str) -> dict[str, str] | None:
        """See ``informers.Objects``; raises KeyError for a resource that is not served."""
        rec = self._record(group, resource, namespace, name)
        return rec.labels if rec is not None else None

    def _record(self, group: str, resource: str, namespace: str, name: str) -> Record | None:
        registry = self._by_resource[group, resource]
        return self.store.get(f"{registry.root}{namespace}/{name}" if registry.resource.namespaced else registry.root + name)

    def list(self, group: str, resource: str, namespace: str = "") -> list[Obj]:
        """Returns the objects in the storage version, in the order of their keys; they must not be changed. Raises KeyError
        for a resource that is not served."""
        registry = self._by_resource[group, resource]
        return [object_of(rec) for rec in self.store.range(registry.prefix(namespace)).records]

    def labelled(self, group: str, resource: str, namespace: str, label: str, value: str) -> Sequence[Record]:
        """See ``informers.Objects``; raises KeyError for a resource that is not served."""
        matcher = compile_matcher((Requirement(label, "=", (value,)),), ())
        return self.store.range(self._by_resource[group, resource].prefix(namespace), matcher=matcher).records
