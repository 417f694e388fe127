"""Sets the Dangling condition of FlowSchemas: whether their priority level exists (apiserver's
``util/flowcontrol/apf_controller.go``)."""

from __future__ import annotations

from collections.abc import Sequence

from kas.controllers.client import Client, split_key
from kas.controllers.queue import WorkQueue, follow
from kas.meta.field import go_quote
from kas.registry.registries import Registries
from kas.store import Event, Record

GROUP = "flowcontrol.apiserver.k8s.io"
MANAGER = "api-priority-and-fairness-config-consumer-v1"


class FlowControlStatus:
    """Maintains the Dangling condition in the status of FlowSchemas."""

    name = "priority-and-fairness-config-consumer"

    def __init__(self, registries: Registries) -> None:
        self.client = Client(registries, MANAGER, "system:apiserver")
        self.schemas = registries.of(GROUP, "flowschemas")
        self.levels = registries.of(GROUP, "prioritylevelconfigurations")
        self.queue = WorkQueue(self._sync, self.name)
        self._named: dict[str, set[str]] = {}  # level -> schemas that named it when last checked
        self._level_of: dict[str, str] = {}

    async def run(self) -> None:
        """Follow flow schemas and priority levels until cancelled."""
        schemas = self.client.reflector(self.schemas.root, self._schema_events, self._look_at_all, lists=False)
        await follow(self.queue, [schemas, self.client.reflector(self.levels.root, self._level_events)])

    def _look_at_all(self, _: Sequence[Record]) -> None:
        for name in (*self._level_of, *(split_key(self.schemas, rec.key)[1] for rec in self.client.pages(self.schemas.root))):
            self.queue.add(name)

    def _schema_events(self, events: Sequence[Event]) -> None:
        for e in events:
            self.queue.add(split_key(self.schemas, e.key)[1])

    def _level_events(self, events: Sequence[Event]) -> None:
        # Only creation and deletion of a level matter, and only to the schemas that name it.
        for e in events:
            if e.record is None or e.previous is None:
                for name in self._named.get(split_key(self.levels, e.key)[1], ()):
                    self.queue.add(name)

    def _names(self, name: str, level: str) -> None:
        """Record the level that a schema names, "" for none."""
        before = self._level_of.pop(name, "")
        if before:
            self._named[before].discard(name)
            if not self._named[before]:
                del self._named[before]
        if level:
            self._level_of[name] = level
            self._named.setdefault(level, set()).add(name)

    async def _sync(self, name: str) -> None:
        schema = self.client.get(GROUP, "flowschemas", "", name)
        level = "" if schema is None else schema["spec"].get("priorityLevelConfiguration", {}).get("name", "")
        self._names(name, level)
        if schema is None:
            return
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
