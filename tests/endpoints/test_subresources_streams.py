"""Logs, exec, port forwarding and proxies, with a fake kubelet."""

from __future__ import annotations

import asyncio
import base64
from contextlib import contextmanager

import pytest

from kas.auth.attributes import NO_OPINION
from kas.client.http import Target, insecure_tls
from kas.config import features
from kas.endpoints.proxy_websocket import open_websocket
from kas.endpoints.subresources import connect as connecting
from kas.endpoints.subresources.connect import Connects
from kas.endpoints.subresources.log import log_options
from kas.meta.errors import ApiError
from kas.request.requestinfo import Query
from kas.request.websocket import WebSocketRequest
from tests import ports, prerequisites
from tests.controllers.waiting import until
from tests.endpoints.fakekubelet import FakeKubelet, make_certificate
from tests.filters.requests import request

V4, V5 = "v4.channel.k8s.io", "v5.channel.k8s.io"
POD = {"spec": {"nodeName": "", "containers": [{"name": "c", "image": "x", "ports": [{"containerPort": 1}]}]}}


@contextmanager
def running_kubelet(directory, client, name: str, host: str):
    """A kubelet whose node has this name, with the pod ``p`` of the namespace of that name."""
    with FakeKubelet(host, make_certificate(directory, host)) as k:
        client("POST", "/api/v1/nodes", {"metadata": {"name": name}})
        status = {
            "addresses": [{"type": "InternalIP", "address": host}], "daemonEndpoints": {"kubeletEndpoint": {"Port": k.port}},
            "declaredFeatures": ["ExtendWebSocketsToKubelet"],
        }  # fmt: skip
        code, body = client("PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, "application/merge-patch+json")
        assert code == 200, body
        make_pod(client, name, "p", name)
        yield k
        client("DELETE", f"/api/v1/nodes/{name}")


@pytest.fixture
def kubelet(tmp_path, client, namespace):
    with running_kubelet(tmp_path, client, namespace, "127.0.0.1") as k:
        yield k


@pytest.fixture
def proxied(tmp_path, client, namespace):
    """A backend behind the proxy."""
    with running_kubelet(tmp_path, client, namespace, prerequisites.global_address()) as k:
        yield k


def make_pod(client, namespace: str, name: str, node: str = "", port: int = 1, **status):
    spec = {"containers": [{"name": "c", "image": "x", "ports": [{"containerPort": port}]}]}
    if node:
        spec["nodeName"] = node
    code, body = client("POST", f"/api/v1/namespaces/{namespace}/pods", {"metadata": {"name": name}, "spec": spec})
    assert code == 201, body
    if status:
        url = f"/api/v1/namespaces/{namespace}/pods/{name}/status"
        code, body = client("PATCH", url, {"status": status}, "application/merge-patch+json")
        assert code == 200, body


def handshake(client, path: str, query: str, protocols: list[str], **headers: str):
    """Returns (connection, socket, its loop) of a WebSocket to the API server."""
    loop = asyncio.new_event_loop()
    target = Target("https", "127.0.0.1", str(client.server.port), path, query, insecure_tls())
    sent = [(b"authorization", f"Bearer {client.server.token}".encode())]
    sent = [(k.replace("_", "-").encode(), v.encode()) for k, v in headers.items()] or sent
    connection, ws = loop.run_until_complete(asyncio.wait_for(open_websocket(target, sent, protocols), 60))
    return connection, ws, loop


def under_way(client, subresource: str) -> list[str]:
    """Returns the number of requests for it in flight, by the metrics."""
    text = client.session.get(f"{client.server.url}/metrics", timeout=60).text
    lines = [line for line in text.splitlines() if line.startswith("apiserver_longrunning_requests{")]
    return [line.rpartition(" ")[2] for line in lines if f'scope="resource",subresource="{subresource}",verb="CONNECT"' in line]


def timed(client, what: str) -> float:
    """Returns for how many requests with these labels the metrics have a duration, which is known once they have ended."""
    lines = client.session.get(f"{client.server.url}/metrics", timeout=60).text.splitlines()
    return sum(float(x.rpartition(" ")[2]) for x in lines if x.startswith("apiserver_request_duration_seconds_count{") and what in x)


def test_log_is_streamed_as_it_grows(client, namespace, kubelet):
    url = f"{client.server.url}/api/v1/namespaces/{namespace}/pods/p/log?follow=true&tailLines=5&timestamps=1"
    with client.session.get(url, stream=True, timeout=60) as r:
        assert (r.status_code, r.headers["content-type"]) == (200, "text/plain")
        lines = r.iter_lines()
        assert next(lines) == b"first line"
        assert under_way(client, "log") == ["1"]
        kubelet.more_log.set()
        assert next(lines) == b"second line"
        assert list(lines) == []
    until(lambda: under_way(client, "log") == ["0"])
    seen = kubelet.seen[-1]
    assert seen["path"] == f"/containerLogs/{namespace}/p/c"
    assert seen["query"] == "follow=true&tailLines=5&timestamps=true"
    assert "authorization" not in seen["headers"]


@pytest.mark.parametrize(("protocol", "said"), [
    ("", [b"", b"first line\nno end"]), ("binary.k8s.io", [b"", b"first line\nno end"]),
    ("base64.binary.k8s.io", ["", base64.b64encode(b"first line\nno end").decode()]),
])  # fmt: skip
def test_log_over_websocket(client, namespace, kubelet, protocol, said):
    """As it grows, in a subprotocol that the client knows: browsers fail a handshake that selects none of theirs."""
    kubelet.log_begins = b"first line\nno end"
    connection, ws, loop = handshake(client, f"/api/v1/namespaces/{namespace}/pods/p/log", "", [protocol] if protocol else [])
    assert ws is not None, connection.status
    assert connection.header(b"sec-websocket-protocol") == protocol.encode()

    async def all_of_it():
        got = []
        while (message := await ws.receive()) is not None:
            got.append(message)
        return got

    first, *rest = loop.run_until_complete(asyncio.wait_for(all_of_it(), 60))
    assert [first, type(first)().join(rest)] == said


def test_log_over_websocket_without_a_known_subprotocol(client, namespace, kubelet):
    connection, ws, _ = handshake(client, f"/api/v1/namespaces/{namespace}/pods/p/log", "", ["chat"])
    assert (ws, connection.status) == (None, 403)
    connection.close()
    assert kubelet.seen == []


def test_log_refusals(client, namespace, kubelet):
    base = f"/api/v1/namespaces/{namespace}/pods"
    code, body = client("GET", f"{base}/p/log?previous=true")
    assert (code, body["message"]) == (400, 'previous terminated container "c" in pod "p" not found')
    code, body = client("GET", f"{base}/p/log?container=zz")
    assert (code, body["message"]) == (400, "container zz is not valid for pod p")
    code, body = client("GET", f"{base}/p/log?tailLines=-1&limitBytes=0")
    assert code == 422
    assert [c["field"] for c in body["details"]["causes"]] == ["tailLines", "limitBytes"]
    code, body = client("GET", f"{base}/p/log?stream=Stdout")
    assert (code, body["message"]) == (422, 'PodLogOptions "p" is invalid: stream: Forbidden: may not be specified')
    make_pod(client, namespace, "lost", "no-such-node")
    code, body = client("GET", f"{base}/lost/log")
    assert (code, body["message"]) == (404, 'pods "no-such-node" not found')
    make_pod(client, namespace, "idle")
    assert client("GET", f"{base}/idle/log") == (204, "")


def test_streams_of_a_log():
    with features.DEFAULT.overridden(PodLogsQuerySplitStreams=True):
        assert log_options(Query(""), "p") == [("stream", "All")]
        assert log_options(Query("stream=All&tailLines=5"), "p") == [("stream", "All"), ("tailLines", "5")]
        assert log_options(Query("stream=Stderr&follow=1"), "p") == [("follow", "true"), ("stream", "Stderr")]
        with pytest.raises(ApiError) as e:
            log_options(Query("stream=stderr&tailLines=5"), "p")
        wrong = 'stream: Unsupported value: "stderr": supported values: "All", "Stderr", "Stdout"'
        assert e.value.message.startswith(f'PodLogOptions "p" is invalid: [{wrong}, ')
        assert e.value.message.endswith(", []: Forbidden: `tailLines` and specific `stream` are mutually exclusive for now]")
        with pytest.raises(ApiError) as e:
            log_options(Query("sinceSeconds=5&sinceTime=2024-01-01T00:00:00Z"), "p")
        wrong = "[]: Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified"
        assert e.value.message == f'PodLogOptions "p" is invalid: {wrong}'


def test_log_of_an_unreachable_kubelet(client, namespace, kubelet):
    free = ports.reserve()
    patch = {"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": free}}}}
    client("PATCH", f"/api/v1/nodes/{namespace}/status", patch, "application/merge-patch+json")
    code, body = client("GET", f"/api/v1/namespaces/{namespace}/pods/p/log")
    assert code == 500
    assert body["message"].endswith(f"dial tcp 127.0.0.1:{free}: connect: connection refused")


