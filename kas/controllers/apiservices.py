"""APIServices of the group versions this server itself serves: keeps them existing and marked available.

Upstream: kube-aggregator's ``controllers/autoregister`` and ``controllers/status/local``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from kas.controllers.client import Client, split_key
from kas.controllers.queue import WorkQueue, follow
from kas.meta.stored import object_of
from kas.registry.bootstrap import AUTOMANAGED
from kas.registry.bootstrapper import Bootstrapper
from kas.registry.registries import Registries
from kas.store import Conflict, Event, Record

GROUP = "apiregistration.k8s.io"
KEPT = frozenset({"apiservices"})
LOCAL = {"type": "Available", "status": "True", "reason": "Local", "message": "Local APIServices are always available"}


class AutoRegistration:
    """Recreates a deleted APIService. An edited one is left alone until the next start (``automanaged=onstart``). At the start, those of
    group versions that an earlier server had and this one does not are deleted."""

    name = "kube-apiserver-autoregistration"

    def __init__(self, registries: Registries, bootstrapper: Bootstrapper) -> None:
        self.client = Client(registries, "kube-apiserver", "system:apiserver")
        self._bootstrapper = bootstrapper
        self.registry = registries.of(GROUP, "apiservices")
        self.queue = WorkQueue(self._sync, self.name)
        self._began = False

    async def run(self) -> None:
        """Follow the APIServices until cancelled."""
        await follow(self.queue, [self.client.reflector(self.registry.root, self._events, self._listed)])

    def _listed(self, records: Sequence[Record]) -> None:
        self.queue.add(GROUP)
        if not self._began:
            self._began, wanted = True, self._bootstrapper.names("apiservices")
            for name in (record.key.rpartition("/")[2] for record in records):
                if name not in wanted:
                    self.queue.add(name)

    def _events(self, events: Sequence[Event]) -> None:
        if any(e.record is None for e in events):
            self.queue.add(GROUP)

    async def _sync(self, item: str) -> None:
        if item != GROUP:
            await self._remove(item)
            return
        store = self.client.store
        for operations in self._bootstrapper.missing(KEPT):
            absent = [op for op in operations if store.get(op.key) is None]
            if absent:
                with contextlib.suppress(Conflict):  # created concurrently
                    await store.commit_many(absent)

    async def _remove(self, name: str) -> None:
        meta = (self.client.get(GROUP, "apiservices", "", name) or {}).get("metadata") or {}
        if (meta.get("labels") or {}).get(AUTOMANAGED) == "onstart":
            await self.client.delete(self.registry, "", name, meta.get("uid", ""))


class LocalAPIServices:
    """Sets the Available condition of APIServices without a Service."""

    name = "apiservice-status-local-available-controller"

    def __init__(self, registries: Registries) -> None:
        self.client = Client(registries, "kube-apiserver", "system:apiserver")
        self.registry = registries.of(GROUP, "apiservices")
        self.queue = WorkQueue(self._sync, self.name)

    async def run(self) -> None:
        """Follow the APIServices until cancelled."""
        await follow(self.queue, [self.client.each(self.registry.root, self._look)])

    def _look(self, rec: Record) -> None:
        if _lacks(object_of(rec)):
            self.queue.add(split_key(self.registry, rec.key)[1])

    async def _sync(self, name: str) -> None:
        now = self.client.context().now

        def change(obj: dict[str, Any]) -> bool:
            if not _lacks(obj):
                return False
            status = obj.setdefault("status", {})
            others = [c for c in status.get("conditions") or () if c.get("type") != "Available"]
            had = _available(status)
            since = had["lastTransitionTime"] if had.get("status") == "True" else now
            status["conditions"] = [*others, {**LOCAL, "lastTransitionTime": since}]
            return True

        await self.client.update(self.registry, "", name, change, "status")


def _available(status: dict[str, Any]) -> dict[str, Any]:
    return next((c for c in status.get("conditions") or () if c.get("type") == "Available"), {})


def _lacks(obj: dict[str, Any]) -> bool:
    """Return whether this is a local APIService without a correct Available condition."""
    if (obj.get("spec") or {}).get("service") is not None:
        return False
    had = _available(obj.get("status") or {})
    return any(had.get(k) != v for k, v in LOCAL.items())
