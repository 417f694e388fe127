"""HorizontalPodAutoscalers, stored as v2 (upstream ``pkg/registry/autoscaling``, ``pkg/apis/autoscaling/validation``)."""

from __future__ import annotations

from typing import Any

from kas.config import features
from kas.kinds.autoscaling.conversion import METRICS
from kas.kinds.core.objectmeta import object_meta, object_meta_update
from kas.kinds.core.resources import amount, container_resource_name
from kas.kinds.core.workload.validation import counts
from kas.meta import field, names
from kas.meta.age import age
from kas.meta.checks import dns_label, unsupported
from kas.meta.field import FieldError
from kas.registry.printing.cells import NONE, UNSET, kind_slash_name, part
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, Strategy, strategy_for
from kas.types.defaults import defaults_for

MAX_PERIOD = 1800
MAX_WINDOW = 3600
POLICIES = ("Disabled", "Max", "Min")
# (metric source type, its field), in the order in which the fields are validated.
_SOURCES = (
    ("Object", "object"), ("External", "external"), ("Pods", "pods"), ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
)  # fmt: skip
_TYPES = tuple(sorted(kind for kind, _ in _SOURCES))


def api_version_error(ref: dict[str, Any], core: bool) -> str:
    """Return why the reference's apiVersion is invalid, "" if it is valid; ``core`` allows an empty group."""
    text = ref.get("apiVersion") or ""
    if text.count("/") > 1:
        return f"unexpected GroupVersion string: {text}"
    group = text.partition("/")[0] if "/" in text else ""
    return "" if group or core else "apiVersion must specify API group"


def _reference(ref: dict[str, Any], path: str, core: bool, any_version: bool) -> list[FieldError]:
    errs: list[FieldError] = []
    for key in ("kind", "name"):
        value = ref.get(key) or ""
        if not value:
            errs.append(field.required(f"{path}.{key}"))
        else:
            errs += [field.invalid(f"{path}.{key}", value, m) for m in names.is_path_segment_name(value)]
    message = "" if any_version else api_version_error(ref, core)
    if message:
        errs.append(field.invalid(f"{path}.apiVersion", ref.get("apiVersion") or "", message))
    return errs


def _identifier(metric: dict[str, Any], path: str) -> list[FieldError]:
    name = metric.get("name") or ""
    if not name:
        return [field.required(f"{path}.name", "must specify a metric name")]
    return [field.invalid(f"{path}.name", name, m) for m in names.is_path_segment_name(name)]


def _target(target: dict[str, Any], path: str) -> list[FieldError]:
    kind = target.get("type") or ""
    errs: list[FieldError] = []
    if not kind:
        errs.append(field.required(f"{path}.type", "must specify a metric target type"))
    if kind not in ("Utilization", "Value", "AverageValue"):
        errs.append(field.invalid(f"{path}.type", kind, "must be either Utilization, Value, or AverageValue"))
    for key in ("value", "averageValue"):
        if target.get(key) is not None and amount(target[key]) <= 0:
            errs.append(field.invalid(f"{path}.{key}", target[key], "must be positive"))
    utilization = target.get("averageUtilization")
    if utilization is not None and utilization < 1:
        errs.append(field.invalid(f"{path}.averageUtilization", utilization, "must be greater than 0"))
    return errs


def _resource_source(source: dict[str, Any], path: str, container: bool) -> list[FieldError]:
    target = source.get("target") or {}
    errs: list[FieldError] = []
    name, holder = source.get("name") or "", source.get("container") or ""
    if not name:
        errs.append(field.required(f"{path}.name", "must specify a resource name"))
    elif container:
        errs += container_resource_name(name, f"{path}.name")
    if container:
        errs += dns_label(holder, f"{path}.container") if holder else [field.required(f"{path}.container", "must specify a container")]
    errs += _target(target, f"{path}.target")
    utilization, average = target.get("averageUtilization"), target.get("averageValue")
    if utilization is None and average is None:
        message = "must set either a target raw value or a target utilization"
        errs.append(field.required(f"{path}.target.averageUtilization", message))
    if utilization is not None and average is not None:
        message = "may not set both a target raw value and a target utilization"
        errs.append(field.forbidden(f"{path}.target.averageValue", message))
    return errs


