"""Two tenants: one with ``edit`` in its own namespace tries to reach the other's, and the cluster's objects, in every way that a client
has."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

RBAC = "/apis/rbac.authorization.k8s.io/v1"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
LIMIT_S = 60
POD = {"spec": {"automountServiceAccountToken": False, "containers": [{"name": "c", "image": "i"}]}}


@pytest.fixture
def tenants(mallory, admin, room) -> Iterator[tuple[str, str]]:
    """(mallory's namespace, the other tenant's): mallory has ``edit`` in the first, and the second has an object of each kind."""
    theirs = room + "-other"
    assert admin("POST", "/api/v1/namespaces", {"metadata": {"name": theirs}})[0] in (201, 409)
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
    subject = {"kind": "User", "name": "mallory", "apiGroup": "rbac.authorization.k8s.io"}
    bindings = f"{RBAC}/namespaces/{room}/rolebindings"
    assert admin("POST", bindings, {"metadata": {"name": "edit"}, "roleRef": ref, "subjects": [subject]})[0] in (201, 409)
    for namespace in (room, theirs):
        for kind in ("serviceaccounts", "configmaps", "secrets"):
            body = {"metadata": {"name": "default" if kind == "serviceaccounts" else "x", "labels": {"of": "tenant"}}}
            if kind != "serviceaccounts":
                body["data"] = {"k": "aGlkZGVu"}
            assert admin("POST", f"/api/v1/namespaces/{namespace}/{kind}", body)[0] in (201, 409)
        assert admin("POST", f"/api/v1/namespaces/{namespace}/pods", {"metadata": {"name": "p"}, **POD})[0] in (201, 409)
    # Otherwise the tests below would prove nothing.
    assert mallory("GET", f"/api/v1/namespaces/{room}/secrets/x")[0] == 200
    yield room, theirs
    admin("DELETE", f"/api/v1/namespaces/{theirs}")


def test_reads_lists_and_watches_are_limited_to_the_namespace(mallory, tenants):
    mine, theirs = tenants
    forbidden = [
        f"/api/v1/namespaces/{theirs}/{path}"
        for path in ("secrets", "secrets/x", "secrets?watch=1", "configmaps/x", "pods/p/log", "pods/p/status", "serviceaccounts/default")
    ]
    forbidden += [f"/api/v1/watch/namespaces/{theirs}/secrets", "/api/v1/watch/secrets", f"/api/v1/watch/namespaces/{theirs}/secrets/x"]
    queries = (
        "", "?watch=1", f"?fieldSelector=metadata.namespace%3D{mine}", f"?fieldSelector=metadata.namespace%3D{mine}&watch=1",
        "?labelSelector=of%3Dtenant", "?limit=1", "?resourceVersion=0", "?sendInitialEvents=true&watch=1&resourceVersionMatch=NotOlderThan",
    )  # fmt: skip
    forbidden += [f"/api/v1/{kind}{query}" for kind in ("secrets", "configmaps", "pods") for query in queries]
    forbidden += ["/api/v1/nodes", "/api/v1/namespaces", f"/api/v1/namespaces/{theirs}", f"{RBAC}/clusterroles", "/metrics", "/logs/"]
    for path in forbidden:
        for accept in ("application/json", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"):
            answer = mallory.raw("GET", path, Accept=accept)
            assert answer.status_code == 403 and "aGlkZGVu" not in answer.text, (path, answer.text)


def test_selectors_and_continue_tokens_do_not_reach_other_namespaces(mallory, admin, tenants):
    mine, theirs = tenants
    own = f"/api/v1/namespaces/{mine}/secrets"
    for query in (f"fieldSelector=metadata.namespace%3D{theirs}", f"fieldSelector=metadata.namespace!%3D{mine}"):
        status, body = mallory("GET", f"{own}?{query}")
        assert status == 200 and body["items"] == [], body
    token = admin("GET", "/api/v1/secrets?limit=1")[1]["metadata"].get("continue", "")
    foreign = admin("GET", f"/api/v1/namespaces/{theirs}/configmaps?limit=1")[1]["metadata"].get("continue", "")
    for given in filter(None, (token, foreign)):
        answer = mallory.raw("GET", own, Accept="application/json")
        assert answer.status_code == 200
        answer = mallory.raw("GET", f"{own}?limit=100&continue={given}")
        assert theirs not in json.dumps([i["metadata"]["namespace"] for i in answer.json().get("items", [])]), answer.text


def test_writes_are_limited_to_the_namespace(mallory, admin, tenants):
    _, theirs = tenants
    base = f"/api/v1/namespaces/{theirs}"
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}}
    tries = [
        ("POST", f"{base}/configmaps", body, "application/json"), ("PUT", f"{base}/configmaps/x", {**body, "metadata": {"name": "x"}}, ""),
        ("PATCH", f"{base}/configmaps/x", {"data": {"k": "v"}}, MERGE), ("PATCH", f"{base}/configmaps/new?fieldManager=m", body, APPLY),
        ("DELETE", f"{base}/configmaps/x", None, ""), ("DELETE", f"{base}/configmaps", None, ""), ("DELETE", base, None, ""),
        ("POST", f"{base}/pods/p/eviction", {"metadata": {"name": "p"}}, ""), ("POST", f"{base}/pods/p/binding", {}, ""),
        ("POST", f"{base}/serviceaccounts/default/token", {"spec": {}}, ""), ("GET", f"{base}/pods/p/exec?command=id", None, ""),
        ("POST", f"{base}/pods/p/exec?command=id", None, ""), ("POST", f"{base}/pods/p/portforward", None, ""),
        ("PATCH", f"{base}/pods/p/ephemeralcontainers", {}, MERGE), ("PATCH", f"{base}/pods/p/resize", {}, MERGE),
        ("PUT", f"/api/v1/namespaces/{theirs}/finalize", {}, ""), ("GET", f"{base}/services/http:x:80/proxy/", None, ""),
        ("POST", f"/apis/authorization.k8s.io/v1/namespaces/{theirs}/localsubjectaccessreviews", {}, ""),
        ("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", {}, ""),
        ("POST", "/apis/authentication.k8s.io/v1/tokenreviews", {}, ""),
    ]  # fmt: skip
    for method, path, sent, ctype in tries:
        status, answer = mallory(method, path, sent, ctype or "application/json")
        assert status == 403, (method, path, answer)
        assert mallory(method, path + ("&" if "?" in path else "?") + "dryRun=All", sent, ctype or "application/json")[0] == 403
    assert admin("GET", f"{base}/configmaps/x")[1]["data"] == {"k": "aGlkZGVu"}
    assert admin("GET", f"{base}/configmaps/new")[0] == 404


def test_edit_does_not_lead_to_more_rights(mallory, tenants):
    mine, _ = tenants
    admin_role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    me = [{"kind": "User", "name": "mallory", "apiGroup": "rbac.authorization.k8s.io"}]
    bound = {"metadata": {"name": "b"}, "roleRef": admin_role, "subjects": me}
    everything = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    policy = {"metadata": {"name": "p"}, "spec": {"validations": [{"expression": "true"}]}}
    tries = [
        (f"{RBAC}/namespaces/{mine}/rolebindings", bound), (f"{RBAC}/clusterrolebindings", bound),
        (f"{RBAC}/namespaces/{mine}/roles", {"metadata": {"name": "r"}, "rules": everything}),
        (f"{RBAC}/clusterroles", {"metadata": {"name": "r"}, "rules": everything}),
        ("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", {"metadata": {"name": "w"}}),
        ("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", {"metadata": {"name": "w"}}),
        ("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies", policy),
        ("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings", {"metadata": {"name": "p"}}),
        ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", {"metadata": {"name": "as.example.com"}}),
        ("/apis/apiregistration.k8s.io/v1/apiservices", {"metadata": {"name": "v1.example.com"}}),
        ("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", {"metadata": {"name": "f"}}),
        ("/apis/certificates.k8s.io/v1/certificatesigningrequests", {"metadata": {"name": "c"}}),
        ("/api/v1/namespaces", {"metadata": {"name": "mine-too"}}), ("/api/v1/nodes", {"metadata": {"name": "n"}}),
        ("/api/v1/persistentvolumes", {"metadata": {"name": "v"}}),
        (f"/api/v1/namespaces/{mine}/resourcequotas", {"metadata": {"name": "q"}}),
    ]  # fmt: skip
    for path, body in tries:
        status, answer = mallory("POST", path, body)
        assert status == 403, (path, answer)


@pytest.mark.parametrize(
    "headers",
    [
        {"Impersonate-User": "admin", "Impersonate-Group": "system:masters"},
        {"Impersonate-User": "alice"},
        {"Impersonate-User": "system:serviceaccount:kube-system:default"},
        {"Impersonate-User": "system:node:n1"},
        {"Impersonate-User": "mallory", "Impersonate-Uid": "0"},
        {"Impersonate-User": "mallory", "Impersonate-Extra-scopes": "all"},
    ],
)
def test_impersonating_other_users_is_refused(mallory, tenants, headers):
    _, theirs = tenants
    answer = mallory.raw("GET", f"/api/v1/namespaces/{theirs}/secrets/x", **headers)
    assert answer.status_code == 403 and "impersonate" in answer.text


def test_service_accounts_of_the_namespace_have_no_more_rights_than_edit(mallory, as_user, tenants):
    """``edit`` may impersonate the namespace's service accounts and create their tokens; none of them has rights elsewhere."""
    mine, theirs = tenants
    account = f"system:serviceaccount:{mine}:default"
    assert mallory.raw("GET", f"/api/v1/namespaces/{theirs}/secrets/x", **{"Impersonate-User": account}).status_code == 403
    other = {"Impersonate-User": f"system:serviceaccount:{theirs}:default"}
    assert mallory.raw("GET", f"/api/v1/namespaces/{mine}/secrets", **other).status_code == 403
    status, made = mallory("POST", f"/api/v1/namespaces/{mine}/serviceaccounts/default/token", {"spec": {}})
    assert status in (201, 403)
    if status == 201:
        assert as_user(made["status"]["token"])("GET", f"/api/v1/namespaces/{theirs}/secrets/x")[0] == 403
    # A pod cannot use another namespace's account, nor can a Secret get its token.
    pod = {"metadata": {"name": "q"}, "spec": {**POD["spec"], "serviceAccountName": "none"}}
    assert mallory("POST", f"/api/v1/namespaces/{mine}/pods", pod)[0] == 403
    secrets = f"/api/v1/namespaces/{mine}/secrets"

    def token(name: str) -> str | None:
        return (mallory("GET", f"{secrets}/{name}")[1].get("data") or {}).get("token")

    for name, of in (("t", f"{theirs}/default"), ("own", "default")):
        annotations = {"kubernetes.io/service-account.name": of}
        secret = {"metadata": {"name": name, "annotations": annotations}, "type": "kubernetes.io/service-account-token"}
        assert mallory("POST", secrets, secret)[0] in (201, *((422,) if name == "t" else ()))
    until = time.monotonic() + LIMIT_S
    while not token("own"):
        assert time.monotonic() < until
        time.sleep(0.05)
    assert not token("t")


