"""Rows of objects by the thousand: watches, definitions and versions, webhooks, policies, terms of selectors, quotas, schemas, users; and
of SPDY and CONNECT."""

from __future__ import annotations

import base64
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from tests.hostile.attacker import CRDS, END_HEADERS, END_STREAM, HEADERS, JSON, MERGE, MIB, Attacker, authorized, definition, frame, string
from tests.hostile.rows import row
from tests.hostile.rows_floods import SPDY, flooded
from tests.hostile.rows_many import FLOW_SCHEMAS
from tests.hostile.rows_upgrades import untaken

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
STREAMS = 200  # of a connection
LEFT_S = 2.0


@contextlib.contextmanager
def watching(a: Attacker, path: str, watches: int) -> Iterator[None]:
    """Opens this many watches, and does not read their connections."""
    with contextlib.ExitStack() as stack:
        for _ in range(watches // STREAMS):
            with contextlib.suppress(OSError, RuntimeError):  # a connection that was refused yields nothing
                s = stack.enter_context(a.wire("h2"))
                s.sendall(b"".join(authorized(1 + 2 * i, f"{path}?watch=true", a.token) for i in range(STREAMS)))
        yield


def labelled(a: Attacker, i: int) -> dict[str, object]:
    """Metadata of objects that are deleted with the room."""
    return {"name": f"{a.room}-{i}", "labels": {"room": a.room}}


def collected(a: Attacker, *collections: str) -> None:
    """Deletes at the end everything with the room's label."""
    for path in collections:
        a.cleaned.append(lambda path=path: a.ask("DELETE", f"{path}?labelSelector=room%3D{a.room}"))


# Arenas of the interpreter's allocator remain: 50 to 68 MiB after each of ten repetitions, in a worker that did nothing else.
@row("watches: 10,000 of one collection, and writes to it", 200, 201, 404, mb=128)
def _(a: Attacker) -> None:
    with watching(a, a.maps, 10_000):
        a.ask("POST", a.maps, {"metadata": {"name": "m"}})
        a.many((("PATCH", f"{a.maps}/m", {"data": {"k": str(i)}}, MERGE) for i in range(20)), 4)


@row("definitions: 200 at once, and their discovery", 200, 201, 404, 409)
def _(a: Attacker) -> None:
    plurals = [f"many{i}s" for i in range(200)]
    a.many((("POST", CRDS, definition(p, {"type": "object", "properties": {"a": {"type": "string"}}})) for p in plurals), 8)
    a.many((("GET", path) for path in ("/apis", "/apis/rows.example.com/v1", "/openapi/v3", "/openapi/v2") * 4), 4)
    a.many((("DELETE", f"{CRDS}/{p}.rows.example.com") for p in plurals), 16)


# Each of 2,000 versions was compared with all others, 2.7 s of the loop; the OpenAPI documents of 9,000 took longer than a request may.
@row("definitions: one of 4,000 versions, half of them deprecated, and its documents", 200, 201, 404)
def _(a: Attacker) -> None:
    made = definition("versions", {"type": "object", "properties": {"a": {"type": "string"}}})
    (first,) = made["spec"]["versions"]
    made["spec"]["versions"] = [{**first, "name": f"v{i + 1}", "storage": i == 3999, "deprecated": i % 2 == 1} for i in range(4000)]
    path, group = f"{CRDS}/{made['metadata']['name']}", made["spec"]["group"]
    a.cleaned.append(lambda: a.ask("DELETE", path))
    a.ask("POST", CRDS, made)
    everything = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    for i in range(3):
        a.many((("GET", at) for at in ("/apis", f"/apis/{group}", f"/apis/{group}/v7", f"/apis/{group}/v{i + 9}/versions") * 2), 4)
        a.ask("GET", "/apis", Accept=everything)
        a.ask("PATCH", path, {"metadata": {"labels": {"a": f"v{i}"}}}, MERGE)
    a.many((("GET", at) for at in ("/openapi/v3", "/openapi/v2")), 2)


# 200 to 300 ms of the loop when one of them was written, and 10 for each when the first config map was.
@row("selectors: 30,000 terms in each of four webhooks and policies", 200, 201, mb=192)
def _(a: Attacker) -> None:
    terms = [{"key": f"k{i}.x", "operator": "DoesNotExist"} for i in range(30_000)]
    selector = {"objectSelector": {"matchExpressions": [*terms, {"key": "a", "operator": "In", "values": [a.room]}]}}
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]
    hook = {"name": "h.example.com", "clientConfig": {"url": "https://127.0.0.1:1/"}, "sideEffects": "None", "rules": rules,
            "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore", "timeoutSeconds": 1, **selector}  # fmt: skip
    constraints = {"resourceRules": rules, **selector}
    policy = {"matchConstraints": constraints, "validations": [{"expression": "true"}], "failurePolicy": "Ignore"}
    hooks, policies = f"{ADMISSION}/validatingwebhookconfigurations", f"{ADMISSION}/validatingadmissionpolicies"
    bindings = f"{ADMISSION}/validatingadmissionpolicybindings"
    collected(a, hooks, bindings, policies)
    for i in range(4):
        named = labelled(a, i)
        a.ask("POST", hooks, {"metadata": named, "webhooks": [hook]})
        a.ask("POST", policies, {"metadata": named, "spec": policy})
        a.ask("POST", bindings, {"metadata": named, "spec": {"policyName": named["name"], "validationActions": ["Deny"]}})
        a.ask("POST", a.maps, {"metadata": {"generateName": "s", "labels": {"a": "b"}}})