def test_exec_over_websocket(client, namespace, kubelet):
    path = f"/api/v1/namespaces/{namespace}/pods/p/exec"
    execs = 'resource="pods",scope="resource",subresource="exec",verb="CONNECT"'
    before = timed(client, execs)
    connection, ws, loop = handshake(client, path, "command=cat&command=a+b&stdin=true&stdout=true", [V5])
    assert connection.header(b"sec-websocket-protocol") == V5.encode()
    run = loop.run_until_complete
    run(ws.send(b"\x00hello"))
    assert run(ws.receive()) == b"\x01HELLO"
    assert under_way(client, "exec") == ["1"]
    run(ws.send(b"\xff\x00"))
    assert run(ws.receive()) == b'\x03{"metadata":{},"status":"Success"}'
    assert run(ws.receive()) is None
    run(ws.close())
    until(lambda: timed(client, execs) > before)
    seen = kubelet.seen[-1]
    assert (seen["path"], seen["query"]) == (f"/exec/{namespace}/p/c", "command=cat&command=a+b&input=1&output=1")
    assert "authorization" not in seen["headers"]


def declare(client, node: str, *features: str) -> None:
    patch = {"status": {"declaredFeatures": list(features)}}
    assert client("PATCH", f"/api/v1/nodes/{node}/status", patch, "application/merge-patch+json")[0] == 200


