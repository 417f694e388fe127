"""Strategy of VolumeAttributesClass (upstream ``pkg/registry/storage/volumeattributesclass``)."""

from __future__ import annotations

from kas.api import field
from kas.api.equality import semantic_equal
from kas.api.field import FieldError
from kas.api.validation import names
from kas.api.validation.checks import qualified_name
from kas.api.validation.coremeta import object_meta, object_meta_update
from kas.registry.storage.storageclasses import parameters
from kas.registry.strategy import Context, Obj, Strategy, strategy_for


@strategy_for("storage.k8s.io", "volumeattributesclasses")
class VolumeAttributesClassStrategy(Strategy):
    """Driver and parameters are fixed: a volume names the class, so a change would reach it unseen."""

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        errs = object_meta(obj["metadata"], False, names.dns_subdomain)
        driver = obj.get("driverName") or ""
        errs += qualified_name(driver.lower(), "driverName") if driver else [field.required("driverName")]
        return errs + parameters(obj.get("parameters"), allow_empty=False, path="parameters")

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        errs = object_meta_update(obj["metadata"], old["metadata"])
        if (obj.get("driverName") or "") != (old.get("driverName") or ""):
            errs.append(field.forbidden("driverName", "updates to driverName are forbidden."))
        if not semantic_equal(obj.get("parameters"), old.get("parameters")):
            errs.append(field.forbidden("parameters", "updates to parameters are forbidden."))
        return errs + self.validate(ctx, obj)