def _source(kind: str, source: dict[str, Any], path: str, any_version: bool) -> list[FieldError]:
    if kind in ("Resource", "ContainerResource"):
        return _resource_source(source, path, kind == "ContainerResource")
    target = source.get("target") or {}
    value, average = target.get("value"), target.get("averageValue")
    errs: list[FieldError] = []
    if kind == "Object":
        errs += _reference(source.get("describedObject") or {}, f"{path}.describedObject", True, any_version)
    errs += _identifier(source.get("metric") or {}, f"{path}.metric") + _target(target, f"{path}.target")
    if kind == "Object":
        if value is None and average is None:
            errs.append(field.required(f"{path}.target.averageValue", "must set either a target value or averageValue"))
    elif kind == "Pods":
        if average is None:
            errs.append(field.required(f"{path}.target.averageValue", "must specify a positive target averageValue"))
    else:
        if value is None and average is None:
            message = "must set either a target value for metric or a per-pod target"
            errs.append(field.required(f"{path}.target.averageValue", message))
        if value is not None and average is not None:
            message = "may not set both a target value for metric and a per-pod target"
            errs.append(field.forbidden(f"{path}.target.value", message))
    return errs


def _metric(metric: dict[str, Any], path: str, any_version: bool) -> list[FieldError]:
    kind = metric.get("type") or ""
    errs: list[FieldError] = []
    if not kind:
        errs.append(field.required(f"{path}.type", "must specify a metric source type"))
    if kind not in _TYPES:
        errs.append(unsupported(f"{path}.type", kind, _TYPES))
    present = [(k, key) for k, key in _SOURCES if metric.get(key) is not None]
    if present:
        first, key = present[0]
        errs += _source(first, metric[key], f"{path}.{key}", any_version)
    expected = dict(_SOURCES).get(kind, "")
    if not expected:
        errs.append(unsupported(f"{path}.type", kind, _TYPES))
    elif metric.get(expected) is None:
        errs.append(field.required(f"{path}.{expected}", "must populate information for the given metric source"))
    if len(present) != 1:
        why = "must populate the given metric source only"
        errs += [field.forbidden(f"{path}.{key}", why) for _, key in sorted(present, key=lambda p: p[1]) if key != expected]
    return errs


def _rules(rules: dict[str, Any] | None, path: str) -> list[FieldError]:
    if rules is None:
        return []
    errs: list[FieldError] = []
    window, policy, at = rules.get("stabilizationWindowSeconds"), rules.get("selectPolicy"), f"{path}.stabilizationWindowSeconds"
    if window is not None and window < 0:
        errs.append(field.invalid(at, window, "must be greater than or equal to zero"))
    if window is not None and window > MAX_WINDOW:
        errs.append(field.invalid(at, window, f"must be less than or equal to {MAX_WINDOW}"))
    if policy is not None and policy not in POLICIES:
        errs.append(unsupported(f"{path}.selectPolicy", policy, POLICIES))
    if not rules.get("policies"):
        errs.append(field.required(f"{path}.policies", "must specify at least one Policy"))
    for i, item in enumerate(rules.get("policies") or ()):
        at, kind = f"{path}.policies[{i}]", item.get("type") or ""
        value, period = item.get("value") or 0, item.get("periodSeconds") or 0
        if kind not in ("Percent", "Pods"):
            errs.append(unsupported(f"{at}.type", kind, ("Percent", "Pods")))
        if value <= 0:
            errs.append(field.invalid(f"{at}.value", value, "must be greater than zero"))
        if period <= 0:
            errs.append(field.invalid(f"{at}.periodSeconds", period, "must be greater than zero"))
        if period > MAX_PERIOD:
            errs.append(field.invalid(f"{at}.periodSeconds", period, f"must be less than or equal to {MAX_PERIOD}"))
    tolerance = rules.get("tolerance")
    if tolerance is not None and amount(tolerance) < 0:
        errs.append(field.invalid(f"{path}.tolerance", tolerance, "must be greater than or equal to 0"))
    return errs


