"""ControllerRevisions (upstream ``pkg/registry/apps/controllerrevision``, ``pkg/apis/apps/validation``)."""

from __future__ import annotations

from typing import Any

from kas.api import field
from kas.api.field import FieldError
from kas.api.validation import names
from kas.api.validation.checks import nonnegative
from kas.api.validation.coremeta import object_meta, object_meta_update
from kas.registry.strategy import Context, Obj, Strategy, strategy_for


def _in_key_order(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _in_key_order(value[k]) for k in sorted(value)}
    return [_in_key_order(v) for v in value] if isinstance(value, list) else value


@strategy_for("apps", "controllerrevisions")
class ControllerRevisionStrategy(Strategy):
    def _common(self, obj: Obj) -> list[FieldError]:
        errs = object_meta(obj["metadata"], True, names.dns_subdomain)
        return errs + nonnegative(obj.get("revision") or 0, "revision")

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        errs, data = self._common(obj), obj.get("data")
        if data is None:
            errs.append(field.required("data", "data is mandatory"))
        elif not isinstance(data, dict):
            errs.append(field.required("data", "data must be a valid JSON object"))
        return errs

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        errs = object_meta_update(obj["metadata"], old["metadata"]) + self._common(obj)
        if obj.get("data") != old.get("data"):
            errs.append(field.invalid("data", _in_key_order(obj.get("data")), "field is immutable"))
        return errs