def test_owners_and_finalizers_do_not_affect_other_namespaces(mallory, admin, tenants):
    mine, theirs = tenants
    victim = admin("GET", f"/api/v1/namespaces/{theirs}/configmaps/x")[1]["metadata"]
    namespace = admin("GET", f"/api/v1/namespaces/{theirs}")[1]["metadata"]
    own = f"/api/v1/namespaces/{mine}/configmaps"
    for kind, meta in (("ConfigMap", victim), ("Namespace", namespace)):
        owner = {"apiVersion": "v1", "kind": kind, "name": meta["name"], "uid": meta["uid"], "blockOwnerDeletion": True}
        body = {"metadata": {"name": f"owned-{kind.lower()}", "ownerReferences": [owner], "finalizers": ["example.com/stay"]}}
        status, answer = mallory("POST", own, body)
        assert status in (201, 403), answer
        assert mallory("DELETE", f"{own}/owned-{kind.lower()}?propagationPolicy=Foreground")[0] in (200, 202, 404)
    assert "deletionTimestamp" not in admin("GET", f"/api/v1/namespaces/{theirs}/configmaps/x")[1]["metadata"]
    assert "deletionTimestamp" not in admin("GET", f"/api/v1/namespaces/{theirs}")[1]["metadata"]
    # Only the tenant's own object waits for a finalizer; the other namespace can still be deleted.
    assert admin("DELETE", f"/api/v1/namespaces/{theirs}")[0] == 200
    until = time.monotonic() + LIMIT_S
    while admin("GET", f"/api/v1/namespaces/{theirs}")[0] != 404:
        assert time.monotonic() < until
        time.sleep(0.2)


