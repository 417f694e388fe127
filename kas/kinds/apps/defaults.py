"""Computed defaults that kinds of apps/v1 share (``pkg/apis/apps/v1/defaults.go``, ``conversion.go``)."""

from __future__ import annotations

from typing import Any

from kas.kinds.core.pod.defaults import pod_template

Obj = dict[str, Any]


def default_template(obj: Obj) -> Obj:
    """Apply the defaults of the pod template; return the spec, which is created if absent."""
    spec = obj.get("spec")
    if spec is None:
        spec = obj["spec"] = {}
    pod_template(spec.setdefault("template", {}))
    return spec


def default_rolling_update(strategy: Obj, unavailable: int | str, surge: int | str) -> None:
    """Default the type of an update strategy, and the bounds of a rolling update."""
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