def test_exec_with_a_kubelet_without_declared_features(client, namespace, kubelet):
    """stdin ends though the client still reads: otherwise a command that reads it to its end would not end."""
    declare(client, namespace, "SomethingElse")
    kubelet.speaks_spdy = True
    path = f"/api/v1/namespaces/{namespace}/pods/p/exec"
    connection, ws, loop = handshake(client, path, "command=cat&stdin=1&stdout=1&stderr=1", [V5, V4])
    assert connection.header(b"sec-websocket-protocol") == V5.encode()
    run = loop.run_until_complete
    run(ws.send(b"\x00hello"))
    assert run(ws.receive()) == b"\x01HELLO"
    long = b"x" * 100_000
    run(ws.send(b"\x00" + long))
    got = b""
    while len(got) < len(long):
        piece = run(ws.receive())
        assert piece[:1] == b"\x01"
        got += piece[1:]
    assert got == long.upper()
    for nothing in (b"", b"\x01not mine to say", b"\x07nobody's", b"\xff", b"\xff\x01"):
        run(ws.send(nothing))
    run(ws.send(b"\xff\x00"))
    assert run(ws.receive()) == b'\x03{"metadata":{},"status":"Success"}'
    assert run(ws.receive()) is None and ws.code == 1000
    run(ws.close())
    seen = kubelet.seen[-1]
    assert (seen["method"], seen["path"], seen["query"]) == ("POST", f"/exec/{namespace}/p/c", "command=cat&error=1&input=1&output=1")
    assert seen["headers"]["x-stream-protocol-version"] == V4
    assert [s for s in kubelet.streams if s != "ping"] == ["error", "stdin", "stdout", "stderr"] and "ping" in kubelet.streams


def test_a_terminal_has_a_size_and_no_stderr(client, namespace, kubelet):
    declare(client, namespace)
    kubelet.speaks_spdy = True
    base = f"/api/v1/namespaces/{namespace}/pods/p/attach"
    _, ws, loop = handshake(client, base, "stdin=1&stdout=1&stderr=1&tty=1", [V5])
    run = loop.run_until_complete
    run(ws.send(b'\x04{"Width":80,"Height":24}'))
    run(ws.send(b"\x00a"))
    assert run(ws.receive()) == b"\x01A"
    run(ws.close())
    assert kubelet.gone.wait(60)
    assert [s for s in kubelet.streams if s != "ping"] == ["error", "stdin", "stdout", "resize", 'resize: {"Width":80,"Height":24}']


