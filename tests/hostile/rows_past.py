"""Rows of requests for old revisions, for few of many objects, or for many at once; and of idle connections."""

from __future__ import annotations

import contextlib
import json
import ssl
import time
from concurrent.futures import ThreadPoolExecutor

from tests.hostile.attacker import APPLY, JSON, MERGE, PROTOBUF, SETTINGS, Attacker, authorized, frame
from tests.hostile.rows import row
from tests.hostile.rows_lists import let_mallory_watch, watches
from tests.hostile.rows_upgrades import UNTAKEN_S

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


def fill(a: Attacker, n: int, size: int = 10, **metadata: object) -> None:
    """Creates ``n`` config maps in the room."""
    labels = [{"a": f"v{i % 7}", "b": f"w{i}"} for i in range(n)]
    a.many((("POST", a.maps, {"metadata": {"name": f"p{i}", "labels": labels[i], **metadata}, "data": {"x": "y" * size}})
            for i in range(n)), 8)  # fmt: skip


@row("watches: 300 from before 2,000 writes, that select none of them", 200, 201, 404)
def _(a: Attacker) -> None:
    let_mallory_watch(a)
    log = a.made(a.maps, {"metadata": {"generateName": "log"}})["metadata"]
    first = log["resourceVersion"]
    a.many((("PATCH", f"{a.maps}/{log['name']}", {"data": {"a": str(i)}}, MERGE) for i in range(2000)), 8)
    watches(a, 3, f"resourceVersion={first}&labelSelector=a%3D%d&fieldSelector=metadata.name%3Dx%d")


@row("watches: from before 2,000 writes, opened and dropped", 200, 201, 404)
def _(a: Attacker) -> None:
    log = a.made(a.maps, {"metadata": {"generateName": "log"}})["metadata"]
    first = log["resourceVersion"]
    a.many((("PATCH", f"{a.maps}/{log['name']}", {"data": {"a": str(i)}}, MERGE) for i in range(2000)), 8)
    for _ in range(15):
        a.raw(10, a.head("GET", f"{a.maps}?watch=true&resourceVersion={first}"), listen=0.01)


@row("lists: pages of one of 1,500 maps, by selectors for none and for few", 200, 201)
def _(a: Attacker) -> None:
    fill(a, 1500)
    asks = [f"{a.maps}?limit=1&labelSelector=b%3Dw{i}&fieldSelector=metadata.name!%3Dp{i}" for i in range(60)]
    asks += [f"{a.maps}?limit=1&labelSelector=a+notin+(v0,v1,v2,v3,v4,v5),b%3Dw{i}" for i in range(60)]
    asks += [f"{a.maps}?limit=1&resourceVersion=1&resourceVersionMatch=NotOlderThan&labelSelector=a%3Dz{i}" for i in range(60)]
    a.many(((("GET", path)) for path in asks), 8)


@row("lists: 2,000 maps as Tables, protobuf, YAML and gzip, forty at once", 200, 201, 429)
def _(a: Attacker) -> None:
    fill(a, 2000, 200)

    def ask(i: int) -> None:
        accept = (TABLE, PROTOBUF, "application/yaml", JSON)[i % 4]
        a.ask("GET", a.maps, Accept=accept, Accept_Encoding="gzip" if i % 3 else "identity")

    with ThreadPoolExecutor(20) as pool:
        list(pool.map(ask, range(40)))


@row("collections: 500 with finalizers, deleted again and again", 200, 201, 429)
def _(a: Attacker) -> None:
    fill(a, 500, finalizers=["example.com/kept"])
    a.cleaned.append(lambda: a.many((("PATCH", f"{a.maps}/p{i}", {"metadata": {"finalizers": None}}, MERGE) for i in range(500)), 8))
    a.many((("DELETE", a.maps) for _ in range(12)), 4)
    a.many((("DELETE", f"{a.maps}?dryRun=All&labelSelector=b%3Dw{i}") for i in range(40)), 4)


@row("tokens to go on: good ones, again and again", 200, 201)
def _(a: Attacker) -> None:
    fill(a, 300)
    with ThreadPoolExecutor(4) as pool:
        def loop(i: int) -> None:
            token = a_page(a, f"limit=3&labelSelector=a%3Dv{i}")
            a.many((("GET", f"{a.maps}?limit=3&labelSelector=a%3Dv{i}&continue={token}") for _ in range(100)), 2)

        list(pool.map(loop, range(4)))


