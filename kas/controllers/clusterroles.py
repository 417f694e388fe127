"""Fills aggregated ClusterRoles with the rules of those they select (``pkg/controller/clusterroleaggregation``)."""

from __future__ import annotations

from typing import Any

from kas.controllers.client import Client
from kas.controllers.queue import WorkQueue, follow
from kas.registry.bootstrap_rbac import aggregate

GROUP = "rbac.authorization.k8s.io"


class ClusterRoleAggregation:
    name = "clusterrole-aggregation-controller"

    def __init__(self, server: Any) -> None:
        self.client = Client(server, self.name, "system:serviceaccount:kube-system:clusterrole-aggregation-controller")
        self.registry = server.registry(GROUP, "clusterroles")
        self.queue = WorkQueue(self._sync, self.name)

    async def run(self) -> None:
        await follow(self.queue, self._resync, [self.client.store.hub.listen(self.registry.root, lambda _: self._resync(), self._resync)])

    def _resync(self) -> None:
        self.queue.add("all")

    async def _sync(self, _: str) -> None:
        """One pass; the rules it writes come back as events, until roles that aggregate aggregated ones are complete too."""
        for name, rules in aggregate(self.client.list(GROUP, "clusterroles")):
            await self.client.apply(self.registry, "", name, {"rules": rules})
