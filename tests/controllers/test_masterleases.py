"""The keys that announce a server to the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kas.controllers import bootstrapcontroller, masterleases
from kas.controllers.bootstrapcontroller import BootstrapController
from kas.controllers.client import Client as ControllerClient
from kas.controllers.masterleases import MasterLeases
from kas.controllers.peerleases import PeerLease
from kas.registry import bootstrap
from kas.registry.bootstrapper import Bootstrapper
from kas.registry.registries import Registries
from kas.store import Op, Unavailable, build_record
from tests.controllers.stored import stored

NOW = "2024-01-02T03:04:05Z"
MAKES: dict[str, Callable[[Registries], Any]] = {
    "/registry/masterleases/10.0.0.1": lambda registries: MasterLeases(registries, "10.0.0.1", lambda: None),
    "/registry/peerserverleases/one": lambda registries: PeerLease(registries, "one", "10.0.0.1", 6443),
}


@pytest.mark.parametrize("key", MAKES)
def test_a_failed_renewal_keeps_the_key_and_shutdown_removes_it(key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The endpoints of the kubernetes Service lost a server whenever etcd failed to answer it once."""
    monkeypatch.setattr(masterleases, "RENEW_EVERY_S", 0.0)

    async def story() -> None:
        async with stored(tmp_path) as registries, asyncio.timeout(60):
            store = registries.store
            commit, written, renewed = store.commit, [], asyncio.Event()

            def fails_once(op: Any) -> Any:
                written.append(op.draft is not None)
                if len(written) == 4:
                    renewed.set()
                if len(written) == 2:
                    raise Unavailable("etcdserver: request timed out")
                return commit(op)

            monkeypatch.setattr(store, "commit", fails_once)
            controller = MAKES[key](registries)
            with pytest.raises(Unavailable):
                await controller.run()
            assert written == [True, True] and store.get(key) is not None
            again = asyncio.create_task(controller.run())
            await renewed.wait()
            again.cancel()
            with pytest.raises(asyncio.CancelledError):
                await again
            assert store.get(key) is None

    asyncio.run(story())


def test_a_dead_server_leaves_the_endpoints_when_its_key_expires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several loops used to check every ten seconds, one after the other."""
    monkeypatch.setattr(masterleases, "RENEW_EVERY_S", 1000.0)
    monkeypatch.setattr(bootstrapcontroller, "EVERY_S", 1000.0)

    async def story() -> None:
        async with stored(tmp_path) as registries, asyncio.timeout(60):
            store = registries.store

            def wanted() -> list[bootstrap.Entry]:
                found = bootstrap.initial(NOW, "10.0.0.1", ["10.0.0.0/24"], sorted(masterleases.addresses(store)), 6443)
                return [entry for entry in found if entry.resource == "endpoints"]

            bootstrapper = Bootstrapper(registries, wanted)
            client = ControllerClient(registries, "test")

            async def shown(*addresses: str) -> None:
                while True:
                    found = client.get("", "endpoints", "default", "kubernetes") or {}
                    if [a["ip"] for subset in found.get("subsets") or () for a in subset["addresses"]] == list(addresses):
                        return
                    await asyncio.sleep(0.005)

            restoring = BootstrapController(registries, bootstrapper, ["10.0.0.0/24"])
            loops = [MasterLeases(registries, "10.0.0.1", bootstrapper.forget), restoring]
            tasks = [asyncio.create_task(loop.run()) for loop in loops]
            await shown("10.0.0.1")
            other = masterleases.PREFIX + "10.0.0.2"
            await store.commit(Op(other, build_record(b'{"metadata":{', b"}}", {}, {}, 1)))
            await shown("10.0.0.1", "10.0.0.2")
            await store.commit(Op(other, None))
            await shown("10.0.0.1")
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(story())


def test_a_change_during_a_check_is_checked_again(tmp_path: Path) -> None:
    """A thread that computed the wanted state kept the old one."""

    async def story() -> None:
        async with stored(tmp_path) as registries:
            looks: list[str] = []

            def wanted() -> list[bootstrap.Entry]:
                looks.append("10.0.0.2" if looks else "10.0.0.1")
                if len(looks) == 1:
                    bootstrapper.forget()
                found = bootstrap.initial(NOW, "10.0.0.1", ["10.0.0.0/24"], [looks[-1]], 6443)
                return [entry for entry in found if entry.resource == "endpoints"]

            bootstrapper = Bootstrapper(registries, wanted)
            bootstrapper.missing(frozenset(("endpoints",)))
            before = len(looks)
            bootstrapper.missing(frozenset(("endpoints",)))
            assert len(looks) > before + 1, "what was kept is from before"

    asyncio.run(story())