def _spec(spec: dict[str, Any], old: dict[str, Any] | None) -> list[FieldError]:
    low, high = spec.get("minReplicas"), spec.get("maxReplicas") or 0
    zero = features.DEFAULT.enabled("HPAScaleToZero") or (old is not None and old.get("minReplicas") == 0)
    floor = 0 if zero else 1
    errs: list[FieldError] = []
    if low is not None and low < floor:
        errs.append(field.invalid("spec.minReplicas", low, f"must be greater than or equal to {floor}"))
    if high == 0:
        errs.append(field.required("spec.maxReplicas", "must be set and greater than 0"))
    elif high < 0:
        errs.append(field.invalid("spec.maxReplicas", high, "must be greater than or equal to 1"))
    if low is not None and high < low:
        errs.append(field.invalid("spec.maxReplicas", high, "must be greater than or equal to `minReplicas`"))
    target, known = spec.get("scaleTargetRef") or {}, (old or {}).get("scaleTargetRef") or {}
    # An unchanged target is not validated again; nor are the metrics' objects if a stored one is invalid.
    same = old is not None and all((target.get(k) or "") == (known.get(k) or "") for k in ("apiVersion", "kind"))
    errs += _reference(target, "spec.scaleTargetRef", target.get("kind") == "ReplicationController", same)
    any_version = any(
        m.get("type") == "Object" and m.get("object") and api_version_error(m["object"].get("describedObject") or {}, True)
        for m in (old or {}).get("metrics") or ()
    )
    metrics = spec.get("metrics") or []
    for i, metric in enumerate(metrics):
        errs += _metric(metric, f"spec.metrics[{i}]", any_version)
    if low == 0 and not any(m.get("type") in ("Object", "External") for m in metrics):
        message = "must specify at least one Object or External metric to support scaling to zero replicas"
        errs.append(field.forbidden("spec.metrics", message))
    behavior = spec.get("behavior")
    if behavior is not None:
        errs += _rules(behavior.get("scaleUp"), "spec.behavior.scaleUp")
        errs += _rules(behavior.get("scaleDown"), "spec.behavior.scaleDown")
    return errs


