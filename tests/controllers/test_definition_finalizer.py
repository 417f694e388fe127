"""The controller that deletes the objects of a definition before the definition, over a store in this process."""

from __future__ import annotations

import asyncio

import pytest

from kas.apiextensions.definition import FINALIZER
from kas.controllers import definition_finalizer
from kas.controllers.definition_finalizer import DefinitionFinalizer
from kas.registry.strategy import Context
from tests.endpoints.customs import definition
from tests.endpoints.test_custom_table import CONDITIONS, NOW, Table, run

GROUP, NAME = "apiextensions.k8s.io", "widgets.example.com"
GOING = {"deletionTimestamp": "2024-01-02T03:04:05Z", "deletionGracePeriodSeconds": 0, "finalizers": [FINALIZER]}


async def settled(t: Table, loop: DefinitionFinalizer, turns: int = 20) -> None:
    """Runs it until it has nothing to do, or has begun this many items of work."""
    before = loop.queue.adds
    await asyncio.sleep(0)
    t.store.catch_up()
    while len(loop.queue) and loop.queue.adds < before + turns:
        await asyncio.sleep(0.001)
        t.store.catch_up()


@pytest.mark.parametrize("stored", [["v1"], ["v0"]])
def test_a_definition_waits_for_its_objects_without_busy_loop(tmp_path, stored, monkeypatch):
    """Its own writes must not wake the controller again and again, and an invalid definition must not stop it."""

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
        assert found["status"]["conditions"][-1]["reason"] == "InstanceDeletionInProgress"
        loop.queue.add(NAME)
        await settled(t, loop)
        assert t.registries.get(GROUP, "customresourcedefinitions", "", NAME)["metadata"] == found["metadata"]
        monkeypatch.setattr(definition_finalizer, "PATIENCE_S", 0)
        loop.queue.add(NAME)
        await settled(t, loop)
        told = t.registries.get(GROUP, "customresourcedefinitions", "", NAME)["status"]["conditions"][-1]
        assert (told["status"], told["reason"]) == ("True", "InstanceDeletionCheck")
        assert told["message"] == "could not confirm zero CustomResources remaining: context deadline exceeded"

        def released(obj) -> bool:
            obj["metadata"]["finalizers"] = []
            return True

        await loop.client.update(served.registry, "ns", "a", released)
        loop.queue.add(NAME)
        await settled(t, loop)
        assert t.registries.get(GROUP, "customresourcedefinitions", "", NAME) is None
        task.cancel()

    run(tmp_path, body)


@pytest.mark.parametrize(
    ("group", "resource", "conditions", "reason"),
    [
        (GROUP, "customresourcedefinitions", CONDITIONS, "OverlappingBuiltInResource"),
        ("apiregistration.k8s.io", "apiservices", CONDITIONS, "OverlappingBuiltInResource"),
        ("example.org", "widgets", CONDITIONS, "InstanceDeletionCompleted"), ("example.org", "widgets", (), "NeverEstablished"),
    ],
)  # fmt: skip
def test_built_in_objects_survive_a_definition_with_their_name(tmp_path, group, resource, conditions, reason):
    """The definition and the objects at its path are not related then; its end is reported with the last status."""

    async def body(t: Table) -> None:
        t.custom.start()
        await t.put(definition("example.com"))
        service = {"metadata": {"name": "v1.example.com"}, "spec": {"group": "example.com", "version": "v1"}}
        service["spec"] |= {"groupPriorityMinimum": 1, "versionPriority": 1}
        await t.registries.of("apiregistration.k8s.io", "apiservices").create(Context(NOW, "", {}), service)
        crd = definition(group)
        crd["metadata"]["name"] = name = f"{resource}.{group}"
        crd["spec"]["names"]["plural"] = resource
        told = []
        await t.put(crd, conditions=conditions, **GOING)
        loop = DefinitionFinalizer(t.registries)
        tell = loop._tell

        async def listening(name: str, uid: str, what: tuple[str, str, str], last: bool = False) -> None:
            told.append(what[1])
            await tell(name, uid, what, last)

        loop._tell = listening
        task = asyncio.create_task(loop.run())
        await settled(t, loop)
        assert told == ["InstanceDeletionInProgress", reason]
        assert t.registries.get(GROUP, "customresourcedefinitions", "", name) is None
        assert t.registries.get(GROUP, "customresourcedefinitions", "", NAME) is not None
        assert t.registries.get("apiregistration.k8s.io", "apiservices", "", "v1.example.com") is not None
        task.cancel()

    run(tmp_path, body)
