"""The DRAClaimStatus plug-in alone."""

from __future__ import annotations

from typing import Any

import pytest

from kas.admission.plugins import dra_claim_status
from kas.admission.plugins.dra_claim_status import allocated_node, changed_drivers, on_its_node
from kas.auth.user import NODE_NAME, UserInfo
from kas.config import features
from kas.meta import waiting
from kas.meta.offload import LARGE
from tests.admission.admission_fakes import FakeServer, Request, refused, turns_beside

DRIVER = "gpu.example.com"
NAME = "system:serviceaccount:kube-system:dra"
ON_NODE = UserInfo(NAME, ("system:authenticated",), extra={NODE_NAME: ["n1"]})
ANYWHERE = UserInfo(NAME, ("system:authenticated",))


def allocation(*nodes: str, **more: Any) -> dict[str, Any]:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": list(nodes)}], **more}
    return {"nodeSelector": {"nodeSelectorTerms": [term]}}


def device(name: str = "a", driver: str = DRIVER, **more: Any) -> dict[str, Any]:
    return {"driver": driver, "pool": "p", "device": name, **more}


def status(server: FakeServer, user: UserInfo, new: dict[str, Any], old: dict[str, Any], verb: str = "") -> Request:
    claim = {"metadata": {"name": "c", "namespace": "ns1"}}
    request = Request(
        server.plugin(dra_claim_status), operation="UPDATE", group="resource.k8s.io", resource="resourceclaims", subresource="status",
        kind="ResourceClaim", obj=claim | {"status": new}, old=claim | {"status": old}, user=user,
    )  # fmt: skip
    request.attributes.verb = verb
    return request


@pytest.mark.parametrize("new", [{"allocation": allocation("n1")}, {"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}])
def test_allocation_and_reservations_need_binding(server, new):
    found = refused(status(server, ANYWHERE, new, {}))
    text = (
        'Forbidden: changing status.allocation or status.reservedFor requires resource="resourceclaims/binding", verb="update" permission: '
        f'resourceclaims.resource.k8s.io is forbidden: User "{NAME}" cannot update resource "resourceclaims/binding" in API group '
        '"resource.k8s.io" at the cluster scope'
    )
    assert found.code == 422 and [(c["field"], c["message"]) for c in found.details["causes"]] == [("status", text)]
    server.grants.add((NAME, "update", "resourceclaims/binding", ""))
    status(server, ANYWHERE, new, {}).run()
    assert 'verb="patch"' in refused(status(server, ANYWHERE, new, {}, "patch")).message
    with features.DEFAULT.overridden(DRAResourceClaimGranularStatusAuthorization=False):
        status(server, ANYWHERE, new, {}, "patch").run()


def test_unchanged_parts_need_no_rights(server):
    kept = {"allocation": allocation("n1"), "devices": [device()]}
    status(server, ANYWHERE, kept, kept).run()


@pytest.mark.parametrize(
    ("user", "nodes", "verb", "granted", "refusal"),
    [
        (ON_NODE, ["n1"], "update", "associated-node:update", ""),
        (ON_NODE, ["n1"], "patch", "associated-node:patch", ""),
        (ON_NODE, ["n1"], "update", "arbitrary-node:update", ""),
        (ON_NODE, ["n1"], "update", "update", "[associated-node:update arbitrary-node:update]"),
        (ON_NODE, ["n2"], "update", "associated-node:update", "[arbitrary-node:update]"),
        (ON_NODE, ["n1", "n2"], "update", "associated-node:update", "[arbitrary-node:update]"),
        (ANYWHERE, ["n1"], "update", "associated-node:update", "[arbitrary-node:update]"),
        (ANYWHERE, ["n1"], "update", "arbitrary-node:update", ""),
    ],
)
def test_device_status_needs_a_right_for_the_driver(server, user, nodes, verb, granted, refusal):
    at = {"allocation": allocation(*nodes)}
    server.grants.add((NAME, granted, "resourceclaims/driver", DRIVER))
    request = status(server, user, at | {"devices": [device("new")]}, at | {"devices": [device("old")]}, verb)
    if not refusal:
        request.run()
        return
    cause = refused(request).details["causes"][0]
    assert cause["field"] == "status.devices"
    text = f'Forbidden: changing status.devices requires resource="resourceclaims/driver", verb="{refusal}" permission: '
    assert cause["message"].startswith(text)


def test_changed_drivers_are_found():
    before = {"devices": [device("a"), device("b", "b.example.com"), device("d", "d.example.com")]}
    now = {"devices": [device("a", networkData={"interfaceName": "eth0"}), device("b", "b.example.com"), device("c", "c.example.com")]}
    assert changed_drivers("v1", now, before) == {DRIVER, "c.example.com", "d.example.com"}
    assert changed_drivers("v1", before, before) == set() == changed_drivers("v1beta2", {}, {})


def test_the_node_of_an_allocation():
    assert allocated_node(allocation("n1")) == "n1"
    field = allocation("n1")["nodeSelector"]["nodeSelectorTerms"][0]["matchFields"][0]
    others = [
        None, {}, allocation("n1", matchExpressions=[{"key": "a", "operator": "Exists"}]), allocation("n1", matchFields=[field, field]),
        allocation("n1", matchFields=[{**field, "key": "metadata.namespace"}]),
        allocation("n1", matchFields=[{**field, "operator": "NotIn"}]),
        {"nodeSelector": {"nodeSelectorTerms": [*allocation("n1")["nodeSelector"]["nodeSelectorTerms"]] * 2}},
    ]  # fmt: skip
    assert [allocated_node(one) for one in others] == [""] * len(others)


@pytest.mark.parametrize(
    "user",
    [
        UserInfo("system:node:n1", extra={NODE_NAME: ["n1"]}), UserInfo("jane", extra={NODE_NAME: ["n1"]}), ANYWHERE,
        UserInfo(NAME, extra={NODE_NAME: ["n1", "n2"]}),
    ],
)  # fmt: skip
def test_other_users_are_not_on_the_node_of_the_allocation(user):
    assert on_its_node(ON_NODE, allocation("n1"))
    assert not on_its_node(user, allocation("n1"))
    assert not on_its_node(UserInfo(NAME, extra={NODE_NAME: ["n_1!"]}), allocation("n_1!"))


def test_large_statuses_are_compared_off_the_loop(server):
    found = refused(status(server, ANYWHERE, {"devices": [device(name="x" * LARGE)]}, {}))
    assert [c["field"] for c in found.details["causes"]] == ["status.devices"]


def test_checks_of_drivers_yield_the_loop(server, monkeypatch):
    """A status may name as many drivers as fit into a body, before validation: 40,000 held the loop for seconds."""
    monkeypatch.setattr(waiting, "TIME_SLICE_S", 0.0)
    server.grants |= {(NAME, "arbitrary-node:update", "resourceclaims/driver", f"d{i}") for i in range(5)}
    request = status(server, ANYWHERE, {"devices": [device(driver=f"d{i}") for i in range(5)]}, {})
    turns = turns_beside(request)
    assert turns >= 5
