"""The garbage collector when it starts, or starts again: objects that it has not read yet are not taken for absent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kas.admission import Chain
from kas.controllers import garbage, ownersearch
from kas.controllers.client import Client
from kas.controllers.garbage import GarbageCollector
from kas.controllers.graph import DependentsOf, Graph
from kas.meta import waiting
from kas.meta.stored import object_of
from tests.controllers.stored import stored

NAMESPACE = "a"
NOBODY_ELSE: Any = SimpleNamespace(services=SimpleNamespace(remote={}))  # an aggregator without backends


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., Awaitable[None]]], None]:
    """Runs ``story(client, collector)`` over a store of its own; the collector reads one object at a time."""
    monkeypatch.setattr(garbage, "PAGE", 1)

    def play(story: Callable[..., Awaitable[None]]) -> None:
        async def run() -> None:
            async with stored(tmp_path) as registries, asyncio.timeout(60):
                await story(Client(registries, "test"), GarbageCollector(registries, NOBODY_ELSE, Chain([])))

        asyncio.run(run())

    return play


@contextlib.asynccontextmanager
async def running(collector: GarbageCollector) -> Any:
    task = asyncio.create_task(collector.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def make(client: Client, kind: str, name: str, **meta: Any) -> dict[str, Any]:
    obj = {"kind": kind, "apiVersion": "v1", "metadata": {"name": name, "namespace": NAMESPACE, **meta}}
    made = await client.create("", f"{kind.lower()}s", obj)
    assert made is not None
    return made


async def owner_and_dependent(client: Client, finalizer: str, policy: str) -> None:
    """Creates a ConfigMap that is being deleted, and a Secret that it owns: the ConfigMap is read first."""
    owner = await make(client, "ConfigMap", "owner", finalizers=[finalizer])
    for n in range(5):
        await make(client, "ConfigMap", f"z{n}")
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"], "blockOwnerDeletion": True}
    await make(client, "Secret", "dependent", ownerReferences=[reference], finalizers=["example.com/held"])
    await client.delete(client.registries.of("", "configmaps"), NAMESPACE, "owner", propagationPolicy=policy)


async def until(true: Callable[[], object]) -> None:
    while not true():  # noqa: ASYNC110
        await asyncio.sleep(0.001)


def there(client: Client, resource: str, name: str) -> dict[str, Any] | None:
    found = client.get("", resource, NAMESPACE, name)
    return found["metadata"] if found is not None else None


@pytest.mark.parametrize("missed", [False, True])
def test_an_orphaning_owner_waits_until_all_dependents_are_known(play, missed):
    async def story(client: Client, collector: GarbageCollector) -> None:
        if missed:
            async with running(collector):
                await until(collector._whole.is_set)
                collector._missed()
                await owner_and_dependent(client, "orphan", "Orphan")
                await until(lambda: there(client, "configmaps", "owner") is None)
        else:
            await owner_and_dependent(client, "orphan", "Orphan")
            async with running(collector):
                await until(lambda: there(client, "configmaps", "owner") is None)
        found = there(client, "secrets", "dependent")
        assert found is not None and "ownerReferences" not in found and "deletionTimestamp" not in found

    play(story)


def test_an_owner_in_the_foreground_waits_for_dependents_not_read_yet(play):
    async def story(client: Client, collector: GarbageCollector) -> None:
        await owner_and_dependent(client, "foregroundDeletion", "Foreground")
        async with running(collector):
            await until(lambda: (there(client, "secrets", "dependent") or {}).get("deletionTimestamp"))
            assert there(client, "configmaps", "owner") is not None

    play(story)


def test_unknown_owners_share_one_search(play, monkeypatch):
    """Each caused a search of all objects of its kind: 1,000 references among 3,000 objects held the loop for 29 s."""

    async def story(client: Client, collector: GarbageCollector) -> None:
        looks: list[str] = []
        monkeypatch.setattr(ownersearch, "REST_S", 0.0)
        look = collector._owner_search._look

        async def counted(owners: Any, by_uid: dict[str, Any]) -> Any:
            looks.append(owners.root)
            if len(looks) == 1:  # all come during the search, in however many loop iterations
                await until(lambda: len(by_uid) + collector._owner_search._waiting == len(refs))
            return await look(owners, by_uid)

        monkeypatch.setattr(collector._owner_search, "_look", counted)
        owner = await make(client, "ConfigMap", "owner", namespace="far")
        refs = [{"apiVersion": "v1", "kind": "ConfigMap", "name": f"o{i}", "uid": str(i)} for i in range(200)]
        refs.append({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]})
        await make(client, "Secret", "dependent", ownerReferences=refs)
        async with running(collector):
            await until(lambda: there(client, "secrets", "dependent") is None)
            await until(lambda: client.store.range("/registry/events/").records)
            await until(lambda: len(collector._owner_search.queue) == 0)
        (event,) = client.store.range("/registry/events/").records
        assert b"OwnerRefInvalidNamespace" in event.json and owner["metadata"]["uid"].encode() in event.json
        # One, and one more for those that came meanwhile.
        assert set(looks) == {"/registry/configmaps/"} and len(looks) <= 2 and collector._owner_search._waiting == 0

    play(story)


def test_objects_that_own_one_another_are_deleted_together(play):
    async def story(client: Client, collector: GarbageCollector) -> None:
        maps = client.registries.of("", "configmaps")
        made = [await make(client, "ConfigMap", f"m{i:02}") for i in range(20)]
        refs = [{"apiVersion": "v1", "kind": "ConfigMap", "name": m["metadata"]["name"], "uid": m["metadata"]["uid"],
                 "blockOwnerDeletion": True} for m in made]  # fmt: skip

        async with running(collector):
            for i in range(20):
                others = [refs[(i + j) % 20] for j in range(1, 11)]

                def tie(obj: dict[str, Any], others: list[dict[str, Any]] = others) -> bool:
                    obj["metadata"]["ownerReferences"] = others
                    return True

                await client.update(maps, NAMESPACE, f"m{i:02}", tie)
            await until(lambda: len(collector.graph.nodes) == 20)
            for i in range(20):
                await client.delete(maps, NAMESPACE, f"m{i:02}", propagationPolicy="Foreground")
                # If all of them are being deleted before any was processed, each waits for the others.
                await until(lambda i=i: there(client, "configmaps", f"m{i:02}") is None)
            await until(lambda: not client.store.range(maps.root).records)
            await until(lambda: not collector.graph.nodes)
        assert not collector.graph.dependents and not collector.graph._blocking and not collector.graph._waiting

    play(story)


def test_an_owner_is_processed_when_its_last_blocking_dependent_is_gone():
    """Once for each would be quadratic: a foreground deletion with 50,000 dependents."""

    def state(name: str, owners: str = "", deleting: str = "") -> bytes:
        ties = f'"resourceVersion":"1",{deleting}{owners}"managedFields":[]'
        return f'{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"a","uid":"{name}",{ties}}}}}'.encode()

    graph = Graph()
    going = '"deletionTimestamp":"2024-01-02T03:04:05Z","finalizers":["foregroundDeletion"],'
    tied = '"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"o","uid":"o","blockOwnerDeletion":true}],'
    for i in range(100):
        assert graph.put(f"/d{i}", state(f"d{i}", tied), i + 1) == [f"/d{i}"]
    assert set(graph.put("/o", state("o", deleting=going), 200)) == {"/o", DependentsOf("o")} and len([*graph.blocking("o")]) == 100
    assert {d.key for d in graph.dependents_of("o")} == {f"/d{i}" for i in range(100)}
    looked = [graph.remove(f"/d{i}", f"d{i}") for i in range(100)]
    assert looked == [[]] * 99 + [["/o"]]


@pytest.mark.parametrize("policy", ["Background", "Foreground", "Orphan"])
def test_an_owner_of_many_is_processed_over_several_loop_iterations(play, monkeypatch, policy):
    """50,000 dependents were queued in one step when their owner was deleted, and in another for its foreground deletion: 80 and 140 ms."""
    monkeypatch.setattr(waiting, "TIME_SLICE_S", 0.0)  # so that each step is an iteration

    async def story(client: Client, collector: GarbageCollector) -> None:
        maps, secrets = (client.registries.of("", kind) for kind in ("configmaps", "secrets"))
        owner = await make(client, "ConfigMap", "owner")
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"], "blockOwnerDeletion": True}
        for i in range(60):
            await make(client, "Secret", f"d{i}", ownerReferences=[reference], finalizers=["example.com/held"])
        added, most = [0], 0
        async with running(collector):
            await until(collector._whole.is_set)
            await until(lambda: len(collector.queue) == 0)
            add = collector.queue.add
            monkeypatch.setattr(collector.queue, "add", lambda item: (added.append(added.pop() + 1), add(item)))
            await client.delete(maps, NAMESPACE, "owner", propagationPolicy=policy)

            def let_go() -> bool:
                metas = [object_of(rec)["metadata"] for rec in client.store.range(secrets.root).records]
                return all("ownerReferences" not in m if policy == "Orphan" else m.get("deletionTimestamp") for m in metas)

            while not let_go():
                before = added[0]
                await asyncio.sleep(0)
                most = max(most, added[0] - before)
        assert added[0] > (1 if policy == "Orphan" else 60) and most < 30
        assert len(client.store.range(secrets.root).records) == 60

    play(story)
