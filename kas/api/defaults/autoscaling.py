"""Computed defaults of autoscaling (``pkg/apis/autoscaling/v2/defaults.go``, ``v1/defaults.go``)."""

from __future__ import annotations

from typing import Any

from kas.api.defaults import defaults_for

Obj = dict[str, Any]
CPU_UTILIZATION = 80
_UP = {
    "stabilizationWindowSeconds": 0,
    "selectPolicy": "Max",
    "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}, {"type": "Percent", "value": 100, "periodSeconds": 15}],
}
_DOWN = {"selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}


def _rules(given: Obj | None, defaults: Obj) -> Obj:
    """Unset members of a scaling direction; a present but empty list of policies counts as set."""
    rules = {k: ([dict(p) for p in v] if isinstance(v, list) else v) for k, v in defaults.items()}
    rules.update((k, v) for k, v in (given or {}).items() if v is not None)
    return rules


def default_behavior(spec: Obj) -> None:
    behavior = spec.get("behavior")
    if behavior is not None:
        behavior["scaleUp"] = _rules(behavior.get("scaleUp"), _UP)
        behavior["scaleDown"] = _rules(behavior.get("scaleDown"), _DOWN)


@defaults_for("autoscaling", "v2", "HorizontalPodAutoscaler")
def default_autoscaler(obj: Obj) -> None:
    spec = obj.setdefault("spec", {})
    if not spec.get("metrics"):
        target = {"type": "Utilization", "averageUtilization": CPU_UTILIZATION}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    default_behavior(spec)
