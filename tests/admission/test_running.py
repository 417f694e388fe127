"""Plug-ins in a running server: quotas with concurrent writers, RBAC, and errors at startup."""

from __future__ import annotations

import json
import ssl
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kas.testing.server import KasServer


class Client:
    """JSON over HTTPS: (status code, body)."""

    def __init__(self, server: KasServer, headers: dict[str, str] | None = None) -> None:
        self.url, self.context = server.url, ssl.create_default_context(cafile=server.ca)
        self.headers = {"authorization": f"Bearer {server.token}", "content-type": "application/json", **(headers or {})}

    def __call__(self, method: str, path: str, body: Any = None, content_type: str = "") -> tuple[int, Any]:
        headers = {**self.headers, **({"content-type": content_type} if content_type else {})}
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, context=self.context, timeout=30) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as e:
            return e.code, json.loads(e.read())


def pod(name: str, **resources: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": resources}
    return {"metadata": {"name": name}, "spec": {"containers": [container], "automountServiceAccountToken": False}}


def quota(api: Client, namespace: str, hard: dict[str, str], **spec: Any) -> None:
    """A quota whose status has no usage yet, as the quota controller would write it."""
    where = f"/api/v1/namespaces/{namespace}/resourcequotas"
    code, made = api("POST", where, {"metadata": {"name": "q"}, "spec": {"hard": hard, **spec}})
    assert code == 201, made
    made["status"] = {"hard": hard, "used": dict.fromkeys(hard, "0")}
    assert api("PUT", f"{where}/q/status", made)[0] == 200


def used(api: Client, namespace: str) -> dict[str, str]:
    return api("GET", f"/api/v1/namespaces/{namespace}/resourcequotas/q")[1]["status"]["used"]


def eventually(check: Any, deadline_s: float = 60.0) -> None:
    end = time.monotonic() + deadline_s
    while not check():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """Two workers, without the controllers that would update quotas."""
    with KasServer(tmp_path_factory.mktemp("kas"), "--unsafe-no-fsync", "--controllers", "none", workers=2) as server:
        yield server


@pytest.fixture
def api(running):
    return Client(running)


@pytest.fixture
def ns(api, request):
    name = "n-" + request.node.name.replace("_", "-")[:50].strip("-")
    assert api("POST", "/api/v1/namespaces", {"metadata": {"name": name}})[0] == 201
    assert api("POST", f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": "default"}})[0] == 201
    return name


def test_a_quota_is_never_exceeded(api, running, ns):
    quota(api, ns, {"pods": "5", "requests.cpu": "10"})

    def create(i: int) -> int:
        return Client(running)("POST", f"/api/v1/namespaces/{ns}/pods", pod(f"p{i}", requests={"cpu": "1"}))[0]

    with ThreadPoolExecutor(8) as pool:
        codes = list(pool.map(create, range(24)))
    assert sorted(codes) == [201] * 5 + [403] * 19
    assert used(api, ns) == {"pods": "5", "requests.cpu": "5"}
    assert len(api("GET", f"/api/v1/namespaces/{ns}/pods")[1]["items"]) == 5


def test_error_texts_of_quotas(api, ns):
    quota(api, ns, {"pods": "2", "requests.cpu": "2"})
    where = f"/api/v1/namespaces/{ns}/pods"
    code, e = api("POST", where, pod("a"))
    assert (code, e["message"]) == (403, 'pods "a" is forbidden: failed quota: q: must specify requests.cpu for: c')
    assert api("POST", where, pod("a", requests={"cpu": "1500m"}))[0] == 201
    code, e = api("POST", where, pod("b", requests={"cpu": "1"}))
    assert (code, e["message"]) == (
        403, 'pods "b" is forbidden: exceeded quota: q, requested: requests.cpu=1, used: requests.cpu=1500m, limited: requests.cpu=2',
    )  # fmt: skip


def test_a_quota_without_status(api, ns):
    where = f"/api/v1/namespaces/{ns}/resourcequotas"
    _, made = api("POST", where, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}})
    made["status"] = {"hard": {"pods": "1"}}
    assert api("PUT", f"{where}/q/status", made)[0] == 200
    _, e = api("POST", f"/api/v1/namespaces/{ns}/pods", pod("a"))
    assert e["message"] == 'pods "a" is forbidden: status unknown for quota: q, resources: pods'


def test_quota_is_released_when_the_write_fails(api, ns):
    quota(api, ns, {"count/configmaps": "3"})
    where = f"/api/v1/namespaces/{ns}/configmaps"
    assert api("POST", where, {"metadata": {"name": "a"}})[0] == 201
    assert api("POST", where, {"metadata": {"name": "a"}})[0] == 409
    eventually(lambda: used(api, ns) == {"count/configmaps": "1"})
    assert api("POST", where + "?dryRun=All", {"metadata": {"name": "b"}})[0] == 201
    assert used(api, ns) == {"count/configmaps": "1"}


