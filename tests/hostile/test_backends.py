"""Proxying to an untrusted backend: the caller's credentials are not sent, and redirects are not followed."""

from __future__ import annotations

import pytest

from tests.hostile.backend import MOVED, OK, Backend
from tests.hostile.hostile_wire import dial, statuses


@pytest.fixture
def backend(target, admin, room):
    """A node named as the room whose kubelet is the test's, reached through ``url``."""
    pki = target.data_dir / "pki"
    with Backend(str(pki / "apiserver.crt"), str(pki / "apiserver.key")) as b:
        assert admin("POST", "/api/v1/nodes", {"metadata": {"name": room}})[0] in (201, 409)
        status = {"addresses": [{"type": "InternalIP", "address": b.host}], "daemonEndpoints": {"kubeletEndpoint": {"Port": b.port}}}
        assert admin("PATCH", f"/api/v1/nodes/{room}/status", {"status": status}, "application/merge-patch+json")[0] == 200
        b.url = f"/api/v1/nodes/{room}/proxy"
        yield b
        admin("DELETE", f"/api/v1/nodes/{room}")


def test_credentials_are_not_sent_to_backends(target, admin, backend):
    headers = {
        "X-Remote-User": "admin",
        "X-Remote-Group": "system:masters",
        "X-Remote-Extra-A": "b",
        "Proxy-Authorization": "Basic eA==",
        "Impersonate-User": "alice",
    }
    status, body = admin("GET", f"{backend.url}/x", **{k: v for k, v in headers.items() if k != "Impersonate-User"})
    if status != 200:
        pytest.fail(f"{status} {body}")
    # Nor are they when impersonating a user with the right to proxy.
    status, _ = admin("GET", f"{backend.url}/y", **{"Impersonate-User": "system:admin", "Impersonate-Group": "system:masters"})
    assert status == 200
    for seen in backend.seen:
        lower = seen.lower()
        assert target.token.encode() not in seen
        for word in (b"authorization", b"x-remote-", b"impersonate-", b"bearer"):
            assert word not in lower, (word, seen)


def test_a_token_in_the_subprotocols_is_not_sent_to_backends(target, backend):
    import base64

    secret = base64.urlsafe_b64encode(target.token.encode()).decode().rstrip("=")
    head = f"GET {backend.url}/ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    head += f"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.{secret}, binary.k8s.io\r\n\r\n"  # noqa: E501
    with dial(target) as s:
        s.settimeout(60)
        s.sendall(head.encode())
        assert statuses(s.recv(65536))
    assert all(secret.encode() not in seen and b"bearer" not in seen.lower() for seen in backend.seen)


@pytest.mark.parametrize(
    "place",
    [
        "http://169.254.169.254/latest/meta-data",
        "https://127.0.0.1:1/",
        "/api/v1/secrets",
        "file:///etc/passwd",
        "//evil.example/",
        "/../../../../api/v1/secrets",
    ],
)
def test_redirects_are_passed_on_and_not_followed(admin, backend, place):
    backend.answer = MOVED % place.encode()
    r = admin.raw("GET", f"{backend.url}/x")
    assert r.status_code == 302
    assert len(backend.seen) == 1
    if place == "/api/v1/secrets":
        assert r.headers["location"].startswith("/api/v1/nodes/"), "a backend's path stays below the proxy"


def test_a_backend_cannot_speak_for_the_server(admin, backend):
    backend.answer = OK % b"Access-Control-Allow-Origin: *\r\nAccess-Control-Allow-Credentials: true\r\nUpgrade: h2c\r\nTrailer: X\r\n"
    r = admin.raw("GET", f"{backend.url}/x", Origin="https://evil.example")
    assert r.status_code == 200
    assert not [h for h in r.headers if h.lower().startswith("access-control") or h.lower() in ("upgrade", "trailer")]


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"garbage\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nGET / HTTP/1.1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 999 X\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 50_000 + b"\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 1000,
    ],
    ids=range(10),
)
def test_invalid_answers_of_backends(admin, backend, answer):
    backend.answer = answer
    try:
        r = admin.raw("GET", f"{backend.url}/x", timeout=20)
    except OSError:
        return  # truncated: the head had already been sent
    assert r.status_code in (200, 500, 502, 503, 999), r.text[:300]


@pytest.mark.parametrize(
    "name", ["169.254.169.254:80", "http:127.0.0.1:22", "127.0.0.1", "localhost:6443", "..%2f..", "a@evil.example", "%5b::1%5d:80"]
)
def test_only_known_nodes_pods_and_services_are_proxied_to(admin, room, name):
    for kind in ("nodes", f"namespaces/{room}/pods", f"namespaces/{room}/services"):
        status, body = admin("GET", f"/api/v1/{kind}/{name}/proxy/")
        assert status in (400, 403, 404, 503), body


@pytest.mark.parametrize("address", ["127.0.0.1", "169.254.169.254", "::1", "224.0.0.1", "fe80::1"])
def test_pods_cannot_make_the_proxy_reach_the_servers_own_host(admin, room, address):
    """A pod's address is what its writer says: loopback and link-local addresses are not proxied to."""
    admin("POST", f"/api/v1/namespaces/{room}/serviceaccounts", {"metadata": {"name": "default"}})
    spec = {"containers": [{"name": "c", "image": "x", "ports": [{"containerPort": 80}]}]}
    assert admin("POST", f"/api/v1/namespaces/{room}/pods", {"metadata": {"name": "p"}, "spec": spec})[0] == 201
    status, body = admin(
        "PATCH",
        f"/api/v1/namespaces/{room}/pods/p/status",
        {"status": {"podIPs": [{"ip": address}], "podIP": address}},
        "application/merge-patch+json",
    )
    assert status == 200, body
    status, body = admin("GET", f"/api/v1/namespaces/{room}/pods/p:80/proxy/")
    assert status == 400, body
