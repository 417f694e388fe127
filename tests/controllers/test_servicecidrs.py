"""Checks before a ServiceCIDR is deleted."""

from __future__ import annotations

import asyncio
import ipaddress
import random
from types import SimpleNamespace
from typing import Any

from kas.controllers import servicecidrs
from kas.controllers.servicecidrs import DELETION_GRACE_S, FINALIZER, LOOK, RECHECK_S, ServiceCIDRs, _bounds, _Nets
from kas.kinds.core.service.allocation.addresses import Covered
from kas.meta import clock
from kas.meta.ip import parse_ip
from kas.registry.registries import Registries
from kas.types.scheme import BUILTIN
from tests.controllers.stored import stored


def test_an_address_is_looked_up_among_ranges():
    rng = random.Random(11)
    for _ in range(40):
        cidrs = [f"10.0.{rng.randrange(4)}.{rng.randrange(16) * 16}/28" for _ in range(rng.randrange(5))]
        cidrs += rng.sample(["10.0.1.0/24", "10.0.0.0/22", "fd00::/120", "fd00::100/120", "0.0.0.0/30"], rng.randrange(3))
        networks = [ipaddress.ip_network(c) for c in cidrs]
        found = Covered(map(_bounds, networks))
        nets = _Nets({text: {"spec": {"cidrs": [text]}} for text in cidrs})
        for _ in range(60):
            text = rng.choice([f"10.0.{rng.randrange(5)}.{rng.randrange(256)}", f"fd00::{rng.randrange(600):x}", "::1"])
            ip = parse_ip(text)
            holding = {str(n) for n in networks if ipaddress.ip_address(text) in n}
            assert ip is not None and (ip in found) == bool(holding)
            assert {name for net in nets.of(ip) for name in nets.names[net]} == holding


def test_addresses_deleted_one_by_one_cause_one_scan():
    store: Any = None
    registries = Registries(store, clock.now)
    registries.add_stored(BUILTIN.resources, BUILTIN.resource, 3600, {})
    control, after = ServiceCIDRs(registries), dict[str, float]()
    control.queue.add_after = after.__setitem__  # type: ignore[method-assign, assignment]
    control.going.update(a=0.0, b=0.0)
    for _ in range(5):
        control._address_events([SimpleNamespace(record=None)])  # type: ignore[list-item]
    assert after == {LOOK: DELETION_GRACE_S} and not control.queue._order


def test_a_scan_requested_during_another_is_delayed_too(monkeypatch):
    """Addresses that were deleted one by one caused scan after scan."""
    now = [100.0]
    monkeypatch.setattr(servicecidrs, "monotonic", lambda: now[0])
    store: Any = None
    registries = Registries(store, clock.now)
    registries.add_stored(BUILTIN.resources, BUILTIN.resource, 3600, {})
    control, looks = ServiceCIDRs(registries), list[int]()

    async def needed(going: dict[str, Any]) -> set[str]:
        looks.append(len(going))
        now[0] += 2.0
        return set()

    control._needed = needed  # type: ignore[method-assign, assignment]
    assert asyncio.run(control._look()) is None and asyncio.run(control._look()) == 8.0 and looks == [0]
    now[0] += 8.0
    assert asyncio.run(control._look()) is None and looks == [0, 0]


def test_deleting_an_empty_range_does_not_read_the_others():
    """Each of hundreds that are deleted used to read all others."""
    store: Any = None
    registries = Registries(store, clock.now)
    registries.add_stored(BUILTIN.resources, BUILTIN.resource, 3600, {})
    control, read = ServiceCIDRs(registries), list[str]()
    labels = b'{"metadata":{"labels":{"ipaddress.kubernetes.io/managed-by":"ipallocator.k8s.io"}}}'

    async def paced(prefix: str) -> Any:
        for ip in ("none", "10.0.0.1", "10.0.1.1", "10.0.1.2"):
            yield SimpleNamespace(key=prefix + ip, json=labels)

    def cidr(name: str, text: str) -> dict[str, Any]:
        meta = {"name": name} if name == "a" else {"name": name, "deletionTimestamp": "2026-01-01T00:00:00Z"}
        return {"metadata": meta, "spec": {"cidrs": [text]}}

    async def staying() -> Any:
        read.append("servicecidrs")
        for text in ("10.0.1.0/24",):
            yield ipaddress.ip_network(text)

    control.client.paced, control._staying = paced, staying  # type: ignore[method-assign, assignment]

    def needed(*cidrs: dict[str, Any]) -> set[str]:
        return asyncio.run(control._needed({c["metadata"]["name"]: c for c in cidrs}))

    assert not needed(cidr("d", "10.0.2.0/24")) and not needed(cidr("d", "no network")) and not needed() and not read
    assert needed(cidr("b", "10.0.0.0/16"), cidr("e", "10.0.0.0/24"), cidr("f", "10.0.1.0/25")) == {"b", "e"} and len(read) == 1
    assert not needed(cidr("c", "10.0.1.0/24"))  # a stays, and contains them all


def test_one_scan_of_addresses_serves_all_deleted_ranges(tmp_path, monkeypatch):
    """Each of 2,000 scanned all addresses twice, and each that was deleted caused a scan for each of the others."""
    now = [100.0]
    monkeypatch.setattr(servicecidrs, "monotonic", lambda: now[0])

    async def run() -> None:
        async with stored(tmp_path) as registries:
            control = ServiceCIDRs(registries)
            client, looks, real = control.client, list[str](), control.client.paced

            async def make(kind: str, name: str, labels: dict[str, str], **spec: Any) -> None:
                obj = {"kind": kind, "apiVersion": "networking.k8s.io/v1", "metadata": {"name": name, "labels": labels}, "spec": spec}
                assert await client.create("networking.k8s.io", f"{kind.lower()}{'es' if kind == 'IPAddress' else 's'}", obj)

            parent = {"resource": "services", "namespace": "n", "name": "s"}
            managed = {"ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"}
            await make("IPAddress", "10.1.3.7", managed, parentRef=parent)
            names = [f"c{i}" for i in range(6)]
            for i, name in enumerate(names):
                await make("ServiceCIDR", name, {}, cidrs=[f"10.1.{i}.0/24"])
                await control._sync(name)
                await client.delete(control.registry, "", name)
                assert await control._sync(name) is None

            def paced(prefix: str) -> Any:
                looks.append(prefix)
                return real(prefix)

            client.paced = paced  # type: ignore[method-assign]
            assert await control._sync(LOOK) == DELETION_GRACE_S and not looks  # not before other allocators have seen it
            now[0] += DELETION_GRACE_S
            assert await control._sync(LOOK) == RECHECK_S
            left = client.list("networking.k8s.io", "servicecidrs")
            assert [(c["metadata"]["name"], c["status"]["conditions"][0]["status"]) for c in left] == [("c3", "False")]
            assert looks.count(control.addresses.root) == 2  # once more when everything is known
            for name in names:
                await control._sync(name)
            assert list(control.going) == ["c3"]
            await client.update(control.registry, "", "c3", lambda obj: obj["metadata"].pop("finalizers") == [FINALIZER])
            await make("ServiceCIDR", "c3", {}, cidrs=["10.1.3.0/24"])  # another one with that name stays
            await control._sync("c3")
            await control._sync(LOOK)
            assert not control.going and client.get("networking.k8s.io", "servicecidrs", "", "c3")["metadata"]["finalizers"]
            control.queue.clear()

    asyncio.run(run())
