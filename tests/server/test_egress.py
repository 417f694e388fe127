"""A server whose outgoing connections go through proxies, to kubelets, pods, aggregated servers and webhooks that cannot be reached
otherwise."""

from __future__ import annotations

import json

import pytest

from kas.testing.server import KasServer
from tests.admission.policy_backend import kubeconfig
from tests.admission.webhook.hook_server import HookServer, raw_answer, reviewed, webhook
from tests.aggregator.backend import Backend
from tests.aggregator.certificates import Authority as Backends
from tests.client.konnectivity_server import KonnectivityServer
from tests.client.proxying import Authority, ConnectProxy, egress_file
from tests.controllers.waiting import until
from tests.endpoints.fakekubelet import FakeKubelet, make_certificate
from tests.endpoints.test_subresources_streams import V5, handshake, make_pod

NODE, POD_IP = "10.77.0.1", "10.77.1.1"


@pytest.fixture(scope="module", params=[ConnectProxy, KonnectivityServer], ids=["http-connect", "grpc"])
def cluster(request, tmp_path_factory):
    """The proxy into the cluster, on a Unix socket."""
    with request.param(str(tmp_path_factory.mktemp("cluster") / "p.sock")) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def plane(tmp_path_factory, cluster):
    """The proxy for the control plane, with TLS; one for each ``cluster``, like the hooks."""
    with ConnectProxy(authority=Authority(tmp_path_factory.mktemp("plane"))) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def hooks(tmp_path_factory, cluster):
    """Webhooks at https://hooks.invalid:9443. They authenticate tokens as jane and admit writes."""

    def answer(asked):
        if asked["path"].startswith("/tokens"):
            status = {"authenticated": asked["body"]["spec"]["token"] == "janes", "user": {"username": "jane"}}
            return raw_answer(json.dumps({**asked["body"], "status": status}).encode())
        return reviewed(asked)

    with HookServer(tmp_path_factory.mktemp("hook"), "hooks.invalid") as server:
        server.answers = answer
        yield server


@pytest.fixture(scope="module")
def server(tmp_path_factory, cluster, plane, hooks):
    folder = tmp_path_factory.mktemp("kas")
    plane.routes["hooks.invalid:9443"] = hooks.port
    tokens = kubeconfig(folder / "tokens", "https://hooks.invalid:9443/tokens", {"certificate-authority-data": hooks.ca_bundle})
    flags = (
        f"--egress-selector-config-file={egress_file(folder, cluster.selection('cluster'), plane.selection('controlplane'))}",
        f"--authentication-token-webhook-config-file={tokens}", "--authentication-token-webhook-version=v1", "--unsafe-no-fsync",
    )  # fmt: skip
    with KasServer(folder, *flags) as running:
        yield running


@pytest.fixture
def call(server, connect):
    return connect(server)


