"""A worker's cache of the stored APIServices: their order, and which backend serves a group version."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from kas.endpoints.discovery import version_key
from kas.meta.records import NamedTuple
from kas.meta.stored import object_of
from kas.store import Event, Record

GROUP, RESOURCE = "apiregistration.k8s.io", "apiservices"
DEFAULT_PORT = 443
GroupVersion = tuple[str, str]


class ServiceReference(NamedTuple):
    """The Service in front of a backend."""

    namespace: str
    name: str
    port: int

    @property
    def server_name(self) -> str:
        """The name that the backend's certificate must be valid for."""
        return f"{self.name}.{self.namespace}.svc"


class APIService(NamedTuple):
    """The parts of an APIService that routing needs. ``service`` is None if it is served locally; ``ca_bundle`` is base64, as stored;
    ``available`` is the stored condition."""

    name: str
    group: str
    version: str
    group_priority: int
    version_priority: int
    service: ServiceReference | None = None
    ca_bundle: str = ""
    insecure: bool = False
    available: bool = False

    @property
    def group_version(self) -> GroupVersion:
        """(group, version)."""
        return self.group, self.version

    @property
    def path(self) -> str:
        """The path of its resource list: ``/apis/<group>/<version>``, or ``/api/<version>`` for the core group."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"


def parse(obj: dict[str, Any]) -> APIService:
    """Return the record of a stored APIService."""
    spec, service = obj["spec"], obj["spec"].get("service")
    conditions = (obj.get("status") or {}).get("conditions") or ()
    reference = None
    if service is not None:
        reference = ServiceReference(service.get("namespace") or "", service.get("name") or "", service.get("port") or DEFAULT_PORT)
    return APIService(
        obj["metadata"]["name"], spec.get("group") or "", spec.get("version") or "", spec.get("groupPriorityMinimum") or 0,
        spec.get("versionPriority") or 0, reference, spec.get("caBundle") or "", bool(spec.get("insecureSkipTLSVerify")),
        any(c.get("type") == "Available" and c.get("status") == "True" for c in conditions),
    )  # fmt: skip


def by_group(services: Sequence[APIService]) -> list[list[APIService]]:
    """Return the APIServices by group; groups and versions are in the order shown to clients (``SortedByGroupAndVersion``)."""
    groups: dict[str, list[APIService]] = {}
    for s in sorted(services, key=lambda s: (-s.group_priority, s.name)):
        groups.setdefault(s.group, []).append(s)
    for found in groups.values():
        found.sort(key=lambda s: (-s.version_priority, version_key(s.version)))
    return list(groups.values())


class APIServices:
    """A reflector's target.

    - ``by_name``: all APIServices; ``remote``: those with a backend.
    - ``by_service`` (a Service and its port) and ``by_place`` (namespace and name of a Service): those with a backend, by name.
    - ``trusted`` counts the TLS settings in use: (CA bundle, insecure).
    - ``listeners`` are called after each change with the names of the changed APIServices.
    """

    def __init__(self) -> None:
        self.by_name: dict[str, APIService] = {}
        self.remote: dict[str, APIService] = {}
        self.by_service: dict[ServiceReference, dict[str, APIService]] = {}
        self.by_place: dict[tuple[str, str], dict[str, APIService]] = {}
        self.trusted: Counter[tuple[str, bool]] = Counter()
        self.listeners: list[Callable[[set[str]], None]] = []
        self._groups: list[list[APIService]] | None = None

    @property
    def groups(self) -> list[list[APIService]]:
        """The result of ``by_group``; do not modify it."""
        if self._groups is None:
            self._groups = by_group(list(self.by_name.values()))
        return self._groups

    # --- the target

    def replace(self, records: Sequence[Record]) -> None:
        """Start over with these, which are all there are."""
        services = [parse(object_of(record)) for record in records]
        before = dict(self.by_name)
        for name in before:
            self.put(name, None)
        for found in services:
            self.put(found.name, found)
        self._tell({name for name in before.keys() | self.by_name.keys() if before.get(name) != self.by_name.get(name)})

    def apply(self, events: Sequence[Event]) -> None:
        """Apply the changes in order. Listeners are not called if nothing cached here changed."""
        names = set()
        for e in events:
            name = e.key.rpartition("/")[2]
            found = parse(object_of(e.record)) if e.record is not None else None
            if found != self.by_name.get(name):
                names.add(name)
            self.put(name, found)
        if names:
            self._tell(names)

    def put(self, name: str, found: APIService | None) -> None:
        """Set the APIService of a name, None to remove it. Does not call the listeners."""
        if found is not None:
            self.by_name[name] = found
        else:
            self.by_name.pop(name, None)
        old = self.remote.pop(name, None) if found is None or found.service is None else self.remote.get(name)
        if old is not None and old.service is not None:
            _remove(self.by_service, old.service, name)
            _remove(self.by_place, old.service[:2], name)
            self.trusted[old.ca_bundle, old.insecure] -= 1
            if not self.trusted[old.ca_bundle, old.insecure]:
                del self.trusted[old.ca_bundle, old.insecure]
        if found is not None and found.service is not None:
            self.remote[name] = found
            self.by_service.setdefault(found.service, {})[name] = found
            self.by_place.setdefault(found.service[:2], {})[name] = found
            self.trusted[found.ca_bundle, found.insecure] += 1

    def _tell(self, names: set[str]) -> None:
        self._groups = None
        for listener in self.listeners:
            listener(names)


def _remove(index: dict[Any, dict[str, APIService]], key: Any, name: str) -> None:
    found = index[key]
    del found[name]
    if not found:
        del index[key]
