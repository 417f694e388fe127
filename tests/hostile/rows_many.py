"""Rows of small objects by the hundred: namespaces and definitions that are deleted, leases, FlowSchemas."""

from __future__ import annotations

from tests.hostile.attacker import CRDS, MERGE, Attacker, definition
from tests.hostile.rows import row

LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
FLOW_SCHEMAS, LEVELS = (f"/apis/flowcontrol.apiserver.k8s.io/v1/{kind}" for kind in ("flowschemas", "prioritylevelconfigurations"))


@row("namespaces: 150 with something in them, deleted at once", 200, 201, 404, 409)
def _(a: Attacker) -> None:
    names = [f"{a.room}-{i}" for i in range(150)]
    a.many((("POST", "/api/v1/namespaces", {"metadata": {"name": n}}) for n in names), 8)
    a.many((("POST", f"/api/v1/namespaces/{n}/configmaps", {"metadata": {"name": "m"}}) for n in names), 8)
    a.many((("DELETE", f"/api/v1/namespaces/{n}") for n in names), 16)


@row("definitions: twenty made and deleted at once", 200, 201, 404, 409)
def _(a: Attacker) -> None:
    schema = {"type": "object", "properties": {f"f{i}": {"type": "string"} for i in range(200)}}
    plurals = [f"gone{i}s" for i in range(20)]
    a.many((("POST", CRDS, definition(p, schema)) for p in plurals), 8)
    a.many((("DELETE", f"{CRDS}/{p}.rows.example.com") for p in plurals), 20)


@row("definitions: sixty versions that share a schema, read, changed and watched", 200, 201)
def _(a: Attacker) -> None:
    made = definition("shareds", {"type": "object", "properties": {f"f{i}": {"type": "string"} for i in range(1500)}})
    (first,) = made["spec"]["versions"]
    made["spec"]["versions"] = [first, *({**first, "name": f"v{i}", "storage": False} for i in range(2, 61))]
    path = f"{CRDS}/{made['metadata']['name']}"
    a.cleaned.append(lambda: a.ask("DELETE", path))
    a.ask("POST", CRDS, made)
    a.many((("GET", path) for _ in range(8)), 4)
    a.many((("PATCH", path, {"metadata": {"labels": {"a": f"v{i}"}}}, MERGE) for i in range(4)), 2)
    a.ask("GET", f"{CRDS}?watch=1&timeoutSeconds=1")


@row("leases: 200, renewed again and again", 200, 201, 409)
def _(a: Attacker) -> None:
    path = LEASES.format(a.room)
    a.many((("POST", path, {"metadata": {"name": f"l{i}"}, "spec": {"holderIdentity": "a"}}) for i in range(200)), 8)
    a.many((("PATCH", f"{path}/l{i % 200}", {"spec": {"holderIdentity": f"h{i}"}}, MERGE) for i in range(400)), 16)
    a.ask("DELETE", path)


@row("flow schemas: 300 that match nobody", 200, 201, 409)
def _(a: Attacker) -> None:
    rule = {"subjects": [{"kind": "User", "user": {"name": "nobody"}}],
            "resourceRules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "namespaces": ["*"]}]}  # fmt: skip
    spec = {"priorityLevelConfiguration": {"name": "global-default"}, "matchingPrecedence": 10, "rules": [rule]}
    a.cleaned.append(lambda: a.ask("DELETE", f"{FLOW_SCHEMAS}?labelSelector=room%3D{a.room}"))
    many = ({"metadata": {"name": f"{a.room}-{i}", "labels": {"room": a.room}}, "spec": spec} for i in range(300))
    a.many((("POST", FLOW_SCHEMAS, one) for one in many), 8)
    a.many((("GET", a.maps) for _ in range(100)), 8)


@row("priority levels: one that comes and goes, which 600 flow schemas name", 200, 201, 409)
def _(a: Attacker) -> None:
    rule = {"subjects": [{"kind": "Group", "group": {"name": "system:authenticated"}}],
            "resourceRules": [{"verbs": ["get"], "apiGroups": ["none"], "resources": ["pods"], "namespaces": ["*"]}]}  # fmt: skip
    spec = {"priorityLevelConfiguration": {"name": a.room}, "matchingPrecedence": 10, "rules": [rule]}
    a.cleaned.append(lambda: a.ask("DELETE", f"{FLOW_SCHEMAS}?labelSelector=room%3D{a.room}"))
    many = ({"metadata": {"name": f"{a.room}-{i}", "labels": {"room": a.room}}, "spec": spec} for i in range(600))
    a.many((("POST", FLOW_SCHEMAS, one) for one in many), 8)
    level = {"type": "Limited", "limited": {"nominalConcurrencyShares": 1, "limitResponse": {"type": "Reject"}}}
    for _ in range(10):
        a.ask("POST", LEVELS, {"metadata": {"name": a.room}, "spec": level})
        a.ask("GET", a.maps)
        a.ask("DELETE", f"{LEVELS}/{a.room}")
        a.ask("GET", a.maps)


@row("events: 600 of one object, none like the other", 200, 201, 409)
def _(a: Attacker) -> None:
    about = {"kind": "ConfigMap", "namespace": a.room, "name": "m"}
    path = f"/api/v1/namespaces/{a.room}/events"
    a.many((("POST", path, {"metadata": {"generateName": "e"}, "involvedObject": about, "reason": f"r{i}", "message": "x" * 500})
            for i in range(600)), 16)  # fmt: skip
    a.ask("DELETE", path)