@strategy_for("autoscaling", "horizontalpodautoscalers")
class HorizontalPodAutoscalerStrategy(Strategy):
    """HorizontalPodAutoscalers; they are validated as v2, whatever version was sent."""

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidateHorizontalPodAutoscaler``."""
        return object_meta(obj["metadata"], True, names.dns_subdomain) + _spec(obj.get("spec") or {}, None)

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateHorizontalPodAutoscalerUpdate``; the stored spec says what is tolerated."""
        errs = object_meta_update(obj["metadata"], old["metadata"])
        return errs + _spec(obj.get("spec") or {}, old.get("spec") or {})

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateHorizontalPodAutoscalerStatusUpdate``: metadata, and no replica count below zero."""
        errs = object_meta_update(obj["metadata"], old["metadata"])
        return errs + counts(obj.get("status") or {}, "status", "currentReplicas", "desiredReplicas")


CPU_UTILIZATION = 80
_UP = {
    "stabilizationWindowSeconds": 0,
    "selectPolicy": "Max",
    "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}, {"type": "Percent", "value": 100, "periodSeconds": 15}],
}
_DOWN = {"selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}


def _default_rules(given: Obj | None, defaults: Obj) -> Obj:
    """Default the unset members of a scaling direction; an empty list of policies counts as set."""
    rules = {k: ([dict(p) for p in v] if isinstance(v, list) else v) for k, v in defaults.items()}
    rules.update((k, v) for k, v in (given or {}).items() if v is not None)
    return rules


def default_behavior(spec: Obj) -> None:
    """Fill in the scaling rules of both directions, in place; a spec without behavior gets none."""
    behavior = spec.get("behavior")
    if behavior is not None:
        behavior["scaleUp"] = _default_rules(behavior.get("scaleUp"), _UP)
        behavior["scaleDown"] = _default_rules(behavior.get("scaleDown"), _DOWN)


@defaults_for("autoscaling", "v2", "HorizontalPodAutoscaler")
def default_autoscaler(obj: Obj) -> None:
    """Apply computed defaults: CPU utilization if no metric is given, and the scaling rules."""
    spec = obj.setdefault("spec", {})
    if not spec.get("metrics"):
        target = {"type": "Utilization", "averageUtilization": CPU_UTILIZATION}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    default_behavior(spec)


@defaults_for("autoscaling", "v1", "HorizontalPodAutoscaler")
def default_autoscaler_v1(obj: Obj) -> None:
    """Apply computed defaults of v1: CPU utilization if no metric is given, neither as field nor in the annotation."""
    spec = obj.setdefault("spec", {})
    if spec.get("targetCPUUtilizationPercentage") is None and METRICS not in ((obj.get("metadata") or {}).get("annotations") or {}):
        spec["targetCPUUtilizationPercentage"] = CPU_UTILIZATION


def _against(current: Any, target: Any) -> str:
    return f"{'<unknown>' if current is None else current}/{target}"


def _usage(name: str, target: Obj, now_at: Obj | None) -> str:
    current = part(now_at or {}, "current")
    if target.get("averageValue") is not None:
        at = None if now_at is None else current.get("averageValue", "<nil>")
        return f"{name}: {_against(at, target['averageValue'])}"
    at, goal = current.get("averageUtilization"), target.get("averageUtilization")
    return f"{name}: {_against(None if at is None else f'{at}%', '<auto>' if goal is None else f'{goal}%')}"


def _metric_cell(spec: Obj, status: Obj) -> str:
    """Format a metric's current value against its target."""
    match spec.get("type"):
        case "Resource":
            source = part(spec, "resource")
            return _usage(source.get("name", ""), part(source, "target"), status.get("resource"))
        case "ContainerResource":
            source = part(spec, "containerResource")
            return _usage(source.get("name", ""), part(source, "target"), status.get("containerResource"))
        case "Pods":
            at = status.get("pods")
            current = None if at is None else part(at, "current").get("averageValue", "<nil>")
            return _against(current, part(spec, "pods", "target").get("averageValue", "<nil>"))
        case "Object" | "External" as kind:
            target, at = part(spec, kind.lower(), "target"), status.get(kind.lower())
            if target.get("averageValue") is not None:
                return _against(part(at or {}, "current").get("averageValue"), target["averageValue"]) + " (avg)"
            return _against(None if at is None else part(at, "current").get("value", "<nil>"), target.get("value", "<nil>"))
    return "<unknown type>"


def _targets(specs: list[Obj], statuses: list[Obj]) -> str:
    if not specs:
        return NONE
    shown = [_metric_cell(spec, statuses[i] if i < len(statuses) else {}) for i, spec in enumerate(specs[:2])]
    text = ", ".join(shown)
    return f"{text} + {len(specs) - 2} more..." if len(specs) > 2 else text


@printer("autoscaling", "HorizontalPodAutoscaler")
def horizontal_pod_autoscaler_row(obj: Obj, now: float) -> list[Any]:
    """Return the cells of a Table row of the autoscaling/v2 form."""
    spec, status = part(obj, "spec"), part(obj, "status")
    return [
        obj["metadata"].get("name", ""), kind_slash_name(part(spec, "scaleTargetRef")),
        _targets(spec.get("metrics") or [], status.get("currentMetrics") or []), str(spec.get("minReplicas", UNSET)),
        spec.get("maxReplicas", 0), status.get("currentReplicas", 0), age(obj, now),
    ]  # fmt: skip