def test_port_forward_is_passed_through_to_kubelets_that_declare_it(client, namespace, kubelet):
    kubelet.protocols = (protocol := "SPDY/3.1+portforward.k8s.io",)
    connection, ws, loop = handshake(client, f"/api/v1/namespaces/{namespace}/pods/p/portforward", "", [protocol])
    assert connection.header(b"sec-websocket-protocol") == protocol.encode()
    loop.run_until_complete(ws.close())
    assert kubelet.seen[-1]["headers"]["upgrade"] == "websocket"


@pytest.mark.parametrize("path", ["namespaces/{}/pods/p/exec", "nodes/{}/proxy/ws"])
def test_a_token_in_the_subprotocols_is_not_passed_on(client, namespace, proxied, path):
    token = base64.urlsafe_b64encode(client.server.token.encode()).decode().rstrip("=")
    secret = f"base64url.bearer.authorization.k8s.io.{token}"
    connection, ws, loop = handshake(client, "/api/v1/" + path.format(namespace), "command=x&stdout=1", [V5, secret], origin="http://a")
    assert ws is not None, connection.status
    assert connection.header(b"sec-websocket-protocol") == V5.encode()
    loop.run_until_complete(ws.close())
    assert token not in str(proxied.seen[-1])


def test_closing_the_client_closes_the_kubelet(client, namespace, kubelet):
    _, ws, loop = handshake(client, f"/api/v1/namespaces/{namespace}/pods/p/attach", "stdout=1", [V5])
    loop.run_until_complete(ws.close())
    assert kubelet.gone.wait(60)


def test_a_refused_upgrade_is_reported(client, namespace, kubelet):
    base = f"/api/v1/namespaces/{namespace}/pods"
    for path, code, text in (
        (f"{base}/nope/exec", 404, b'pods \\"nope\\" not found'),
        (f"{base}/p/exec", 403, b"no protocol"),
    ):
        connection, ws, loop = handshake(client, path, "command=x&stdout=1", ["unknown"])
        assert ws is None
        assert connection.status == code
        assert text in loop.run_until_complete(connection.read(10000))
        connection.close()


def test_exec_needs_an_upgrade_and_refuses_spdy_here(client, namespace, kubelet):
    path = f"/api/v1/namespaces/{namespace}/pods/p/exec?command=x&stdout=1"
    code, body = client("GET", path)
    assert (code, body["message"]) == (400, "Upgrade request required")
    code, body = client("POST", path, Upgrade="SPDY/3.1", Connection="Upgrade")
    assert (code, body["reason"]) == (501, "NotImplemented")
    assert kubelet.seen[-1]["headers"]["upgrade"] == "SPDY/3.1", "nothing is run on a connection that ends at once"


def test_an_unreachable_kubelet_is_reported_to_spdy_clients(client, namespace, kubelet):
    """kubectl falls back to SPDY once its WebSocket was refused, and shows that answer."""
    status = {"daemonEndpoints": {"kubeletEndpoint": {"Port": ports.reserve()}}}
    assert client("PATCH", f"/api/v1/nodes/{namespace}/status", {"status": status}, "application/merge-patch+json")[0] == 200
    for path in ("exec?command=x&stdout=1", "attach?stdout=1", "portforward"):
        code, body = client("POST", f"/api/v1/namespaces/{namespace}/pods/p/{path}", Upgrade="SPDY/3.1", Connection="Upgrade")
        assert code == 500 and body["message"].startswith("error dialing backend: dial tcp 127.0.0.1:"), body


