"""This server's identity Lease, by which the API servers of a cluster know one another, and the removal of expired ones.

Upstream: ``pkg/controlplane/apiserver/server.go`` (controller and garbage collector of identity leases).
"""

from __future__ import annotations

import asyncio
import datetime
import socket
from typing import Any

from kas.controllers.client import Client
from kas.meta.offload import POOL
from kas.registry import bootstrap
from kas.registry.registries import Registries

GROUP, NAMESPACE = "coordination.k8s.io", "kube-system"
TIME, MICRO_TIME = "%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%M:%S.%fZ"
RENEW_EVERY_S = 10.0
COLLECT_EVERY_S = 3600.0
LABEL, VALUE = "apiserver.kubernetes.io/identity", "kube-apiserver"


class IdentityLease:
    """Keeps this server's Lease renewed."""

    name = "kube-apiserver-identity-lease-controller"

    def __init__(self, registries: Registries) -> None:
        self.client = Client(registries, "kube-apiserver", "system:apiserver")
        self.registry = registries.of(GROUP, "leases")
        self.holder = ""

    async def run(self) -> None:
        """Renew the Lease every ``RENEW_EVERY_S`` seconds until cancelled."""
        while True:
            await self._renew()
            await asyncio.sleep(RENEW_EVERY_S)

    async def _renew(self) -> None:
        now = datetime.datetime.now(datetime.UTC)
        wanted = bootstrap.identity_lease(now.strftime(TIME), now.strftime(MICRO_TIME), socket.gethostname()).obj
        self.holder = self.holder or wanted["spec"]["holderIdentity"]
        wanted["spec"]["holderIdentity"] = self.holder
        wanted["metadata"].pop("managedFields", None)

        def renew(lease: dict[str, Any]) -> bool:
            lease["spec"] = {**(lease.get("spec") or {}), **wanted["spec"]}
            return True

        name = wanted["metadata"]["name"]
        if await self.client.update(self.registry, NAMESPACE, name, renew) is None:
            await self.client.create(GROUP, "leases", wanted)


class IdentityLeaseCollector:
    """Deletes the Leases of servers that are gone."""

    name = "kube-apiserver-identity-lease-gc"

    def __init__(self, registries: Registries) -> None:
        self.client = Client(registries, "kube-apiserver", "system:apiserver")
        self.registry = registries.of(GROUP, "leases")

    async def run(self) -> None:
        """Collect expired Leases every ``COLLECT_EVERY_S`` seconds until cancelled."""
        while True:
            await self.collect(datetime.datetime.now(datetime.UTC))
            await asyncio.sleep(COLLECT_EVERY_S)

    async def collect(self, now: datetime.datetime) -> None:
        """Delete the identity Leases that expired before ``now``."""
        for lease in await POOL.run(self.client.list, GROUP, "leases", NAMESPACE):
            meta = lease["metadata"]
            if (meta.get("labels") or {}).get(LABEL) == VALUE and _ended(lease.get("spec") or {}, now):
                await self.client.delete(self.registry, NAMESPACE, meta["name"], meta.get("uid", ""))


def _ended(spec: dict[str, Any], now: datetime.datetime) -> bool:
    renewed, seconds = spec.get("renewTime"), spec.get("leaseDurationSeconds")
    if renewed is None or seconds is None:
        return True
    try:
        return datetime.datetime.fromisoformat(renewed) + datetime.timedelta(seconds=seconds) < now
    except (ValueError, OverflowError) as e:  # year 0 or 10000, which Go supports and Python does not
        return isinstance(e, ValueError)
