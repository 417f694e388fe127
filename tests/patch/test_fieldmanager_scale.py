"""Managed fields converted from an object to its Scale and back."""

from __future__ import annotations

from kas.patch.fieldmanager import builtin, to_parent, to_scale, update

T1, T2 = "2024-01-02T03:04:05Z", "2024-01-02T03:04:06Z"
REPLICAS = {"apps/v1": "spec.replicas"}
SCALE = builtin("autoscaling", "v1", "Scale")


def entry(manager: str, fields: dict, operation: str = "Update", time: str | None = T1, version: str = "apps/v1", **more) -> dict:
    out = {"manager": manager, "operation": operation, "apiVersion": version}
    if time:
        out["time"] = time
    return {**out, "fieldsType": "FieldsV1", "fieldsV1": fields, **more}


def scale(replicas: int, entries: list) -> dict:
    meta = {"name": "d", "uid": "u", "managedFields": entries}
    return {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": meta, "spec": {"replicas": replicas}}


OWNER = entry("helm", {"f:spec": {"f:paused": {}, "f:replicas": {}}}, "Apply")
OTHER = entry("kubectl", {"f:metadata": {"f:labels": {"f:a": {}}}})


def test_a_scale_shows_the_owners_of_the_replicas() -> None:
    old = entry("old", {"f:spec": {"f:replicas": {}}}, version="apps/v1beta1")
    want = [entry("helm", {"f:spec": {"f:replicas": {}}}, "Apply", version="autoscaling/v1")]
    assert to_scale([OWNER, OTHER, old], REPLICAS) == want


def test_scaling_takes_the_replicas_from_their_owner() -> None:
    shown = to_scale([OWNER, OTHER], REPLICAS)
    entries = update(SCALE, scale(1, shown), scale(2, shown), "hpa", now=T2, subresource="scale")
    assert to_parent([OWNER, OTHER], entries, "apps/v1", REPLICAS) == [
        entry("helm", {"f:spec": {"f:paused": {}}}, "Apply"),
        entry("hpa", {"f:spec": {"f:replicas": {}}}, time=None, subresource="scale"),
        OTHER,
    ]


def test_an_applier_keeps_the_replicas_that_scaling_did_not_change() -> None:
    shown = to_scale([OWNER, OTHER], REPLICAS)
    assert to_parent([OWNER, OTHER], shown, "apps/v1", REPLICAS) == [OWNER, OTHER]


def test_entries_of_unknown_versions_are_dropped() -> None:
    assert to_parent([entry("old", {"f:x": {}}, version="apps/v1beta1"), OTHER], [], "apps/v1", REPLICAS) == [OTHER]
