"""Strategy of VolumeAttributesClass (upstream ``pkg/registry/storage/volumeattributesclass``)."""

from __future__ import annotations

from typing import Any

from kas.kinds.core.objectmeta import object_meta, object_meta_update
from kas.kinds.storage.storageclass import parameters
from kas.meta import field, names
from kas.meta.age import age
from kas.meta.checks import qualified_name
from kas.meta.equality import semantic_equal
from kas.meta.field import FieldError
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, Strategy, strategy_for


@strategy_for("storage.k8s.io", "volumeattributesclasses")
class VolumeAttributesClassStrategy(Strategy):
    """VolumeAttributesClasses; driver and parameters are immutable, because volumes refer to the class and a change would go unnoticed."""

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidateVolumeAttributesClass``: a driver, and parameters that are not empty."""
        errs = object_meta(obj["metadata"], False, names.dns_subdomain)
        driver = obj.get("driverName") or ""
        errs += qualified_name(driver.lower(), "driverName") if driver else [field.required("driverName")]
        return errs + parameters(obj.get("parameters"), allow_empty=False, path="parameters")

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateVolumeAttributesClassUpdate``: driver and parameters may not change."""
        errs = object_meta_update(obj["metadata"], old["metadata"])
        if (obj.get("driverName") or "") != (old.get("driverName") or ""):
            errs.append(field.forbidden("driverName", "updates to driverName are forbidden."))
        if not semantic_equal(obj.get("parameters"), old.get("parameters"), self.type.by_name["parameters"]):
            errs.append(field.forbidden("parameters", "updates to parameters are forbidden."))
        return errs + self.validate(ctx, obj)


@printer("storage.k8s.io", "VolumeAttributesClass")
def volume_attributes_class_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, driver, age."""
    return [obj["metadata"].get("name", ""), obj.get("driverName", ""), age(obj, now)]
