"""Which FlowSchemas are checked when a priority level is created or deleted."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kas.controllers.flowcontrol_status import GROUP, FlowControlStatus
from kas.registry.registries import Registries
from kas.store import Event
from tests.controllers.stored import stored


async def _made(registries: Registries, resource: str, obj: dict[str, Any]) -> Any:
    made = FlowControlStatus(registries).client
    await made.create(GROUP, resource, {"apiVersion": f"{GROUP}/v1", **obj})


def schema(name: str, level: str) -> dict[str, Any]:
    return {"kind": "FlowSchema", "metadata": {"name": name}, "spec": {"priorityLevelConfiguration": {"name": level}}}


def renamed(obj: dict[str, Any]) -> bool:
    obj["spec"]["priorityLevelConfiguration"]["name"] = "c"
    return True


def test_a_new_level_concerns_only_schemas_that_name_it(tmp_path: Path) -> None:
    """There may be thousands of others, which are not checked; nothing is kept of deleted schemas."""

    async def run() -> None:
        async with stored(tmp_path) as registries:
            control = FlowControlStatus(registries)
            for i in range(6):
                await _made(registries, "flowschemas", schema(f"s{i}", "a" if i < 4 else "b"))
                await control._sync(f"s{i}")
            came: Any = SimpleNamespace(key=f"{control.levels.root}b", record=object(), previous=None)
            changed: Any = SimpleNamespace(key=f"{control.levels.root}a", record=object(), previous=object())
            control._level_events([came, changed])
            assert set(control.queue._order) == {"s4", "s5"}
            # One that names another level, and a deleted one.
            assert await control.client.delete(control.schemas, "", "s5")
            await control.client.update(control.schemas, "", "s0", renamed)
            for name in ("s0", "s5"):
                await control._sync(name)
            assert control._named == {"a": {"s1", "s2", "s3"}, "b": {"s4"}, "c": {"s0"}}
            gone: list[Event] = [SimpleNamespace(key=f"{control.schemas.root}s4", record=None)]  # type: ignore[list-item]
            control.queue.clear()
            control._schema_events(gone)
            assert list(control.queue._order) == ["s4"]

    asyncio.run(run())