def test_get_alone_does_not_allow_exec(client, namespace, kubelet):
    rules = [{"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get"]}]
    client("POST", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles", {"metadata": {"name": "r"}, "rules": rules})
    binding = {
        "metadata": {"name": "b"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [{"kind": "User", "name": "jane"}],
    }  # fmt: skip
    client("POST", f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings", binding)
    path = f"/api/v1/namespaces/{namespace}/pods/p/exec"
    who = {"authorization": f"Bearer {client.server.token}", "impersonate_user": "jane"}
    connection, ws, _ = handshake(client, path, "command=x&stdout=1", [V5], **who)
    assert (ws, connection.status) == (None, 403)
    connection.close()


def test_with_the_gate_off_get_alone_allows_exec():
    """As before kubernetes#133515; with the gate on, the right to create is required."""
    asked = []

    class Nobody:
        def authorize(self, a):
            asked.append((a.verb, a.resource, a.subresource, a.name))
            return NO_OPINION, "", ""

    connects = Connects(None, None, Nobody(), None)  # type: ignore[arg-type]  # who is asked is all that counts
    req = request(path="/api/v1/namespaces/ns/pods/p/exec")
    with features.DEFAULT.overridden(AuthorizePodWebsocketUpgradeCreatePermission=False):
        asyncio.run(connects._authorize_create(req))
    assert asked == []
    with pytest.raises(ApiError) as refused:
        asyncio.run(connects._authorize_create(req))
    assert (refused.value.code, asked) == (403, [("create", "pods", "exec", "p")])


@pytest.mark.parametrize("on", [True, False])
def test_translation_for_older_kubelets_has_gates(on):
    tunnel = "SPDY/3.1+portforward.k8s.io"
    with features.DEFAULT.overridden(PortForwardWebsockets=on, TranslateStreamCloseWebsocketRequests=on):
        assert connecting._tunnel_of(["a", tunnel]) == (tunnel if on else "")
        assert connecting._is_translated([V5, V4]) is on and not connecting._is_translated([V4])


@pytest.mark.parametrize("path", ["exec", "attach", "portforward"])
@pytest.mark.parametrize("on", [True, False])
def test_declared_features_count_while_their_gate_is_on(on, path, monkeypatch):
    went = []

    class Nodes:
        def kubelet(self, node, asked):
            return Target("https", "127.0.0.1", "1")

        def declares(self, node, feature):
            return (node, feature) == ("n", "ExtendWebSocketsToKubelet")

    class Pods(Nodes):
        def get(self, namespace, name):
            return None

        def object(self, got):
            return {"metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": [{"name": "c"}]}}

    async def nothing(*asked):
        return None

    for name in ("_relayed", "_translated", "_tunnelled"):
        monkeypatch.setattr(connecting, name, lambda *asked, name=name: went.append(name) or nothing())
    connects = Connects(None, Nodes(), None, Pods())  # type: ignore[arg-type]  # what is decided is all that counts
    monkeypatch.setattr(connects, "_admit", nothing)
    monkeypatch.setattr(connects, "_authorize_create", nothing)
    offered = ["SPDY/3.1+portforward.k8s.io" if path == "portforward" else V5]
    req = WebSocketRequest(f"/api/v1/namespaces/ns/pods/p/{path}", "", [], offered)
    req.params = Query("")
    with features.DEFAULT.overridden(ExtendWebSocketsToKubelet=on):
        asyncio.run(getattr(connects, path)(req, None, "ns", "p"))
    assert went == ["_relayed" if on else "_tunnelled" if path == "portforward" else "_translated"]


def test_port_forward_tunnels_unknown_data(client, namespace, kubelet):
    declare(client, namespace)
    protocol = "SPDY/3.1+portforward.k8s.io"
    connection, ws, loop = handshake(client, f"/api/v1/namespaces/{namespace}/pods/p/portforward", "", [protocol])
    assert connection.header(b"sec-websocket-protocol") == protocol.encode()
    run = loop.run_until_complete
    run(ws.send(b"abc"))
    assert run(ws.receive()) == b"cba"
    run(ws.close())
    seen = kubelet.seen[-1]
    assert (seen["path"], seen["headers"]["x-stream-protocol-version"]) == (f"/portForward/{namespace}/p", "portforward.k8s.io")


def test_watch_over_websocket(client, namespace):
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    watches = 'resource="configmaps",scope="namespace",subresource="",verb="WATCH"'
    before = timed(client, watches)
    connection, ws, loop = handshake(client, path, "watch=1", ["base64.binary.k8s.io"])
    assert connection.header(b"sec-websocket-protocol") == b"base64.binary.k8s.io"
    loop.run_until_complete(ws.close())
    until(lambda: timed(client, watches) > before)
    _, ws, loop = handshake(client, path, "watch=1", [])
    client("POST", f"/api/v1/namespaces/{namespace}/configmaps", {"metadata": {"name": "w"}})
    text = loop.run_until_complete(asyncio.wait_for(ws.receive(), 60))
    assert text.startswith('{"type":"ADDED","object":{"kind":"ConfigMap"')
    loop.run_until_complete(ws.close())


# --- proxies


def test_node_proxy_passes_no_credentials_on(client, namespace, proxied):
    code, body = client("POST", f"/api/v1/nodes/{namespace}/proxy/a%20b/c/?x=1&y=%2F", "hi", "text/plain", X_Custom="1", TE="gzip")
    assert code == 200
    assert (body["method"], body["path"], body["query"], body["body"]) == ("POST", "/a%20b/c/", "x=1&y=%2F", "hi")
    headers = body["headers"]
    assert headers["x-custom"] == "1"
    assert headers["x-forwarded-uri"] == f"/api/v1/nodes/{namespace}/proxy/a%20b/c/"
    assert not {"authorization", "te"} & set(headers)
    assert not any(h.startswith(("impersonate", "x-remote")) for h in headers)
    r = client.raw("HEAD", f"/api/v1/nodes/{namespace}/proxy/x")
    assert (r.status_code, r.content) == (200, b"")
    assert "keep-alive" not in r.headers


def test_redirects_are_not_followed(client, namespace, proxied):
    r = client.session.get(f"{client.server.url}/api/v1/nodes/{namespace}/proxy/redirect", allow_redirects=False, timeout=60)
    assert (r.status_code, r.headers["location"]) == (302, f"/api/v1/nodes/{namespace}/proxy/elsewhere")
    assert "access-control-allow-origin" not in r.headers
    assert proxied.seen[-1]["path"] == "/redirect"
    r = client.session.get(f"{client.server.url}/api/v1/nodes/{namespace}/proxy?a=1", allow_redirects=False, timeout=60)
    assert (r.status_code, r.headers["location"]) == (301, f"/api/v1/nodes/{namespace}/proxy/?a=1")


@pytest.mark.parametrize("page", ["page", "page.gz"])
def test_links_lead_back_through_the_proxy(client, namespace, proxied, page):
    r = client.raw("GET", f"/api/v1/nodes/{namespace}/proxy/{page}")
    assert (r.status_code, r.text) == (200, f'<a href="/api/v1/nodes/{namespace}/proxy/rewriteme">test</a>')
    assert r.headers.get("content-encoding") == ("gzip" if page.endswith("gz") else None)


def test_nodes_with_the_servers_addresses_are_refused(client, namespace, kubelet):
    for port in ("", ":1", f":{kubelet.port}"):
        code, body = client("GET", f"/api/v1/nodes/{namespace}{port}/proxy/")
        assert (code, body["message"]) == (400, "address not allowed")
    assert not kubelet.seen
    code, body = client("GET", "/api/v1/nodes/a:b:c:d/proxy/")
    assert (code, body["message"]) == (400, 'invalid node request "a:b:c:d"')


@pytest.mark.parametrize("ip", ["127.0.0.1", "169.254.169.254", "::1", "fe80::1", "0.0.0.0", "224.0.0.1"])
def test_pods_with_the_servers_addresses_are_refused(client, namespace, ip):
    name = "p" + ip.replace(":", "-").replace(".", "-").strip("-") + "x"
    make_pod(client, namespace, name, "n", phase="Running", podIP=ip, podIPs=[{"ip": ip}])
    code, body = client("GET", f"/api/v1/namespaces/{namespace}/pods/{name}:10250/proxy/")
    assert (code, body["message"]) == (400, "address not allowed")


def test_pod_and_service_proxy(client, namespace):
    ip = prerequisites.global_address()
    with FakeKubelet(ip) as web:
        make_pod(client, namespace, "web", "n", web.port, phase="Running", podIP=ip, podIPs=[{"ip": ip}])
        code, body = client("GET", f"/api/v1/namespaces/{namespace}/pods/web/proxy/x")
        assert (code, body["path"]) == (200, "/x")
        service = {"metadata": {"name": "s"}, "spec": {"ports": [{"name": "http", "port": 80}], "clusterIP": "None"}}
        code, body = client("POST", f"/api/v1/namespaces/{namespace}/services", service)
        assert code == 201, body
        code, body = client("GET", f"/api/v1/namespaces/{namespace}/services/s:80/proxy/y")
        assert (code, body["message"]) == (404, 'endpoints "s" not found')
        piece = {
            "metadata": {"name": "s-1", "labels": {"kubernetes.io/service-name": "s"}}, "addressType": "IPv4",
            "ports": [{"name": "http", "port": web.port, "protocol": "TCP"}],
            "endpoints": [{"addresses": [ip], "targetRef": {"kind": "Pod", "name": "web", "namespace": namespace}}],
        }  # fmt: skip
        code, body = client("POST", f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices", piece)
        assert code == 201, body
        for ident in ("s:80", "s:http", "http:s:http"):
            code, body = client("GET", f"/api/v1/namespaces/{namespace}/services/{ident}/proxy/y?z=1")
            assert (code, body["path"], body["query"]) == (200, "/y", "z=1")
        code, body = client("GET", f"/api/v1/namespaces/{namespace}/services/s:81/proxy/y")
        assert (code, body["message"]) == (503, 'no service port 81 found for service "s"')


def test_a_disconnecting_client_ends_the_backends_connection(client, namespace):
    ip = prerequisites.global_address()
    with FakeKubelet(ip) as web:
        make_pod(client, namespace, "web", "n", web.port, phase="Running", podIP=ip, podIPs=[{"ip": ip}])
        with client.session.get(f"{client.server.url}/api/v1/namespaces/{namespace}/pods/web/proxy/big", stream=True, timeout=60) as r:
            assert len(r.raw.read(100_000)) == 100_000
        assert web.gone.wait(60), "the backend's connection outlived the client's"


def test_a_kubelets_certificate_is_verified(kas_server, connect, tmp_path):
    for name in ("right", "wrong"):
        (tmp_path / name).mkdir()
    right, wrong = (make_certificate(tmp_path / name, "127.0.0.1") for name in ("right", "wrong"))
    flags = (f"--kubelet-certificate-authority={right[0]}", f"--kubelet-client-certificate={right[0]}", f"--kubelet-client-key={right[1]}")
    # The preferred address does not answer unless configured otherwise.
    client = connect(kas_server("--unsafe-no-fsync", "--kubelet-preferred-address-types=ExternalIP,InternalIP", *flags))
    client("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
    for name, certificate in (("right", right), ("wrong", wrong)):
        with FakeKubelet(certificate=certificate, clients=right[0]) as k:
            client("POST", "/api/v1/nodes", {"metadata": {"name": name}})
            addresses = [{"type": "InternalIP", "address": "127.0.0.2"}, {"type": "ExternalIP", "address": k.host}]
            status = {"addresses": addresses, "daemonEndpoints": {"kubeletEndpoint": {"Port": k.port}}}
            client("PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, "application/merge-patch+json")
            make_pod(client, "default", name, name)
            code, body = client("GET", f"/api/v1/namespaces/default/pods/{name}/log")
            if name == "right":
                assert (code, body) == (200, "first line\n")
            else:
                assert (code, "tls: failed to verify certificate" in body["message"]) == (500, True)
                assert not k.seen
                code, body = client("GET", f"/api/v1/namespaces/default/pods/{name}/log?insecureSkipTLSVerifyBackend=true")
                assert (code, body) == (200, "first line\n")


def test_open_streams_do_not_delay_shutdown(kas_server, connect, tmp_path):
    with FakeKubelet(certificate=make_certificate(tmp_path, "127.0.0.1")) as k:
        k.speaks_spdy = True
        server = kas_server("--unsafe-no-fsync", "--shutdown-grace=10m")
        client = connect(server)
        client("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
        client("POST", "/api/v1/nodes", {"metadata": {"name": "n"}})
        status = {"addresses": [{"type": "InternalIP", "address": k.host}], "daemonEndpoints": {"kubeletEndpoint": {"Port": k.port}}}
        client("PATCH", "/api/v1/nodes/n/status", {"status": status}, "application/merge-patch+json")
        make_pod(client, "default", "p", "n")
        base = "/api/v1/namespaces/default/pods/p"
        _, ws, loop = handshake(client, f"{base}/exec", "command=x&stdin=1&stdout=1", [V5])
        assert ws is not None
        with client.session.get(f"{server.url}{base}/log?follow=true", stream=True, timeout=60) as r:
            assert next(r.iter_lines()) == b"first line"
            assert server.stop() == 0, "it waited for them and was killed, which is long before its grace ends"
        k.more_log.set()
        assert k.gone.wait(60)
        loop.close()


def test_the_read_only_port_makes_no_connections(kas_server):
    import re

    import requests

    server = kas_server("--unsafe-no-fsync", "--read-only-port=auto")
    url = re.search(r"http://127\.0\.0\.1:\d+", server.output).group()
    inside = "namespaces/default"
    for path in ("nodes/n/proxy/x", f"{inside}/pods/p/proxy/x", f"{inside}/pods/p/exec", f"{inside}/services/s/proxy/"):
        assert requests.get(f"{url}/api/v1/{path}", timeout=60).status_code in (403, 405)
