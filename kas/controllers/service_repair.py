"""Services and what they hold, compared: an address or port without its record gets one, a record without Service goes.

Upstream: ``pkg/registry/core/service/{ipallocator,portallocator}/controller``. Differences come from data of another origin,
or from objects that people deleted by hand. Runs once when this worker begins to lead, then every few minutes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import orjson

from kas._fastpath import Op
from kas.controllers.client import Client
from kas.registry.core.allocation import CONTROLLER, MANAGED_BY, held_addresses, held_ports, port_op, ports
from kas.registry.strategy import Obj
from kas.store import Conflict

EVERY_S = 180.0


class ServiceRepair:
    name = "service-ip-and-port-repair-controller"

    def __init__(self, server: Any) -> None:
        self.client = Client(server, "kube-apiserver", "system:apiserver")
        self.services = server.registry("", "services")
        self.addresses = server.registry("networking.k8s.io", "ipaddresses")

    async def run(self) -> None:
        while True:
            await self.repair()
            await asyncio.sleep(EVERY_S)

    async def repair(self) -> None:
        """One pass. Differences that a concurrent write explains vanish by their preconditions."""
        for op in list(self._differences()):
            try:
                await self.client.store.commit(op)
            except Conflict:
                continue  # a Service came or went meanwhile

    def _differences(self) -> Iterator[Op]:
        store, allocator, ctx = self.client.store, self.services.allocator, self.client.context()
        # The records are read before the Services: one that belongs to a Service just made is not in this picture.
        addresses = store.range(self.addresses.root).records
        port_records = store.range(ports.ROOT).records
        ip_owner: dict[str, Obj] = {}
        port_owner: dict[int, Obj] = {}
        for rec in store.range(self.services.root).records:
            service = orjson.loads(rec.json)
            ip_owner.update(dict.fromkeys(held_addresses(service), service))
            port_owner.update(dict.fromkeys(held_ports(service), service))
        for rec in addresses:
            obj = orjson.loads(rec.json)
            ours = (obj["metadata"].get("labels") or {}).get(MANAGED_BY) == CONTROLLER
            owner = ip_owner.pop(obj["metadata"]["name"], None)
            if owner is None and ours and not obj["metadata"].get("finalizers"):
                yield Op(rec.key, None, rec.revision)
        for rec in port_records:
            if port_owner.pop(int(rec.key[len(ports.ROOT) :]), None) is None:
                yield Op(rec.key, None, rec.revision)
        for ip, service in ip_owner.items():
            yield allocator.address_op(ctx, ip, service)
        for port, service in port_owner.items():
            yield port_op(port, service)
