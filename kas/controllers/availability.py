"""The Available condition of APIServices with a Service: whether the server behind it can be reached.

Upstream: kube-aggregator's ``controllers/status/remote``. Checked when the APIService, its Service or its endpoints change, every 30 s,
and more often, with growing delays, while a backend does not answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from kas.aggregator.aggregator import Aggregator
from kas.aggregator.apiservices import GROUP, RESOURCE, APIService
from kas.client.services import SERVICE_NAME_LABEL
from kas.controllers.client import Client, split_key
from kas.controllers.queue import WorkQueue, follow
from kas.meta.field import go_quote
from kas.meta.stored import object_of
from kas.registry.registries import Registries
from kas.store import Event, Record

LOOKERS = 5
EVERY_S, FIRST_PAUSE_S = 30.0, 0.02
ATTEMPTS = 5  # one must succeed, since a Service may have several endpoints
Found = tuple[str, str, str]  # status, reason, message
PASSED: Found = ("True", "Passed", "all checks passed")


class RemoteAPIServices:
    """Sets the Available condition of APIServices that another server serves."""

    name = "apiservice-status-remote-available-controller"

    def __init__(self, registries: Registries, aggregator: Aggregator) -> None:
        self.client = Client(registries, "kube-apiserver", "system:apiserver")
        self.registry = registries.of(GROUP, RESOURCE)
        self._roots = registries.of("", "services"), registries.of("discovery.k8s.io", "endpointslices")
        self._aggregator = aggregator
        self._failures: dict[str, int] = {}
        self.queue = WorkQueue(self._sync, self.name)

    async def run(self) -> None:
        """Follow APIServices, Services and EndpointSlices until cancelled."""
        services, slices = self._roots
        await follow(
            self.queue,
            [
                self.client.reflector(self.registry.root, self._changed, self._listed),
                self.client.reflector(services.root, self._service_changed, self._listed, lists=False),
                self.client.reflector(slices.root, self._slice_changed, self._listed, lists=False),
            ],
            LOOKERS,
        )

    def _remote(self) -> list[APIService]:
        return list(self._aggregator.services.remote.values()) if self._aggregator.active else []

    def _listed(self, records: Sequence[Record]) -> None:
        """Check all listed and all known APIServices: each set may lack a recent write or contain a deleted one."""
        for record in records:
            self._look(record.key, record)
        for s in self._remote():
            self.queue.add(s.name)

    def _changed(self, events: Sequence[Event]) -> None:
        for e in events:
            self._look(e.key, e.record)

    def _look(self, key: str, record: Record | None) -> None:
        if record is None or (object_of(record).get("spec") or {}).get("service") is not None:
            self.queue.add(split_key(self.registry, key)[1])

    def _service_changed(self, events: Sequence[Event]) -> None:
        if self._aggregator.active:
            self._look_again(split_key(self._roots[0], e.key) for e in events)

    def _slice_changed(self, events: Sequence[Event]) -> None:
        if not self._aggregator.active:
            return
        named: set[tuple[str, str]] = set()
        for e in events:
            namespace = split_key(self._roots[1], e.key)[0]
            for record in (e.record, e.previous):
                if record is not None:
                    labels = object_of(record)["metadata"].get("labels") or {}
                    named.add((namespace, labels.get(SERVICE_NAME_LABEL) or ""))
        self._look_again(named)

    def _look_again(self, named: Iterable[tuple[str, str]]) -> None:
        for place in named:
            for name in self._aggregator.services.by_place.get(place, ()):
                self.queue.add(name)

    async def _sync(self, name: str) -> float | None:
        service = self._aggregator.services.by_name.get(name)
        if service is None or service.service is None:
            stored = self.client.get(GROUP, RESOURCE, "", name)
            if stored is not None and (stored.get("spec") or {}).get("service") is not None:
                return self._pause(name)  # not in the cache yet; an event that was already delivered does not come again
            self._failures.pop(name, None)
            self._aggregator.unavailable.values.pop((name,), None)
            return None
        found, again = await self._check(service)
        self._aggregator.unavailable.set((name,), float(found[0] != "True"))
        await self._write(name, found)
        if not again:
            self._failures.pop(name, None)
            return EVERY_S
        return self._pause(name)

    def _pause(self, name: str) -> float:
        """Return the delay before the next check, longer each time."""
        n = self._failures[name] = self._failures.get(name, 0) + 1
        return min(EVERY_S, FIRST_PAUSE_S * 2.0 ** min(n, 20))

    async def _check(self, s: APIService) -> tuple[Found, bool]:
        """Return the condition's content, and whether to check again soon."""
        assert s.service is not None
        namespace, name, port = s.service
        where = f"service/{name} in {go_quote(namespace)}"
        service = self.client.get("", "services", namespace, name)
        if service is None:
            return ("False", "ServiceNotFound", f"{where} is not present"), False
        if service["spec"].get("type") == "ClusterIP":
            declared: dict[str, Any] | None = next((p for p in service["spec"].get("ports") or () if p.get("port") == port), None)
            if declared is None:
                return ("False", "ServicePortError", f"{where} is not listening on port {port}"), False
            slices = self._aggregator.resolver.slices(namespace, name)
            if not slices:
                return ("False", "EndpointsNotFound", f"cannot find endpointslices for {where}"), False
            port_name = declared.get("name") or ""
            if not any(x["ready"] and any(p["name"] == port_name and p["port"] is not None for p in x["ports"]) for x in slices):
                missing = f"endpointslices for {where} have no addresses with port name {go_quote(port_name)}"
                return ("False", "MissingEndpoints", missing), False
        why = await self._aggregator.proxy.probe(s)
        if why:
            others = await asyncio.gather(*(self._aggregator.proxy.probe(s) for _ in range(ATTEMPTS - 1)))
            if all(others):
                return ("False", "FailedDiscoveryCheck", why), True
        return PASSED, False

    async def _write(self, name: str, found: Found) -> None:
        now = self.client.context().now
        status, reason, message = found
        went = False

        def change(obj: dict[str, Any]) -> bool:
            nonlocal went
            if (obj.get("spec") or {}).get("service") is None:
                return False  # it became local, which another controller handles
            conditions = list((obj.get("status") or {}).get("conditions") or ())
            had: dict[str, Any] = next((c for c in conditions if c.get("type") == "Available"), {})
            if (had.get("status"), had.get("reason"), had.get("message")) == found:
                return False
            went = status != "True" and had.get("status") == "True"
            since = had.get("lastTransitionTime", now) if had.get("status") == status else now
            new = {"type": "Available", "status": status, "lastTransitionTime": since, "reason": reason, "message": message}
            at = next((i for i, c in enumerate(conditions) if c.get("type") == "Available"), len(conditions))
            conditions[at : at + 1] = [new]
            obj.setdefault("status", {})["conditions"] = conditions
            return True

        await self.client.update(self.registry, "", name, change, "status")
        if went:
            self._aggregator.became_unavailable.inc((name, reason))
