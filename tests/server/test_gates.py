"""Gates whose value the server hands on, seen in a whole server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import kas
from kas.meta.errors import ApiError
from kas.request.http import Request
from tests.server.whole import World

TABLE = Path(kas.__file__).parent / "types" / "tables" / "resources.json"
GATED = sorted(
    (r["featureGate"], r["group"], r["version"], r["resource"])
    for r in json.loads(TABLE.read_text())["resources"] if r.get("featureGate")
)  # fmt: skip


@pytest.fixture
def world(tmp_path) -> Iterator[Any]:
    """``world(*gates, **flags)`` is a whole server in this process."""
    made: list[World] = []

    def make(*gates: str, **flags: Any) -> World:
        made.append(World(tmp_path / str(len(made)), feature_gates={"": list(gates)}, **flags))
        return made[-1]

    yield make
    for w in made:
        w.close()


@pytest.mark.parametrize("gate", sorted({gate for gate, *_ in GATED}))
def test_resources_are_served_where_their_gate_is_on(gate, world):
    named = {(group, version, resource) for own, group, version, resource in GATED if own == gate}

    def served(state: str) -> set[tuple[str, str, str]]:
        w, found = world(f"{gate}={state}", runtime_config={"api/all": "true"}), set()
        for group, version in {at[:2] for at in named}:
            try:
                body = w.ask(f"/apis/{group}/{version}")[1]
            except ApiError as e:
                assert e.code == 404
                continue
            if body.startswith("{"):  # not that of the mux for a group nobody serves
                found |= {(group, version, r["name"]) for r in json.loads(body)["resources"]}
        return found & named

    assert served("true") == named and served("false") == set()


@pytest.mark.parametrize(("state", "seats"), [("true", 2), ("false", 1)])
def test_lists_cost_by_their_size_or_by_their_number(state, seats, world):
    """The bootstrap roles, all of which are read to find those with a label, are fewer than a seat reads, but large."""
    w = world(f"SizeBasedListCostEstimate={state}")
    headers = [(b"authorization", f"Bearer {w.token}".encode()), (b"impersonate-user", b"jane")]  # whom nothing is exempt for

    async def ask() -> Any:
        found = w.server.chain(Request("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles", "labelSelector=a", headers))
        return await found if hasattr(found, "__await__") else found

    assert asyncio.run(ask()).status == 403
    told = w.ask("/metrics")[1]
    name = "apiserver_flowcontrol_work_estimated_seats"
    assert [s.value for f in text_string_to_metric_families(told) for s in f.samples if s.name == f"{name}_sum"] == [seats]
