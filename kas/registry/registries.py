"""All registries of a server: one for each stored resource, whichever of its versions are served."""

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
    """Finds the registry of a resource, reads stored objects by resource (``informers.Objects``) and gives their listers
    (``informers.Informers``). ``store`` is what all of them are kept in, ``now`` the time of their writes,
    ``metrics`` where it is told how long the store takes."""

    def __init__(self, store: Store, now: Clock, metrics: Metrics | None = None) -> None:
        self.store, self.now = store, now
        self._requests = StorageMetrics(metrics) if metrics is not None else None
        # Versions of one resource share a registry. Events have one per group over the same keys: their rules differ.
        self.by_prefix: dict[tuple[str, str], Registry] = {}
        self._by_resource: dict[tuple[str, str], Registry] = {}
        self._by_kind: dict[tuple[str, str], tuple[str, str]] = {}  # (apiVersion, kind) in any version to what by_prefix has it under
        # (group, kind) of one that was put, to what by_prefix has it under, and its versions: there may be thousands of either.
        self._put: dict[tuple[str, str], tuple[tuple[str, str], Container[str]]] = {}
        factory = InformerFactory(store, lambda group, resource: self.of(group, resource).root)
        self.lister, self.follow, self.fill = factory.lister, factory.follow, factory.fill

    def add_stored(
        self, resources: Iterable[Any], find: Callable[[str, str, str], Any], event_ttl_s: int, makers: Mapping[str, Make]
    ) -> None:
        """A registry for each of the ``resources`` (records, of any version) that is stored and has none yet.

        ``find(group, version, resource)`` gives the record of the storage version; ``makers`` are the registries of kinds, by kind,
        that need more than the generic one.
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

    def keep_apart(self) -> None:
        """What is read to be written again shares nothing with other objects from now on: somebody may change it in place."""
        for registry in self.by_prefix.values():
            registry.parse = object_of

    def put(self, registry: Registry, versions: Container[str]) -> None:
        """A registry that was made while the server runs, in the place of the one there is; ``versions`` are all it is known in."""
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
        """Forget a registry that was ``put``; nothing happens when there is none."""
        registry = self._by_resource.pop((group, resource), None)
        if registry is not None:
            prefix = (group, registry.resource.etcd_prefix or "")
            self.by_prefix.pop(prefix, None)
            known = self._put.get((group, registry.resource.kind))
            if known is not None and known[0] == prefix:  # else another has the kind now
                del self._put[group, registry.resource.kind]

    # --- finding

    def of(self, group: str, resource: str) -> Registry:
        """Raises ``KeyError`` for a resource that is not stored."""
        return self._by_resource[group, resource]

    def __iter__(self) -> Iterator[Registry]:
        """Every stored resource once, whatever number of groups or versions serve it."""
        seen = set()
        for registry in list(self.by_prefix.values()):
            if registry.root not in seen:
                seen.add(registry.root)
                yield registry

    def by_resource(self) -> list[tuple[tuple[str, str], Registry]]:
        """((group, resource), registry) of all, those that share their keys with another's among them."""
        return list(self._by_resource.items())

    def of_kind(self, api_version: str, kind: str) -> Registry | None:
        """Where objects of an owner reference's kind are kept; None for a kind nobody serves."""
        found = self._by_kind.get((api_version, kind))
        if found is None:
            group, _, version = api_version.rpartition("/")
            found, versions = self._put.get((group, kind), (None, ()))
            if found is None or version not in versions:
                return None
        return self.by_prefix[found]

    # --- reading

    def get(self, group: str, resource: str, namespace: str, name: str) -> Obj | None:
        """The object in the storage version, None when it does not exist; KeyError for a resource that is not served. Not to be changed."""
        registry = self._by_resource[group, resource]
        rec = self.store.get(f"{registry.root}{namespace}/{name}" if registry.resource.namespaced else registry.root + name)
        return object_of(rec) if rec is not None else None

    def list(self, group: str, resource: str, namespace: str = "") -> list[Obj]:
        """The objects in the storage version, in the order of their keys; KeyError for a resource that is not served. Not to be changed."""
        registry = self._by_resource[group, resource]
        return [object_of(rec) for rec in self.store.range(registry.prefix(namespace)).records]

    def labelled(self, group: str, resource: str, namespace: str, label: str, value: str) -> Sequence[Record]:
        """See ``informers.Objects``; KeyError for a resource that is not served."""
        matcher = compile_matcher((Requirement(label, "=", (value,)),), ())
        return self.store.range(self._by_resource[group, resource].prefix(namespace), matcher=matcher).records
