"""Computed defaults of apps/v1, and what its conversion makes of annotations (``pkg/apis/apps/v1/defaults.go``, ``conversion.go``)."""

from __future__ import annotations

import re
from typing import Any

from kas.api.defaults import defaults_for
from kas.api.defaults.early import early_defaults_for
from kas.api.defaults.podspec import pod_template, round_up_requirements
from kas.api.field import go_quote
from kas.api.scheme import DecodeError

Obj = dict[str, Any]
ROLLBACK_TO = "deprecated.deployment.rollback.revisionRollbackTo"
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


def _int64(text: str) -> int:
    """``strconv.ParseInt(text, 10, 64)``; DecodeError with its text."""
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        raise DecodeError(f"strconv.ParseInt: parsing {go_quote(text)}: invalid syntax")
    if len(text.lstrip("+-").lstrip("0")) > 19 or not -(1 << 63) <= int(text) < 1 << 63:
        raise DecodeError(f"strconv.ParseInt: parsing {go_quote(text)}: value out of range")
    return int(text)


def _rollback(obj: Obj) -> None:
    """The revision of a rollback is a number; an empty one is none."""
    notes = (obj.get("metadata") or {}).get("annotations") or {}
    if ROLLBACK_TO in notes:
        revision = notes.pop(ROLLBACK_TO)
        if revision:
            try:
                notes[ROLLBACK_TO] = str(_int64(revision))
            except DecodeError as err:
                raise DecodeError(f"failed to parse annotation[{ROLLBACK_TO}]={revision} as int64: {err}") from err


@defaults_for("apps", "v1", "Deployment")
def default_deployment(obj: Obj) -> None:
    _rollback(obj)
    _rolling_update(_spec(obj).setdefault("strategy", {}), "25%", "25%")


@defaults_for("apps", "v1", "ReplicaSet")
def default_replica_set(obj: Obj) -> None:
    _spec(obj)


@defaults_for("apps", "v1", "DaemonSet")
def default_daemon_set(obj: Obj) -> None:
    notes = (obj.get("metadata") or {}).get("annotations") or {}
    if TEMPLATE_GENERATION in notes:
        notes[TEMPLATE_GENERATION] = str(_int64(notes[TEMPLATE_GENERATION]))
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
