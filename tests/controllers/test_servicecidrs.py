"""What a range that goes is held against."""

from __future__ import annotations

import asyncio
import ipaddress
import random
from types import SimpleNamespace
from typing import Any

from kas.controllers.servicecidrs import DELETION_GRACE_S, ServiceCIDRs, _Ranges
from kas.meta import clock
from kas.meta.ip import parse_ip
from kas.registry.registries import Registries
from kas.types.scheme import BUILTIN


def test_an_address_is_looked_up_among_ranges():
    rng = random.Random(11)
    for _ in range(40):
        cidrs = [f"10.0.{rng.randrange(4)}.{rng.randrange(16) * 16}/28" for _ in range(rng.randrange(5))]
        cidrs += rng.sample(["10.0.1.0/24", "10.0.0.0/22", "fd00::/120", "fd00::100/120", "0.0.0.0/30"], rng.randrange(3))
        networks = [ipaddress.ip_network(c) for c in cidrs]
        found = _Ranges(networks)
        for _ in range(60):
            text = rng.choice([f"10.0.{rng.randrange(5)}.{rng.randrange(256)}", f"fd00::{rng.randrange(600):x}", "::1"])
            assert (parse_ip(text) in found) == any(ipaddress.ip_address(text) in n for n in networks)


def test_addresses_that_go_one_by_one_make_one_look():
    store: Any = None
    registries = Registries(store, clock.now)
    registries.add_stored(BUILTIN.resources, BUILTIN.resource, 3600, {})
    control, after = ServiceCIDRs(registries), dict[str, float]()
    control.queue.add_after = after.__setitem__  # type: ignore[method-assign, assignment]
    control.going.add("a")
    for _ in range(5):
        control._address_events([SimpleNamespace(record=None)])  # type: ignore[list-item]
    assert after == {"a": DELETION_GRACE_S} and not control.queue._order


def test_of_a_range_without_an_address_the_others_are_not_read():
    """Each of hundreds that go read all the rest."""
    store: Any = None
    registries = Registries(store, clock.now)
    registries.add_stored(BUILTIN.resources, BUILTIN.resource, 3600, {})
    control, read = ServiceCIDRs(registries), list[str]()
    labels = b'{"metadata":{"labels":{"ipaddress.kubernetes.io/managed-by":"ipallocator.k8s.io"}}}'

    async def paced(prefix: str) -> Any:
        for ip in ("none", "10.0.0.1", "10.0.1.1", "10.0.1.2"):
            yield SimpleNamespace(key=prefix + ip, json=labels)

    def listed(group: str, resource: str) -> list[Any]:
        read.append(resource)
        return [cidr("a", "10.0.1.0/24"), cidr("b", "10.0.0.0/16"), cidr("c", "10.0.1.0/24"), {"metadata": {"name": "e"}}]

    def cidr(name: str, text: str) -> dict[str, Any]:
        meta = {"name": name} if name == "a" else {"name": name, "deletionTimestamp": "2026-01-01T00:00:00Z"}
        return {"metadata": meta, "spec": {"cidrs": [text]}}

    control.client.paced, control.client.list = paced, listed  # type: ignore[method-assign, assignment]
    assert not asyncio.run(control._needed(cidr("d", "10.0.2.0/24"))) and not read
    assert not asyncio.run(control._needed(cidr("d", "no network"))) and not read
    assert asyncio.run(control._needed(cidr("a", "10.0.1.0/24"))) and read == ["servicecidrs"]
    assert not asyncio.run(control._needed(cidr("c", "10.0.1.0/24")))  # a stays, and has them all
