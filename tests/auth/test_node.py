"""The Node authorizer: kubelets reach what their pods refer to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kas.api.selectors import parse_field_selector
from kas.auth.attributes import ALLOW, NO_OPINION, Attributes
from kas.auth.authz.abac import PolicyError, load_policy_file, parse_policies
from kas.auth.authz.modes import build
from kas.auth.authz.node import NodeAuthorizer
from kas.auth.authz.node_graph import NodeGraph
from kas.auth.authz.rbac import RbacIndex
from kas.auth.certificates import authorized_for_signer
from kas.auth.user import UserInfo
from kas.registry.bootstrap import role_rules

N1 = UserInfo("system:node:n1", ("system:nodes", "system:authenticated"))
N2 = UserInfo("system:node:n2", ("system:nodes", "system:authenticated"))
POD = {
    "metadata": {"name": "p", "namespace": "ns"},
    "spec": {
        "nodeName": "n1",
        "serviceAccountName": "sa",
        "imagePullSecrets": [{"name": "pull"}],
        "containers": [{"name": "c", "env": [{"name": "E", "valueFrom": {"secretKeyRef": {"name": "env", "key": "k"}}}]}],
        "initContainers": [{"name": "i", "envFrom": [{"configMapRef": {"name": "cm"}}]}],
        "volumes": [
            {"name": "v", "secret": {"secretName": "vol"}},
            {"name": "d", "persistentVolumeClaim": {"claimName": "pvc"}},
            {"name": "e", "ephemeral": {"volumeClaimTemplate": {}}},
            {"name": "t", "projected": {"sources": [{"configMap": {"name": "kube-root-ca.crt"}}, {"secret": {"name": "proj"}}]}},
        ],
        "resourceClaims": [{"name": "rc", "resourceClaimTemplateName": "t"}],
    },
    "status": {"resourceClaimStatuses": [{"name": "rc", "resourceClaimName": "p-rc"}]},
}
PV = {
    "metadata": {"name": "pv"},
    "spec": {
        "claimRef": {"namespace": "ns", "name": "pvc"},
        "csi": {
            "nodeStageSecretRef": {"namespace": "ns", "name": "stage"},
            "controllerPublishSecretRef": {"namespace": "ns", "name": "controller"},
        },
    },
}


@pytest.fixture
def graph():
    graph = NodeGraph()
    graph.put("pods", POD)
    graph.put("persistentvolumes", PV)
    return graph


@pytest.fixture
def authorizer(graph):
    return NodeAuthorizer(graph, role_rules("system:node"))


def ask(authorizer, user, verb, resource, name="", ns="ns", group="", sub="", fields=""):
    a = Attributes(user, verb, ns, group, "v1", resource, sub, name)
    if fields:
        a.field_requirements = parse_field_selector(fields).requirements
    return authorizer.authorize(a)


REACHED = [
    ("secrets", "pull", ""), ("secrets", "env", ""), ("secrets", "vol", ""), ("secrets", "proj", ""), ("secrets", "stage", ""),
    ("configmaps", "cm", ""), ("configmaps", "kube-root-ca.crt", ""), ("persistentvolumeclaims", "pvc", ""),
    ("persistentvolumeclaims", "p-e", ""), ("persistentvolumes", "pv", ""), ("pods", "p", ""),
    ("resourceclaims", "p-rc", "resource.k8s.io"),
]  # fmt: skip


@pytest.mark.parametrize("resource,name,group", REACHED)
def test_own_node_only_and_only_while_the_pod_is_there(graph, authorizer, resource, name, group):
    assert ask(authorizer, N1, "get", resource, name, group=group)[0] == ALLOW
    why = "no relationship found between node 'n2' and this object"
    assert ask(authorizer, N2, "get", resource, name, group=group) == (NO_OPINION, why, "")
    graph.delete("pods", "ns", "p")
    assert ask(authorizer, N1, "get", resource, name, group=group)[0] == NO_OPINION


def test_nothing_else(authorizer):
    no = [
        ("get", "secrets", "other", {}), ("list", "secrets", "", {}), ("create", "secrets", "", {}), ("get", "secrets", "controller", {}),
        ("list", "pods", "", {}), ("list", "pods", "", {"fields": "spec.nodeName=n2"}), ("list", "nodes", "", {"ns": ""}),
        ("get", "nodes", "n2", {"ns": ""}), ("create", "serviceaccounts", "other", {"sub": "token"}),
        ("update", "leases", "n2", {"group": "coordination.k8s.io", "ns": "kube-node-lease"}),
        ("update", "leases", "n1", {"group": "coordination.k8s.io"}), ("get", "csinodes", "n2", {"group": "storage.k8s.io", "ns": ""}),
        ("list", "resourceslices", "", {"group": "resource.k8s.io", "ns": ""}), ("delete", "namespaces", "ns", {"ns": ""}),
    ]  # fmt: skip
    for verb, resource, name, more in no:
        assert ask(authorizer, N1, verb, resource, name, **more)[0] == NO_OPINION, (verb, resource, name)
    yes = [
        ("list", "pods", "", {"fields": "spec.nodeName=n1"}), ("get", "nodes", "n1", {"ns": ""}), ("create", "nodes", "", {"ns": ""}),
        ("create", "serviceaccounts", "sa", {"sub": "token"}), ("patch", "pods", "p", {"sub": "status"}),
        ("update", "leases", "n1", {"group": "coordination.k8s.io", "ns": "kube-node-lease"}), ("watch", "services", "", {"ns": ""}),
        ("create", "events", "", {}), ("list", "resourceslices", "", {"group": "resource.k8s.io", "ns": "", "fields": "spec.nodeName=n1"}),
    ]  # fmt: skip
    for verb, resource, name, more in yes:
        assert ask(authorizer, N1, verb, resource, name, **more)[0] == ALLOW, (verb, resource, name)


def test_only_nodes_are_nodes(authorizer):
    pretender = UserInfo("system:node:n1", ("system:authenticated",))
    assert ask(authorizer, pretender, "get", "secrets", "vol") == (NO_OPINION, "", "")
    nameless = UserInfo("system:node:", ("system:nodes",))
    assert ask(authorizer, nameless, "get", "secrets", "vol")[1] == 'unknown node for user "system:node:"'


def test_mirror_pods_give_nothing():
    graph = NodeGraph()
    graph.put("pods", {**POD, "metadata": {**POD["metadata"], "annotations": {"kubernetes.io/config.mirror": "x"}}})
    assert graph.reaches("n1", "pods", "ns", "p") and not graph.reaches("n1", "secrets", "ns", "vol")


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.integers(0, 2), st.integers(0, 2)), max_size=30))
def test_graph_agrees_with_a_search(steps):
    graph, pods = NodeGraph(), {}
    for put, pod, node, secret in steps:
        if put:
            spec = {"nodeName": f"n{node}", "volumes": [{"name": "v", "secret": {"secretName": f"s{secret}"}}]}
            pods[pod] = (f"n{node}", f"s{secret}")
            graph.put("pods", {"metadata": {"name": f"p{pod}", "namespace": "ns"}, "spec": spec})
        else:
            pods.pop(pod, None)
            graph.delete("pods", "ns", f"p{pod}")
    for n in ("n0", "n1", "n2"):
        for s in ("s0", "s1", "s2"):
            assert graph.reaches(n, "secrets", "ns", s) == ((n, s) in pods.values())
    for pod in list(pods):
        graph.delete("pods", "ns", f"p{pod}")
    assert not graph._nodes and not graph._given


def test_abac(tmp_path):
    lines = [
        "# comment",
        '{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":'
        '{"user":"bob","namespace":"ns","resource":"pods","apiGroup":"*","readonly":true}}',
        '{"user":"alice","resource":"services"}',
        '{"group":"ops"}',
    ]
    path = tmp_path / "policy"
    path.write_text("\n".join(lines))
    abac = build(["ABAC"], abac=load_policy_file(str(path)))

    def may(name, verb, resource, ns="ns", groups=()):
        return ask(abac, UserInfo(name, groups), verb, resource, ns=ns)[0] == ALLOW

    assert may("bob", "get", "pods") and not may("bob", "delete", "pods") and not may("bob", "get", "pods", "other")
    assert may("alice", "delete", "services") and not may("alice", "get", "pods")
    assert may("x", "delete", "anything", groups=("ops",)) and not may("x", "get", "pods")
    assert ask(abac, UserInfo("x"), "get", "pods") == (NO_OPINION, "No policy matched.", "")
    with pytest.raises(PolicyError, match=r":2: "):
        parse_policies('\n{"apiVersion": "v1", "kind": "Pod"}')


def test_signers():
    index = RbacIndex()
    rule = {"verbs": ["approve"], "apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "resourceNames": ["example.com/*"]}
    index.put("clusterroles", {"metadata": {"name": "r"}, "rules": [rule]})
    subjects = [{"kind": "User", "name": "bob"}]
    index.put("clusterrolebindings", {"metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "r"}, "subjects": subjects})
    bob = UserInfo("bob")
    assert authorized_for_signer(index, bob, "approve", "example.com/a")
    assert not authorized_for_signer(index, bob, "sign", "example.com/a")
    assert not authorized_for_signer(index, bob, "approve", "other.com/a")
