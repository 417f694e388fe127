"""Strategy of DeviceClass (upstream ``pkg/registry/resource/deviceclass``)."""

from __future__ import annotations

from typing import Any

from kas.api import field
from kas.api.equality import semantic_equal
from kas.api.field import FieldError
from kas.api.validation import names
from kas.api.validation.coremeta import object_meta, object_meta_update
from kas.api.validation.devices import MAX_CONFIGS, configuration, each, selectors
from kas.api.validation.resources import is_extended
from kas.registry.strategy import Context, Obj, Strategy, strategy_for


@strategy_for("resource.k8s.io", "deviceclasses")
class DeviceClassStrategy(Strategy):
    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        return object_meta(obj["metadata"], False, names.dns_subdomain) + _spec(obj.get("spec") or {}, None)

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        errs = object_meta(obj["metadata"], False, names.dns_subdomain) + object_meta_update(obj["metadata"], old["metadata"])
        return errs + _spec(obj.get("spec") or {}, old.get("spec") or {})


def _spec(spec: dict[str, Any], old: dict[str, Any] | None) -> list[FieldError]:
    errs = selectors(spec.get("selectors"), "spec.selectors")
    stored = old is not None and semantic_equal(spec.get("config"), old.get("config"))
    errs += each(spec.get("config"), MAX_CONFIGS, lambda item, path: configuration(item, path, stored), "spec.config")
    name = spec.get("extendedResourceName")
    if name is not None and not is_extended(name):
        errs.append(field.invalid("spec.extendedResourceName", name, "must be a valid extended resource name"))
    return errs
