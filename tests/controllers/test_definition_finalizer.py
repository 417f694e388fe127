"""The loop that empties definitions before they go, over a store in this process."""

from __future__ import annotations

import asyncio

import pytest

from kas.apiextensions.definition import FINALIZER
from kas.controllers.definition_finalizer import DefinitionFinalizer
from kas.registry.strategy import Context
from tests.endpoints.customs import definition
from tests.endpoints.test_custom_table import NOW, Table, run

GROUP, NAME = "apiextensions.k8s.io", "widgets.example.com"
GOING = {"deletionTimestamp": "2024-01-02T03:04:05Z", "deletionGracePeriodSeconds": 0, "finalizers": [FINALIZER]}


async def settled(t: Table, loop: DefinitionFinalizer, turns: int = 20) -> None:
    """Until it has nothing to do, or has begun that many more pieces of work."""
    before = loop.queue.adds
    await asyncio.sleep(0)
    t.store.catch_up()
    while len(loop.queue) and loop.queue.adds < before + turns:
        await asyncio.sleep(0.001)
        t.store.catch_up()


@pytest.mark.parametrize("stored", [["v1"], ["v0"]])
def test_a_definition_waits_for_its_objects_quietly_and_goes_after_them(tmp_path, stored):
    """Its own news must not wake the loop again and again, and that the rest of the definition is invalid must not keep it."""

    async def body(t: Table) -> None:
        t.custom.start()
        await t.put(definition("example.com"))
        served = t.custom.find("example.com", "v1", "widgets")
        obj = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a", "finalizers": ["example.com/wait"]}}
        await served.registry.create(Context(NOW, "ns", {}), obj)
        await t.put(definition("example.com"), stored=stored, **GOING)
        loop = DefinitionFinalizer(t.registries)
        task = asyncio.create_task(loop.run())
        await settled(t, loop)
        assert not len(loop.queue)
        found = t.registries.get(GROUP, "customresourcedefinitions", "", NAME)
        assert found["status"]["conditions"][-1]["reason"] == "InstanceDeletionCheck"
        loop.queue.add(NAME)
        await settled(t, loop)
        assert t.registries.get(GROUP, "customresourcedefinitions", "", NAME)["metadata"] == found["metadata"]

        def released(obj) -> bool:
            obj["metadata"]["finalizers"] = []
            return True

        await loop.client.update(served.registry, "ns", "a", released)
        loop.queue.add(NAME)
        await settled(t, loop)
        assert t.registries.get(GROUP, "customresourcedefinitions", "", NAME) is None
        task.cancel()

    run(tmp_path, body)
