"""Computed defaults of apps/v1 (``pkg/apis/apps/v1/defaults.go``, ``conversion.go``)."""

from __future__ import annotations

from typing import Any

from kas.api.defaults import defaults_for
from kas.api.defaults.early import early_defaults_for
from kas.api.defaults.podspec import pod_template, round_up_requirements

Obj = dict[str, Any]
TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"


def _spec(obj: Obj) -> Obj:
    spec = obj.get("spec")
    if spec is None:
        spec = obj["spec"] = {}
    pod_template(spec.setdefault("template", {}))
    return spec


def _rolling_update(strategy: Obj, unavailable: int | str, surge: int | str) -> None:
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
    if strategy["type"] == "RollingUpdate":
        body = strategy.get("rollingUpdate")
        if body is None:
            body = strategy["rollingUpdate"] = {}
        if body.get("maxUnavailable") is None:
            body["maxUnavailable"] = unavailable
        if body.get("maxSurge") is None:
            body["maxSurge"] = surge


@defaults_for("apps", "v1", "Deployment")
def default_deployment(obj: Obj) -> None:
    _rolling_update(_spec(obj).setdefault("strategy", {}), "25%", "25%")


@defaults_for("apps", "v1", "ReplicaSet")
def default_replica_set(obj: Obj) -> None:
    _spec(obj)


@defaults_for("apps", "v1", "DaemonSet")
def default_daemon_set(obj: Obj) -> None:
    _rolling_update(_spec(obj).setdefault("updateStrategy", {}), 1, 0)


@early_defaults_for("apps", "v1", "StatefulSet")
def early_stateful_set(obj: Obj) -> None:
    """Only a strategy without type gets a partition; an explicit RollingUpdate without body stays without."""
    spec: Any = obj.get("spec")
    if spec is None:
        spec = obj["spec"] = {}
    strategy: Any = spec.get("updateStrategy")
    if strategy is None:
        strategy = spec["updateStrategy"] = {}
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
        if strategy.get("rollingUpdate") is None:
            strategy["rollingUpdate"] = {"partition": 0}


@defaults_for("apps", "v1", "StatefulSet")
def default_stateful_set(obj: Obj) -> None:
    spec = _spec(obj)
    policy = spec.get("persistentVolumeClaimRetentionPolicy")
    if policy is None:
        policy = spec["persistentVolumeClaimRetentionPolicy"] = {}
    for key in ("whenDeleted", "whenScaled"):
        if not policy.get(key):
            policy[key] = "Retain"
    for claim in spec.get("volumeClaimTemplates") or ():
        claim["apiVersion"], claim["kind"] = "v1", "PersistentVolumeClaim"
        status = claim.setdefault("status", {})
        if not status.get("phase"):
            status["phase"] = "Pending"
        round_up_requirements((claim.get("spec") or {}).get("resources"))
