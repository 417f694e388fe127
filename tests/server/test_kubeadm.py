"""The command line of a kubeadm static pod starts kas, and everyone with a kubeconfig of kubeadm can do their work and no more."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import requests
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from kas.testing.plugin import servers
from kas.testing.server import KasServer
from tests import pki, prerequisites

NODE = "node-1"
# kubeadm's kubeconfigs: file -> subject.
USERS = {
    "super-admin": [("O", "system:masters"), ("CN", "kubernetes-super-admin")],
    "admin": [("O", "kubeadm:cluster-admins"), ("CN", "kubernetes-admin")],
    "controller-manager": [("CN", "system:kube-controller-manager")],
    "scheduler": [("CN", "system:kube-scheduler")],
    "kubelet": [("O", "system:nodes"), ("CN", f"system:node:{NODE}")],
}
# From the issue's command line; the test chooses --secure-port.
FLAGS = """
--advertise-address=127.0.0.1 --allow-privileged=true --authorization-mode=Node,RBAC --client-ca-file={d}/ca.crt
--enable-admission-plugins=NodeRestriction --enable-bootstrap-token-auth=true --etcd-cafile={d}/etcd-ca.crt
--etcd-certfile={d}/apiserver-etcd-client.crt --etcd-keyfile={d}/apiserver-etcd-client.key --etcd-servers=https://127.0.0.1:2379
--kubelet-client-certificate={d}/apiserver-kubelet-client.crt --kubelet-client-key={d}/apiserver-kubelet-client.key
--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname --proxy-client-cert-file={d}/front-proxy-client.crt
--proxy-client-key-file={d}/front-proxy-client.key --requestheader-allowed-names=front-proxy-client
--requestheader-client-ca-file={d}/front-proxy-ca.crt --requestheader-extra-headers-prefix=X-Remote-Extra-
--requestheader-group-headers=X-Remote-Group --requestheader-username-headers=X-Remote-User
--service-account-issuer=https://kubernetes.default.svc.cluster.local --service-account-key-file={d}/sa.pub
--service-account-signing-key-file={d}/sa.key --service-cluster-ip-range=10.96.0.0/12 --tls-cert-file={d}/apiserver.crt
--tls-private-key-file={d}/apiserver.key
"""
SIGNER = "kubernetes.io/kube-apiserver-client-kubelet"


class Cluster:
    """The files that ``kubeadm init`` creates, and the server."""

    def __init__(self, directory: Path) -> None:
        self.directory = d = directory
        self.ca, front, etcd = pki.authority("kubernetes"), pki.authority("front-proxy-ca"), pki.authority("etcd-ca")
        for authority, name in ((self.ca, "ca"), (front, "front-proxy-ca"), (etcd, "etcd-ca")):
            authority.write(d, name)
        names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "localhost"]
        serving = pki.issue([("CN", "kube-apiserver")], self.ca, usages=("server",), dns=names, ips=["10.96.0.1", "127.0.0.1"])
        serving.write(d, "apiserver")
        kubelet_client = [("O", "kubeadm:cluster-admins"), ("CN", "kube-apiserver-kubelet-client")]
        pki.issue(kubelet_client, self.ca).write(d, "apiserver-kubelet-client")
        pki.issue([("CN", "kube-apiserver-etcd-client")], etcd).write(d, "apiserver-etcd-client")
        pki.issue([("CN", "front-proxy-client")], front).write(d, "front-proxy-client")
        key = rsa.generate_private_key(65537, 2048)
        private = key.private_bytes(pki.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption())
        (d / "sa.key").write_bytes(private)
        (d / "sa.pub").write_bytes(key.public_key().public_bytes(pki.PEM, serialization.PublicFormat.SubjectPublicKeyInfo))
        self.files = {name: pki.issue(subject, self.ca).write(d, name) for name, subject in USERS.items()}
        self.files["front-proxy-client"] = (str(d / "front-proxy-client.crt"), str(d / "front-proxy-client.key"))
        self.server: KasServer

    def started(self, server: KasServer) -> Cluster:
        self.server = server
        ca = base64.b64encode(self.ca.pem).decode()
        for name in USERS:
            cert, key = (base64.b64encode(Path(f).read_bytes()).decode() for f in self.files[name])
            (self.directory / f"{name}.conf").write_text(
                "apiVersion: v1\nkind: Config\ncurrent-context: x\n"
                f"clusters: [{{name: kubernetes, cluster: {{server: '{server.url}', certificate-authority-data: {ca}}}}}]\n"
                f"users: [{{name: x, user: {{client-certificate-data: {cert}, client-key-data: {key}}}}}]\n"
                "contexts: [{name: x, context: {cluster: kubernetes, user: x}}]\n"
            )
        return self

    def ask(self, who: str, method: str, path: str, body=None, headers=None) -> tuple[int, dict]:
        """Makes a request with a client certificate or a token."""
        session = requests.Session()
        session.trust_env = False
        sent = dict(headers or {})
        if who in self.files:
            session.cert = self.files[who]
        else:
            sent["Authorization"] = f"Bearer {who}"
        r = session.request(
            method, self.server.url + path, json=body, headers=sent, verify=str(self.directory / "ca.crt"), timeout=60
        )  # fmt: skip
        return r.status_code, r.json()

    def kubectl(self, who: str, *args: str, stdin: str = "") -> subprocess.CompletedProcess:
        env = {**os.environ, "KUBECONFIG": str(self.directory / f"{who}.conf"), "HOME": str(self.directory), "LC_ALL": "C"}
        return subprocess.run(["kubectl", *args], env=env, input=stdin, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    cluster = Cluster(tmp_path_factory.mktemp("kubernetes"))
    for start in servers(tmp_path_factory):
        # kubeadm's etcd does not exist here.
        cluster.started(start(*FLAGS.format(d=cluster.directory).split(), "--unsafe-no-fsync", "--storage-backend=lmdb"))
        binding = {
            "metadata": {"name": "kubeadm:cluster-admins"}, "roleRef": role("cluster-admin"),
            "subjects": [group("kubeadm:cluster-admins")],
        }  # fmt: skip
        bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
        # kubeadm's admin has what kubeadm binds to its group, with the rights of the super-admin
        assert cluster.ask("admin", "GET", "/api/v1/nodes")[0] == 403
        assert cluster.ask("super-admin", "POST", bindings, binding)[0] == 201
        bootstrap = {
            "metadata": {"name": "kubeadm:kubelet-bootstrap"}, "roleRef": role("system:node-bootstrapper"),
            "subjects": [group("system:bootstrappers:kubeadm:default-node-token")],
        }  # fmt: skip
        assert cluster.ask("admin", "POST", bindings, bootstrap)[0] == 201
        yield cluster


def role(name: str) -> dict:
    return {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}


def group(name: str) -> dict:
    return {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": name}


def node(name: str) -> dict:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}


def pod(name: str, on: str, secret: str = "") -> dict:
    volumes = [{"name": "s", "secret": {"secretName": secret}}] if secret else []
    return {
        "metadata": {"name": name}, "spec": {"nodeName": on, "volumes": volumes, "containers": [{"name": "c", "image": "i"}],
                                             "automountServiceAccountToken": False},
    }  # fmt: skip


def test_flags_without_effect_are_reported_in_one_line_each(cluster):
    lines = cluster.server.output.splitlines()
    for flag in ("etcd-cafile", "etcd-certfile", "etcd-keyfile", "etcd-servers"):
        assert sum(f"--{flag} has no effect: " in line for line in lines) == 1, flag
    assert sum("has no effect" in line for line in lines) == 4


@pytest.mark.client
def test_kubectl_with_the_administrators_kubeconfig(cluster):
    if shutil.which("kubectl") is None:
        prerequisites.give_up("no kubectl on PATH")
    whoami = cluster.kubectl("admin", "auth", "whoami", "-o", "json")
    assert json.loads(whoami.stdout)["status"]["userInfo"]["username"] == "kubernetes-admin", whoami.stderr
    made = cluster.kubectl("admin", "create", "configmap", "c", "--from-literal=a=b")
    assert made.returncode == 0, made.stderr
    assert "kube-system" in cluster.kubectl("admin", "get", "namespaces").stdout
    refused = cluster.kubectl("scheduler", "get", "secrets", "-A")
    assert refused.returncode == 1 and 'User "system:kube-scheduler" cannot list resource "secrets"' in refused.stderr
    assert cluster.kubectl("controller-manager", "get", "secrets", "-A").returncode == 0


def test_a_kubelet_may_do_its_nodes_work(cluster):
    ask = cluster.ask
    assert ask("kubelet", "POST", "/api/v1/nodes", node(NODE))[0] == 201
    code, refused = ask("kubelet", "POST", "/api/v1/nodes", node("node-2"))
    assert code == 403 and f'node "{NODE}" is not allowed to modify node "node-2"' in refused["message"]
    assert ask("admin", "POST", "/api/v1/nodes", node("node-2"))[0] == 201
    for name in ("mine", "others"):
        assert ask("admin", "POST", "/api/v1/namespaces/default/secrets", {"metadata": {"name": name}})[0] == 201
    pods = "/api/v1/namespaces/default/pods"
    assert ask("admin", "POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})[0] in (201, 409)
    code, made = ask("admin", "POST", pods, pod("mine", NODE, "mine"))
    assert code == 201, made
    assert ask("admin", "POST", pods, pod("others", "node-2", "others"))[0] == 201
    secrets = "/api/v1/namespaces/default/secrets"
    assert ask("kubelet", "GET", f"{secrets}/mine")[0] == 200
    code, refused = ask("kubelet", "GET", f"{secrets}/others")
    assert code == 403 and f"no relationship found between node '{NODE}' and this object" in refused["message"]
    assert ask("kubelet", "GET", secrets)[0] == 403
    status = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "mine"}, "status": {"phase": "Running"}}
    patch = {"Content-Type": "application/merge-patch+json"}
    assert ask("kubelet", "PATCH", f"{pods}/mine/status", status, patch)[0] == 200
    assert ask("kubelet", "PATCH", f"{pods}/others/status", {"status": {"phase": "Failed"}}, patch)[0] == 403
    assert ask("kubelet", "DELETE", f"{pods}/others")[0] == 403
    lease = {"metadata": {"name": NODE}, "spec": {"holderIdentity": NODE}}
    assert ask("kubelet", "POST", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", lease)[0] == 201
    assert ask("kubelet", "POST", "/api/v1/namespaces", {"metadata": {"name": "x"}})[0] == 403


def test_the_control_planes_components_may_do_their_work(cluster):
    ask = cluster.ask
    assert ask("scheduler", "GET", "/api/v1/nodes")[0] == 200
    lease = {"metadata": {"name": "kube-scheduler"}, "spec": {}}
    assert ask("scheduler", "POST", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases", lease)[0] == 201
    assert ask("scheduler", "POST", "/api/v1/namespaces/default/pods", pod("x", NODE))[0] == 403
    token = {"spec": {"audiences": ["x"]}}
    code, made = ask("controller-manager", "POST", "/api/v1/namespaces/kube-system/serviceaccounts", {"metadata": {"name": "loop"}})
    assert code in (201, 403), made
    if code == 403:
        assert ask("admin", "POST", "/api/v1/namespaces/kube-system/serviceaccounts", {"metadata": {"name": "loop"}})[0] == 201
    made = ask("controller-manager", "POST", "/api/v1/namespaces/kube-system/serviceaccounts/loop/token", token)
    assert made[0] == 201, made
    assert ask("controller-manager", "POST", "/api/v1/namespaces/default/pods", pod("x", NODE))[0] == 403


def test_a_bootstrap_token_may_only_request_a_certificate(cluster):
    ask = cluster.ask
    data = {
        "token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true",
        "usage-bootstrap-signing": "true", "auth-extra-groups": "system:bootstrappers:kubeadm:default-node-token",
        "expiration": "2999-01-01T00:00:00Z",
    }  # fmt: skip
    secret = {"metadata": {"name": "bootstrap-token-abcdef"}, "type": "bootstrap.kubernetes.io/token", "stringData": data}
    secrets = "/api/v1/namespaces/kube-system/secrets"
    token = "abcdef.0123456789abcdef"
    assert ask(token, "GET", "/api/v1/nodes")[0] == 401
    assert ask("admin", "POST", secrets, secret)[0] == 201
    key = pki.issue([("CN", "x")]).key
    subject = x509.Name([x509.NameAttribute(pki.OIDS["O"], "system:nodes"), x509.NameAttribute(pki.OIDS["CN"], "system:node:node-3")])
    request = x509.CertificateSigningRequestBuilder(subject).sign(key, hashes.SHA256()).public_bytes(pki.PEM)
    csr = {
        "metadata": {"name": "node-csr"},
        "spec": {"request": base64.b64encode(request).decode(), "signerName": SIGNER, "usages": ["digital signature", "client auth"]},
    }
    code, made = ask(token, "POST", "/apis/certificates.k8s.io/v1/certificatesigningrequests", csr)
    assert code == 201, made
    assert made["spec"]["username"] == "system:bootstrap:abcdef"
    assert made["spec"]["groups"] == [
        "system:bootstrappers", "system:bootstrappers:kubeadm:default-node-token", "system:authenticated"
    ]  # fmt: skip
    for path in ("/api/v1/nodes", "/api/v1/secrets", f"{secrets}/bootstrap-token-abcdef"):
        assert ask(token, "GET", path)[0] == 403
    assert ask("admin", "DELETE", f"{secrets}/bootstrap-token-abcdef")[0] == 200
    assert ask(token, "GET", "/api/v1/nodes")[0] == 401


def test_the_front_proxy_names_users(cluster):
    named = {"X-Remote-User": "system:kube-scheduler", "X-Remote-Group": "system:authenticated"}
    assert cluster.ask("front-proxy-client", "GET", "/api/v1/nodes", headers=named)[0] == 200
    assert cluster.ask("front-proxy-client", "GET", "/api/v1/nodes")[0] == 401
    assert cluster.ask("admin", "GET", "/api/v1/nodes", headers={"X-Remote-User": "nobody"})[0] == 200


def test_aggregated_servers_get_the_users_identity(cluster):
    code, found = cluster.ask("admin", "GET", "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication")
    d = cluster.directory
    assert code == 200 and found["data"] == {
        "client-ca-file": (d / "ca.crt").read_text(), "requestheader-client-ca-file": (d / "front-proxy-ca.crt").read_text(),
        "requestheader-allowed-names": '["front-proxy-client"]', "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
        "requestheader-group-headers": '["X-Remote-Group"]', "requestheader-uid-headers": "[]",
        "requestheader-username-headers": '["X-Remote-User"]',
    }  # fmt: skip
