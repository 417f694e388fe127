"""Strategy of DeviceClass (upstream ``pkg/registry/resource/deviceclass``)."""

from __future__ import annotations

from typing import Any

from kas.kinds.core.columns import name_and_age
from kas.kinds.core.objectmeta import object_meta_of_generated, object_meta_update
from kas.kinds.core.resources import is_extended
from kas.kinds.resource.devices import MAX_CONFIGS, configuration, each, selectors
from kas.meta import field, names
from kas.meta.compilebudget import CompileBudget
from kas.meta.equality import semantic_equal
from kas.meta.field import FieldError
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, Strategy, strategy_for
from kas.types.scheme import builtin_field


@strategy_for("resource.k8s.io", "deviceclasses")
class DeviceClassStrategy(Strategy):
    """DeviceClasses; selectors are expressions, which are compiled and bounded in cost when written."""

    costly = True

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidateDeviceClass``."""
        return object_meta_of_generated(obj["metadata"], False, names.dns_subdomain) + _spec(obj.get("spec") or {}, None)

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateDeviceClassUpdate``: errors that the stored spec already has are tolerated."""
        errs = object_meta_of_generated(obj["metadata"], False, names.dns_subdomain)
        return errs + object_meta_update(obj["metadata"], old["metadata"]) + _spec(obj.get("spec") or {}, old.get("spec") or {})


def _kept(spec: dict[str, Any], old: dict[str, Any] | None, name: str) -> bool:
    """Whether the field is as stored."""
    return old is not None and semantic_equal(spec.get(name), old.get(name), builtin_field("resource.v1.DeviceClassSpec", name))


def _spec(spec: dict[str, Any], old: dict[str, Any] | None) -> list[FieldError]:
    # Stored expressions were valid when written, and stay so; if reordered, they are validated again.
    allowance = None if _kept(spec, old, "selectors") else CompileBudget()
    errs = selectors(spec.get("selectors"), "spec.selectors", allowance)
    stored = _kept(spec, old, "config")
    errs += each(spec.get("config"), MAX_CONFIGS, lambda item, path: configuration(item, path, stored), "spec.config")
    name = spec.get("extendedResourceName")
    if name is not None and not is_extended(name):
        errs.append(field.invalid("spec.extendedResourceName", name, "must be a valid extended resource name"))
    return errs


printer("resource.k8s.io", "DeviceClass")(name_and_age)
