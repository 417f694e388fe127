"""The one spec that upstream's e2e framework has for all resources (``test/e2e/framework/conformance``), for those that use it and others.

An object is created, read, updated, given a status, patched in four ways, each on a new object, listed and deleted with its collection.
Everything that was sent must be there, and informers of all namespaces and of one must receive each step once, in order.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

from tests.conftest import Client

Obj = dict[str, Any]
pytestmark = pytest.mark.client

LABEL = "e2e-test.example.com/spec"
TYPES = {
    "application/strategic-merge-patch+json": "",
    "application/apply-patch+yaml": "&fieldManager=test-apply&force=true",
    "application/merge-patch+json": "",
}
REQUESTS = {"devices": {"requests": [{"name": "req", "exactly": {"deviceClassName": "class"}}]}}
POOL = {"name": "cluster", "generation": 0, "resourceSliceCount": 1}
LEVEL = {"type": "Limited", "limited": {"nominalConcurrencyShares": 2, "limitResponse": {"type": "Reject"}}}
CONDITION = {"type": "E2E", "status": "False", "reason": "Spec", "message": "set", "lastTransitionTime": "2026-01-01T00:00:00Z"}
ALLOCATION = {
    "devices": {"results": [{"request": "req", "driver": "driver-a.test", "pool": "p", "device": "d"}]},
    "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]},
}


class Case(NamedTuple):
    """``change`` is added to the object (a label if there is none), ``status`` to its status."""

    api_version: str
    resource: str
    kind: str
    namespaced: bool
    initial: Obj
    change: Obj = {}
    status: Obj = {}

    @property
    def update(self) -> Obj:
        return self.change or {"metadata": {"labels": {"foo": "bar"}}}


CASES = [
    Case("resource.k8s.io/v1", "deviceclasses", "DeviceClass", False, {"spec": {"selectors": [{"cel": {"expression": "true"}}]}}),
    Case("resource.k8s.io/v1", "resourceclaims", "ResourceClaim", True, {"spec": REQUESTS}, status={"allocation": ALLOCATION}),
    Case("resource.k8s.io/v1", "resourceclaimtemplates", "ResourceClaimTemplate", True, {"spec": {"spec": REQUESTS}}),
    Case(
        "resource.k8s.io/v1", "resourceslices", "ResourceSlice", False,
        {"spec": {"driver": "dra.example.com", "nodeName": "node", "pool": POOL, "devices": [{"name": "device-0"}]}},
    ),
    Case("storage.k8s.io/v1", "storageclasses", "StorageClass", False, {"provisioner": "fake"}, {"mountOptions": ["ro", "soft"]}),
    Case("storage.k8s.io/v1", "volumeattributesclasses", "VolumeAttributesClass", False, {"driverName": "d", "parameters": {"a": "b"}}),
    Case(
        "storage.k8s.io/v1", "volumeattachments", "VolumeAttachment", False,
        {"spec": {"attacher": "a.example.com", "nodeName": "n", "source": {"persistentVolumeName": "pv"}}}, status={"attached": True},
    ),
    Case(
        "flowcontrol.apiserver.k8s.io/v1", "prioritylevelconfigurations", "PriorityLevelConfiguration", False, {"spec": LEVEL},
        {"spec": {"limited": {"nominalConcurrencyShares": 4}}}, status={"conditions": [CONDITION]},
    ),
    Case("policy/v1", "poddisruptionbudgets", "PodDisruptionBudget", True, {"spec": {"minAvailable": 1}}, {"spec": {"minAvailable": 2}}),
    Case("coordination.k8s.io/v1", "leases", "Lease", True, {"spec": {"leaseDurationSeconds": 30}}, {"spec": {"holderIdentity": "h"}}),
    Case("v1", "configmaps", "ConfigMap", True, {"data": {"a": "b"}}, {"data": {"c": "d"}}),
]  # fmt: skip


def added(obj: Obj, change: Obj) -> Obj:
    """The object with these maps merged into it."""
    obj = copy.deepcopy(obj)
    for key, value in change.items():
        obj[key] = added(obj.get(key, {}), value) if isinstance(value, dict) else value
    return obj


def includes(actual: Any, wanted: Any) -> bool:
    """Whether all wanted fields are there; maps may have more."""
    if isinstance(wanted, dict):
        return isinstance(actual, dict) and all(k in actual and includes(actual[k], v) for k, v in wanted.items())
    if isinstance(wanted, list):
        return len(actual) == len(wanted) and all(map(includes, actual, wanted))
    return bool(actual == wanted)


def operations(change: Obj, obj: Obj) -> list[Obj]:
    """A JSON patch that adds to the object what ``added`` adds."""
    out = []
    for key, value in change.items():
        at = "/" + key.replace("/", "~1")
        if isinstance(value, dict) and isinstance(obj.get(key), dict):
            out += [{**op, "path": at + op["path"]} for op in operations(value, obj[key])]
        else:
            out.append({"op": "add", "path": at, "value": value})
    return out


class Spec:
    """One case on a server. ``informers`` receive all events from the start."""

    def __init__(self, client: Client, case: Case, namespace: str, stack: ExitStack) -> None:
        self.client, self.case = client, case
        root = f"/{'apis' if '/' in case.api_version else 'api'}/{case.api_version}"
        self.everywhere = f"{root}/{case.resource}"
        self.path = f"{root}/namespaces/{namespace}/{case.resource}" if case.namespaced else self.everywhere
        self.meta: Obj = {"name": "test" if case.namespaced else f"test-{namespace}", "labels": {LABEL: namespace}}
        if case.namespaced:
            self.meta["namespace"] = namespace
        self.initial = added({"apiVersion": case.api_version, "kind": case.kind, "metadata": self.meta}, case.initial)
        self.name, self.selector = f"/{self.meta['name']}", f"?labelSelector={LABEL}%3D{namespace}"
        self.informers = [self._informed(path, stack) for path in sorted({self.everywhere, self.path})]
        self.found: Obj = {}

    def _informed(self, path: str, stack: ExitStack) -> Iterator[Obj]:
        more = "&watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=60"
        answer = stack.enter_context(self.client.session.get(self.client.server.url + path + self.selector + more, stream=True, timeout=60))
        events = map(json.loads, answer.iter_lines(chunk_size=1))
        first = next(events)
        assert (first["type"], first["object"]["kind"]) == ("BOOKMARK", self.case.kind)
        return events

    def step(self, event: str, method: str, path: str, body: Any = None, ctype: str = "application/json") -> Obj:
        """The response to a write, which informers must receive as this event, after what controllers have written meanwhile."""
        code, body = self.client(method, path, body, ctype)
        assert code in (200, 201), body
        last = int(self.found["metadata"]["resourceVersion"]) if self.found else 0
        self.found = body if event != "DELETED" else {}
        for events in self.informers:
            told = next(e for e in events if e["type"] == event)
            at = int(told["object"]["metadata"]["resourceVersion"])
            assert at > last and told["object"]["metadata"]["name"] == self.meta["name"]
            assert event == "DELETED" or at <= int(body["metadata"]["resourceVersion"])
        return self.found

    def create(self) -> None:
        assert includes(self.step("ADDED", "POST", self.path + "?fieldValidation=Strict", self.initial), self.initial)

    def remove(self, path: str) -> None:
        self.step("DELETED", "DELETE", path)
        assert self.client("GET", self.path + self.name)[0] == 404

    def update(self, change: Obj, subresource: str = "") -> None:
        path = self.path + self.name + subresource
        while True:
            code, obj = self.client("GET", path)
            assert code == 200
            self.found = obj
            code, body = self.client("PUT", path, added(obj, change))
            if code != 409:  # a controller wrote before
                break
        assert code == 200 and includes(body, change), body
        self.found = body
        for events in self.informers:
            revision = body["metadata"]["resourceVersion"]
            assert next(e for e in events if e["object"]["metadata"]["resourceVersion"] == revision)["object"] == body

    def patch(self, ctype: str, change: Obj, subresource: str = "") -> None:
        same = {k: self.found["metadata"][k] for k in ("name", "namespace", "uid") if k in self.found["metadata"]}
        body: Any = added({"apiVersion": self.case.api_version, "kind": self.case.kind, "metadata": same}, change)
        if ctype == "application/json-patch+json":
            body = operations(change, self.found)
        elif ctype == "application/apply-patch+yaml" and not subresource:
            body = added(body, {k: v for k, v in added(self.case.initial, change).items() if k != "metadata"})
        path = f"{self.path}{self.name}{subresource}?fieldValidation=Strict{TYPES.get(ctype, '')}"
        found = self.step("MODIFIED", "PATCH", path, json.dumps(body), ctype)
        assert includes(found, change), (ctype, subresource)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.resource)
def test_every_step_of_a_resource(client: Client, namespace: str, case: Case) -> None:
    with ExitStack() as stack:
        spec = Spec(client, case, namespace, stack)
        _play(spec, case, client)


def _play(spec: Spec, case: Case, client: Client) -> None:
    spec.create()
    spec.update(case.update)
    status = {"status": case.status} if case.status else {}
    if status:
        spec.update(status, "/status")
        assert client("GET", f"{spec.path}{spec.name}/status")[1] == spec.found
    for subresource, change in (("", case.update), ("/status", status)):
        for ctype in (*TYPES, "application/json-patch+json") if change else ():
            spec.remove(spec.path + spec.name)
            spec.create()
            spec.patch(ctype, change, subresource)
    for path in (spec.path, spec.everywhere):
        assert [o["metadata"]["uid"] for o in client("GET", path + spec.selector)[1]["items"]] == [spec.found["metadata"]["uid"]]
    spec.remove(spec.path + spec.selector)
