"""Requests as other components of a cluster send them: in protobuf, with their own identities, under the rules that a server creates at
its first start."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from kas.types.scheme import builtin_kind, decode_protobuf, encode_protobuf, envelope, open_envelope

pytestmark = pytest.mark.client

PROTOBUF, STRATEGIC = "application/vnd.kubernetes.protobuf", "application/strategic-merge-patch+json"
MANAGER, SCHEDULER, KUBELET = "system:kube-controller-manager", "system:kube-scheduler", "system:node:n1"
CONTROLLERS = "system:serviceaccount:kube-system:"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
WHEN = "2026-01-02T03:04:0{}.000001Z"


class Component:
    """Sends objects in protobuf and patches in JSON, and accepts protobuf, as ``user``; returns (status, object)."""

    def __init__(self, server: Any, user: str) -> None:
        self.url, self.session = server.url, requests.Session()
        self.session.trust_env, self.session.verify = False, server.ca
        self.session.headers.update({"Authorization": f"Bearer {server.token}", "Impersonate-User": user, "Accept": PROTOBUF})
        if user == KUBELET:
            self.session.headers["Impersonate-Group"] = "system:nodes"

    def __call__(self, method: str, path: str, api_version: str = "", kind: str = "", **obj: Any) -> tuple[int, dict[str, Any]]:
        data, media = None, PROTOBUF
        if method == "PATCH":
            data, media = json.dumps(obj).encode(), STRATEGIC
        elif kind:
            found = self.kind(api_version, kind)
            data = envelope(api_version, kind, encode_protobuf(found.type, {"apiVersion": api_version, "kind": kind, **obj}))
        answer = self.session.request(method, self.url + path, data=data, headers={"Content-Type": media}, timeout=60)
        assert answer.headers["content-type"] == PROTOBUF, answer.text
        api_version, kind, raw, _ = open_envelope(answer.content)
        found = self.kind(api_version, kind)
        return answer.status_code, {**decode_protobuf(found.type, bytes(raw)), "kind": kind, "apiVersion": api_version}

    @staticmethod
    def kind(api_version: str, name: str) -> Any:
        group, _, version = api_version.rpartition("/")
        return builtin_kind(group, version, name)


@pytest.fixture(scope="module")
def server(module_server: Any) -> Iterator[Any]:
    yield module_server(
        "--unsafe-no-fsync", "--controllers=none", "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction"
    )


@pytest.fixture(scope="module")
def kubelet(server: Any) -> Component:
    """With its node registered."""
    kubelet = Component(server, KUBELET)
    ready = {"type": "Ready", "status": "False", "reason": "KubeletNotReady"}
    status = {"capacity": {"cpu": "2", "pods": "110"}, "allocatable": {"cpu": "2", "pods": "110"}, "conditions": [ready]}
    made = kubelet("POST", "/api/v1/nodes", "v1", "Node", metadata={"name": "n1"}, status=status)
    assert made[0] == 201 and [t["key"] for t in made[1]["spec"]["taints"]] == ["node.kubernetes.io/not-ready"]
    return kubelet


def test_a_kubelet_updates_its_node(kubelet: Component) -> None:
    code, node = kubelet("GET", "/api/v1/nodes/n1?resourceVersion=0")
    assert code == 200
    conditions = {"$setElementOrder/conditions": [{"type": "MemoryPressure"}, {"type": "Ready"}],
                  "conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": "True"}]}  # fmt: skip
    code, node = kubelet("PATCH", "/api/v1/nodes/n1/status", metadata={"uid": node["metadata"]["uid"]}, status=conditions)
    assert code == 200
    assert [(c["type"], c["status"], c.get("reason")) for c in node["status"]["conditions"]] == [
        ("MemoryPressure", "False", None), ("Ready", "True", "KubeletNotReady")]  # fmt: skip

    leases = LEASES.format("kube-node-lease")
    code, lease = kubelet("POST", leases, "coordination.k8s.io/v1", "Lease", metadata={"name": "n1"}, spec={"renewTime": WHEN.format(0)})
    assert code == 201
    lease["spec"]["renewTime"] = WHEN.format(9)
    renew = {"api_version": "coordination.k8s.io/v1", "kind": "Lease", "metadata": lease["metadata"], "spec": lease["spec"]}
    assert kubelet("PUT", f"{leases}/n1?timeout=10s", **renew)[1]["spec"]["renewTime"] == WHEN.format(9)
    assert kubelet("PUT", f"{leases}/n1?timeout=10s", **renew)[1]["reason"] == "Conflict", "with the revision it had before"
    assert kubelet("POST", leases, "coordination.k8s.io/v1", "Lease", metadata={"name": "n2"})[0] == 403
    assert kubelet("GET", "/api/v1/pods?resourceVersion=0")[0] == 403
    assert kubelet("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1&limit=500&resourceVersion=0")[0] == 200


@pytest.mark.parametrize("user", [MANAGER, SCHEDULER])
def test_leader_election_writes_leases_and_events(server: Any, user: str) -> None:
    component, name, leases = Component(server, user), user.removeprefix("system:"), LEASES.format("kube-system")
    code, found = component("GET", f"{leases}/{name}?timeout=5s")
    assert (code, found["details"]["name"]) == (404, name)
    spec = {"holderIdentity": "a", "leaseDurationSeconds": 15, "acquireTime": WHEN.format(0), "renewTime": WHEN.format(0)}
    code, lease = component("POST", leases, "coordination.k8s.io/v1", "Lease", metadata={"name": name}, spec=spec)
    assert (code, lease["spec"]) == (201, spec), "a lease transition of zero times is none"
    spec = {**lease["spec"], "renewTime": WHEN.format(2)}
    code, lease = component("PUT", f"{leases}/{name}", "coordination.k8s.io/v1", "Lease", metadata=lease["metadata"], spec=spec)
    assert (code, lease["spec"]["renewTime"]) == (200, WHEN.format(2))

    events = "/apis/events.k8s.io/v1/namespaces/kube-system/events"
    told = {"eventTime": WHEN.format(0), "reportingController": name, "reportingInstance": "a", "action": "Elect", "reason": "Election",
            "note": "led", "type": "Normal", "regarding": {"kind": "Lease", "namespace": "kube-system", "name": name}}  # fmt: skip
    assert component("POST", events, "events.k8s.io/v1", "Event", metadata={"name": name}, **told)[0] == 201
    for count in (2, 3):
        series = {"count": count, "lastObservedTime": WHEN.format(count)}
        assert component("PATCH", f"{events}/{name}", series=series)[1]["series"] == series
    assert component("PATCH", f"{events}/gone", series={"count": 2})[0] == 404, "then it is created anew"


def test_a_pod_is_created_bound_run_and_deleted(server: Any, kubelet: Component) -> None:
    manager, scheduler, replicas = (Component(server, user) for user in (MANAGER, SCHEDULER, CONTROLLERS + "replicaset-controller"))
    accounts = Component(server, CONTROLLERS + "service-account-controller")
    assert accounts("POST", "/api/v1/namespaces/default/serviceaccounts", "v1", "ServiceAccount", metadata={"name": "default"})[0] == 201
    assert manager("POST", "/api/v1/namespaces/kube-system/serviceaccounts", "v1", "ServiceAccount", metadata={"name": "job"})[0] == 201
    token = manager("POST", "/api/v1/namespaces/kube-system/serviceaccounts/job/token", "authentication.k8s.io/v1", "TokenRequest",
                    spec={"expirationSeconds": 3600})  # fmt: skip
    assert token[0] == 201 and token[1]["status"]["token"]

    code, pod = replicas("POST", "/api/v1/namespaces/default/pods", "v1", "Pod", metadata={"generateName": "p-"},
                         spec={"containers": [{"name": "c", "image": "i"}]})  # fmt: skip
    assert code == 201
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    path, binding = f"/api/v1/namespaces/default/pods/{name}", {"target": {"kind": "Node", "name": "n1"}}
    unfit = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    assert scheduler("PATCH", f"{path}/status", status={"conditions": [unfit]})[1]["status"]["conditions"] == [unfit]
    other = scheduler("POST", f"{path}/binding", "v1", "Binding", metadata={"name": name, "uid": "0-0"}, **binding)
    assert (other[0], other[1]["reason"]) == (409, "Conflict"), "another pod of that name"
    assert scheduler("POST", f"{path}/binding", "v1", "Binding", metadata={"name": name, "uid": uid}, **binding)[0] == 201
    assert scheduler("POST", f"{path}/binding", "v1", "Binding", metadata={"name": name, "uid": uid}, **binding)[0] == 409
    code, bound = scheduler("GET", path)
    assert bound["spec"]["nodeName"] == "n1" and bound["status"]["conditions"][0]["status"] == "True"

    running = {"phase": "Running", "podIP": "10.0.0.9", "conditions": [{"type": "Ready", "status": "True"}]}
    order = {"$setElementOrder/conditions": [{"type": "Ready"}, {"type": "PodScheduled"}]}
    code, ran = kubelet("PATCH", f"{path}/status", metadata={"uid": uid}, status=running | order)
    assert (code, ran["status"]["phase"], [c["type"] for c in ran["status"]["conditions"]]) == (200, "Running", ["Ready", "PodScheduled"])
    assert kubelet("PATCH", f"{path}/status", metadata={"uid": "0-0"}, status=running)[1]["reason"] == "Invalid", "as controllers expect"
    spec = {"expirationSeconds": 3607, "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": name, "uid": uid}}
    tokens = "/api/v1/namespaces/default/serviceaccounts/default/token"
    token = kubelet("POST", tokens, "authentication.k8s.io/v1", "TokenRequest", spec=spec)
    assert token[0] == 201 and token[1]["status"]["token"]

    code, going = replicas("DELETE", path, "v1", "DeleteOptions", gracePeriodSeconds=30)
    assert (code, going["metadata"]["deletionGracePeriodSeconds"]) == (200, 30)
    assert kubelet("DELETE", path, "v1", "DeleteOptions", gracePeriodSeconds=0, preconditions={"uid": "0-0"})[0] == 409
    assert kubelet("DELETE", path, "v1", "DeleteOptions", gracePeriodSeconds=0, preconditions={"uid": uid})[0] == 200
    assert scheduler("GET", path)[0] == 404


def test_a_garbage_collector_deletes_by_metadata(server: Any) -> None:
    """It watches metadata only, and its options are of the group of the object that it deletes."""
    deployments, collector = (Component(server, CONTROLLERS + name) for name in ("deployment-controller", "generic-garbage-collector"))
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    path = "/apis/apps/v1/namespaces/default/replicasets"
    code, made = deployments("POST", path, "apps/v1", "ReplicaSet", metadata={"name": "r"},
                             spec={"selector": {"matchLabels": {"a": "b"}}, "template": template})  # fmt: skip
    assert code == 201
    meta = made["metadata"]
    collector.session.headers["Accept"] = f"{PROTOBUF};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{PROTOBUF}"
    code, listed = collector("GET", f"{path}?limit=500&resourceVersion=0")
    assert (code, listed["kind"], [o["metadata"]["uid"] for o in listed["items"]]) == (200, "PartialObjectMetadataList", [meta["uid"]])
    options = {"propagationPolicy": "Background", "preconditions": {"uid": meta["uid"], "resourceVersion": "1"}}
    collector.session.headers["Accept"] = PROTOBUF
    assert collector("DELETE", f"{path}/r", "apps/v1", "DeleteOptions", **options)[0] == 409
    options["preconditions"] = {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"]}
    assert collector("DELETE", f"{path}/r", "apps/v1", "DeleteOptions", **options)[0] == 200