def _hooked(a: Attacker, kind: str, hooks: int, times: int, ca: bytes = b"") -> None:
    """Creates webhooks for all config maps of the room, and config maps. Without a ``ca``, the system's CAs are read for each webhook."""
    match = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    here = {"matchLabels": {"kubernetes.io/metadata.name": a.room}}
    asked = {"url": "https://127.0.0.1:1/", "caBundle": base64.b64encode(ca).decode()}
    about = {"clientConfig": asked, "sideEffects": "None", "admissionReviewVersions": ["v1"], "rules": [match],
             "failurePolicy": "Ignore", "timeoutSeconds": 1, "namespaceSelector": here}  # fmt: skip
    collected(a, f"{ADMISSION}/{kind}")
    a.many((("POST", f"{ADMISSION}/{kind}", {"metadata": labelled(a, i), "webhooks": [{"name": f"h{j}.example.com", **about}
             for j in range(20)]}) for i in range(hooks // 20)), 4)  # fmt: skip
    a.many((("POST", a.maps, {"metadata": {"generateName": "w"}, "data": {"a": "x" * 1000}}) for _ in range(times)), 4)


@row("webhooks: 1,000 that validate every map, and nobody is there", 200, 201, 500, 504)
def _(a: Attacker) -> None:
    # With a CA of their own: 200 clients are cached, and reading the system's CAs for each of 1,000 exceeds the time of a write. The
    # 400 below read them.
    _hooked(a, "validatingwebhookconfigurations", 1000, 8, Path(a.server.ca).read_bytes())


@row("webhooks: 400 that mutate every map, and nobody is there", 200, 201, 500, 504)
def _(a: Attacker) -> None:
    _hooked(a, "mutatingwebhookconfigurations", 400, 4)


@row("policies: 1,000 about every map of a room", 200, 201, 504)
def _(a: Attacker) -> None:
    match = {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
             "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": a.room}}}  # fmt: skip
    policies, bindings = f"{ADMISSION}/validatingadmissionpolicies", f"{ADMISSION}/validatingadmissionpolicybindings"
    collected(a, bindings, policies)
    specs = [{"matchConstraints": match, "validations": [{"expression": f"object.metadata.name != 'x{i}'"}]} for i in range(1000)]
    a.many((("POST", policies, {"metadata": labelled(a, i), "spec": spec}) for i, spec in enumerate(specs)), 8)
    a.many((("POST", bindings, {"metadata": labelled(a, i), "spec": {"policyName": f"{a.room}-{i}", "validationActions": ["Deny"]}})
            for i in range(1000)), 8)  # fmt: skip
    a.many((("POST", a.maps, {"metadata": {"generateName": "q"}}) for _ in range(20)), 4)


@row("quotas: 600 in one namespace", 200, 201, 403, 409)
def _(a: Attacker) -> None:
    path = f"/api/v1/namespaces/{a.room}/resourcequotas"
    a.many((("POST", path, {"metadata": {"name": f"q{i}"}, "spec": {"hard": {"count/configmaps": "100000"}}}) for i in range(600)), 8)
    a.many((("POST", a.maps, {"metadata": {"generateName": "q"}}) for _ in range(20)), 4)


@row("flow schemas: 1,500 about everybody, one of which changes", 200, 201, 409)
def _(a: Attacker) -> None:
    rule = {"subjects": [{"kind": "Group", "group": {"name": "system:authenticated"}}],
            "resourceRules": [{"verbs": ["get"], "apiGroups": ["none"], "resources": ["pods"], "namespaces": ["*"]}]}  # fmt: skip
    spec = {"priorityLevelConfiguration": {"name": "global-default"}, "matchingPrecedence": 10, "rules": [rule]}
    collected(a, FLOW_SCHEMAS)
    a.many((("POST", FLOW_SCHEMAS, {"metadata": labelled(a, i), "spec": spec}) for i in range(1500)), 8)
    for i in range(20):
        a.ask("PATCH", f"{FLOW_SCHEMAS}/{a.room}-0", {"spec": {"matchingPrecedence": 11 + i}}, MERGE)
        a.many((("GET", f"{a.maps}?limit={j + 1}") for j in range(4)), 4)


@row("priority levels: 300 beside 1,500 flow schemas, and pages about them", 200, 201, 409)
def _(a: Attacker) -> None:
    levels = FLOW_SCHEMAS.replace("flowschemas", "prioritylevelconfigurations")
    queuing = {"type": "Limited", "limited": {"nominalConcurrencyShares": 1, "limitResponse": {"type": "Queue", "queuing": {"queues": 64}}}}
    rule = {"subjects": [{"kind": "Group", "group": {"name": "system:authenticated"}}],
            "resourceRules": [{"verbs": ["get"], "apiGroups": ["none"], "resources": ["pods"], "namespaces": ["*"]}]}  # fmt: skip
    spec = {"priorityLevelConfiguration": {"name": f"{a.room}-7"}, "matchingPrecedence": 10, "rules": [rule]}
    collected(a, FLOW_SCHEMAS, levels)
    a.many((("POST", FLOW_SCHEMAS, {"metadata": labelled(a, i), "spec": spec}) for i in range(1500)), 8)
    for i in range(300):
        a.ask("POST", levels, {"metadata": labelled(a, i), "spec": queuing})
        a.ask("GET", f"{a.maps}?limit=1")
    a.many((("GET", f"/debug/api_priority_and_fairness/dump_{page}") for page in ("priority_levels", "queues", "requests") * 4), 4)


# While they exist, 130 to 210 MiB; the allocators kept 95 to 160 of these in eight repetitions, without growth.
@row("users: 200, each of whom takes no list of 4 MB", 201)
def _(a: Attacker) -> None:
    a.many((("POST", a.maps, {"metadata": {"name": f"l{i}"}, "data": {"a": "x" * MIB}}) for i in range(4)), 4)
    with contextlib.ExitStack() as stack:
        for i in range(200):
            with contextlib.suppress(OSError, RuntimeError):  # a connection that was refused yields nothing
                s = stack.enter_context(a.wire())
                s.sendall(a.head("GET", a.maps, f"Impersonate-User: u{i}", "Impersonate-Group: system:masters"))
        time.sleep(LEFT_S)


@row("CONNECT: to everywhere, on every version")
def _(a: Attacker) -> None:
    for to in ("169.254.169.254:80", "localhost:22", "/api/v1/namespaces", "[::1]:6443"):
        a.raw(8, b"CONNECT %b HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %b\r\n\r\n" % (to.encode(), a.token.encode()) + bytes(20_000))
    bare = b"\x02\x07CONNECT\x01" + string(b"169.254.169.254:80")  # :method and :authority
    extended = b"\x02\x07CONNECT\x00\x09:protocol\x09websocket\x87\x04" + string(a.maps.encode()) + b"\x01\x01x"
    for head in (bare, extended):
        a.frames(frame(HEADERS, flags, n, head) for n in range(1, 401, 2) for flags in (END_HEADERS | (END_STREAM if n % 4 == 1 else 0),))


def _relayed(a: Attacker, sent: bytes, connections: int = 40) -> None:
    """What follows requests for SPDY, to a pod whose kubelet keeps sending."""
    flooded(a)
    untaken(a, connections, a.head("POST", f"{a.pods}/p/exec?command=x&stdout=1", *SPDY) + sent)


@row("SPDY: half a frame behind 40 requests", 200, 201, 409)
def _(a: Attacker) -> None:
    _relayed(a, b"\x80\x03\x00\x01\x01\x00\xff\xff")


@row("SPDY: frames behind 40 requests that nobody reads", 200, 201, 409)
def _(a: Attacker) -> None:
    _relayed(a, b"\x80\x03\x00\x06\x00\x00\x00\x04\x00\x00\x00\x01" * 20_000)


@row("SPDY: half a head", 0)
def _(a: Attacker) -> None:
    half = a.head("POST", f"{a.pods}/p/exec?command=x&stdout=1", *SPDY)[:-30]
    a.raw(100, half, listen=0.01)
    a.raw(8, half, b"X: " + b"y" * MIB)
    a.raw(8, a.head("POST", f"{a.pods}/p/exec", *SPDY[:3], "Transfer-Encoding: chunked", f"Content-Type: {JSON}"), b"5\r\n12")
