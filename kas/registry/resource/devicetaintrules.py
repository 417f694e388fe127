"""Strategy of DeviceTaintRule (upstream ``pkg/registry/resource/devicetaintrule``)."""

from __future__ import annotations

from typing import Any

from kas.api import field
from kas.api.field import FieldError
from kas.api.validation import names
from kas.api.validation.checks import conditions, csi_driver_name, dns_label
from kas.api.validation.coremeta import object_meta, object_meta_update
from kas.api.validation.devices import pool_name, taint
from kas.registry.strategy import Context, Obj, Strategy, strategy_for

MAX_CONDITIONS = 8


@strategy_for("resource.k8s.io", "devicetaintrules")
class DeviceTaintRuleStrategy(Strategy):
    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        return object_meta(obj["metadata"], False, names.dns_subdomain) + _spec(obj.get("spec") or {}, None)

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        return object_meta_update(obj["metadata"], old["metadata"]) + _spec(obj.get("spec") or {}, old.get("spec") or {})

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
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
