"""Fills aggregated ClusterRoles with the rules of those they select (``pkg/controller/clusterroleaggregation``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kas.controllers.client import Client
from kas.controllers.queue import WorkQueue, follow
from kas.meta.aside import POOL
from kas.registry.bootstrap_rbac import aggregate
from kas.registry.registries import Registries

Obj = dict[str, Any]

GROUP = "rbac.authorization.k8s.io"


class ClusterRoleAggregation:
    """Gives ClusterRoles with an aggregation rule the rules of those it selects."""

    name = "clusterrole-aggregation-controller"

    def __init__(self, registries: Registries) -> None:
        self.client = Client(registries, self.name, "system:serviceaccount:kube-system:clusterrole-aggregation-controller")
        self.registry = registries.of(GROUP, "clusterroles")
        self.queue = WorkQueue(self._sync, self.name)

    async def run(self) -> None:
        """Follow the ClusterRoles until cancelled."""
        await follow(self.queue, [self.client.reflector(self.registry.root, self._changed, self._changed, lists=False)])

    def _changed(self, _: Sequence[Any]) -> None:
        self.queue.add("all")

    async def _sync(self, _: str) -> None:
        """One pass; the rules it writes come back as events, until roles that aggregate aggregated ones are complete too."""
        for name, rules in await POOL.run(self._wanted):
            await self.client.apply(self.registry, "", name, {"rules": rules})

    def _wanted(self) -> list[tuple[str, list[Obj]]]:
        return aggregate(self.client.list(GROUP, "clusterroles"))
