"""The other API servers, as announced by their keys."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from kas.aggregator import peers as module
from kas.aggregator.peers import PeerMetrics, Peers
from kas.controllers.peerleases import PREFIX, address_of
from kas.observe.metrics import Registry as Metrics
from tests import pki, ports


def lease(name: str, **address: Any) -> Any:
    subsets = [{"addresses": [{k: v for k, v in address.items() if k != "port"}], "ports": [{"port": address["port"]}]}] if address else []
    return SimpleNamespace(key=PREFIX + name, json=orjson.dumps({"metadata": {"name": name, "uid": f"uid-{name}"}, "subsets": subsets}))


@pytest.mark.parametrize(
    ("subsets", "address"),
    [
        ([], None), (None, None), ([{"addresses": [{}], "ports": [{"port": 1}]}], None), ([{"addresses": [{"ip": "192.0.2.1"}]}], None),
        ([{"addresses": [{"ip": "192.0.2.1"}], "ports": [{}, {"port": 6443}]}], ("192.0.2.1", 6443)),
    ],
)  # fmt: skip
def test_valid_and_invalid_addresses(subsets, address):
    assert address_of({"subsets": subsets}) == address


def test_errors_with_a_peer_are_counted(tmp_path):
    """One has no address; at another's address there is no server."""
    ca = pki.authority("ca")
    ca_file, _ = ca.write(tmp_path, "ca")
    certificate = pki.issue([("CN", "proxy")], ca).write(tmp_path, "proxy")
    port = ports.reserve()

    class Told(PeerMetrics):
        def no_discovery(self) -> None:
            super().no_discovery()
            failed.set()

    failed = asyncio.Event()

    async def story() -> None:
        metrics = Metrics()
        peers = Peers(
            SimpleNamespace(listen=lambda *_: lambda: None), PREFIX, address_of, ("192.0.2.9", 1), ca_file,  # type: ignore[arg-type]
            certificate, lambda *_: False, lambda: None, 1, False, {}, Told(metrics),
        )  # fmt: skip
        errors = metrics.metrics["apiserver_peer_discovery_sync_errors_total"].values
        assert errors == {}
        peers.replace([lease("nowhere"), lease("a", ip="127.0.0.1", port=port)])
        await asyncio.wait_for(failed.wait(), 60)
        assert errors == {("hostport_resolution",): 1, ("fetch_discovery",): 1}
        await peers.close()

    asyncio.run(story())


def test_a_peer_that_is_gone_for_long_is_forgotten(tmp_path):
    ca = pki.authority("ca")
    ca_file, _ = ca.write(tmp_path, "ca")
    certificate = pki.issue([("CN", "proxy")], ca).write(tmp_path, "proxy")
    now = 100.0

    async def story() -> None:
        nonlocal now
        peers = Peers(
            SimpleNamespace(listen=lambda *_: lambda: None), PREFIX, address_of, ("192.0.2.9", 1), ca_file,  # type: ignore[arg-type]
            certificate, lambda *_: False, lambda: None, 1, False, {}, PeerMetrics(Metrics()), lambda: now,
        )  # fmt: skip
        there = [lease(name, ip="127.0.0.1", port=1) for name in ("a", "b")]
        peers.replace([*there, lease("own", ip="192.0.2.9", port=1), lease("nowhere")])
        assert set(peers._peers) == {"a", "b"}
        peers.apply([SimpleNamespace(key=there[0].key, record=None)])  # type: ignore[list-item]
        now += module.REMEMBERED_S
        peers.replace(there[1:])
        assert set(peers._peers) == {"a", "b"}
        now += 1
        peers.replace(there[1:])
        assert set(peers._peers) == {"b"}
        await peers.close()

    asyncio.run(story())
