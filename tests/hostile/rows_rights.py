"""Rows of roles, and of what many objects of the cluster cost every request: flow schemas, quotas, policies."""

from __future__ import annotations

from typing import Any

from tests.hostile.attacker import APPLY, CRDS, JSON, STRATEGIC, Attacker, definition
from tests.hostile.rows import row

RBAC = "/apis/rbac.authorization.k8s.io/v1"
GROUP = "rbac.authorization.k8s.io"
MALLORY = {"kind": "User", "name": "mallory", "apiGroup": GROUP}
AS_MALLORY = "Bearer m-token"


def bind(a: Attacker, name: str, role: str, where: str = "") -> None:
    """Gives mallory a role in the room or, with ``where`` "cluster", a cluster role."""
    base, kind = (f"{RBAC}/clusterrolebindings", "ClusterRole") if where else (f"{RBAC}/namespaces/{a.room}/rolebindings", "Role")
    a.ask("POST", base, {"metadata": {"name": name}, "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role}, "subjects": [MALLORY]})
    a.cleaned.append(lambda: a.ask("DELETE", f"{base}/{name}"))


def rules(n: int, **more: Any) -> list[dict[str, Any]]:
    return [{"apiGroups": [""], "resources": ["pods"], "resourceNames": [f"p{i}"], "verbs": ["get"], **more} for i in range(n)]


@row("roles: 2,000 rules against as many, bound twenty times", 201, 403, 200)
def _(a: Attacker) -> None:
    roles = f"{RBAC}/namespaces/{a.room}/roles"
    write = {"apiGroups": [GROUP, ""], "resources": ["roles", "configmaps"], "verbs": ["create", "get", "list"]}
    a.ask("POST", roles, {"metadata": {"name": "many"}, "rules": [*rules(2000), write]})
    a.cleaned.append(lambda: a.ask("DELETE", f"{roles}/many"))
    for i in range(20):
        bind(a, f"b{i}", "many")
    held = {"metadata": {"generateName": "r"}, "rules": rules(2000)}
    others = {"metadata": {"generateName": "r"}, "rules": rules(2000, verbs=["put"])}
    wide = {"apiGroups": [f"g{i}" for i in range(200)], "resources": [f"r{i}" for i in range(200)], "verbs": [f"v{i}" for i in range(200)]}
    for body in (held, others, {"metadata": {"generateName": "r"}, "rules": [wide]}):
        a.post(roles, body, times=2, Authorization=AS_MALLORY)
    a.many((("GET", f"{a.maps}?labelSelector=x{i}", None, JSON) for i in range(20)), 4)


@row("roles: a cluster role of 40,000 rules", 200, 201)
def _(a: Attacker) -> None:
    path = f"{RBAC}/clusterroles"
    many = [{"apiGroups": [f"g{i}"], "resources": [f"r{i}"], "verbs": ["get"]} for i in range(40_000)]
    big = {"metadata": {"name": a.room}, "rules": many}
    a.ask("POST", path, big)
    bind(a, a.room, a.room, "cluster")
    a.ask("GET", "/version", Authorization=AS_MALLORY)
    a.ask("PUT", f"{path}/{a.room}", {**big, "metadata": {"name": a.room, "labels": {"a": "b"}}})
    a.ask("GET", "/version", Authorization=AS_MALLORY)
    a.ask("DELETE", f"{path}/{a.room}")


@row("definitions: one of 600 kB, read, changed and deleted", 200, 201)
def _(a: Attacker) -> None:
    fields = {f"f{i}": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}} for i in range(6000)}
    a.ask("POST", CRDS, definition("heavy", {"type": "object", "properties": fields}))
    one = f"{CRDS}/heavy.rows.example.com"
    a.many((("GET", one) for _ in range(8)), 4)
    a.ask("PATCH", one, {"metadata": {"labels": {"a": "b"}}}, "application/merge-patch+json")
    a.ask("DELETE", one)


@row("flow schemas: sixty of 100 subjects", 200, 201)
def _(a: Attacker) -> None:
    path = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas"
    subjects = [{"kind": "User", "user": {"name": f"u{i}"}} for i in range(100)]
    rule = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"]}
    for i in range(60):
        spec = {"priorityLevelConfiguration": {"name": "global-default"}, "matchingPrecedence": 9000,
                "rules": [{"subjects": subjects, "resourceRules": [rule]}]}  # fmt: skip
        a.ask("POST", path, {"metadata": {"name": f"{a.room}-{i}", "labels": {"room": a.room}}, "spec": spec})
    a.cleaned.append(lambda: a.ask("DELETE", f"{path}?labelSelector=room%3D{a.room}"))


@row("quotas: sixty in one namespace", 200, 201, 403, 409)
def _(a: Attacker) -> None:
    path = f"/api/v1/namespaces/{a.room}/resourcequotas"
    for i in range(60):
        a.ask("POST", path, {"metadata": {"name": f"q{i}"}, "spec": {"hard": {"count/configmaps": "100000"}}})
    a.many((("POST", a.maps, {"metadata": {"generateName": "q"}}) for _ in range(20)), 4)


@row("policies: thirty that bind every map", 200, 201)
def _(a: Attacker) -> None:
    base = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
    match = {"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
             "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": a.room}}}  # fmt: skip
    for i in range(30):
        meta = {"name": f"{a.room}-{i}", "labels": {"room": a.room}}
        spec = {"matchConstraints": match, "validations": [{"expression": f"object.metadata.name != 'x{i}'"}]}
        a.ask("POST", f"{base}ies", {"metadata": meta, "spec": spec})
        a.ask("POST", f"{base}ybindings", {"metadata": meta, "spec": {"policyName": meta["name"], "validationActions": ["Deny"]}})
    for kind in ("ybindings", "ies"):
        a.cleaned.append(lambda kind=kind: a.ask("DELETE", f"{base}{kind}?labelSelector=room%3D{a.room}"))
    a.many((("POST", a.maps, {"metadata": {"generateName": "q"}}) for _ in range(20)), 4)


@row("patches: directives by the thousand", 200, 201, 404, 413, 422, 500)
def _(a: Attacker) -> None:
    a.ask("POST", a.pods, {"metadata": {"name": "d"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    gone = [{"$patch": "delete", "name": f"x{i}"} for i in range(40_000)]
    order = [{"name": f"x{i}"} for i in range(40_000)]
    for spec in ({"containers": gone}, {"$retainKeys": [f"x{i}" for i in range(80_000)]}, {"$setElementOrder/containers": order}):
        a.ask("PATCH", f"{a.pods}/d", {"spec": spec}, STRATEGIC)
    a.ask("PATCH", f"{a.pods}/d", {"metadata": {"$deleteFromPrimitiveList/finalizers": [f"x{i}" for i in range(80_000)]}}, STRATEGIC)
    copies = [{"op": "add", "path": "/data", "value": {"a": "x" * 1000}}]
    copies += [{"op": "copy", "from": "/data", "path": f"/data/n{i}"} for i in range(60)]
    a.ask("PATCH", f"{a.maps}/none", copies, "application/json-patch+json")


@row("managers: fifty of one map, and 10,000 in another", 200, 201)
def _(a: Attacker) -> None:
    for i in range(50):
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "x", f"k{i}": "1"}}
        a.ask("PATCH", f"{a.maps}/m?fieldManager=m{i}&force=true", body, APPLY)
    entry = {"operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:a": {}}}}
    a.ask("POST", a.maps, {"metadata": {"name": "n", "managedFields": [{"manager": f"m{i}", **entry} for i in range(10_000)]}})
