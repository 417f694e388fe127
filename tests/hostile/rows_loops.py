"""Rows of work that the server does by itself for objects: evictions, claims, namespaces, owners."""

from __future__ import annotations

from typing import Any

from tests.hostile.attacker import MERGE, Attacker
from tests.hostile.rows import row

SPEC = {"containers": [{"name": "c", "image": "i"}]}


def let_pods_be(a: Attacker) -> None:
    """Creates the service account that pods need and a controller would create."""
    a.ask("POST", f"/api/v1/namespaces/{a.room}/serviceaccounts", {"metadata": {"name": "default"}})


@row("evictions: 100 budgets of 500 terms", 201, 200, 409, 429)
def _(a: Attacker) -> None:
    let_pods_be(a)
    path = f"/apis/policy/v1/namespaces/{a.room}/poddisruptionbudgets"
    terms: Any = [{"key": f"k{i}", "operator": "In", "values": [f"v{j}" for j in range(10)]} for i in range(500)]
    spec = {"minAvailable": 1, "selector": {"matchExpressions": terms}}
    a.many(("POST", path, {"metadata": {"generateName": "b"}, "spec": spec}) for _ in range(100))
    for i in range(5):
        a.ask("POST", a.pods, {"metadata": {"name": f"p{i}", "labels": {f"k{j}": "v1" for j in range(499)}}, "spec": SPEC})
        a.ask("PATCH", f"{a.pods}/p{i}/status", {"status": {"phase": "Running"}}, MERGE)
    evicted = {"apiVersion": "policy/v1", "kind": "Eviction"}
    a.many((("POST", f"{a.pods}/p{i}/eviction", {**evicted, "metadata": {"name": f"p{i}"}}) for i in range(5)), 5)


@row("owners: 100 that own one another, deleted in the foreground", 200, 201, 404, 409)
def _(a: Attacker) -> None:
    made = [a.made(a.maps, {"metadata": {"generateName": "m"}})["metadata"] for _ in range(100)]
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "blockOwnerDeletion": True}
    refs = [{**owner, "name": meta["name"], "uid": meta["uid"]} for meta in made]
    a.many(("PATCH", f"{a.maps}/{meta['name']}", {"metadata": {"ownerReferences": refs[:i] + refs[i + 1 :]}}, MERGE)
           for i, meta in enumerate(made))  # fmt: skip
    a.many(("DELETE", f"{a.maps}/{meta['name']}?propagationPolicy=Foreground") for meta in made)


@row("claims: 100 deleted beside 300 pods of other claims", 201, 200, 409)
def _(a: Attacker) -> None:
    let_pods_be(a)
    path = f"/api/v1/namespaces/{a.room}/persistentvolumeclaims"
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    volumes = [{"name": f"v{i}", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}} for i in range(20)]
    a.many((("POST", a.pods, {"metadata": {"generateName": "p"}, "spec": {**SPEC, "volumes": volumes}}) for _ in range(300)), 8)
    a.many((("POST", path, {"metadata": {"generateName": "c"}, "spec": claim}) for _ in range(100)), 8)
    a.ask("DELETE", path)
