"""APIServices of the group versions that definitions serve: made, put right, and taken away again.

Upstream: ``pkg/controlplane/controller/crdregistration`` and kube-aggregator's ``controllers/autoregister`` (``automanaged=true``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kas.apiextensions import definition as definitions
from kas.controllers.client import Client, split_key
from kas.controllers.queue import WorkQueue, follow
from kas.meta.stored import object_of
from kas.registry.bootstrap import AUTOMANAGED, REGISTRATION, api_service
from kas.registry.registries import Registries
from kas.store import Event, Record

Obj = dict[str, Any]
GroupVersion = tuple[str, str]
MANAGED = "true"


class DefinitionAPIServices:
    name = "crd-autoregistration"

    def __init__(self, registries: Registries) -> None:
        self.client = Client(registries, "kube-apiserver", "system:apiserver")
        self.definitions = registries.of("apiextensions.k8s.io", "customresourcedefinitions")
        self.services = registries.of(REGISTRATION, "apiservices")
        self.queue = WorkQueue(self._sync, self.name)
        self._served: dict[str, frozenset[GroupVersion]] = {}  # by definition
        self._count: dict[GroupVersion, int] = {}  # how many definitions serve it

    async def run(self) -> None:
        """Follow definitions and APIServices until cancelled."""
        reflector = self.client.reflector
        await follow(self.queue, [
            reflector(self.definitions.root, self._events, self._listed, lists=False),
            reflector(self.services.root, self._service_events, self._services_listed),
        ])  # fmt: skip

    def _listed(self, records: Sequence[Record]) -> None:
        names = set()
        for rec in self.client.pages(self.definitions.root):
            names.add(self._put(rec))
        for name in self._served.keys() - names:
            self._set(name, frozenset())

    def _events(self, events: Sequence[Event]) -> None:
        for e in events:
            if e.record is not None:
                self._put(e.record)
            else:
                self._set(split_key(self.definitions, e.key)[1], frozenset())

    def _put(self, rec: Record) -> str:
        d = definitions.read(rec, rec.revision, rec.create_revision)
        self._set(d.name, frozenset((d.group, v.name) for v in d.versions if v.served))
        return d.name

    def _set(self, name: str, served: frozenset[GroupVersion]) -> None:
        had = self._served.get(name, frozenset())
        if served:
            self._served[name] = served
        else:
            self._served.pop(name, None)
        for gv in served - had:
            self._count[gv] = self._count.get(gv, 0) + 1
            self.queue.add(gv)
        for gv in had - served:
            self._count[gv] -= 1
            if not self._count[gv]:
                del self._count[gv]
                self.queue.add(gv)

    def _services_listed(self, records: Sequence[Record]) -> None:
        for rec in records:
            self._look(object_of(rec))

    def _service_events(self, events: Sequence[Event]) -> None:
        for e in events:
            if e.record is not None:
                self._look(object_of(e.record))
            elif e.previous is not None:
                self._look(object_of(e.previous))

    def _look(self, service: Obj) -> None:
        gv = (service["spec"].get("group") or "", service["spec"].get("version") or "")
        if gv in self._count or (service["metadata"].get("labels") or {}).get(AUTOMANAGED) == MANAGED:
            self.queue.add(gv)

    async def _sync(self, gv: GroupVersion) -> None:
        name = f"{gv[1]}.{gv[0]}"
        current = self.client.get(REGISTRATION, "apiservices", "", name)
        managed = current is not None and (current["metadata"].get("labels") or {}).get(AUTOMANAGED) == MANAGED
        if gv not in self._count:
            if current is not None and managed:
                await self.client.delete(self.services, "", name, current["metadata"]["uid"])
            return
        wanted = api_service(self.client.context().now, *gv, MANAGED).obj
        if current is None:
            obj = {**wanted, "metadata": {"name": name, "labels": wanted["metadata"]["labels"]}}
            await self.client.create(REGISTRATION, "apiservices", obj)
        elif managed and current["spec"] != wanted["spec"]:
            await self.client.update(self.services, "", name, lambda obj: _repair(obj, wanted["spec"]), uid=current["metadata"]["uid"])


def _repair(obj: Obj, spec: Obj) -> bool:
    changed = bool(obj["spec"] != spec)
    obj["spec"] = dict(spec)
    return changed
