"""HorizontalPodAutoscaler v1 and v2 (``pkg/apis/autoscaling/v1/conversion.go``, ``pkg/apis/autoscaling/annotations.go``).

v1 only has the CPU target. All other parts of v2 become annotations in v1, which v2 never shows. Metrics in them have the form of v2beta1;
the behavior is Go's plain JSON of the internal type, with capitalized keys.
"""

from __future__ import annotations

from typing import Any

import orjson

from kas.types.conversion import Obj, converts
from kas.types.scheme import DecodeError, builtin_type, decode, encode_json, write_json

V1 = ("autoscaling", "v1", "HorizontalPodAutoscaler")
V2 = ("autoscaling", "v2", "HorizontalPodAutoscaler")
PREFIX = "autoscaling.alpha.kubernetes.io/"
METRICS = PREFIX + "metrics"
CURRENT_METRICS = PREFIX + "current-metrics"
CONDITIONS = PREFIX + "conditions"
BEHAVIOR = PREFIX + "behavior"
# Versions that are no longer served kept the tolerances in the last two.
ROUND_TRIP = frozenset({METRICS, CURRENT_METRICS, CONDITIONS, BEHAVIOR} | {f"{PREFIX}scale-{way}-tolerance" for way in ("up", "down")})
_TYPES = "autoscaling.v1."


def _is_cpu(metric: Obj) -> bool:
    return metric.get("type") == "Resource" and (metric.get("resource") or {}).get("name") == "cpu"


def _utilization(metric: Obj) -> int | None:
    """The target of a Resource metric as a percentage; None if it is a quantity."""
    target: Obj = metric["resource"].get("target") or {}
    return target.get("averageUtilization")


def _put(out: Obj, key: str, value: Any) -> None:
    if value is not None:
        out[key] = value


def _old(metric: Obj, part: str) -> Obj:
    """A v2 MetricSpec (its ``target``) or MetricStatus (its ``current`` values) in the shape of v1's annotation."""
    out: Obj = {"type": metric.get("type", "")}
    for name in ("resource", "containerResource"):
        source = metric.get(name)
        if source is not None:
            values = source.get(part) or {}
            old = out[name] = {"name": source.get("name", "")}
            _put(old, f"{part}AverageUtilization", values.get("averageUtilization"))
            _put(old, f"{part}AverageValue", values.get("averageValue"))
            _put(old, "container", source.get("container"))
    if metric.get("pods") is not None:
        named, values = metric["pods"].get("metric") or {}, metric["pods"].get(part) or {}
        old = out["pods"] = {"metricName": named.get("name", "")}
        _put(old, "selector", named.get("selector"))
        _put(old, f"{part}AverageValue", values.get("averageValue"))
    if metric.get("object") is not None:
        named, values = metric["object"].get("metric") or {}, metric["object"].get(part) or {}
        old = out["object"] = {"target": metric["object"].get("describedObject"), "metricName": named.get("name", "")}
        _put(old, "selector", named.get("selector"))
        _put(old, f"{part}Value", values.get("value"))
        _put(old, "averageValue", values.get("averageValue"))
    if metric.get("external") is not None:
        named, values = metric["external"].get("metric") or {}, metric["external"].get(part) or {}
        old = out["external"] = {"metricName": named.get("name", "")}
        _put(old, "metricSelector", named.get("selector"))
        _put(old, f"{part}Value", values.get("value"))
        _put(old, f"{part}AverageValue", values.get("averageValue"))
    return out


def _target(utilization: int | None, average: str | None, value: str | None = None) -> Obj:
    if utilization is not None:
        return {"type": "Utilization", "averageUtilization": utilization} | ({"averageValue": average} if average is not None else {})
    if average is not None:
        return {"type": "AverageValue", "averageValue": average} | ({"value": value} if value not in (None, "0") else {})
    return {"type": "Value"} | ({"value": value} if value is not None else {})


