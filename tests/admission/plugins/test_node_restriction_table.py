"""What a node may write, operation by operation (the cases of upstream's ``noderestriction/admission_test.go``)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from kas.admission.plugins import node_restriction
from kas.auth.user import UserInfo
from tests.admission.admission_fakes import FakeServer, Request, pod, refused

NODE = UserInfo("system:node:mynode", ("system:nodes",))
BOB = UserInfo("bob")
PLACES = {"own": "mynode", "other": "othernode", "unbound": ""}
ALLOWED = [
    "kubernetes.io/hostname", "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region",
    "topology.kubernetes.io/zone", "topology.kubernetes.io/region", "beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/os", "beta.kubernetes.io/arch", "kubernetes.io/os", "kubernetes.io/arch", "node.kubernetes.io/windows-build",
    "foo", "example.com/foo", "kubelet.kubernetes.io/foo", "foo.kubelet.kubernetes.io/foo", "node.kubernetes.io/foo",
    "foo.node.kubernetes.io/foo",
]  # fmt: skip
FORBIDDEN = [
    "foo.node-restriction.kubernetes.io/foo", "node-restriction.kubernetes.io/foo", "other.k8s.io/foo", "other.kubernetes.io/foo",
]  # fmt: skip


def owner(**changes: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "name": "mynode", "uid": "mynode-uid", "controller": True, **changes}


def placed(name: str, place: str, mirror: bool) -> dict[str, Any]:
    node = PLACES[place]
    made = pod(name, nodeName=node)
    if mirror:
        owners = [owner(name=node, uid=f"{node}-uid")]
        made["metadata"] |= {"annotations": {"kubernetes.io/config.mirror": "true"}, "ownerReferences": owners}
    return made


@pytest.fixture
def restriction(server: FakeServer) -> Any:
    server.add("", "nodes", {"metadata": {"name": "mynode", "uid": "mynode-uid"}})
    for place, mirror in itertools.product(PLACES, (False, True)):
        server.add("", "pods", placed(f"{place}-{mirror}".lower(), place, mirror))
    return server.plugin(node_restriction)


def judged(request: Request, why: str) -> None:
    """Accepts if there is no ``why``, otherwise refuses with it."""
    if not why:
        request.run()
    else:
        assert why in refused(request).message


def _pod_rule(operation: str, subresource: str, place: str, mirror: bool) -> str:
    """Returns the reason for a refusal, "" if there is none."""
    itself = "spec.nodeName set to itself"
    if (operation, subresource) == ("CREATE", ""):
        return "can only create mirror pods" if not mirror else "" if place == "own" else itself
    if (operation, subresource) in {("DELETE", ""), ("UPDATE", "status"), ("CREATE", "eviction")}:
        return "" if place == "own" else itself
    return "forbidden: unexpected operation"


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE", "DELETE"])
@pytest.mark.parametrize("subresource", ["", "status", "eviction"])
@pytest.mark.parametrize("mirror", [True, False])
@pytest.mark.parametrize("place", PLACES)
def test_pods(restriction: Any, operation: str, subresource: str, place: str, mirror: bool) -> None:
    name = f"{place}-{mirror}".lower()
    there = placed(name, place, mirror)
    sent = {"metadata": {"name": name, "namespace": "ns1"}} if subresource == "eviction" else there
    given: dict[str, Any] = {"operation": operation, "subresource": subresource, "name": name}
    given["obj"] = None if operation == "DELETE" and subresource != "eviction" else sent
    given["old"] = there if operation != "CREATE" and subresource != "eviction" else None
    judged(Request(restriction, user=NODE, **given), _pod_rule(operation, subresource, place, mirror))
    if subresource == "eviction":  # whose own name may be missing: the path has it
        judged(Request(restriction, user=NODE, **given | {"obj": {"metadata": {}}}), _pod_rule(operation, subresource, place, mirror))
    else:
        Request(restriction, user=BOB, **given).run()


@pytest.mark.parametrize("operation, name, body, why", [
    ("CREATE", "gone", "gone", "not found"), ("CREATE", "gone", "", "not found"), ("CREATE", "", "own-false", ""),
    ("UPDATE", "gone", "gone", "forbidden: unexpected operation"), ("DELETE", "", "own-false", "forbidden: unexpected operation"),
    ("CREATE", "", "", "could not determine pod from request data"),
])  # fmt: skip
def test_evictions_without_a_pod_or_a_name(restriction: Any, operation: str, name: str, body: str, why: str) -> None:
    eviction = {"metadata": {"name": body} if body else {}}
    judged(Request(restriction, operation=operation, subresource="eviction", obj=eviction, name=name, user=NODE), why)


def test_a_missing_pod_is_not_deleted(restriction: Any) -> None:
    judged(Request(restriction, operation="DELETE", old=pod("gone"), name="gone", user=NODE), "not found")


@pytest.mark.parametrize("before, after", [
    ({"a": "1"}, {"a": "1", "b": "2"}), ({"a": "1", "b": "2"}, {"a": "1"}), ({}, {"a": "1"}), ({"a": "1"}, {}),
])  # fmt: skip
def test_labels_cannot_change_with_a_status(restriction: Any, before: dict[str, str], after: dict[str, str]) -> None:
    old, new = (placed("own-false", "own", False) for _ in range(2))
    old["metadata"]["labels"], new["metadata"]["labels"] = before, after
    request = Request(restriction, operation="UPDATE", subresource="status", obj=new, old=old, user=NODE)
    judged(request, "cannot update labels through pod status")


@pytest.mark.parametrize("owners, why", [
    ([], 'pods "test" is forbidden: node "mynode" can only create pods with an owner reference set to itself'),
    ([owner()], ""),
    ([owner(), owner()], "can only create pods with a single owner reference set to itself"),
    ([owner(name="other")], "can only create pods with an owner reference set to itself"),
    ([owner(uid="unexpected")], "UID mismatch"),
    ([owner(apiVersion="v2")], "can only create pods with an owner reference set to itself"),
    ([owner(kind="Pod")], "can only create pods with an owner reference set to itself"),
    ([owner(controller=None)], "can only create pods with a controller owner reference set to itself"),
    ([owner(controller=False)], "can only create pods with a controller owner reference set to itself"),
    ([owner(blockOwnerDeletion=True)], "must not set blockOwnerDeletion on an owner reference"),
])  # fmt: skip
def test_owners(restriction: Any, owners: list[dict[str, Any]], why: str) -> None:
    mirror = placed("test", "own", True)
    mirror["metadata"]["ownerReferences"] = owners
    judged(Request(restriction, obj=mirror, user=NODE), why)


def test_a_missing_owner(server: FakeServer) -> None:
    judged(Request(server.plugin(node_restriction), obj=placed("test", "own", True), user=NODE), "not found")


def node(labels: dict[str, str] | None = None, name: str = "mynode", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": "mynode-uid", "labels": labels or {}}, "spec": spec}


CONFIG_A, CONFIG_B = ({"configMap": {"name": n, "namespace": "bar", "uid": n, "kubeletConfigKey": "kubelet"}} for n in ("foo", "qux"))
TAINT_A, TAINT_B = ([{"key": "mykey", "value": v, "effect": "NoSchedule"}] for v in "AB")
MINE, THEIRS = dict.fromkeys(ALLOWED, "v"), dict.fromkeys(FORBIDDEN, "v")
ALL = MINE | THEIRS
SET, MODIFY = (f"is not allowed to {verb}: {', '.join(FORBIDDEN)}" for verb in ("set the following labels", "modify labels"))


@pytest.mark.parametrize("new, old, why", [
    (node(), None, ""), (node(taints=TAINT_A), None, ""), (node(MINE), None, ""), (node(THEIRS), None, SET),
    (node(configSource=CONFIG_A), None, "is not allowed to create pods with a non-nil configSource"),
    (node(), node(), ""), (None, node(), ""),
    (node(configSource=CONFIG_A), node(), "update configSource to a new non-nil configSource"),
    (node(configSource=CONFIG_B), node(configSource=CONFIG_A), "update configSource to a new non-nil configSource"),
    (node(configSource=CONFIG_A), node(configSource=CONFIG_A), ""), (node(), node(configSource=CONFIG_A), ""),
    (node(taints=TAINT_A), node(taints=TAINT_A), ""),
    (node(taints=TAINT_A), node(), "is not allowed to modify taints"), (node(), node(taints=TAINT_A), "is not allowed to modify taints"),
    (node(taints=TAINT_A), node(taints=TAINT_B), "is not allowed to modify taints"),
    (node(MINE), node(), ""), (node(), node(MINE), ""), (node(dict.fromkeys(ALLOWED, "b")), node(MINE), ""), (node(ALL), node(ALL), ""),
    (node(ALL), node(THEIRS), ""), (node(THEIRS), node(ALL), ""),
    (node(THEIRS), node(), MODIFY), (node(), node(THEIRS), MODIFY), (node(dict.fromkeys(FORBIDDEN, "new")), node(THEIRS), MODIFY),
])  # fmt: skip
def test_its_node(restriction: Any, new: dict[str, Any] | None, old: dict[str, Any] | None, why: str) -> None:
    operation = "CREATE" if old is None else "DELETE" if new is None else "UPDATE"
    given: dict[str, Any] = {"operation": operation, "resource": "nodes", "namespace": "", "kind": "Node", "user": NODE}
    judged(Request(restriction, obj=new, old=old, name="mynode", **given), why)
    if operation == "CREATE":  # the path has no name
        judged(Request(restriction, obj=new, name="", **given), why)
    if operation == "UPDATE":
        judged(Request(restriction, obj=new, old=old, subresource="status", name="mynode", **given), why)


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE", "DELETE"])
@pytest.mark.parametrize("subresource", ["", "status"])
def test_other_nodes(restriction: Any, operation: str, subresource: str) -> None:
    theirs = node(name="othernode")
    given: dict[str, Any] = {"operation": operation, "subresource": subresource, "resource": "nodes", "namespace": "", "user": NODE}
    given |= {"obj": None if operation == "DELETE" else theirs, "old": None if operation == "CREATE" else theirs}
    judged(Request(restriction, **given), "is not allowed to modify node")


def token(name: str, uid: str, audiences: tuple[str, ...] = ()) -> dict[str, Any]:
    ref = {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": name, "uid": uid}} if name else {}
    return {"metadata": {"namespace": "ns1"}, "spec": {"audiences": list(audiences), **ref}}


@pytest.mark.parametrize("sent, why", [
    (token("", ""), "not bound to a pod"), (token("nopod", "someuid"), "not found"), (token("own-false", ""), "pod binding without a uid"),
    (token("other-false", "uid-other-false"), "pod scheduled on a different node"),
    (token("own-false", "uid-own-false", ("foo", "bar")), "node may only request 0 or 1 audiences"),
    (token("own-false", "uid-own-false", ("foo",)), 'serviceaccounts "mysa" is forbidden: audience "foo" not found in pod spec volume, '
     "system:node:mynode is not authorized to request tokens for this audience"),
])  # fmt: skip
def test_tokens(restriction: Any, sent: dict[str, Any], why: str) -> None:
    request = Request(restriction, resource="serviceaccounts", subresource="token", kind="TokenRequest", obj=sent, name="mysa", user=NODE)
    judged(request, why)


def test_a_token_that_a_role_allows(restriction: Any, server: FakeServer) -> None:
    server.grants.add((NODE.name, "request-serviceaccounts-token-audience", "foo", "mysa"))
    sent = token("own-false", "uid-own-false", ("foo",))
    Request(restriction, resource="serviceaccounts", subresource="token", kind="TokenRequest", obj=sent, name="mysa", user=NODE).run()


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE", "DELETE"])
@pytest.mark.parametrize("group, resource, namespace, name, fine", [
    ("coordination.k8s.io", "leases", "kube-node-lease", "mynode", True), ("coordination.k8s.io", "leases", "foo", "mynode", False),
    ("coordination.k8s.io", "leases", "kube-node-lease", "foo", False), ("storage.k8s.io", "csinodes", "", "mynode", True),
    ("storage.k8s.io", "csinodes", "", "foo", False), ("", "configmaps", "myns", "mycm", True),
])  # fmt: skip
def test_objects_with_its_name(restriction: Any, operation: str, group: str, resource: str, namespace: str, name: str, fine: bool) -> None:
    one = {"metadata": {"name": name}}
    given: dict[str, Any] = {"obj": None if operation == "DELETE" else one, "old": None if operation == "CREATE" else one}
    request = Request(restriction, operation=operation, group=group, resource=resource, namespace=namespace, name=name, user=NODE, **given)
    judged(request, "" if fine else "forbidden: ")


def claim(condition: str = "Resizing", size: str = "10G", failed: bool = False) -> dict[str, Any]:
    status: dict[str, Any] = {"capacity": {"storage": size}, "phase": "Bound", "allocatedResources": {"storage": size}}
    if failed:
        status["allocatedResourceStatuses"] = {"storage": "NodeResizeInfeasible"}
    if condition:
        status["conditions"] = [{"type": condition, "status": "True"}]
    return {"metadata": {"name": "foo"}, "spec": {"volumeName": "volume1", "resources": {"requests": {"storage": "10G"}}}, "status": status}


@pytest.mark.parametrize("subresource, new, why", [
    ("", claim(""), "is forbidden: may only update PVC status"), ("status", claim("FileSystemResizePending"), ""),
    ("status", claim("FileSystemResizePending", "15G"), ""), ("status", claim(failed=True), ""),
])  # fmt: skip
def test_claims(restriction: Any, subresource: str, new: dict[str, Any], why: str) -> None:
    given: dict[str, Any] = {"resource": "persistentvolumeclaims", "kind": "PersistentVolumeClaim", "user": NODE}
    judged(Request(restriction, operation="UPDATE", subresource=subresource, obj=new, old=claim(), **given), why)


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE", "DELETE"])
@pytest.mark.parametrize("spec", [{"nodeName": "mynode"}, {"nodeName": "mynode-other"}, {}])
def test_slices(restriction: Any, operation: str, spec: dict[str, str]) -> None:
    one = {"metadata": {"name": "something"}, "spec": spec}
    given: dict[str, Any] = {"group": "resource.k8s.io", "resource": "resourceslices", "namespace": "", "user": NODE}
    given |= {"obj": None if operation == "DELETE" else one, "old": None if operation == "CREATE" else one}
    fine = operation == "UPDATE" or spec.get("nodeName") == "mynode"
    why = "" if fine else f"can only {operation.lower()} ResourceSlice with the same NodeName as the requesting node"
    judged(Request(restriction, operation=operation, **given), why)
