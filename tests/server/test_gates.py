"""Feature gates whose value the server passes on, tested in a whole server."""

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
    """``world(*gates, **flags)`` returns a whole server in this process."""
    made: list[World] = []

    def make(*gates: str, **flags: Any) -> World:
        made.append(World(tmp_path / str(len(made)), feature_gates={"": list(gates)}, **flags))
        return made[-1]

    yield make
    for w in made:
        w.close()


@pytest.mark.parametrize("gate", sorted({gate for gate, *_ in GATED}))
def test_resources_are_served_if_their_gate_is_on(gate, world):
    named = {(group, version, resource) for own, group, version, resource in GATED if own == gate}

    def served(state: str) -> set[tuple[str, str, str]]:
        w, found = world(f"{gate}={state}", runtime_config={"api/all": "true"}), set()
        for group, version in {at[:2] for at in named}:
            try:
                body = w.ask(f"/apis/{group}/{version}")[1]
            except ApiError as e:
                assert e.code == 404
                continue
            if body.startswith("{"):  # not the mux's message for a group that is not served
                found |= {(group, version, r["name"]) for r in json.loads(body)["resources"]}
        return found & named

    assert served("true") == named and served("false") == set()


@pytest.mark.parametrize(("state", "seats"), [("true", 2), ("false", 1)])
def test_the_cost_of_lists_follows_their_size_or_number(state, seats, world):
    """There are fewer bootstrap roles than one seat may read, but they are large. All are read to find those with a label."""
    w = world(f"SizeBasedListCostEstimate={state}")
    headers = [(b"authorization", f"Bearer {w.token}".encode()), (b"impersonate-user", b"jane")]  # a user for whom nothing is exempt

    async def ask() -> Any:
        found = w.server.chain(Request("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles", "labelSelector=a", headers))
        return await found if hasattr(found, "__await__") else found

    assert asyncio.run(ask()).status == 403
    told = w.ask("/metrics")[1]
    name = "apiserver_flowcontrol_work_estimated_seats"
    assert [s.value for f in text_string_to_metric_families(told) for s in f.samples if s.name == f"{name}_sum"] == [seats]


async def asked(w: World, method: str, path: str, body: Any = None, **headers: str) -> Any:
    """Returns the Response to a request of the administrator."""
    more = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    sent = [(b"authorization", f"Bearer {w.token}".encode()), (b"content-type", b"application/json"), *more]
    found = w.server.chain(Request(method, path, "", sent, b"" if body is None else json.dumps(body).encode()))
    return await found if hasattr(found, "__await__") else found


def ask(w: World, method: str, path: str, body: Any = None, **headers: str) -> Any:
    return w.loop.run_until_complete(asked(w, method, path, body, **headers))


@pytest.mark.parametrize("on", [True, False])
def test_paths_and_response_forms_follow_their_gates(on, world):
    names = ("ComponentFlagz", "ComponentStatusz", "StorageVersionHash", "APIResponseCompression")
    w = world(*(f"{name}={str(on).lower()}" for name in names))
    paths = json.loads(w.ask("/")[1])["paths"]
    for path in ("/flagz", "/statusz"):
        assert ((path in paths), ask(w, "GET", path, accept="text/plain").status) == ((True, 200) if on else (False, 404))
    hashes = {"storageVersionHash" in r for r in json.loads(w.ask("/apis/apps/v1")[1])["resources"] if "/" not in r["name"]}
    assert hashes == {on}
    config_maps = "/api/v1/namespaces/default/configmaps"
    assert ask(w, "POST", config_maps, {"metadata": {"name": "a"}, "data": {"a": "x" * 200_000}}).status == 201
    large = ask(w, "GET", config_maps, accept_encoding="gzip")
    assert ((b"content-encoding", b"gzip") in large.headers, large.body[:2] == b"\x1f\x8b") == (on, on)


@pytest.mark.parametrize(
    ("gate", "path", "obj"),
    [
        ("RelaxedServiceNameValidation", "/api/v1/namespaces/default/services",
         {"metadata": {"name": "1a"}, "spec": {"ports": [{"port": 1}]}}),
        ("-StrictIPCIDRValidation", "/api/v1/namespaces/default/services",
         {"metadata": {"name": "a"}, "spec": {"ports": [{"port": 1}], "externalIPs": ["192.000.002.001"]}}),
        ("HPAScaleToZero", "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
         {"metadata": {"name": "a"}, "spec": {
             "maxReplicas": 1, "minReplicas": 0, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"},
             "metrics": [{"type": "Object", "object": {
                 "describedObject": {"apiVersion": "v1", "kind": "Service", "name": "a"}, "metric": {"name": "m"},
                 "target": {"type": "Value", "value": "1"},
             }}],
         }}),
    ],
)  # fmt: skip
def test_validation_follows_its_gate(gate, path, obj, world):
    """With the gate it is accepted; a leading dash marks a gate that refuses it."""
    name, taken = gate.removeprefix("-"), gate[0] != "-"
    for on in (True, False):
        w = world(f"{name}={str(on).lower()}")
        answer = ask(w, "POST", path, obj)
        assert answer.status == (201 if on is taken else 422), (on, answer.body)