def _new_metric(metric: Obj) -> Obj:
    """The MetricSpec of v2 from v1's annotation."""
    out: Obj = {"type": metric.get("type", "")}
    for name in ("resource", "containerResource"):
        old = metric.get(name)
        if old is not None:
            utilization, average = old.get("targetAverageUtilization"), old.get("targetAverageValue")
            target = _target(utilization, average) if utilization is not None or average is not None else {"type": "AverageValue"}
            out[name] = {"name": old.get("name", ""), "target": target}
            _put(out[name], "container", old.get("container"))
    old = metric.get("pods")
    if old is not None:
        target = {"type": "AverageValue", "averageValue": old.get("targetAverageValue", "0")}
        out["pods"] = {"metric": _named(old, "selector"), "target": target}
    old = metric.get("object")
    if old is not None:
        target = _target(None, old.get("averageValue"), old.get("targetValue", "0"))
        out["object"] = {"describedObject": old.get("target"), "metric": _named(old, "selector"), "target": target}
    old = metric.get("external")
    if old is not None:
        average, value = old.get("targetAverageValue"), old.get("targetValue")
        kind = "Value" if value is not None else "AverageValue"
        target = {"type": kind}
        _put(target, "value", value)
        _put(target, "averageValue", average)
        out["external"] = {"metric": _named(old, "metricSelector"), "target": target}
    return out


def _named(old: Obj, selector: str) -> Obj:
    named = {"name": old.get("metricName", "")}
    _put(named, "selector", old.get(selector))
    return named


def _new_status(metric: Obj) -> Obj:
    out: Obj = {"type": metric.get("type", "")}
    for name in ("resource", "containerResource"):
        old = metric.get(name)
        if old is not None:
            current: Obj = {}
            _put(current, "averageUtilization", old.get("currentAverageUtilization"))
            _put(current, "averageValue", old.get("currentAverageValue"))
            out[name] = {"name": old.get("name", ""), "current": current}
            _put(out[name], "container", old.get("container"))
    for name, selector in (("pods", "selector"), ("object", "selector"), ("external", "metricSelector")):
        old = metric.get(name)
        if old is not None:
            current = {}
            _put(current, "value", old.get("currentValue"))
            _put(current, "averageValue", old.get("averageValue") if name == "object" else old.get("currentAverageValue"))
            out[name] = {"metric": _named(old, selector), "current": current}
            if name == "object":
                out[name]["describedObject"] = old.get("target")
    return out


def _capital(rules: Obj | None) -> Obj | None:
    if rules is None:
        return None
    policies = rules.get("policies")
    return {
        "StabilizationWindowSeconds": rules.get("stabilizationWindowSeconds"),
        "SelectPolicy": rules.get("selectPolicy"),
        "Policies": policies
        and [{"Type": p.get("type", ""), "Value": p.get("value", 0), "PeriodSeconds": p.get("periodSeconds", 0)} for p in policies],
        "Tolerance": rules.get("tolerance"),
    }


def _fold(value: Any, names: dict[str, str]) -> Any:
    """Rename keys of any case to the names of v2: encoding/json ignores case."""
    if isinstance(value, list):
        return [_fold(v, names) for v in value]
    if isinstance(value, dict):
        return {names[k.lower()]: _fold(v, names) for k, v in value.items() if k.lower() in names and v is not None}
    return value


_BEHAVIOR_NAMES = (
    "scaleUp", "scaleDown", "stabilizationWindowSeconds", "selectPolicy", "policies", "tolerance", "type", "value", "periodSeconds",
)  # fmt: skip
_BEHAVIOR_KEYS = {name.lower(): name for name in _BEHAVIOR_NAMES}


def _list_annotation(kind: str, items: list[Obj]) -> str:
    type = builtin_type(_TYPES + kind)
    return "[" + ",".join(encode_json(type, item).decode() for item in items) + "]"


def _parse(annotations: Obj, key: str) -> Any:
    """Return the JSON value of an annotation; None if it is absent or invalid, which upstream ignores, too."""
    text = annotations.get(key)
    if not isinstance(text, str):
        return None
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def _typed_list(value: Any, kind: str) -> list[Obj]:
    type = builtin_type(_TYPES + kind)
    if not isinstance(value, list) or not all(isinstance(v, dict) for v in value):
        return []
    try:
        return [decode(type, v)[0] for v in value]
    except DecodeError:
        return []


