"""Says of every FlowSchema whether its priority level exists (apiserver's ``util/flowcontrol/apf_controller.go``)."""

from __future__ import annotations

from collections.abc import Sequence

from kas.controllers.client import Client, split_key
from kas.controllers.queue import WorkQueue, follow
from kas.meta.field import go_quote
from kas.registry.registries import Registries
from kas.store import Event, Record

GROUP = "flowcontrol.apiserver.k8s.io"
MANAGER = "api-priority-and-fairness-config-consumer-v1"

ALL = ""  # in place of a name: every schema is looked at anew


class FlowControlStatus:
    """Says in the status of a FlowSchema whether its priority level is there."""

    name = "priority-and-fairness-config-consumer"

    def __init__(self, registries: Registries) -> None:
        self.client = Client(registries, MANAGER, "system:apiserver")
        self.schemas = registries.of(GROUP, "flowschemas")
        self.levels = registries.of(GROUP, "prioritylevelconfigurations")
        self.queue = WorkQueue(self._sync, self.name)

    async def run(self) -> None:
        """Follow flow schemas and priority levels until cancelled."""
        schemas = self.client.each(self.schemas.root, self._look)
        await follow(self.queue, [schemas, self.client.reflector(self.levels.root, self._level_events)])

    def _look(self, rec: Record) -> None:
        self.queue.add(split_key(self.schemas, rec.key)[1])

    def _level_events(self, events: Sequence[Event]) -> None:
        # Only their coming and going matters.
        if any(e.record is None or e.previous is None for e in events):
            self.queue.add(ALL)

    async def _sync(self, name: str) -> None:
        if name == ALL:
            async for rec in self.client.paced(self.schemas.root):
                self._look(rec)
            return
        schema = self.client.get(GROUP, "flowschemas", "", name)
        if schema is None:
            return
        level = schema["spec"].get("priorityLevelConfiguration", {}).get("name", "")
        there = self.client.get(GROUP, "prioritylevelconfigurations", "", level) is not None
        text = "and it exists" if there else "but there is no such object"
        condition = {
            "type": "Dangling",
            "status": "False" if there else "True",
            "reason": "Found" if there else "NotFound",
            "message": f"This FlowSchema references the PriorityLevelConfiguration object named {go_quote(level)} {text}",
        }
        had = next((c for c in (schema.get("status") or {}).get("conditions") or () if c.get("type") == "Dangling"), None)
        if had is not None and all(had.get(k) == v for k, v in condition.items()):
            return
        kept = had is not None and had.get("status") == condition["status"] and had["lastTransitionTime"]
        condition["lastTransitionTime"] = kept or self.client.context().now
        await self.client.apply(self.schemas, "", name, {"status": {"conditions": [condition]}}, "status")
