"""Controllers' way to the store: long walks leave others their turns."""

from __future__ import annotations

import asyncio

import pytest

from kas.controllers.client import Client
from kas.meta import waiting
from kas.meta.errors import ApiError
from tests.controllers.stored import stored
from tests.controllers.test_garbage_start import NAMESPACE, make


def test_a_long_walk_gives_others_turns(tmp_path, monkeypatch):
    async def run() -> None:
        async with stored(tmp_path) as registries:
            client = Client(registries, "test")
            for i in range(30):
                await make(client, "ConfigMap", f"c{i:02}")
            monkeypatch.setattr(waiting, "STINT_S", 0.0)
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


def test_what_a_controller_changes_is_judged_by_what_was_there(tmp_path):
    """An update that upstream's API server would refuse its controllers; judged were objects against themselves."""

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
