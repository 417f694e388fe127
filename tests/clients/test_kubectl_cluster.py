"""kubectl on access reviews, events and nodes, and common errors."""

from __future__ import annotations

import base64
import json
import uuid

import pytest

from tests.clients.kubectl import Kubectl, table

pytestmark = pytest.mark.client
every_version = pytest.mark.every_version


@pytest.fixture
def name() -> str:
    return "x" + uuid.uuid4().hex[:8]


# --- access


def test_can_i(k: Kubectl):
    k.apply("policy.yaml")
    assert k.out("auth", "can-i", "create", "pods") == "yes\n"
    assert k("auth", "can-i", "create", "pods", "--as=jane", code=1).stdout.startswith("no")
    assert k.out("auth", "can-i", "list", "nodes", "--as=jane").endswith("yes\n")
    assert k.out("auth", "can-i", "patch", "deployments.apps", "--subresource=scale", "--as=joe", "--as-group=deployers") == "yes\n"
    assert k("auth", "can-i", "delete", "deployments.apps", "--as=joe", "--as-group=deployers", code=1).stdout.startswith("no")


def test_can_i_list(k: Kubectl):
    k.apply("policy.yaml")
    rows = table(k.out("auth", "can-i", "--list", "--as=joe", "--as-group=deployers"))
    assert ["deployments.apps", "[]", "[]", "[get list watch update patch]"] in rows
    assert any(r[0].startswith("selfsubjectaccessreviews") and r[-1] == "[create]" for r in rows)


def test_token_of_a_service_account(k: Kubectl):
    k.apply("policy.yaml")
    k("create", "rolebinding", "deployer-token", "--role=deployer", f"--serviceaccount={k.namespace}:deployer")
    token = k.out("create", "token", "deployer", "--duration=20m").strip()
    payload = token.split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    assert claims["sub"] == f"system:serviceaccount:{k.namespace}:deployer"
    assert claims["exp"] - claims["iat"] == 1200
    assert k.out("--token", token, "get", "deployments", "-o", "name") == ""
    assert "is forbidden" in k.error("--token", token, "get", "secrets")
    if k.minor >= 28:
        assert json.loads(k.out("--token", token, "auth", "whoami", "-o", "json"))["status"]["userInfo"]["username"] == claims["sub"]


def test_reconcile(k: Kubectl):
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "reconciled", "namespace": k.namespace},
        "rules": rules,
    }
    assert "reconciled" in k.out("auth", "reconcile", "-f", "-", stdin=json.dumps(role))
    role["rules"] = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]
    k("auth", "reconcile", "-f", "-", stdin=json.dumps(role))
    assert [r["resources"] for r in k.get("role", "reconciled")["rules"]] == [["pods"], ["secrets"]]


def test_certificate(k: Kubectl, name: str):
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    spec = {
        "request": base64.b64encode(request.public_bytes(serialization.Encoding.PEM)).decode(),
        "signerName": "kubernetes.io/kube-apiserver-client",
        "usages": ["client auth"],
    }
    name = k.namespace + name
    k.create({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name}, "spec": spec})
    assert "approved" in k.out("certificate", "approve", name)
    assert k.get("csr", name)["status"]["conditions"][0]["type"] == "Approved"
    row = table(k.out("get", "csr", name))[1]
    assert row[0] == name and row[-1] in ("Approved", "Approved,Issued")


# --- events


def test_events(k: Kubectl, name: str):
    k("create", "configmap", name)
    about = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": name,
        "namespace": k.namespace,
        "uid": k.get("configmap", name)["metadata"]["uid"],
    }
    k.create(
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": k.namespace},
            "involvedObject": about,
            "type": "Warning",
            "reason": "Tested",
            "message": "somebody looked at it",
            "count": 3,
            "source": {"component": "tester"},
            "firstTimestamp": "2026-01-01T00:00:00Z",
            "lastTimestamp": "2026-01-02T00:00:00Z",
        }
    )
    for rows in (
        table(k.out("events", "--for", f"configmap/{name}")),
        table(k.out("get", "events", "--field-selector", f"involvedObject.name={name},type=Warning", "--sort-by=.lastTimestamp")),
    ):
        assert rows[0] == ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
        row = [*rows[1][1:3], rows[1][3].lower(), *rows[1][4:]]
        assert row == ["Warning", "Tested", f"configmap/{name}", "somebody looked at it"]
    assert "somebody looked at it" in k.out("describe", "configmap", name)


# --- nodes


def test_nodes(k: Kubectl, name: str):
    node = k.namespace + name
    k.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}})
    k("cordon", node)
    assert table(k.out("get", "node", node))[1][1] == "Unknown,SchedulingDisabled"
    k("uncordon", node)
    k("taint", "node", node, "dedicated=web:NoSchedule")
    taints = k.get("node", node)["spec"]["taints"]
    assert {"key": "dedicated", "value": "web", "effect": "NoSchedule"} in taints
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": k.namespace}}
    k.create({**pod, "spec": {"nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "i"}]}})
    assert f"pod/{name} evicted" in k.out("drain", node, "--force", "--ignore-daemonsets", "--timeout=60s")
    assert "Taints:" in k.out("describe", "node", node)
    k("delete", "node", node)


# --- errors


@every_version
def test_errors(k: Kubectl, name: str):
    assert k.error("get", "configmap", name) == f'Error from server (NotFound): configmaps "{name}" not found\n'
    assert "the server doesn't have a resource type" in k.error("get", "nosuchkind")
    k("create", "configmap", name)
    assert k.error("create", "configmap", name).strip().endswith(f'configmaps "{name}" already exists')
    assert f'namespaces "{name}" not found' in k.error("create", "configmap", name, "-n", name)
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {"replica": 1}}
    strict = k.error("create", "-f", "-", stdin=json.dumps(deployment))
    assert 'strict decoding error: unknown field "spec.replica"' in strict
    invalid = k.error("create", "--validate=false", "-f", "-", stdin=json.dumps(deployment))
    assert f'The Deployment "{name}" is invalid' in invalid and "spec.selector: Required value" in invalid
    assert "Error from server (Forbidden)" in k.error("get", "secrets", "--as=jane")
    assert "Unauthorized" in k.error("--token=wrong", "get", "pods")
    assert "Metrics API not available" in k.error("top", "pods")


def test_errors_of_streams(k: Kubectl, name: str):
    """There is no kubelet: kubectl reports that and ends."""
    k("run", name, "--image=busybox", "--restart=Never")
    assert k("logs", name, code=None, timeout=30).returncode in (0, 1)
    assert "does not have a host assigned" in k.error("exec", name, "--", "true", timeout=30)
    assert "NotFound" in k.error("logs", name + "z")
