"""A kas behind a kas whose proxy certificate it trusts."""

from __future__ import annotations

import base64
from pathlib import Path

from kas.testing.server import KasServer
from tests.aggregator.certificates import Authority
from tests.aggregator.conftest import PATIENCE_S, SERVICES
from tests.controllers.waiting import until

JOBS = "/apis/batch/v1/namespaces/default/jobs"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


def test_the_server_behind_knows_the_requests_user(tmp_path, connect):
    front = Authority(tmp_path, "front-proxy")
    certificate, key = front.issue("aggregator")
    believe = (
        f"--requestheader-client-ca-file={front.file}", "--requestheader-allowed-names=aggregator", "--tls-san=behind.default.svc",
        "--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-", "--requestheader-uid-headers=X-Remote-Uid",
    )  # fmt: skip
    common = ("--unsafe-no-fsync", "--controllers=none")
    show = ("--runtime-config=batch/v1=false", "--proxy-client-cert-file", certificate, "--proxy-client-key-file", key)
    with KasServer(tmp_path / "a", *common, *believe) as behind, KasServer(tmp_path / "b", *common, *show) as server:
        call = connect(server)
        service = {"metadata": {"name": "behind"}, "spec": {"type": "ExternalName", "externalName": "localhost"}}
        assert call("POST", "/api/v1/namespaces/default/services", service)[0] == 201
        bundle = base64.b64encode(Path(behind.ca).read_bytes()).decode()
        reference = {"namespace": "default", "name": "behind", "port": behind.port}
        spec = {"group": "batch", "version": "v1", "groupPriorityMinimum": 17400, "versionPriority": 15, "caBundle": bundle}
        assert call("POST", SERVICES, {"metadata": {"name": "v1.batch"}, "spec": {**spec, "service": reference}})[0] == 201
        until(lambda: call("GET", JOBS)[0] == 200, PATIENCE_S)
        role = {"metadata": {"name": "jane"}, "rules": [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["*"]}]}
        ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "jane"}
        subject = {"kind": "User", "name": "jane", "apiGroup": ref["apiGroup"]}
        binding = {"metadata": {"name": "jane"}, "roleRef": ref, "subjects": [subject]}
        assert call("POST", f"{RBAC}/clusterroles", role)[0] == 201
        assert call("POST", f"{RBAC}/clusterrolebindings", binding)[0] == 201
        # She is allowed on this server and not on the other: the refusal comes from the other one, and names her.
        sent = {"Impersonate-User": "jane", "X-Remote-User": "system:admin", "X-Remote-Group": "system:masters"}
        code, answer = call("GET", JOBS, **sent)
        assert (code, answer["reason"]) == (403, "Forbidden"), answer
        assert 'User "jane" cannot list resource "jobs"' in answer["message"]
        other = connect(behind)
        assert other("POST", f"{RBAC}/clusterroles", role)[0] == 201
        assert other("POST", f"{RBAC}/clusterrolebindings", binding)[0] == 201
        assert call("GET", JOBS, **{"Impersonate-User": "jane"})[0] == 200
        # Without the certificate the client is anonymous, whatever the headers say.
        other.session.headers.pop("Authorization")
        assert other("GET", JOBS, **{"X-Remote-User": "jane"})[0] in (401, 403)
        other.session.headers["Authorization"] = f"Bearer {behind.token}"
        trust = other("GET", "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication")[1]["data"]
        assert trust["requestheader-client-ca-file"] == front.file.read_text()
        assert trust["requestheader-allowed-names"] == '["aggregator"]'
