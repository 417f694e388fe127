"""Fills aggregated ClusterRoles with the rules of those they select (``pkg/controller/clusterroleaggregation``).

A pass looks at all roles. So there is none for a change that no aggregated role is about, and after each a rest that grows with what the
pass took: who creates roles one after another pays for a part of the time with passes, and not for one with each role.
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
REST, LONGEST_REST_S = 5, 0.5  # times what a pass took; and the most, so that a change is seen soon
MOST_SELECTORS = 64  # that are asked whether a change is about them


class ClusterRoleAggregation:
    """Gives ClusterRoles with an aggregation rule the rules of those it selects."""

    name = "clusterrole-aggregation-controller"

    def __init__(self, registries: Registries) -> None:
        self.client = Client(registries, self.name, "system:serviceaccount:kube-system:clusterrole-aggregation-controller")
        self.registry = registries.of(GROUP, "clusterroles")
        self.queue = WorkQueue(self._sync, self.name)
        self.passes = 0
        self._rested = 0.0  # when the next pass may begin
        self._selectors: set[LabelSelector] | None = None  # of all aggregated roles that the last pass saw; None: nobody knows

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
        """Whether an aggregated role has something to do with this one. An aggregated role that the last pass has not seen brings a pass of
        its own, which reads this one, too."""
        if self._selectors is None or AGGREGATED in record.json:
            return True
        labels = record.labels
        return any(selector.matches(labels) for selector in self._selectors)

    async def _sync(self, _: str) -> None:
        """One pass; the rules it writes come back as events, until roles that aggregate aggregated ones are complete too."""
        began = monotonic()
        self.passes += 1
        self._selectors = None  # what is told while the pass reads may be about what it has not read
        try:
            found, wanted = await POOL.run(self._look)
            self._selectors = found
            for name, rules in wanted:
                await self.client.apply(self.registry, "", name, {"rules": rules})
        finally:
            now = monotonic()
            self._rested = now + min(LONGEST_REST_S, REST * (now - began))

    def _look(self) -> tuple[set[LabelSelector] | None, list[tuple[str, list[Obj]]]]:
        """The selectors of all aggregated roles, None when they are too many to ask, and the roles that want other rules."""
        roles = self.client.list(GROUP, "clusterroles")
        found = {selector for role in roles for selector in selectors(role) or ()}
        wanted = aggregate(roles)
        let_go(roles)
        return found if len(found) <= MOST_SELECTORS else None, wanted
