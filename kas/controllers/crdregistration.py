"""Creates, repairs and deletes the APIServices of group versions served by CustomResourceDefinitions.

Upstream: ``crdregistration`` of kube-apiserver and kube-aggregator's ``controllers/autoregister``. The APIServices have the label
``automanaged: true``; deleted or edited ones are repaired. An APIService from which a user removed the label is left alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from kas.apiextensions.definition import light
from kas.controllers.client import Client, Filling
from kas.controllers.queue import WorkQueue, follow
from kas.endpoints.discovery import CUSTOM_GROUP_PRIORITY, CUSTOM_VERSION_PRIORITY
from kas.meta.stored import object_of
from kas.registry.bootstrap import AUTOMANAGED, REGISTRATION
from kas.registry.registries import Registries
from kas.store import Event, Record

Names = frozenset[str]  # of APIServices: <version>.<group>


class CRDRegistration:
    """Maintains the APIServices of the group versions that established definitions serve."""

    name = "crd-autoregistration"

    def __init__(self, registries: Registries) -> None:
        self.client = Client(registries, "kube-apiserver", "system:apiserver")
        self.registry = registries.of(REGISTRATION, "apiservices")
        self._definitions = registries.of("apiextensions.k8s.io", "customresourcedefinitions").root
        self._of: dict[str, Names] = {}  # definition -> APIServices of its served versions
        self._wanted: Counter[str] = Counter()
        self._filling = Filling(self.client, self._definitions, self._clear, self._take)
        self.queue = WorkQueue(self._sync, self.name)

    async def run(self) -> None:
        """Follow the CustomResourceDefinitions and the APIServices until cancelled."""
        self._filling.begin()
        await follow(
            self.queue,
            [
                self.client.reflector(self._definitions, self._defined, self._filling.listed, lists=False),
                self.client.reflector(self.registry.root, self._changed, self._listed),
            ],
            fill=self._filling.fill,
        )

    def _clear(self) -> None:
        for name in self._wanted:  # probably no longer wanted
            self.queue.add(name)
        self._of.clear()
        self._wanted.clear()

    def _take(self, record: Record) -> None:
        self._serves(record.key, _served(light(record)))

    def _serves(self, key: str, has: Names) -> None:
        """Record the APIServices of a definition's served versions."""
        had = self._of.pop(key, frozenset())
        if has:
            self._of[key] = has
        self._wanted.update(has)
        self._wanted.subtract(had)
        for name in had ^ has:
            if not self._wanted[name]:
                del self._wanted[name]
            self.queue.add(name)

    def _defined(self, events: Sequence[Event]) -> None:
        for e in events:  # parsed later, in separate turns: one may have thousands of versions, and other listeners parse it in this turn
            self.queue.add(e.key)

    def _listed(self, records: Sequence[Record]) -> None:
        for record in records:
            self._look(record.key.rpartition("/")[2], record)
        for name in self._wanted:
            self.queue.add(name)

    def _changed(self, events: Sequence[Event]) -> None:
        for e in events:
            self._look(e.key.rpartition("/")[2], e.record)

    def _look(self, name: str, record: Record | None) -> None:
        if name in self._wanted or (record is not None and _is_ours(object_of(record))):
            self.queue.add(name)

    async def _sync(self, name: str) -> None:
        if name.startswith(self._definitions):
            record = self.client.store.get(name)
            self._serves(name, _served(light(record)) if record is not None else frozenset())
            return
        version, _, group = name.partition(".")
        current = self.client.get(REGISTRATION, "apiservices", "", name)
        if name not in self._wanted:
            if current is not None and _is_ours(current):
                await self.client.delete(self.registry, "", name, current["metadata"].get("uid", ""))
            return
        spec = {
            "group": group, "version": version, "groupPriorityMinimum": CUSTOM_GROUP_PRIORITY, "versionPriority": CUSTOM_VERSION_PRIORITY
        }  # fmt: skip
        if current is None:
            obj = {"kind": "APIService", "apiVersion": f"{REGISTRATION}/v1", "metadata": {"name": name, "labels": {AUTOMANAGED: "true"}}}
            await self.client.create(REGISTRATION, "apiservices", {**obj, "spec": spec})
        elif _is_ours(current) and current["spec"] != spec:

            def change(obj: dict[str, Any]) -> bool:
                if not _is_ours(obj) or obj["spec"] == spec:
                    return False
                obj["spec"] = dict(spec)
                return True

            await self.client.update(self.registry, "", name, change, uid=current["metadata"].get("uid", ""))


def _is_ours(obj: dict[str, Any]) -> bool:
    labels: dict[str, str] = obj["metadata"].get("labels") or {}
    return labels.get(AUTOMANAGED) == "true"


def _served(crd: dict[str, Any]) -> Names:
    group = crd["spec"]["group"]
    return frozenset(f"{v['name']}.{group}" for v in crd["spec"].get("versions") or () if v.get("served"))
