"""The Node authorizer: kubelets may read what their pods refer to."""

import pytest
import requests

from kas.auth.attributes import ALLOW, NO_OPINION, Attributes
from kas.auth.authz.node import NodeAuthorizer
from kas.auth.authz.node_graph import NodeGraph
from kas.auth.user import UserInfo
from kas.config import features
from kas.meta.selectors import parse_field_selector
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
    return NodeAuthorizer(graph, lambda: role_rules("system:node"))


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
def test_only_the_own_node_and_only_while_the_pod_exists(graph, authorizer, resource, name, group):
    assert ask(authorizer, N1, "get", resource, name, group=group)[0] == ALLOW
    why = "no relationship found between node 'n2' and this object"
    assert ask(authorizer, N2, "get", resource, name, group=group) == (NO_OPINION, why, "")
    graph.delete("pods", "ns", "p")
    assert ask(authorizer, N1, "get", resource, name, group=group)[0] == NO_OPINION


def test_everything_else_is_refused(authorizer):
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


def test_only_node_users_are_nodes(authorizer):
    pretender = UserInfo("system:node:n1", ("system:authenticated",))
    assert ask(authorizer, pretender, "get", "secrets", "vol") == (NO_OPINION, "", "")
    nameless = UserInfo("system:node:", ("system:nodes",))
    assert ask(authorizer, nameless, "get", "secrets", "vol")[1] == 'unknown node for user "system:node:"'


def test_pod_certificate_requests_belong_to_the_node(graph):
    """While their gate is on; the selector is the one with which a kubelet watches."""
    verbs = ["create", "get", "list", "watch"]
    rule = {"verbs": verbs, "apiGroups": ["certificates.k8s.io"], "resources": ["podcertificaterequests"]}
    rules = role_rules("system:node")
    on, off = NodeAuthorizer(graph, lambda: [*rules, rule]), NodeAuthorizer(graph, lambda: rules)
    graph.put("podcertificaterequests", {"metadata": {"name": "r", "namespace": "ns"}, "spec": {"nodeName": "n1"}})
    certificates = {"resource": "podcertificaterequests", "group": "certificates.k8s.io"}
    own = {"fields": "spec.nodeName=n1"}
    for verb, more in (("create", {}), ("get", {"name": "r"}), ("list", own), ("watch", own)):
        assert ask(on, N1, verb, **certificates, **more)[0] == ALLOW and ask(off, N1, verb, **certificates, **more) == (NO_OPINION, "", "")
    why = "can only list/watch podcertificaterequests with nodeName field selector"
    assert ask(on, N1, "list", **certificates) == ask(on, N2, "watch", **own, **certificates) == (NO_OPINION, why, "")
    assert ask(on, N2, "get", name="r", **certificates)[1] == "no relationship found between node 'n2' and this object"
    why = "nodes may not access the status subresource of PodCertificateRequests"
    gone = "nodes may not delete podcertificaterequests"
    for verb, sub, said in (("delete", "", gone), ("get", "status", why), ("update", "status", why)):
        assert ask(on, N1, verb, name="r", sub=sub, **certificates) == (NO_OPINION, said, "")
        assert ask(off, N1, verb, name="r", sub=sub, **certificates) == (NO_OPINION, "", "")


def test_service_accounts_of_own_pods_can_be_read(authorizer, graph):
    """Credential plug-ins of kubelets read their annotations."""
    assert ask(authorizer, N1, "get", "serviceaccounts", "sa")[0] == ALLOW
    assert ask(authorizer, N2, "get", "serviceaccounts", "sa")[1] == "no relationship found between node 'n2' and this object"
    assert ask(authorizer, N1, "get", "serviceaccounts", "other")[0] == NO_OPINION
    for verb, name, sub in (("list", "", ""), ("watch", "sa", ""), ("get", "sa", "token"), ("delete", "sa", "")):
        said = ask(authorizer, N1, verb, "serviceaccounts", name, sub=sub)
        assert said == (NO_OPINION, "can only create tokens for individual service accounts", "")
    with features.DEFAULT.overridden(KubeletServiceAccountTokenForCredentialProviders=False):
        assert ask(authorizer, N1, "get", "serviceaccounts", "sa") == (NO_OPINION, "not allowed to get service accounts", "")
        assert ask(authorizer, N1, "create", "serviceaccounts", "sa", sub="token")[0] == ALLOW


def test_enabled_gates_add_their_rules(kas_server):
    """The authorizer uses the rules of system:node."""
    server = kas_server(
        "--unsafe-no-fsync", "--controllers=none", "--authorization-mode=Node,RBAC",
        "--feature-gates=ClusterTrustBundle=true,PodCertificateRequest=true",
    )  # fmt: skip
    url, head = f"{server.url}/apis/authorization.k8s.io/v1/subjectaccessreviews", {"Authorization": f"Bearer {server.token}"}
    for verb, resource in (("list", "clustertrustbundles"), ("create", "podcertificaterequests")):
        asked = {"verb": verb, "group": "certificates.k8s.io", "resource": resource, "namespace": ""}
        review = {"spec": {"user": N1.name, "groups": list(N1.groups), "resourceAttributes": asked}}
        answer = requests.post(url, json=review, headers=head, verify=server.ca)
        assert answer.json()["status"]["allowed"] is True, (resource, answer.text)
