"""Deletes by controllers pass admission, as those of a kube-controller-manager do, and may be refused."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kas.admission import DELETE, Attributes, Chain
from kas.controllers import queue
from kas.controllers.client import Client
from kas.controllers.garbage import GarbageCollector
from kas.meta.errors import conflict
from tests.controllers.stored import stored
from tests.controllers.waiting import until

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"


@pytest.fixture
def protected(call) -> Iterator[str]:
    """While this exists, no controller can delete config maps with a label; returns the binding's path."""
    rule = {"operations": ["DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule], "objectSelector": {"matchLabels": {"protected": "yes"}}},
        "matchConditions": [{"name": "controllers", "expression": "'system:serviceaccounts:kube-system' in request.userInfo.groups"}],
        "validations": [{"expression": "false", "messageExpression": "'kept from ' + request.userInfo.username"}],
    }
    assert call("POST", POLICIES, {"metadata": {"name": "protect"}, "spec": spec})[0] == 201
    binding = {"metadata": {"name": "protect"}, "spec": {"policyName": "protect", "validationActions": ["Deny"]}}
    assert call("POST", BINDINGS, binding)[0] == 201
    yield f"{BINDINGS}/protect"
    call("DELETE", f"{BINDINGS}/protect")
    call("DELETE", f"{POLICIES}/protect")


def config_map(name: str, **meta: object) -> dict:
    return {"metadata": {"name": name, "labels": {"protected": "yes"}, **meta}}


def test_a_protected_object_survives_the_deletion_of_its_namespace(call, protected):
    path = "/api/v1/namespaces/guarded"
    call("POST", "/api/v1/namespaces", {"metadata": {"name": "guarded"}})
    assert call("POST", f"{path}/configmaps", config_map("kept"))[0] == 201
    call("DELETE", path)

    def failure() -> str:
        found = call("GET", path)[1].get("status", {}).get("conditions", [])
        return next((c["message"] for c in found if c["reason"] == "ContentDeletionFailed"), "")

    until(lambda: "kept from system:serviceaccount:kube-system:namespace-controller" in failure())
    assert call("GET", f"{path}/configmaps/kept")[0] == 200
    call("DELETE", protected)
    until(lambda: call("GET", path)[0] == 404)


def test_a_protected_object_survives_the_deletion_of_its_owner(call, protected):
    path = "/api/v1/namespaces/default/configmaps"
    owner = call("POST", path, {"metadata": {"name": "owner"}})[1]
    ref = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    free = {"metadata": {"name": "free", "ownerReferences": [ref]}}
    assert call("POST", path, config_map("dependent", ownerReferences=[ref]))[0] == 201
    assert call("POST", path, free)[0] == 201
    call("DELETE", f"{path}/owner?propagationPolicy=Foreground")
    until(lambda: call("GET", f"{path}/free")[0] == 404)
    # Its dependent blocks nothing, and is checked again and again.
    until(lambda: call("GET", f"{path}/owner")[0] == 404)
    assert call("GET", f"{path}/dependent")[0] == 200
    call("DELETE", protected)
    until(lambda: call("GET", f"{path}/dependent")[0] == 404)


class Conflicting:
    """An admission plug-in that refuses every delete with a code that usually means a conflict, as a webhook may."""

    name = "Conflicting"

    def __init__(self) -> None:
        self.asked = 0

    def handles(self, a: Attributes) -> bool:
        return a.operation == DELETE

    def validate(self, a: Attributes) -> None:
        self.asked += 1
        raise conflict("", "configmaps", a.name, "not now")


def test_a_webhook_that_refuses_with_a_conflict_is_not_called_again_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "FIRST_PAUSE_S", 3600.0)
    monkeypatch.setattr(queue, "LONGEST_PAUSE_S", 3600.0)
    alone: Any = SimpleNamespace(services=SimpleNamespace(remote={}))

    async def run() -> None:
        async with stored(tmp_path) as registries, asyncio.timeout(60):
            refusing, client = Conflicting(), Client(registries, "test")
            collector = GarbageCollector(registries, alone, Chain([refusing]))
            gone = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "0"}
            meta = {"name": "dependent", "namespace": "default", "ownerReferences": [gone]}
            await client.create("", "configmaps", {"kind": "ConfigMap", "apiVersion": "v1", "metadata": meta})
            task = asyncio.create_task(collector.run())
            try:
                while not collector.queue.retries and refusing.asked < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            assert refusing.asked == 1

    asyncio.run(run())
