"""Proxied requests, as the backend and the client see them."""

from __future__ import annotations

import asyncio
import hashlib
import http.client
import json
import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from kas.client.http import Target
from kas.endpoints.proxy_websocket import open_websocket
from tests.aggregator.backend import Backend, Reply
from tests.aggregator.conftest import PATIENCE_S, SERVICES, Registered
from tests.controllers.waiting import until


def stream(server, path: str, headers: dict[str, str] | None = None) -> tuple[http.client.HTTPSConnection, http.client.HTTPResponse]:
    context = ssl.create_default_context(cafile=server.ca)
    connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=context, timeout=PATIENCE_S)
    connection.request("GET", path, headers={"Authorization": f"Bearer {server.token}", **(headers or {})})
    return connection, connection.getresponse()


def test_a_backend_gets_the_requests_user(register, server):
    found = register("who")
    sent = {"X-Remote-User": "somebody", "X-Remote-Group": "a-group", "X-Remote-Extra-a": "b", "X-Remote-Uid": "1"}
    sent["X-Custom"] = "yes"
    code, answer = found("GET", "/namespaces/x/things?b=2&a=1%2B1", Audit_ID="of-the-test", **sent)
    assert (code, answer["path"], answer["query"]) == (200, f"{found.backend.base}/namespaces/x/things", "a=1%2B1&b=2")
    call = found.backend.seen(f"{found.backend.base}/namespaces/x/things")[0]
    me = found.call("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {})[1]["status"]["userInfo"]
    assert call.all("x-remote-user") == [me["username"]]
    assert call.all("x-remote-group") == me["groups"]
    assert call.all("x-remote-extra-a") == [] and "1" not in call.all("x-remote-uid")
    assert call.all("authorization") == [] and call.all("x-custom") == ["yes"] and call.all("audit-id") == ["of-the-test"]
    assert call.all("x-forwarded-for") == ["127.0.0.1"] and call.all("host") == [f"127.0.0.1:{server.port}"]
    assert call.all("x-forwarded-host") == [f"localhost:{found.backend.port}"] and call.all("x-forwarded-proto") == ["https"]
    assert call.all("x-forwarded-uri") == [f"{found.backend.base}/namespaces/x/things"]
    assert call.peer == "aggregator"


def test_a_backend_gets_the_impersonated_user(register):
    found = register("as")
    sent = {"Impersonate-User": "jane", "Impersonate-Uid": "u-1", "Impersonate-Group": "system:masters"}
    sent["Impersonate-Extra-scopes%2fx"] = "all"
    assert found("GET", "/things", **sent)[0] == 200
    call = found.backend.seen(f"{found.backend.base}/things")[0]
    assert call.all("x-remote-user") == ["jane"] and call.all("x-remote-uid") == ["u-1"]
    assert call.all("x-remote-group") == ["system:masters", "system:authenticated"]
    assert call.all("x-remote-extra-scopes%2fx") == ["all"]
    assert not any(name.startswith("impersonate-") for name, _ in call.headers)


@pytest.mark.parametrize("told", [True, False])
def test_a_backend_gets_the_uid_with_its_gate(told, authority, front, kas_server, connect):
    certificate, key = front.issue("aggregator")
    flags = ("--proxy-client-cert-file", certificate, "--proxy-client-key-file", key, "--controllers=none")
    call = connect(kas_server(*flags, f"--feature-gates=RemoteRequestHeaderUID={str(told).lower()}"))
    with Backend(authority, "uid.test", front, ["uid.default.svc"]) as backend:
        found = Registered(call, backend, "uid")
        service = {"metadata": {"name": "uid"}, "spec": {"type": "ExternalName", "externalName": "localhost"}}
        assert call("POST", "/api/v1/namespaces/default/services", service)[0] == 201
        found.create()
        found.is_available()
        jane = {"Impersonate-User": "jane", "Impersonate-Uid": "u-1", "Impersonate-Group": "system:masters"}
        assert found("GET", "/things", **jane)[0] == 200
        seen = backend.seen(f"{backend.base}/things")[0]
        assert (seen.all("x-remote-user"), seen.all("x-remote-uid")) == (["jane"], ["u-1"] if told else [])


def test_unauthorized_requests_are_refused_here(register):
    found = register("may")
    code, answer = found("GET", "/namespaces/x/things/t", **{"Impersonate-User": "nobody"})
    assert (code, answer["reason"]) == (403, "Forbidden")
    assert answer["message"] == (
        'things.may.test "t" is forbidden: User "nobody" cannot get resource "things" in API group "may.test" in the namespace "x"'
    )
    assert not found.backend.seen(f"{found.backend.base}/namespaces/x/things/t")


def test_a_websocket_is_relayed_in_both_directions(register, server):
    found = register("socket")
    context = ssl.create_default_context(cafile=server.ca)
    target = Target("https", "127.0.0.1", str(server.port), f"{found.backend.base}/things", "", context)

    async def talk() -> tuple[list[str | bytes | None], bytes]:
        connection, socket = await open_websocket(target, [(b"authorization", f"Bearer {server.token}".encode())], ["one", "two"])
        assert socket is not None, connection.status
        await socket.send("text")
        await socket.send(b"bytes")
        said = [await socket.receive(), await socket.receive()]
        await socket.close()
        return said, connection.header(b"sec-websocket-protocol")

    assert asyncio.run(asyncio.wait_for(talk(), PATIENCE_S)) == (["text", b"bytes"], b"one")
    call = found.backend.seen(f"{found.backend.base}/things")[-1]
    assert len(call.all("x-remote-user")) == 1 and call.all("authorization") == [] and call.peer == "aggregator"


@pytest.mark.parametrize("chunked", [False, True])
def test_a_large_body_is_relayed_in_parts(register, chunked):
    found = register(f"large-{str(chunked).lower()}")
    body = b"0123456789abcdef" * (512 << 10)  # 8 MiB: more than the server accepts itself
    url = f"{found.call.server.url}{found.backend.base}/things"
    data = (body[i : i + 100_000] for i in range(0, len(body), 100_000)) if chunked else body
    answer = found.call.session.post(url, data=data, headers={"Content-Type": "application/octet-stream"}, timeout=PATIENCE_S)
    assert answer.status_code == 200
    assert (answer.json()["size"], answer.json()["digest"]) == (len(body), hashlib.sha256(body).hexdigest())


def test_a_backend_may_answer_before_the_body_is_complete(register):
    found = register("early")
    url = f"{found.call.server.url}{found.backend.base}/early"
    answer = found.call.session.post(url, data=b"x" * (1 << 20), headers={"Content-Type": "text/plain"}, timeout=PATIENCE_S)
    assert (answer.status_code, answer.json()["code"]) == (413, 413)
    assert found("GET", "/things")[0] == 200


def test_after_a_refusal_the_client_may_send_the_rest_of_its_body(register):
    """And its connection continues."""
    found = register("rest")
    server = found.call.server
    token, size = f"Host: kas\r\nAuthorization: {found.call.session.headers['Authorization']}\r\n", 1 << 20
    head = f"POST {found.backend.base}/early HTTP/1.1\r\n{token}Content-Type: text/plain\r\nContent-Length: {size}\r\n\r\n"
    context = ssl.create_default_context(cafile=server.ca)
    with context.wrap_socket(socket.create_connection(("127.0.0.1", server.port), PATIENCE_S), server_hostname="127.0.0.1") as s:
        s.sendall(head.encode() + b"x" * 1000)
        answer = http.client.HTTPResponse(s)
        answer.begin()
        assert (answer.status, json.loads(answer.read())["code"]) == (413, 413)
        s.sendall(b"x" * (size - 1000))
        s.sendall(f"GET /version HTTP/1.1\r\n{token}\r\n".encode())
        answer = http.client.HTTPResponse(s)
        answer.begin()
        assert answer.status == 200


def test_answers_are_passed_on_unchanged(register):
    found = register("answers")
    base, replies = found.backend.base, found.backend.replies
    replies[f"{base}/things/denied"] = Reply(403, b'{"kind":"Status","code":403,"message":"backend says no"}')
    headers = [("Content-Type", "text/plain"), ("Warning", '299 - "w"'), ("X-Own", "1")]
    replies[f"{base}/things/text"] = Reply(418, b"short and stout", headers)
    assert found("GET", "/things/denied") == (403, {"kind": "Status", "code": 403, "message": "backend says no"})
    answer = found.call.raw("GET", f"{base}/things/text")
    assert (answer.status_code, answer.text, answer.headers["Content-Type"]) == (418, "short and stout", "text/plain")
    assert (answer.headers["Warning"], answer.headers["X-Own"]) == ('299 - "w"', "1")


def test_answers_of_a_backend_are_not_in_the_audit_log(register, audit_log):
    found = register("audited")
    forged = b'{"kind":"Thing"}}\n{"kind":"Event","auditID":"forged"}\n{"x":{}'
    packed = [("Content-Type", "application/json"), ("Content-Encoding", "gzip")]
    for name, reply in (("forged", Reply(200, forged)), ("packed", Reply(200, b"this is no gzip", packed)), ("pretty", Reply(200, b"{\n"))):
        found.backend.replies[f"{found.backend.base}/things/{name}"] = reply
        answer = found.call.session.get(
            f"{found.call.server.url}{found.backend.base}/things/{name}", stream=True, headers={"Audit-ID": name}, timeout=PATIENCE_S
        )  # fmt: skip
        assert (answer.status_code, answer.raw.read(decode_content=False)) == (200, reply.body)

    def recorded():
        events = [json.loads(line) for line in audit_log.read_text().splitlines()] if audit_log.exists() else []
        return [e for e in events if e["stage"] == "ResponseComplete"] if len(events) >= 6 else []

    events = until(recorded, PATIENCE_S)
    assert [e["auditID"] for e in events] == ["forged", "packed", "pretty"]
    assert all(e["responseStatus"] == {"metadata": {}, "code": 200} for e in events)
    assert not any("responseObject" in e for e in events)


def test_redirects_are_not_followed_and_not_passed_on(register):
    found = register("redirect")
    found.backend.replies[f"{found.backend.base}/things/r"] = Reply(302, b"", [("Location", f"https://127.0.0.1:{found.backend.port}/other")])
    answer = found.call.raw("GET", f"{found.backend.base}/things/r")
    assert (answer.status_code, answer.text) == (502, "the backend attempted to redirect this request, which is not permitted")
    assert "Location" not in answer.headers and not found.backend.seen("/other")


def test_a_watch_streams_and_ends_with_its_client(register, server):
    found = register("watch")
    connection, response = stream(server, f"{found.backend.base}/things?watch=true")
    assert response.status == 200
    assert response.getheader("X-Hop") is None  # the backend's own connection had it
    until(lambda: found.backend.watches, PATIENCE_S)
    for n in range(3):
        found.backend.emit({"type": "ADDED", "object": {"n": n}})
        assert json.loads(response.readline())["object"] == {"n": n}
    connection.close()
    response.close()

    def is_gone() -> bool:
        found.backend.emit({"type": "BOOKMARK", "object": {}})
        return not found.backend.watches

    until(is_gone, PATIENCE_S)


def test_an_endless_answer_waits_for_its_reader(register, server):
    found = register("huge")
    connection, response = stream(server, f"{found.backend.base}/huge")
    assert response.read(1 << 20) == b"x" * (1 << 20)
    seen = -1
    # The client does not read: buffers are bounded, so at some time no more data move.
    while seen != (seen := found.backend.stalled):
        threading.Event().wait(0.5)
    assert seen < 64 << 20
    connection.close()
    response.close()


def test_a_truncated_answer_is_truncated_for_the_client(register, server):
    found = register("broken")
    connection, response = stream(server, f"{found.backend.base}/broken")
    with pytest.raises(http.client.IncompleteRead):
        response.read()
    connection.close()
    assert "panic" not in server.output


def test_a_slow_backend_delays_no_other_request(register, server):
    found = register("slow")
    path = f"{found.backend.base}/slow"

    def ask() -> int:
        connection, response = stream(server, path)
        response.read()
        connection.close()
        return response.status

    with ThreadPoolExecutor(20) as threads:
        waiting = [threads.submit(ask) for _ in range(20)]
        try:
            until(lambda: len(found.backend.seen(path)) == 20, PATIENCE_S)
            for _ in range(4):  # of either worker
                assert found.call("GET", "/api/v1/namespaces/default")[0] == 200
                assert found("GET", "/things")[0] == 200
        finally:
            found.backend.gate.set()
        assert [w.result(PATIENCE_S) for w in waiting] == [200] * 20


def test_the_certificate_must_be_the_services(register):
    found = register("impostor", hosts=["other.default.svc"])
    code, answer = found("GET", "/things")
    assert code == 503 and answer.startswith("error trying to reach service: tls: failed to verify certificate: x509: ")
    found.call("DELETE", f"{SERVICES}/{found.name}")
    found.create(caBundle=None, insecureSkipTLSVerify=True)
    found.is_available()
    assert found("GET", "/things")[0] == 200


def test_an_unreadable_ca_is_reported(register):
    found = register("nonsense", caBundle="bm9wZQ==")
    assert found("GET", "/things") == (500, "unable to load root certificates: unable to parse bytes as PEM block\n")


def test_connections_are_reused(register):
    found = register("again")
    for _ in range(4):  # each worker has one then
        found.call.session.close()
        assert found("GET", "/things")[0] == 200
    before = found.backend.connections
    for n in range(20):
        assert found("GET", f"/things/{n}")[0] == 200
    assert found.backend.connections - before < 10
    assert found("POST", "/things", {"a": 1})[0] == 200


def test_a_backend_that_closes_after_each_answer_is_asked_again(register):
    found = register("curt")
    found.backend.hang_up = True
    for n in range(50):
        assert found("GET", f"/things/{n}")[0] == 200
        assert found("POST", "/things", {"n": n})[0] == 200
    assert len(found.backend.seen(f"{found.backend.base}/things")) == 50, "what may change something is sent once"


def test_a_backend_that_stops_and_starts_answers_or_is_unavailable(register, call, connect, server):
    """While its APIService changes, every request is answered by the backend or with 503, and nothing is leaked."""
    found = register("flapping")
    path, good = f"{SERVICES}/{found.name}", found.backend.port
    codes: list[int] = []
    done = threading.Event()

    def ask() -> None:
        mine = connect(server)
        while not done.is_set():
            codes.append(mine("GET", f"{found.backend.base}/widgets")[0])

    askers = [threading.Thread(target=ask, daemon=True) for _ in range(4)]
    for asker in askers:
        asker.start()
    try:
        for port, available, code in ((1, False, 503), (good, True, 200)) * 4:
            change = {"spec": {"service": {"port": port}}}
            assert call("PATCH", path, change, "application/merge-patch+json")[0] == 200
            found.is_available(available)
            seen = len(codes)
            until(lambda seen=seen, code=code: code in codes[seen:], PATIENCE_S)
    finally:
        done.set()
        for asker in askers:
            asker.join(PATIENCE_S)
    assert set(codes) == {200, 503}
    until(lambda: found("GET", "/widgets")[0] == 200, PATIENCE_S)