def test_kubelets_and_pods(call, cluster, tmp_path):
    with FakeKubelet(certificate=make_certificate(tmp_path, "127.0.0.1")) as kubelet, FakeKubelet() as pod:
        cluster.routes |= {f"{NODE}:10250": kubelet.port, f"{POD_IP}:8080": pod.port}
        call("POST", "/api/v1/nodes", {"metadata": {"name": "n"}})
        status = {"status": {"addresses": [{"type": "InternalIP", "address": NODE}], "declaredFeatures": ["ExtendWebSocketsToKubelet"]}}
        assert call("PATCH", "/api/v1/nodes/n/status", status, "application/merge-patch+json")[0] == 200
        assert call("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})[0] in (201, 409)
        make_pod(call, "default", "p", "n", 8080, podIPs=[{"ip": POD_IP}], podIP=POD_IP)
        assert call("GET", "/api/v1/namespaces/default/pods/p/log") == (200, "first line\n")
        assert call("GET", "/api/v1/nodes/n/proxy/pods")[1]["path"] == "/pods"
        assert call("GET", "/api/v1/namespaces/default/pods/p/proxy/x")[1]["path"] == "/x"
        _, ws, loop = handshake(call, "/api/v1/namespaces/default/pods/p/exec", "command=cat&stdin=true&stdout=true", [V5])
        loop.run_until_complete(ws.send(b"\x00hello"))
        assert loop.run_until_complete(ws.receive()) == b"\x01HELLO"
        loop.run_until_complete(ws.close())
        loop.close()
    assert {f"{NODE}:10250", f"{POD_IP}:8080"} <= set(cluster.asked)


def test_the_client_sees_why_a_proxy_refused(call, cluster):
    call("POST", "/api/v1/nodes", {"metadata": {"name": "far"}})
    status = {"status": {"addresses": [{"type": "InternalIP", "address": NODE}]}}
    call("PATCH", "/api/v1/nodes/far/status", status, "application/merge-patch+json")
    if isinstance(cluster, ConnectProxy):
        protocol, refused = "http_connect", f"proxy error from {cluster._path} while dialing {NODE}:10250, code 403: 403 Forbidden"
        cluster.says, cluster.closes = b"HTTP/1.1 403 Forbidden\r\n\r\n", True
    else:
        protocol, refused = "grpc", f"dial tcp {NODE}:10250: connect: connection refused"
        cluster.refuses = refused
    try:
        code, body = call("GET", "/api/v1/nodes/far/proxy/pods")
    finally:
        cluster.says, cluster.refuses = b"", ""
    assert code == 503 and body["message"].endswith(f"error trying to reach service: {refused}")
    metrics = call("GET", "/metrics")[1]
    assert f'apiserver_egress_dialer_dial_failure_count{{protocol="{protocol}",stage="proxy",transport="uds"}}' in metrics


def test_an_aggregated_server(call, cluster, tmp_path):
    with Backend(Backends(tmp_path, "backends"), "eg.test", None, ["eg.default.svc"]) as backend:
        service = {"metadata": {"name": "eg"}, "spec": {"type": "ExternalName", "externalName": "eg.invalid"}}
        code, answer = call("POST", "/api/v1/namespaces/default/services", service)
        assert code == 201, answer
        where = "eg.invalid:443"
        cluster.routes[where] = backend.port
        spec = {
            "group": "eg.test", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15, "insecureSkipTLSVerify": True,
            "service": {"namespace": "default", "name": "eg"},
        }  # fmt: skip
        services = "/apis/apiregistration.k8s.io/v1/apiservices"
        assert call("POST", services, {"metadata": {"name": "v1.eg.test"}, "spec": spec})[0] == 201
        until(lambda: call("GET", f"{backend.base}/things")[0] == 200, 60)
        assert where in cluster.asked
        call("DELETE", f"{services}/v1.eg.test")


def test_webhooks_use_the_proxy_of_their_place(call, cluster, plane, hooks, tmp_path):
    """A webhook behind a Service is in the cluster; one with a URL is beside the control plane, like the token webhook."""
    assert call("GET", "/apis", authorization="Bearer janes")[0] == 200
    assert call("GET", "/apis", authorization="Bearer pauls")[0] == 401
    assert plane.asked == ["hooks.invalid:9443"]  # the connection stays open
    with HookServer(tmp_path, "inside.default.svc") as inside:
        spec = {"ports": [{"port": 8443}]}
        service = call("POST", "/api/v1/namespaces/default/services", {"metadata": {"name": "inside"}, "spec": spec})[1]
        where = f"{service['spec']['clusterIP']}:8443"
        cluster.routes[where] = inside.port
        given = [
            webhook({"service": {"namespace": "default", "name": "inside", "port": 8443}, "caBundle": inside.ca_bundle}, "a.b.c"),
            webhook({"url": "https://hooks.invalid:9443/hook", "caBundle": hooks.ca_bundle}, "d.e.f"),
        ]
        path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
        assert call("POST", path, {"metadata": {"name": "w"}, "webhooks": given})[0] == 201
        code, body = call("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "asked"}})
        assert code == 201, body
        assert [len(h.requests(name="asked")) for h in (inside, hooks)] == [1, 1]
        call("DELETE", f"{path}/w")
    assert where in cluster.asked and plane.asked == ["hooks.invalid:9443"] * 2
