"""The loop that accepts names of definitions, over a store in this process."""

from __future__ import annotations

import asyncio

from kas.controllers.definitions import DefinitionConditions
from kas.store import Op
from tests.endpoints.customs import definition
from tests.endpoints.test_custom_table import Table, run


def test_a_name_that_becomes_free_concerns_those_alone_who_lack_one(tmp_path):
    """However many others the group has: looking at one means reading all of it."""

    async def body(t: Table) -> None:
        for i in range(10):
            await t.put(definition("example.com", plural=f"things{i}", kind=f"Thing{i}", shortNames=[f"t{i}"]))
        waits = definition("example.com", plural="others", kind="Other", shortNames=["t3"])
        loop = DefinitionConditions(t.registries)
        task = asyncio.create_task(loop.run())

        def names(name: str):
            return t.registries.get("apiextensions.k8s.io", "customresourcedefinitions", "", name)["status"]["acceptedNames"]

        async def settled() -> None:
            while len(loop.queue):
                await asyncio.sleep(0.01)
                t.store.catch_up()

        await asyncio.sleep(0)
        await settled()
        accepted = {k: v for k, v in waits["spec"]["names"].items() if k != "shortNames"}
        await t.put(waits, accepted=accepted)
        await settled()
        before = loop.queue.adds
        await t.store.commit(Op(t.root + "things5.example.com", None))
        t.store.catch_up()
        await settled()
        assert loop.queue.adds == before + 1
        assert names("others.example.com") == accepted
        await t.store.commit(Op(t.root + "things3.example.com", None))
        t.store.catch_up()
        await settled()
        assert names("others.example.com") == waits["spec"]["names"]
        task.cancel()

    run(tmp_path, body)
