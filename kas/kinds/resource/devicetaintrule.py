"""Strategy of DeviceTaintRule (upstream ``pkg/registry/resource/devicetaintrule``)."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import Any

from kas.kinds.core.objectmeta import object_meta, object_meta_update
from kas.kinds.resource.devices import pool_name, taint
from kas.meta import field, names
from kas.meta.age import age, since
from kas.meta.checks import conditions, csi_driver_name, dns_label
from kas.meta.field import FieldError
from kas.registry.printing.cells import part
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, Strategy, strategy_for
from kas.types.defaults import defaults_for

MAX_CONDITIONS = 8


@strategy_for("resource.k8s.io", "devicetaintrules")
class DeviceTaintRuleStrategy(Strategy):
    """DeviceTaintRules; an unchanged stored rule is not validated again."""

    def prepare_for_update(self, ctx: Context, obj: Obj, old: Obj) -> None:
        """Set the time added of a taint with a new effect to now, unless the request gives it: tolerations count from it."""
        new, was = part(obj, "spec", "taint"), part(old, "spec", "taint")
        if new.get("effect") != was.get("effect") and new.get("timeAdded") == was.get("timeAdded"):
            new["timeAdded"] = ctx.now
        super().prepare_for_update(ctx, obj, old)

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidateDeviceTaintRule``."""
        return object_meta(obj["metadata"], False, names.dns_subdomain) + _spec(obj.get("spec") or {}, None)

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateDeviceTaintRuleUpdate``: errors that the stored spec already has are tolerated."""
        return object_meta_update(obj["metadata"], old["metadata"]) + _spec(obj.get("spec") or {}, old.get("spec") or {})

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateDeviceTaintRuleStatusUpdate``: metadata, the conditions and how many there are."""
        items = (obj.get("status") or {}).get("conditions") or []
        errs = object_meta_update(obj["metadata"], old["metadata"]) + conditions(items, "status.conditions")
        if len(items) > MAX_CONDITIONS:
            errs.append(field.too_many("status.conditions", len(items), MAX_CONDITIONS))
        return errs


def _spec(spec: dict[str, Any], old: dict[str, Any] | None) -> list[FieldError]:
    errs: list[FieldError] = []
    selector = spec.get("deviceSelector") or {}
    for name, check in (("driver", csi_driver_name), ("pool", pool_name), ("device", dns_label)):
        if selector.get(name) is not None:
            errs += check(selector[name], field.child("spec.deviceSelector", name))
    effect = None if old is None else (old.get("taint") or {}).get("effect") or ""
    return errs + taint(spec.get("taint") or {}, "spec.taint", effect)


GROUP = "resource.k8s.io"


def _taints(taints: Iterable[dict[str, Any]] | None) -> None:
    for one in taints or ():
        if not one.get("timeAdded"):
            one["timeAdded"] = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@defaults_for(GROUP, "v1beta2", "DeviceTaintRule")
def default_taint_rule_beta(obj: dict[str, Any]) -> None:
    """Apply computed defaults: the time added of a taint is now."""
    if (obj.get("spec") or {}).get("taint"):
        _taints([obj["spec"]["taint"]])


@defaults_for(GROUP, "v1alpha3", "DeviceTaintRule")
def default_taint_rule_alpha(obj: dict[str, Any]) -> None:
    """Apply computed defaults as in the beta version."""
    default_taint_rule_beta(obj)


@printer("resource.k8s.io", "DeviceTaintRule")
def device_taint_rule_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, key, value, effect, time since the taint was added, age."""
    taint = part(obj, "spec", "taint")
    added = taint.get("timeAdded")
    return [
        obj["metadata"].get("name", ""), taint.get("key", ""), taint.get("value", ""), taint.get("effect", ""),
        since(added, now) if added else "", age(obj, now),
    ]  # fmt: skip