def _behavior(value: Any) -> Obj:
    """Return the behavior in the form of v2; empty if the annotation holds none, which upstream ignores."""
    if not isinstance(value, dict):
        return {}
    try:
        return decode(builtin_type("autoscaling.v2.HorizontalPodAutoscalerBehavior"), value)[0]
    except DecodeError:
        return {}


@converts(V2, V1)
def to_v1(obj: Obj) -> Obj:
    """Convert from v2: CPU utilization becomes v1's field; other metrics, behavior and conditions annotations. ``obj`` is not changed."""
    spec, status = dict(obj.get("spec") or {}), dict(obj.get("status") or {})
    meta = dict(obj.get("metadata") or {})
    annotations = {k: v for k, v in (meta.get("annotations") or {}).items() if k not in ROUND_TRIP}
    metrics, behavior = spec.pop("metrics", None) or [], spec.pop("behavior", None)
    current, conditions = status.pop("currentMetrics", None) or [], status.pop("conditions", None) or []

    cpu = [metric for metric in metrics if _is_cpu(metric)]
    if cpu:
        # as upstream, v1 has no utilization of other CPU metrics than the first
        _put(spec, "targetCPUUtilizationPercentage", _utilization(cpu[0]))
    others = [_old(metric, "target") for metric in metrics if not _is_cpu(metric) or _utilization(metric) is None]
    for metric in current:
        if _is_cpu(metric):
            utilization = (metric["resource"].get("current") or {}).get("averageUtilization")
            if utilization is not None:
                status["currentCPUUtilizationPercentage"] = utilization
    if others:
        annotations[METRICS] = _list_annotation("MetricSpec", others)
    if current:
        annotations[CURRENT_METRICS] = _list_annotation("MetricStatus", [_old(m, "current") for m in current])
    if behavior is not None:
        whole = {"ScaleUp": _capital(behavior.get("scaleUp")), "ScaleDown": _capital(behavior.get("scaleDown"))}
        annotations[BEHAVIOR] = write_json(whole, sort_keys=False).decode()
    if conditions:
        annotations[CONDITIONS] = _list_annotation("HorizontalPodAutoscalerCondition", conditions)
    meta["annotations"] = annotations
    return {**obj, "metadata": meta, "spec": spec, "status": status}


@converts(V1, V2)
def to_v2(obj: Obj) -> Obj:
    """Convert from v1: annotations for parts that v1 lacks become fields and are dropped. ``obj`` is not changed."""
    spec, status = dict(obj.get("spec") or {}), dict(obj.get("status") or {})
    meta = dict(obj.get("metadata") or {})
    annotations = meta.get("annotations") or {}
    target, seen = spec.pop("targetCPUUtilizationPercentage", None), status.pop("currentCPUUtilizationPercentage", None)

    metrics = [_new_metric(m) for m in _typed_list(_parse(annotations, METRICS), "MetricSpec")]
    if target is not None:
        cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": target}}
        metrics.append({"type": "Resource", "resource": cpu})
    if metrics:
        spec["metrics"] = metrics
    behavior = _behavior(_fold(_parse(annotations, BEHAVIOR), _BEHAVIOR_KEYS))
    if behavior:
        spec["behavior"] = behavior
    current = [_new_status(m) for m in _typed_list(_parse(annotations, CURRENT_METRICS), "MetricStatus")]
    if not current and seen is not None:
        current = [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": seen}}}]
    if current:
        status["currentMetrics"] = current
    conditions = _typed_list(_parse(annotations, CONDITIONS), "HorizontalPodAutoscalerCondition")
    if conditions:
        status["conditions"] = conditions
    meta["annotations"] = {k: v for k, v in annotations.items() if k not in ROUND_TRIP}
    return {**obj, "metadata": meta, "spec": spec, "status": status}
