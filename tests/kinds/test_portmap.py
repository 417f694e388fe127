"""The bitmap of node ports, and its repair."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import orjson
import pytest

from kas.controllers.client import Client
from kas.kinds.core.service.allocation.portmap import KEY, LEAK_PASSES, PortMap
from kas.store import Conflict, Op, TransformError, open_store
from tests.growth.serving import InProcess


def test_ports_without_a_service_are_released_after_some_passes(tmp_path):
    store = open_store(str(tmp_path / "s"), sync=False)
    try:
        bits = PortMap(store, 30000, 30063)
        op = bits.repaired({30001})
        assert op is not None
        store.commit_now(op)
        assert bits.all_taken() == {30001} and bits.taken(30001) and not bits.taken(30002) and not bits.taken(29999)
        assert bits.repaired({30001}) is None
        store.commit_now(*bits.op({30005, 40000}, ()))  # allocated, and no Service has it
        for _ in range(LEAK_PASSES - 1):
            assert bits.repaired({30001}) is None
        op = bits.repaired({30001, 30003})
        assert op is not None
        store.commit_now(op)
        assert bits.all_taken() == {30001, 30003}
        assert bits.op({40000}, ()) == []
        # Another range was configured: everything is rewritten.
        other = PortMap(store, 30000, 30127)
        assert other.all_taken() == set()
        op = other.repaired({30003})
        assert op is not None
        store.commit_now(op)
        assert other.all_taken() == {30003} and bits.all_taken() == set()
        assert store.get(KEY) is not None
    finally:
        store.close()


@pytest.mark.parametrize("revision", [7, 0])
def test_an_invalid_bitmap_is_rebuilt_from_services(revision: int) -> None:
    """Except an encrypted one that cannot be decrypted here."""

    class Damaged:
        def get(self, key: str) -> None:
            raise TransformError(key, "unexpected end of JSON input", revision=revision)

    bits = PortMap(Damaged(), 30000, 30063)  # type: ignore[arg-type]
    assert bits.op((), ()) == bits.op({40000}, ()) == [], "who wants no port does not need it"
    with pytest.raises(TransformError):
        bits.op({30005}, ())
    if not revision:
        with pytest.raises(TransformError):
            bits.repaired({30001})
        return
    op = bits.repaired({30001, 40000})
    assert op is not None and op.draft is not None
    assert op.expected == revision and orjson.loads(op.draft.json)["data"] == base64.b64encode(b"\2").decode()


async def _race(server: InProcess, lost: list[str]) -> None:
    services = server.server.registries.of("", "services")
    commit_many = services.whole.commit_many

    def counted(ops: list[Op], *args: Any) -> Any:
        async def wait() -> Any:
            try:
                return await commit_many(ops, *args)
            except Conflict as e:
                lost.append(e.key)
                raise

        return wait()

    services.whole.commit_many = counted
    client = Client(server.server.registries, "test")

    async def come_and_go(i: int) -> None:
        spec = {"type": "NodePort", "ports": [{"port": 80}]}
        obj = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": f"s{i}", "namespace": "default"}, "spec": spec}
        assert await client.create("", "services", obj) is not None
        assert await client.delete(services, "default", f"s{i}")

    await asyncio.gather(*(come_and_go(i) for i in range(40)))


def test_writers_of_one_process_do_not_conflict(tmp_path: Path) -> None:
    """A writer with 64 conflicts would be refused."""
    server = InProcess(tmp_path)
    try:
        bits = PortMap(server.store, 30000, 32767)
        server.server.registries.of("", "services").allocator._get().portmap = bits
        lost: list[str] = []
        server.loop.run_until_complete(_race(server, lost))
        assert KEY not in lost and bits.all_taken() == set() and server.store.get(KEY) is not None
    finally:
        server.close()