def a_page(a: Attacker, query: str) -> str:
    """Returns the continue token at the end of a page."""
    with a.wire() as s:
        s.sendall(a.head("GET", f"{a.maps}?{query}", "Connection: close"))
        got = b""
        while data := s.recv(65536):
            got += data
        return str(json.loads(got.partition(b"\r\n\r\n")[2])["metadata"].get("continue", ""))
    return ""


@row("conditions: 2,000 of a pod, changed one by one, and finalizers as many", 200, 201, 403, 409)
def _(a: Attacker) -> None:
    a.ask("POST", a.pods, {"metadata": {"name": "c"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    many = [{"type": f"example.com/t{i}", "status": "True"} for i in range(2000)]
    a.ask("PATCH", f"{a.pods}/c/status", {"status": {"conditions": many}}, "application/strategic-merge-patch+json")
    one = [("PATCH", f"{a.pods}/c/status", {"status": {"conditions": [{"type": f"example.com/t{i}", "status": "False"}]}},
            "application/strategic-merge-patch+json") for i in range(60)]  # fmt: skip
    a.many(one, 4)
    a.many((("PATCH", f"{a.maps}/f?fieldManager=m{i}", {
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "f", "finalizers": [f"example.com/f{i}x{j}" for j in range(100)]},
    }, APPLY) for i in range(20)), 4)  # fmt: skip
    a.cleaned.append(lambda: a.ask("PATCH", f"{a.maps}/f", {"metadata": {"finalizers": None}}, MERGE))


@row("credentials: thousands of extras to be impersonated, and long ones", 200, 400, 403, 431, 0)
def _(a: Attacker) -> None:
    many = [f"Impersonate-Extra-K{i}: v{i}" for i in range(3000)]
    same = ["Impersonate-Extra-K: v"] * 4000
    long = ["Impersonate-Extra-" + "%41" * 30_000 + ": " + "v" * 100_000]
    for lines in (many, same, long):
        a.raw(6, a.head("GET", f"{a.maps}/none", "Impersonate-User: somebody", *lines) * 2)


@row("credentials: Authorization headers of 200 kB, and none in two hundred", 401, 431, 0)
def _(a: Attacker) -> None:
    for text in ("Bearer " + "x" * 200_000, "Bearer " + "a.b." * 50_000, "Basic " + "QQ==" * 50_000, "Negotiate " * 20_000):
        a.raw(6, f"GET /api HTTP/1.1\r\nHost: x\r\nAuthorization: {text}\r\n\r\n".encode() * 4)


@row("WebSockets: 200 handshakes for what is not there, and silence", 0)
def _(a: Attacker) -> None:
    upgrade = ("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==")
    a.raw(100, a.head("GET", f"{a.pods}/none/exec?command=a", *upgrade, "Sec-WebSocket-Protocol: v5.channel.k8s.io"), listen=0.05)
    a.raw(100, a.head("GET", f"{a.maps}?watch=true", *upgrade), listen=0.05)
    a.raw(100, a.head("POST", f"{a.pods}/none/portforward", "Upgrade: SPDY/3.1", "Connection: Upgrade"), listen=0.05)


@row("HTTP/1: requests without end on 40 connections, and nobody reads")
def _(a: Attacker) -> None:
    request = b"GET /api/v1/pods HTTP/1.1\r\nHost: x\r\n\r\n" * 200
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(a.wire()) for _ in range(40)]
        for s in wires:
            s.setblocking(False)
        until = time.monotonic() + 8
        while wires and time.monotonic() < until:
            for s in wires:
                with contextlib.suppress(ssl.SSLWantWriteError, ssl.SSLWantReadError, OSError):
                    s.send(request)


@row("HTTP/2: gets on every stream of 40 connections, reset before they are answered")
def _(a: Attacker) -> None:
    pieces = []
    for i in range(2000):
        pieces += [authorized(1 + 2 * i, f"{a.maps}?limit=5", a.token), frame(3, 0, 1 + 2 * i, (8).to_bytes(4, "big"))]
    with ThreadPoolExecutor(20) as pool:
        list(pool.map(lambda _: a.frames(pieces), range(40)))


@row("HTTP/2: OpenAPI on 800 streams with a zero window")
def _(a: Attacker) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(8):
            with contextlib.suppress(OSError):
                s = stack.enter_context(a.wire("h2"))
                s.sendall(frame(SETTINGS, 0, 0, b"\0\4\0\0\0\0"))
                s.sendall(b"".join(authorized(1 + 2 * i, "/openapi/v2", a.token) for i in range(100)))
        time.sleep(UNTAKEN_S)
