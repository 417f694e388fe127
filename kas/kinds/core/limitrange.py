"""LimitRanges (upstream ``pkg/registry/core/limitrange``, ``pkg/apis/core/validation``)."""

from __future__ import annotations

import uuid
from typing import Any

from kas.kinds.core.objectmeta import object_meta
from kas.kinds.core.pod.defaults import round_up
from kas.kinds.core.resources import NANO, amount, container_resource_name, milli, overcommit_allowed, resource_name, value
from kas.meta import field, names
from kas.meta.field import FieldError
from kas.registry.strategy import Context, Obj, Strategy, strategy_for
from kas.types.defaults import defaults_for

TYPES = ("Pod", "Container", "PersistentVolumeClaim")
MAX_MILLI = (1 << 63) // 1000


def _type(kind: str, path: str) -> list[FieldError]:
    errs = [field.invalid(path, kind, m) for m in names.is_qualified_name(kind)]
    if not errs and "/" not in kind and kind not in TYPES:
        errs.append(field.invalid(path, kind, "must be a standard limit type or fully qualified"))
    return errs


def _ratio(ratio: str, low: str, high: str, path: str) -> list[FieldError]:
    if max(value(ratio), value(low), value(high)) < MAX_MILLI:
        wanted, floor, ceiling = milli(ratio) / 1000, milli(low), milli(high)
    else:
        wanted, floor, ceiling = float(value(ratio)), value(low), value(high)
    limit = ceiling / floor if floor else float("inf")
    if wanted > limit:
        return [field.invalid(path, ratio, f"ratio {ratio} is greater than max/min = {limit:f}")]
    return []


def _amounts(item: dict[str, Any], name: str, path: str) -> list[FieldError]:
    """Check the order of the limits of one resource: min, defaultRequest, default, max."""
    errs: list[FieldError] = []
    at = lambda kind: f"{path}.{kind}[{name}]"  # noqa: E731
    no_defaults = item.get("type") == "Pod"
    low, high = (item.get("min") or {}).get(name), (item.get("max") or {}).get(name)
    limit = None if no_defaults else (item.get("default") or {}).get(name)
    request = None if no_defaults else (item.get("defaultRequest") or {}).get(name)
    ratio = (item.get("maxLimitRequestRatio") or {}).get(name)
    a, b, d, r = (amount(t) if t is not None else None for t in (low, high, limit, request))
    if a is not None and b is not None and a > b:
        errs.append(field.invalid(at("min"), low, f"min value {low} is greater than max value {high}"))
    if r is not None and a is not None and a > r:
        message = f"min value {low} is greater than default request value {request}"
        errs.append(field.invalid(at("defaultRequest"), request, message))
    if r is not None and b is not None and r > b:
        message = f"default request value {request} is greater than max value {high}"
        errs.append(field.invalid(at("defaultRequest"), request, message))
    if r is not None and d is not None and r > d:
        message = f"default request value {request} is greater than default limit value {limit}"
        errs.append(field.invalid(at("defaultRequest"), request, message))
    if d is not None and a is not None and a > d:
        errs.append(field.invalid(at("default"), low, f"min value {low} is greater than default value {limit}"))
    if d is not None and b is not None and d > b:
        errs.append(field.invalid(at("default"), high, f"default value {limit} is greater than max value {high}"))
    if ratio is not None and amount(ratio) < NANO:
        errs.append(field.invalid(at("maxLimitRequestRatio"), ratio, f"ratio {ratio} is less than 1"))
    if ratio is not None and low is not None and high is not None:
        errs += _ratio(ratio, low, high, at("maxLimitRequestRatio"))
    if not overcommit_allowed(name) and d is not None and r is not None and d != r:
        message = f"default value {limit} must equal to defaultRequest value {request} in {name}"
        errs.append(field.invalid(at("defaultRequest"), request, message))
    return errs


def _item(item: dict[str, Any], path: str) -> list[FieldError]:
    kind = item.get("type") or ""
    rule = container_resource_name if kind in ("Pod", "Container") else resource_name
    errs: list[FieldError] = []
    keys: set[str] = set()

    def take(part: str) -> None:
        for name in sorted(item.get(part) or ()):
            errs.extend(rule(name, f"{path}.{part}[{name}]"))
            keys.add(name)

    take("max")
    take("min")
    if kind == "Pod":
        for part in ("default", "defaultRequest"):
            if item.get(part):
                errs.append(field.forbidden(f"{path}.{part}", "may not be specified when `type` is 'Pod'"))
    else:
        take("default")
        take("defaultRequest")
    if kind == "PersistentVolumeClaim" and all("storage" not in (item.get(p) or {}) for p in ("min", "max")):
        message = "either minimum or maximum storage value is required, but neither was provided"
        errs.append(field.required(f"{path}.limits", message))
    take("maxLimitRequestRatio")
    for name in sorted(keys):
        errs += _amounts(item, name, path)
    return errs


@strategy_for("", "limitranges")
class LimitRangeStrategy(Strategy):
    """Every write is validated as a whole."""

    def prepare_for_create(self, ctx: Context, obj: Obj) -> None:
        """Give an object without a name a UUID as its name."""
        super().prepare_for_create(ctx, obj)
        if not obj["metadata"].get("name"):
            obj["metadata"]["name"] = str(uuid.uuid4())

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidateLimitRange``: one item per type, with consistent bounds."""
        errs = object_meta(obj["metadata"], True, names.dns_subdomain)
        seen: set[str] = set()
        for i, item in enumerate((obj.get("spec") or {}).get("limits") or ()):
            at, kind = f"spec.limits[{i}]", item.get("type") or ""
            errs += _type(kind, f"{at}.type")
            if kind in seen:
                errs.append(field.duplicate(f"{at}.type", kind))
            seen.add(kind)
            errs += _item(item, at)
        return errs

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """Validate the whole new object, without comparing it with the stored one."""
        return self.validate(ctx, obj)


@defaults_for("", "v1", "LimitRange")
def default_limit_range(obj: Obj) -> None:
    """Apply computed defaults: rounded quantities, and for containers the defaults that follow from max and min."""
    for item in (obj.get("spec") or {}).get("limits") or ():
        for name in ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio"):
            round_up(item.get(name))
        if item.get("type") != "Container":
            continue
        limit = dict(item.get("default") or {})
        request = dict(item.get("defaultRequest") or {})
        for name, text in (item.get("max") or {}).items():
            limit.setdefault(name, text)
        for source in (limit, item.get("min") or {}):
            for name, text in source.items():
                request.setdefault(name, text)
        item["default"], item["defaultRequest"] = limit, request