def test_self_reviews_show_only_the_user_itself(mallory, tenants):
    mine, theirs = tenants
    rules = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    for namespace, allowed in ((mine, True), (theirs, False), ("", False)):
        asked = {"namespace": namespace, "verb": "get", "resource": "secrets"}
        spec = {"resourceAttributes": asked, "user": "admin", "groups": ["system:masters"]}
        assert mallory("POST", reviews, {"spec": spec})[1]["status"]["allowed"] is allowed
    listed = mallory("POST", rules, {"spec": {"namespace": theirs}})[1]["status"]["resourceRules"]
    assert not any("secrets" in rule.get("resources", ()) or "*" in rule.get("resources", ()) for rule in listed)


@pytest.mark.timeout(180)
def test_a_tenant_that_floods_does_not_delay_the_other(mallory, bystander, tenants):
    """Refusals are cheap, and large bodies are validated off the event loop."""
    mine, theirs = tenants

    def flood() -> None:
        for i in range(300):
            assert mallory("GET", f"/api/v1/namespaces/{theirs}/secrets/x")[0] == 403
            if i % 30 == 0:
                mallory("POST", f"/api/v1/namespaces/{mine}/configmaps", {"metadata": {"generateName": "f-"}, "data": {"k": "v" * 500_000}})

    bystander.beside(flood)
