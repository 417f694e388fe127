"""Fills aggregated ClusterRoles with the rules of the roles they select (``pkg/controller/clusterroleaggregation``).

A pass reads all roles. So changes that concern no aggregated role trigger none, and each pass is followed by a pause proportional to its
duration: creating many roles one after another costs a fraction of the time for passes, instead of a pass per role.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import Any

from kas.controllers.client import Client
from kas.controllers.queue import WorkQueue, follow
from kas.meta.largejson import let_go
from kas.meta.offload import POOL
from kas.meta.selectors import LabelSelector
from kas.registry.bootstrap_rbac import aggregate, selectors
from kas.registry.registries import Registries
from kas.store import Event, Record

Obj = dict[str, Any]

GROUP = "rbac.authorization.k8s.io"
AGGREGATED = b'"aggregationRule":'
REST, LONGEST_REST_S = 5, 0.5  # the pause, as a multiple of a pass's duration; and its maximum, so that a change takes effect soon
MOST_SELECTORS = 64  # with more selectors, every change triggers a pass


class ClusterRoleAggregation:
    """Gives ClusterRoles with an aggregation rule the rules of the roles they select."""

    name = "clusterrole-aggregation-controller"

    def __init__(self, registries: Registries) -> None:
        self.client = Client(registries, self.name, "system:serviceaccount:kube-system:clusterrole-aggregation-controller")
        self.registry = registries.of(GROUP, "clusterroles")
        self.queue = WorkQueue(self._sync, self.name)
        self.passes = 0
        self._rested = 0.0  # when the next pass may begin
        self._selectors: set[LabelSelector] | None = None  # of all aggregated roles in the last pass; None if unknown

    async def run(self) -> None:
        """Follow the ClusterRoles until cancelled."""
        self._selectors, self._rested = None, 0.0
        await follow(self.queue, [self.client.reflector(self.registry.root, self._changed, self._missed, lists=False)])

    def _missed(self, _: Sequence[Record]) -> None:
        self.queue.add("all")

    def _changed(self, events: Sequence[Event]) -> None:
        if any(self._concerns(record) for e in events for record in (e.record, e.previous) if record is not None):
            self.queue.add_after("all", max(0.0, self._rested - monotonic()))

    def _concerns(self, record: Record) -> bool:
        """Return whether the role may concern an aggregated role. A new aggregated role triggers a pass of its own, which reads this
        role, too."""
        if self._selectors is None or AGGREGATED in record.json:
            return True
        labels = record.labels
        return any(selector.matches(labels) for selector in self._selectors)

    async def _sync(self, _: str) -> None:
        """Run one pass. Its writes come back as events, until roles that aggregate aggregated roles are complete, too."""
        began = monotonic()
        self.passes += 1
        self._selectors = None  # changes during the pass may concern roles it does not know yet
        try:
            found, wanted = await POOL.run(self._look)
            self._selectors = found
            for name, rules in wanted:
                await self.client.apply(self.registry, "", name, {"rules": rules})
        finally:
            now = monotonic()
            self._rested = now + min(LONGEST_REST_S, REST * (now - began))

    def _look(self) -> tuple[set[LabelSelector] | None, list[tuple[str, list[Obj]]]]:
        """Return the selectors of all aggregated roles, None if there are too many, and the roles with changed rules."""
        roles = self.client.list(GROUP, "clusterroles")
        found = {selector for role in roles for selector in selectors(role) or ()}
        wanted = aggregate(roles)
        let_go(roles)
        return found if len(found) <= MOST_SELECTORS else None, wanted
