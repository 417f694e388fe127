"""Controllers' access to the store: long walks yield the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from kas.controllers.client import Client, Filling
from kas.controllers.queue import WorkQueue, follow
from kas.meta import waiting
from kas.meta.errors import ApiError
from kas.store import Event, Record
from tests.controllers.stored import stored
from tests.controllers.test_garbage_start import NAMESPACE, make


def test_a_long_walk_yields_the_loop(tmp_path, monkeypatch):
    async def run() -> None:
        async with stored(tmp_path) as registries:
            client = Client(registries, "test")
            for i in range(30):
                await make(client, "ConfigMap", f"c{i:02}")
            monkeypatch.setattr(waiting, "TIME_SLICE_S", 0.0)
            turns = 0

            async def other() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            beside = asyncio.ensure_future(other())
            prefix = registries.of("", "configmaps").prefix(NAMESPACE)
            seen = [rec.key.removeprefix(prefix) async for rec in client.paced(prefix)]
            beside.cancel()
            assert seen == [f"c{i:02}" for i in range(30)] and turns >= 30

    asyncio.run(run())


def test_updates_by_controllers_are_validated_against_the_old_object(tmp_path):
    """As upstream's API server does; objects used to be validated against themselves."""

    async def run() -> None:
        async with stored(tmp_path) as registries:
            client, secrets = Client(registries, "test"), registries.of("", "secrets")
            await make(client, "Secret", "s")

            def retyped(secret: dict) -> bool:
                secret["type"] = "other/type"
                return True

            with pytest.raises(ApiError, match="field is immutable"):
                await client.update(secrets, NAMESPACE, "s", retyped)
            kept = client.get("", "secrets", NAMESPACE, "s")
            assert kept is not None and kept["type"] == "Opaque"

            def labelled(secret: dict) -> bool:
                secret["metadata"]["labels"] = {"a": "b"}
                return True

            written = await client.update(secrets, NAMESPACE, "s", labelled)
            assert written is not None and written["metadata"]["labels"] == {"a": "b"} and "labels" not in kept["metadata"]

    asyncio.run(run())


def test_objects_that_are_nested_deeply_are_changed(tmp_path):
    """The copy of one failed, with the controller that had to change it, and what others waited for was not done."""

    async def run() -> None:
        async with stored(tmp_path) as registries:
            client, revisions = Client(registries, "test"), registries.of("apps", "controllerrevisions")
            data: dict = {}
            for _ in range(450):
                data = {"a": data}
            deep = {"metadata": {"name": "deep", "namespace": NAMESPACE}, "revision": 1, "data": data}
            await client.create("apps", "controllerrevisions", deep)

            def labelled(revision: dict) -> bool:
                revision["metadata"]["labels"] = {"a": "b"}
                return True

            written = await client.update(revisions, NAMESPACE, "deep", labelled)
            assert written is not None and written["metadata"]["labels"] == {"a": "b"} and written["data"] == data

    asyncio.run(run())


def test_initial_state_is_read_in_pages_before_work_begins(tmp_path, monkeypatch):
    """2,000 definitions were read at once when a controller started. What is written meanwhile counts, and is not overwritten by older
    state."""

    async def run() -> None:
        async with stored(tmp_path) as registries:
            client, maps = Client(registries, "test"), registries.of("", "configmaps")
            for i in range(150):
                await make(client, "ConfigMap", f"c{i:03}")
            monkeypatch.setattr(waiting, "TIME_SLICE_S", 0.0)
            known, turns, cleared = dict[str, int](), list[int](), list[bool]()

            def clear() -> None:
                cleared.append(True)
                known.clear()

            def take(record: Record) -> None:
                known[record.key] = record.revision

            def told(events: Sequence[Event]) -> None:
                for e in events:
                    if e.record is None:
                        known.pop(e.key, None)
                    else:
                        take(e.record)

            filling = Filling(client, maps.root, clear, take)
            filling.begin()
            reflector = client.reflector(maps.root, told, filling.listed, lists=False)
            reflector.start()
            assert known == {}  # it begins over several iterations
            running = asyncio.ensure_future(filling.fill())
            while not running.done():
                turns.append(len(known))
                if len(turns) == 2:
                    await client.delete(maps, NAMESPACE, "c001")
                    await client.delete(maps, NAMESPACE, "c149")
                    await make(client, "ConfigMap", "c000a")
                await asyncio.sleep(0)
            await running
            registries.store.catch_up()

            def there() -> dict[str, int]:
                return {rec.key: rec.revision for rec in client.pages(maps.root)}

            assert known == there() and cleared == [True] and 64 in turns
            filling.listed(())  # after missed events: at once
            assert known == there() and cleared == [True, True]
            filling.begin()
            filling.listed(())
            filling._take = lambda record: (take(record), filling.listed(()) if len(cleared) == 3 and len(known) == 100 else None)
            await filling.fill()  # and events were missed again meanwhile: from the beginning
            assert known == there() and cleared == [True] * 4
            reflector.stop()

    asyncio.run(run())


def test_initial_records_are_processed_over_several_iterations(tmp_path, monkeypatch):
    """30,000 policies were processed in one loop iteration, 80 ms, when the controller of their status started."""

    async def run() -> None:
        async with stored(tmp_path) as registries:
            client, maps = Client(registries, "test"), registries.of("", "configmaps")
            for i in range(150):
                await make(client, "ConfigMap", f"c{i:03}")
            monkeypatch.setattr(waiting, "TIME_SLICE_S", 0.0)
            seen, worked = list[str](), list[int]()

            async def work(key: str) -> None:
                worked.append(len(seen))

            queue = WorkQueue(work, "test")

            def look(record: Record) -> None:
                seen.append(record.key)
                queue.add(record.key)

            turns = set[int]()
            running = asyncio.ensure_future(follow(queue, [client.each(maps.root, look)]))
            while len(worked) < 151:
                turns.add(len(seen))
                if len(seen) == 64:
                    await make(client, "ConfigMap", "c999")
                await asyncio.sleep(0)
            assert {0, 64} <= turns and set(seen) == {record.key for record in client.pages(maps.root)}
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    asyncio.run(run())
