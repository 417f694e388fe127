"""Says of APIServices without a Service of their own that they are available (kube-aggregator's ``controllers/status/local``)."""

from __future__ import annotations

from typing import Any

import orjson

from kas.controllers.client import Client, split_key
from kas.controllers.queue import WorkQueue, follow

GROUP = "apiregistration.k8s.io"
LOCAL = {"type": "Available", "status": "True", "reason": "Local", "message": "Local APIServices are always available"}


class LocalAPIServices:
    name = "apiservice-status-local-available-controller"

    def __init__(self, server: Any) -> None:
        self.client = Client(server, "kube-apiserver", "system:apiserver")
        self.registry = server.registry(GROUP, "apiservices")
        self.queue = WorkQueue(self._sync, self.name)

    async def run(self) -> None:
        await follow(self.queue, self._resync, [self.client.store.hub.listen(self.registry.root, self._events, self._resync)])

    def _resync(self) -> None:
        for rec in self.client.store.range(self.registry.root).records:
            self._look(rec)

    def _events(self, events: list[Any]) -> None:
        for e in events:
            if e.record is not None:
                self._look(e.record)

    def _look(self, rec: Any) -> None:
        if _lacks(orjson.loads(rec.json)):
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
    """A local APIService that does not say it is available."""
    if (obj.get("spec") or {}).get("service") is not None:
        return False
    had = _available(obj.get("status") or {})
    return any(had.get(k) != v for k, v in LOCAL.items())