def test_an_update_uses_quota_for_its_growth(api, ns):
    quota(api, ns, {"services.nodeports": "2", "services": "5"})
    where = f"/api/v1/namespaces/{ns}/services"
    service = {"metadata": {"name": "s"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}}
    code, made = api("POST", where, service)
    assert code == 201, made
    assert used(api, ns) == {"services": "1", "services.nodeports": "1"}
    patch = {"spec": {"ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]}}
    assert api("PATCH", where + "/s", patch, "application/merge-patch+json")[0] == 200
    eventually(lambda: used(api, ns) == {"services": "1", "services.nodeports": "2"})
    patch["spec"]["ports"].append({"name": "c", "port": 82})
    code, e = api("PATCH", where + "/s", patch, "application/merge-patch+json")
    assert code == 403
    why = "exceeded quota: q, requested: services.nodeports=1, used: services.nodeports=2, limited: services.nodeports=2"
    assert why in e["message"]


def test_scopes_of_quotas(api, ns):
    quota(api, ns, {"pods": "0"}, scopes=["BestEffort"])
    where = f"/api/v1/namespaces/{ns}/pods"
    assert api("POST", where, pod("a", requests={"cpu": "1"}))[0] == 201
    assert "exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0" in api("POST", where, pod("b"))[1]["message"]


def test_users_cannot_grant_rights_that_they_lack(api, running, ns):
    roles = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles"
    bindings = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/rolebindings"
    verbs = ["create", "update", "get"]
    writes = [{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"], "verbs": verbs}]
    assert api("POST", roles, {"metadata": {"name": "writer"}, "rules": writes})[0] == 201
    subject = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "bob"}
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "writer"}
    assert api("POST", bindings, {"metadata": {"name": "bob"}, "subjects": [subject], "roleRef": ref})[0] == 201
    bob = Client(running, {"impersonate-user": "bob"})
    more = {"metadata": {"name": "more"}, "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]}
    code, e = bob("POST", roles, more)
    assert code == 403 and "is attempting to grant RBAC permissions not currently held" in e["message"]
    # It precedes the kind's own rules, so that it reports no more errors of an invalid object than upstream's.
    more["rules"].append({"apiGroups": [""], "resources": ["pods"]})
    code, e = bob("POST", roles, more)
    assert code == 403 and "is attempting to grant RBAC permissions not currently held" in e["message"]
    assert api("POST", roles, more)[0] == 422
    code, e = bob("PUT", f"{roles}/writer", {**more, "metadata": {"name": "writer"}})
    assert code == 403 and "is attempting to grant RBAC permissions not currently held" in e["message"]
    code, e = bob("POST", bindings, {"metadata": {"name": "odd"}, "roleRef": {**ref, "kind": "Odd"}})
    assert (code, e["message"]) == (500, 'unsupported role reference kind: "Odd"')
    code, e = bob("POST", bindings, {"metadata": {"name": "none"}})
    assert (code, e["message"]) == (500, 'unsupported role reference kind: ""')
    assert bob("POST", roles, {"metadata": {"name": "same"}, "rules": writes})[0] == 201
    admin = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    assert bob("POST", bindings, {"metadata": {"name": "up"}, "subjects": [subject], "roleRef": admin})[0] == 403


def test_plugins_are_enabled_by_flags(kas_server):
    on = ("--enable-admission-plugins", "NamespaceAutoProvision,AlwaysPullImages")
    server = kas_server(*on, "--disable-admission-plugins", "ServiceAccount")
    api = Client(server)
    code, made = api("POST", "/api/v1/namespaces/fresh/pods", pod("a"))
    assert code == 201, made
    assert made["spec"]["containers"][0]["imagePullPolicy"] == "Always"
    namespace = api("GET", "/api/v1/namespaces/fresh")[1]
    assert namespace["status"]["phase"] == "Active"
    assert namespace["spec"]["finalizers"] == ["kubernetes"]
    assert namespace["metadata"]["labels"] == {"kubernetes.io/metadata.name": "fresh"}
    (entry,) = namespace["metadata"]["managedFields"]
    assert (entry["manager"], entry["operation"], entry["fieldsV1"]) == (
        "kube-apiserver", "Update", {"f:metadata": {"f:labels": {".": {}, "f:kubernetes.io/metadata.name": {}}}},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (("--enable-admission-plugins", "ImagePolicyWebhook"), 'admission plugin "ImagePolicyWebhook": no config specified'),
        (("--enable-admission-plugins", "Nonsense"), '"Nonsense" is unknown'),
    ],
)
def test_invalid_plugin_flags_prevent_startup(kas_server, flags, why):
    with pytest.raises(RuntimeError, match=why):
        kas_server(*flags)
