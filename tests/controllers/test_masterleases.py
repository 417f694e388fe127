"""The keys by which a cluster knows that a server lives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kas.controllers import masterleases
from kas.controllers.masterleases import MasterLeases
from kas.controllers.peerleases import PeerLease
from kas.registry.registries import Registries
from kas.store import Unavailable
from tests.controllers.stored import stored

MAKES: dict[str, Callable[[Registries], Any]] = {
    "/registry/masterleases/10.0.0.1": lambda registries: MasterLeases(registries, "10.0.0.1", lambda: None),
    "/registry/peerserverleases/one": lambda registries: PeerLease(registries, "one", "10.0.0.1", 6443),
}


@pytest.mark.parametrize("key", MAKES)
def test_a_renewal_that_fails_leaves_the_key_and_the_end_takes_it(key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The endpoints of the kubernetes Service were without a server whenever etcd did not answer it once."""
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
