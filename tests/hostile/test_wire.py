"""Attacks below HTTP's semantics: framing, sizes, slowness, spellings of paths."""

from __future__ import annotations

import contextlib
import itertools
import select
import ssl
import subprocess
import threading
import time

import pytest

from kas.testing.server import KasServer
from tests import prerequisites
from tests.hostile.bystander import AT_MOST, Queued
from tests.hostile.hostile_wire import dial, statuses


def get(path: str, *headers: str, token: str = "") -> bytes:
    lines = [f"GET {path} HTTP/1.1", "Host: x", *([f"Authorization: Bearer {token}"] if token else []), *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


# The smuggled request would create a namespace.
INNER = "POST /api/v1/namespaces HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\nContent-Length: {n}\r\n\r\n{body}"  # noqa: E501


def smuggled(target: KasServer, name: str) -> bytes:
    body = f'{{"metadata":{{"name":"{name}"}}}}'
    return INNER.format(token=target.token, n=len(body), body=body).encode()


@pytest.mark.parametrize(
    "headers",
    [
        ["Content-Length: 5", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: chunked", "Content-Length: 5"],
        ["Transfer-Encoding: xchunked", "Content-Length: 0"],
        ["Transfer-Encoding : chunked", "Content-Length: 0"],
        ["Transfer-Encoding: chunked", "Transfer-Encoding: identity"],
        ["Transfer-Encoding: identity, chunked, identity"],
        ["Content-Length: 0", "Content-Length: 400"],
        ["Content-Length: +5"],
        ["Content-Length: 0x5"],
        ["Content-Length: -1"],
        ["Content-Length: 5, 0"],
        ["Content-Length: 99999999999999999999999"],
        ["Content-Length:\x0b5"],
        ["X: a\r b"],
        [" Folded: x"],
        ["No-Colon"],
        ["Na me: x"],
        ["X: \x00"],
    ],
    ids=repr,
)
def test_ambiguous_framing_smuggles_nothing(target, admin, wire, headers):
    """It has at most one meaning: the remaining bytes are refused with the connection, or belong to one body, and are never a second
    request."""
    name = "smuggled"
    head = f"POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {target.token}\r\n"
    head += "Content-Type: application/json\r\n" + "\r\n".join(headers) + "\r\n\r\n"
    answer = wire(head.encode("latin-1") + b"0\r\n\r\n" + smuggled(target, name), wait=1.0)
    codes = statuses(answer)
    assert all(c < 500 for c in codes), answer[:500]
    both = any(h == "Transfer-Encoding: chunked" for h in headers) and any(h.startswith("Content-Length") for h in headers)
    if both and 201 in codes:
        # RFC 9112 6.1: chunks win; the next request is then the sender's own, and the connection should be closed.
        pytest.fail(f"a request behind two framings was served: {codes}")
    if admin("GET", f"/api/v1/namespaces/{name}")[0] == 200:
        admin("DELETE", f"/api/v1/namespaces/{name}")
        pytest.fail(f"smuggled: {codes}")


def test_invalid_chunks(target, wire):
    head = f"POST /api/v1/namespaces HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {target.token}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()  # noqa: E501
    for chunks in (
        b"zz\r\n",
        b"-1\r\nx\r\n",
        b"ffffffffffffffffff\r\nx",
        b"1;" + b"a" * 200_000 + b"\r\n",
        b"5\r\nabcdeXX0\r\n\r\n",
        b"0" * 100_000,
    ):
        codes = statuses(wire(head + chunks, wait=1.0, first=1.0))  # more bytes are awaited for some
        assert all(c in (400, 408, 413, 431) for c in codes), (chunks[:20], codes)


@pytest.mark.parametrize(
    "tail",
    [
        b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        b'Transfer-Encoding: chunked\r\n\r\n5\r\n{"a',
        b"Content-Length: 90\r\n\r\n{",
        b"Content-Length: 90\r\n\r\n",
    ],
)
def test_a_truncated_body_is_not_an_empty_one(target, admin, room, tail):
    """Its preconditions would be lost: a DELETE with half a body deletes nothing."""
    url = f"/api/v1/namespaces/{room}/configmaps"
    for name in ("one", "two"):
        assert admin("POST", url, {"metadata": {"name": name}})[0] == 201
        head = f"DELETE {url}/{name if name == 'one' else ''} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {target.token}\r\n"
        with dial(target) as s:
            s.settimeout(1)
            try:
                s.sendall(head.encode() + tail)
                if b"chunked" in tail:
                    s.recv(1000)
            except OSError:
                pass
    time.sleep(0.3)
    assert {"one", "two"} <= {o["metadata"]["name"] for o in admin("GET", url)[1]["items"]}


def test_endless_chunks_are_cut_off(target):
    """More than the limit without a Content-Length is answered with 413, or closed, little after the limit."""
    head = f"POST /api/v1/namespaces HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {target.token}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()  # noqa: E501
    chunk, sent = b"10000\r\n" + b" " * 65536 + b"\r\n", 0
    with dial(target) as s:
        s.settimeout(5)
        try:
            s.sendall(head)
            while sent < 64 << 20:
                s.sendall(chunk)
                sent += len(chunk)
        except OSError:
            pass
    assert sent < 64 << 20, "64 MiB were taken"


@pytest.mark.parametrize(
    "headers",
    [
        ["X: " + "a" * (2 << 20)],
        [f"X-{i}: a" for i in range(5_000)],
        ["Authorization: Bearer " + "a" * 500_000],
        ["Accept: " + "a/b," * 50_000],
        ["Accept: application/json" + ";as=Table" * 20_000],
        ["Content-Type: " + ";" * 100_000],
        ["Impersonate-Group: a"] * 90,
    ],
    ids=["long", "many", "token", "accept", "parameters", "type", "groups"],
)
def test_excessive_headers(target, wire, headers, bounded):
    with bounded(4_000):
        codes = statuses(wire(get("/api/v1/namespaces", "Connection: close", *headers, token=target.token), wait=2.0))
        assert all(c < 500 for c in codes), codes


def test_slow_clients_do_not_delay_others(target, admin, bystander):
    """Two hundred connections whose requests or reads never finish: others are served as before."""
    head = f"POST /api/v1/namespaces HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {target.token}\r\nContent-Length: 100\r\n\r\n{{".encode()

    def attack() -> None:
        with contextlib.ExitStack() as stack:
            for i in range(200):
                stack.enter_context(dial(target)).sendall(head if i % 2 else head[:40])
            for _ in range(10):
                assert admin("GET", "/api/v1/namespaces")[0] == 200
                assert admin("POST", "/api/v1/namespaces?dryRun=All", {"metadata": {"name": "dry"}})[0] == 201

    bystander.beside(attack)


def test_clients_that_stop_reading_cost_no_memory(target, admin, room):
    """They request lists of a few MB and never read them; the fixture checks the bound on memory."""
    for i in range(8):
        body = {"metadata": {"name": f"big{i}"}, "data": {"k": "x" * (900 << 10)}}
        assert admin("POST", f"/api/v1/namespaces/{room}/configmaps", body)[0] == 201
    stuck = [dial(target) for _ in range(20)]
    try:
        for s in stuck:
            s.sendall(get(f"/api/v1/namespaces/{room}/configmaps", token=target.token))
        time.sleep(1)
        assert admin("GET", "/readyz")[0] == 200
    finally:
        for s in stuck:
            s.close()


@pytest.fixture
def two_rooms(admin, room, grant):
    """mallory reads config maps in ``mine``; the word "hidden" occurs in ``theirs`` only."""
    mine, theirs = room, room + "-other"
    assert admin("POST", "/api/v1/namespaces", {"metadata": {"name": theirs}})[0] in (201, 409)
    for ns, text in ((mine, "shown"), (theirs, "hidden")):
        for kind, data in (("configmaps", {"data": {"k": text}}), ("secrets", {"stringData": {"k": text}})):
            admin("POST", f"/api/v1/namespaces/{ns}/{kind}", {"metadata": {"name": "x", "labels": {"text": text}}, **data})
    grant("mallory", [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}], mine)
    return mine, theirs


def spellings(mine: str, theirs: str) -> list[str]:
    """Yields spellings of ``theirs`` that look like ``mine``, in every position of a path."""
    ups = ["..", "%2e%2e", "%2E.", ".%2e", "%252e%252e", "..%00", "..;", "%c0%ae%c0%ae", "%ff", "\\..", "%5c.."]
    slashes = ["/", "%2f", "%2F", "//", "%252f", "\\", "%5c", "/./"]
    out = []
    for up in ups:
        for s in slashes:
            out.append(f"/api/v1/namespaces/{mine}{s}{up}{s}{theirs}/configmaps/x")
            out.append(f"/api/v1/namespaces/{mine}/configmaps/{up}{s}{up}{s}{theirs}{s}configmaps{s}x")
            out.append(f"/api/v1/namespaces/{mine}/configmaps/x{s}{up}{s}{up}{s}{up}{s}{theirs}{s}configmaps{s}x")
            out.append(f"/version{s}{up}{s}api/v1/namespaces/{theirs}/configmaps/x")
            out.append(f"/healthz{s}{up}{s}api{s}v1{s}namespaces{s}{theirs}{s}secrets")
            out.append(f"/openapi/v3/{up}{s}{up}{s}{up}/etc/passwd")
            out.append(f"/swagger-ui{s}{up}{s}{up}{s}{up}{s}{up}{s}etc{s}passwd")
    for s in slashes[1:]:
        out.append(f"/api/v1/namespaces/{mine}/configmaps{s}..{s}..{s}{theirs}")
        out.append(f"/api/v1{s}namespaces{s}{theirs}{s}configmaps{s}x")
        out.append(f"/api/v1/namespaces/{mine}{s}configmaps?x=/../{theirs}/configmaps/x")
    out += [
        f"/api/v1/watch/namespaces/{theirs}/configmaps?timeoutSeconds=1",
        f"/api/v1/namespaces/{mine}/configmaps?namespace={theirs}",
        f"/api/v1/namespaces/{mine}/configmaps?fieldSelector=metadata.namespace={theirs}",
        f"/api/v1/configmaps?fieldSelector=metadata.namespace={mine}",
        f"/api/v1/namespaces/{mine}%00/configmaps/x",
        f"/api/v1/namespaces/{mine}%20/configmaps/x",
        f"/api/v1/namespaces/{theirs.upper()}/configmaps/x",
        f"/API/v1/namespaces/{theirs}/configmaps/x",
        f"//api/v1/namespaces/{theirs}/configmaps/x",
        f"/api//v1/namespaces/{theirs}/configmaps/x",
        f"/api/v1/namespaces//{theirs}/configmaps/x",
        f"/api/v1/namespaces/{mine};/{theirs}/configmaps/x",
        f"http://other/api/v1/namespaces/{theirs}/configmaps/x",
        f"/api/v1/namespaces/{mine}/configmaps/x#/../../{theirs}",
        "*",
        "api/v1/namespaces",
        "/%",
        "/%zz",
        "/api/v1/%",
        "/api/v1/namespaces/%e2%80%ae",
        "/" + "a/" * 3_000,
        "/api/v1/" + "%2e%2e/" * 1_000,
    ]
    return list(dict.fromkeys(out))


def test_no_spelling_of_a_path_reaches_a_forbidden_namespace(target, two_rooms, admin):
    mine, theirs = two_rooms
    paths = spellings(mine, theirs)
    with dial(target) as s:
        s.settimeout(5)
        for path in paths:
            # One connection for all of them, opened again where an answer closed it.
            answer = exchange(s, get(path, token="m-token"))
            if answer is None:
                s.close()
                s = dial(target)
                s.settimeout(5)
                continue
            assert all(c < 500 for c in statuses(answer)), (path, answer[:300])
            assert b"hidden" not in answer, (path, answer[:300])
            assert b"root:x:" not in answer, (path, answer[:300])


def exchange(s, request: bytes) -> bytes | None:
    """Returns one answer with a Content-Length or chunks; None if the connection was closed."""
    got = b""
    try:
        s.sendall(request)
        while b"\r\n\r\n" not in got:
            data = s.recv(65536)
            if not data:
                return got if got else None
            got += data
        head, _, body = got.partition(b"\r\n\r\n")
        lengths = [int(x.split(b":")[1]) for x in head.lower().split(b"\r\n") if x.startswith(b"content-length:")]
        while len(body) < lengths[0] if lengths else not body.endswith(b"0\r\n\r\n"):
            data = s.recv(65536)
            if not data:
                break
            body += data
        return head + b"\r\n\r\n" + body
    except OSError:
        return None


@pytest.mark.parametrize("name", ["a%2Fb", "a%2F..%2Fb", "%25", "a%00b", "A", "-", "a" * 254, "%ff%fe", "%F0%9F%92%A9"])
def test_invalid_names(admin, room, name):
    from urllib.parse import unquote

    url = f"/api/v1/namespaces/{room}/configmaps"
    assert admin("POST", url, {"metadata": {"name": unquote(name)}})[0] in (400, 422)
    for method, body in (("GET", None), ("PUT", {"metadata": {"name": unquote(name)}}), ("PATCH", {}), ("DELETE", None)):
        status, answer = admin(method, f"{url}/{name}", body, "application/merge-patch+json" if method == "PATCH" else "application/json")
        assert 400 <= status < 500, (method, answer)
    apply = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": unquote(name)}}
    status, answer = admin("PATCH", f"{url}/{name}?fieldManager=x", apply, "application/apply-patch+yaml")
    assert 400 <= status < 500, answer
    status, body = admin("GET", url)
    assert {o["metadata"]["name"] for o in body["items"]} <= {"kube-root-ca.crt"}


@pytest.mark.parametrize("name", [".", ".."])
def test_dots_are_not_valid_names(target, admin, wire, room, name):
    assert admin("POST", f"/api/v1/namespaces/{room}/configmaps", {"metadata": {"name": name}})[0] == 422
    for path in (f"/api/v1/namespaces/{room}/configmaps/{name}", f"/api/v1/namespaces/{name}/configmaps/x", f"/api/v1/namespaces/{name}"):
        for method in (b"GET", b"DELETE"):
            answer = wire(get(path, "Connection: close", token=target.token).replace(b"GET", method, 1))
            assert statuses(answer)[0] in (400, 404), answer[:500]


def test_rbac_names_cannot_leave_their_key(admin, room):
    """RBAC names may contain almost any character; none of them may reach another key."""
    base = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{room}/roles"
    for name in ("a:b", "system:..:x", "\u00e9", "a b", "a" * 400):
        status, body = admin("POST", base, {"metadata": {"name": name}})
        assert status in (201, 422), body
    for name in ("a/b", "..", ".", "a%b", "../../x"):
        assert admin("POST", base, {"metadata": {"name": name}})[0] == 422


@pytest.mark.parametrize("method", ["TRACE", "CONNECT", "OPTIONS", "HEAD", "PROPFIND", "get", "G\tT", "A" * 10_000])
def test_methods(target, admin, wire, method):
    answer = wire(get("/api/v1/namespaces/default", "Connection: close", token=target.token).replace(b"GET", method.encode(), 1), wait=1.0)
    codes = statuses(answer)
    assert all(c in (200, 400, 403, 404, 405, 414, 431, 501) for c in codes), answer[:300]
    assert b"Authorization" not in answer  # TRACE would echo the request


def test_plain_text_to_the_tls_port(target, admin):
    import socket

    for data in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff" + b"\0" * 1000, b"\x80\x2e\x01\x00\x02", b""):
        with socket.create_connection(("127.0.0.1", target.port), 5) as s:
            s.settimeout(0.5)
            try:
                s.sendall(data)
                assert b"HTTP/1.1 200" not in s.recv(1000)
            except OSError:
                continue


# --- HTTP/2

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0"


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def literal(name: bytes, value: bytes) -> bytes:
    """A header field in HPACK without indexing or Huffman."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


HEAD = literal(b":method", b"GET") + literal(b":scheme", b"https") + literal(b":path", b"/version") + literal(b":authority", b"x")


def attack_h2(target: KasServer, pieces, seconds: float = 3.0) -> int:
    """Returns the bytes sent until the server closed the connection or the time was up. Answers are read and dropped."""
    taken = 0
    with dial(target, "h2") as s:
        assert s.selected_alpn_protocol() == "h2"
        s.setblocking(False)
        end = time.monotonic() + seconds
        try:
            for piece in itertools.chain((PREFACE,), pieces):
                rest = memoryview(piece)
                while rest and time.monotonic() < end:
                    rest = rest[_push(s, rest) :]
                if rest:
                    break
                taken += len(piece)
        except OSError:
            pass
    return taken


def _push(s: ssl.SSLSocket, data: memoryview) -> int:
    """Reads what has arrived, then writes as much as possible; pauses if nothing can be written. In one thread: two must not read and
    write one TLS connection at the same time."""
    with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError):
        while True:
            if not s.recv(65536):
                raise ConnectionError("the server ended the connection")
    try:
        return s.send(data)
    except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
        select.select([s], [s], [], 0.1)
        return 0


def resets():
    for i in range(20_000):
        stream = 1 + 2 * i
        yield frame(1, 5, stream, HEAD) + frame(3, 0, stream, b"\0\0\0\x08")


def continuations():
    yield frame(1, 1, 1, HEAD)
    for _ in range(50_000):
        yield frame(9, 0, 1, literal(b"x-a", b"b" * 100))


def pings():
    for _ in range(100_000):
        yield frame(6, 0, 0, b"12345678")


def settings():
    for _ in range(100_000):
        yield frame(4, 0, 0, b"\0\x04\0\0\0\0")


def bombs():
    """Puts a large header into the dynamic table once, and refers to it a thousand times in each request."""
    big = b"\x40" + b"\x03x-b" + b"\x7f" + bytes([(3900 - 127) & 127 | 128, (3900 - 127) >> 7]) + b"b" * 3900
    yield frame(1, 5, 1, HEAD + big)
    for i in range(1, 500):
        yield frame(1, 5, 1 + 2 * i, HEAD + b"\xbe" * 10_000)


def longest_wait(target, admin, frames) -> float:
    """Returns the longest duration of another client's GETs while these frames are sent, for ten seconds at most; without the time in
    which other programs had the processors."""
    queued, started = Queued(target.worker_pids()), time.monotonic()
    thread = threading.Thread(target=attack_h2, args=(target, frames))
    thread.start()
    slowest = 0.0
    while thread.is_alive() and time.monotonic() - started < 10:
        waited, at = queued.look(), time.monotonic()
        assert admin("GET", "/version")[0] == 200
        slowest = max(slowest, time.monotonic() - at - queued.since(waited))
    thread.join(60)
    queued.close()
    return slowest


@pytest.mark.parametrize("attack", [resets, continuations, pings, settings, bombs])
def test_http2_floods(target, admin, attack):
    waits = []
    while not waits or waits[-1] >= 3:  # otherwise another program may have slowed it down: an attack that is effective is so every time
        assert len(waits) < AT_MOST, f"others waited, in seconds: {waits}"
        waits.append(longest_wait(target, admin, attack()))


def test_many_streams_of_h2load(target, admin):
    command = [
        prerequisites.program("h2load", "Debian: nghttp2-client"),
        "-n",
        "5000",
        "-c",
        "10",
        "-m",
        "100",
        "-H",
        f"Authorization: Bearer {target.token}",
        target.url + "/api/v1/namespaces/default",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "5000 2xx" in done.stdout, done.stdout


@pytest.mark.parametrize("hosts", [[], ["a", "b"], ["a", "a"]], ids=repr)
def test_exactly_one_host(target, hosts):
    lines = ["GET /version HTTP/1.1", *(f"Host: {h}" for h in hosts), "Connection: close"]
    with dial(target) as s:
        s.settimeout(60)
        s.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        assert statuses(s.recv(65536)) == [400]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_a_write_that_asks_for_a_websocket_is_not_answered_as_a_read(target, method):
    upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    head = f"{method} /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {target.token}\r\n{upgrade}"
    with dial(target) as s:
        s.settimeout(60)
        s.sendall(f"{head}Content-Length: 2\r\n\r\n{{}}".encode())
        answer = s.recv(65536)
    assert statuses(answer) == [400] and b"ConfigMapList" not in answer
