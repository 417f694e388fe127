"""What a range that goes is held against."""

from __future__ import annotations

import ipaddress
import random
from types import SimpleNamespace
from typing import Any

from kas.controllers.servicecidrs import DELETION_GRACE_S, ServiceCIDRs, _Ranges
from kas.meta import clock
from kas.registry.registries import Registries
from kas.types.scheme import BUILTIN


def test_an_address_is_looked_up_among_ranges():
    rng = random.Random(11)
    for _ in range(40):
        cidrs = [f"10.0.{rng.randrange(4)}.{rng.randrange(16) * 16}/28" for _ in range(rng.randrange(5))]
        cidrs += rng.sample(["10.0.1.0/24", "10.0.0.0/22", "fd00::/120", "fd00::100/120", "0.0.0.0/30"], rng.randrange(3))
        found, networks = _Ranges(cidrs), [ipaddress.ip_network(c) for c in cidrs]
        for _ in range(60):
            ip = ipaddress.ip_address(rng.choice([f"10.0.{rng.randrange(5)}.{rng.randrange(256)}", f"fd00::{rng.randrange(600):x}", "::1"]))
            assert (ip in found) == any(ip in n for n in networks)


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
