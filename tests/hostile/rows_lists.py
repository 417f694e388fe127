"""Rows of lists, selectors, tokens, watches, collections and documents."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Iterator

from tests.hostile.attacker import JSON, MERGE, WINDOW, Attacker, authorized, frame
from tests.hostile.rows import row


@row("tokens to go on: long and many", 200, 400, 410, 414, 431, 0)
def _(a: Attacker) -> None:
    def token(i: int) -> str:
        text = json.dumps({"v": "meta.k8s.io/v1", "rv": i - 5, "start": f"{a.room}/" + "x" * (6000 if i % 2 else 3)})
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    a.many(("GET", f"{a.maps}?limit=1&continue={token(i)}") for i in range(100))


@row("selectors: thousands of terms", 200, 400, 414, 431, 0)
def _(a: Attacker) -> None:
    a.many(("GET", f"{a.maps}?labelSelector={','.join(f'a{i}x{j}!=b' for j in range(5000))}") for i in range(20))


@row("selectors: a value among many", 200, 400, 414, 431, 0)
def _(a: Attacker) -> None:
    a.many(("GET", f"/api/v1/configmaps?labelSelector=a+in+({','.join(f'v{i}x{j}' for j in range(8000))})") for i in range(20))


@row("selectors: never the same", 200)
def _(a: Attacker) -> None:
    a.many(("GET", f"{a.maps}?labelSelector=a{i}={'v' * 60}&fieldSelector=metadata.name=n{i}") for i in range(400))


@row("watches: opened and dropped")
def _(a: Attacker) -> None:
    for i in range(30):
        a.raw(10, a.head("GET", f"{a.maps}?watch=true&labelSelector=a{i}"), listen=0.01)


@row("watches: nobody reads", 200, 201)
def _(a: Attacker) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(40):
            stack.enter_context(a.wire()).sendall(a.head("GET", f"{a.maps}?watch=true"))
        a.ask("POST", a.maps, {"metadata": {"name": "big"}})
        a.many(("PATCH", f"{a.maps}/big", {"data": {"a": str(i) * 100_000}}, MERGE) for i in range(60))


def let_mallory_watch(a: Attacker) -> None:
    """A user with a credential of his own, because clients take turns by credential."""
    base = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{a.room}"
    a.ask("POST", f"{base}/rolebindings", {
        "metadata": {"name": "reader"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "User", "name": "mallory", "apiGroup": "rbac.authorization.k8s.io"}]})  # fmt: skip


@contextlib.contextmanager
def watching(a: Attacker, connections: int, query: str) -> Iterator[None]:
    """Opens a hundred watches on each connection, and does not read them; ``%d`` in ``query`` makes them differ."""
    with contextlib.ExitStack() as stack:
        for c in range(connections):
            s = stack.enter_context(a.wire("h2"))
            s.sendall(frame(WINDOW, 0, 0, b"\x3f\0\0\0"))
            for i in range(100):
                path = f"{a.maps}?watch=true&" + (query.replace("%d", str(c * 100 + i)))
                s.sendall(authorized(1 + 2 * i, path, "m-token"))
        yield


def watches(a: Attacker, connections: int, query: str) -> None:
    """Runs ``watching`` for this long."""
    with watching(a, connections, query):
        a.many((("GET", f"{a.maps}/none", None, JSON) for _ in range(10)), 2)


@row("watches: 300 first states of 6 MB", 201, 404)
def _(a: Attacker) -> None:
    let_mallory_watch(a)
    a.many(("POST", a.maps, {"metadata": {"name": f"w{i}"}, "data": {"a": "x" * 100_000}}) for i in range(60))
    watches(a, 3, "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true")


@row("watches: 600 of objects of 800 kB", 201, 404)
def _(a: Attacker) -> None:
    let_mallory_watch(a)
    a.many(("POST", a.maps, {"metadata": {"name": f"b{i}"}, "data": {"a": "x" * 800_000}}) for i in range(3))
    watches(a, 6, "")


@row("watches: 300 of 300 terms, never the same", 201, 404)
def _(a: Attacker) -> None:
    let_mallory_watch(a)
    watches(a, 3, "labelSelector=" + ",".join(f"a{j}x%d!%3Db" for j in range(300)))


@row("lists: 60 that nobody takes, of 20 MB", 201)
def _(a: Attacker) -> None:
    a.many(("POST", a.maps, {"metadata": {"name": f"l{i}"}, "data": {"a": "x" * 1_000_000}}) for i in range(20))
    a.raw(60, a.head("GET", a.maps), listen=0.01)


@row("watches: from a future", 200, 400, 410, 504)
def _(a: Attacker) -> None:
    a.many((("GET", f"{a.maps}?resourceVersion=99999999999&timeoutSeconds=1") for _ in range(60)), 20)


@row("lists: large ones, unread", 201)
def _(a: Attacker) -> None:
    a.many(("POST", a.maps, {"metadata": {"name": f"l{i}"}, "data": {"a": "x" * 500_000}}) for i in range(20))
    a.raw(20, a.head("GET", a.maps, "Accept-Encoding: gzip"), a.head("GET", a.maps))


@row("collections: filled and deleted", 200, 201)
def _(a: Attacker) -> None:
    a.many((("POST", a.maps, {"metadata": {"generateName": "d"}}) for _ in range(400)), 8)
    a.ask("DELETE", a.maps)


@row("events: a flood", 201)
def _(a: Attacker) -> None:
    about = {"kind": "Pod", "namespace": a.room, "name": "p"}
    made = {"metadata": {"generateName": "e"}, "involvedObject": about, "reason": "R", "message": "m" * 900, "type": "Normal"}
    a.many((("POST", f"/api/v1/namespaces/{a.room}/events", made) for _ in range(300)), 8)


@row("documents: OpenAPI in every form", 200)
def _(a: Attacker) -> None:
    forms = ("application/json", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf")
    for form in forms:
        a.many((("GET", "/openapi/v2", None, JSON) for _ in range(8)), 8)
        a.ask("GET", "/openapi/v2", Accept=form, Accept_Encoding="gzip")


@row("reads: a large object in every form", 200, 201, 409)
def _(a: Attacker) -> None:
    a.ask("POST", a.maps, {"metadata": {"name": "forms"}, "data": {f"k{i}": "v" for i in range(20_000)}})
    table, meta = (f"application/json;as={kind};v=v1;g=meta.k8s.io" for kind in ("Table", "PartialObjectMetadata"))
    for accept in ("application/yaml", "application/vnd.kubernetes.protobuf", table, meta):
        a.ask("GET", f"{a.maps}/forms", Accept=accept)
    a.ask("GET", f"{a.maps}/forms?pretty=true")
