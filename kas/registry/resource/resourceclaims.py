"""Strategies of ResourceClaim and ResourceClaimTemplate (upstream ``pkg/registry/resource/{resourceclaim,...template}``)."""

from __future__ import annotations

from typing import Any

from kas.api import field
from kas.api.equality import semantic_equal
from kas.api.field import FieldError
from kas.api.gostruct import render
from kas.api.validation import claimspec, claimstatus, names
from kas.api.validation.checks import IMMUTABLE
from kas.api.validation.coremeta import object_meta, object_meta_update
from kas.api.validation.labelselectors import labels
from kas.registry.strategy import Context, Obj, Strategy, strategy_for


@strategy_for("resource.k8s.io", "resourceclaims")
class ResourceClaimStrategy(Strategy):
    """The spec is fixed; allocation, reservations and device data live in the status."""

    def prepare_for_status_update(self, ctx: Context, obj: Obj, old: Obj) -> None:
        """Data of devices that this write gives back goes with them."""
        super().prepare_for_status_update(ctx, obj, old)
        status, before = obj.get("status") or {}, old.get("status") or {}
        if status.get("devices") and before.get("allocation") is not None:
            gone = claimstatus.allocated(before.get("allocation")) - claimstatus.allocated(status.get("allocation"))
            kept = [device for device in status["devices"] if claimstatus.device_id(device) not in gone]
            obj["status"] = {k: v for k, v in status.items() if k != "devices"} | ({"devices": kept} if kept else {})

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        errs = object_meta(obj["metadata"], True, names.dns_subdomain)
        return errs + claimspec.device_claim((obj.get("spec") or {}).get("devices") or {}, "spec.devices")

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        errs = object_meta(obj["metadata"], True, names.dns_subdomain) + object_meta_update(obj["metadata"], old["metadata"])
        return errs + _fixed("ResourceClaimSpec", obj, old)

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        errs = object_meta_update(obj["metadata"], old["metadata"])
        known = claimspec.request_names((obj.get("spec") or {}).get("devices") or {})
        deleted = bool(obj["metadata"].get("deletionTimestamp"))
        return errs + claimstatus.update(obj.get("status") or {}, old.get("status") or {}, deleted, known, "status")


@strategy_for("resource.k8s.io", "resourceclaimtemplates")
class ResourceClaimTemplateStrategy(Strategy):
    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        errs = object_meta(obj["metadata"], True, names.dns_subdomain)
        spec = obj.get("spec") or {}
        errs += _template_meta(spec.get("metadata") or {}, "spec.metadata")
        return errs + claimspec.device_claim((spec.get("spec") or {}).get("devices") or {}, "spec.spec.devices")

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        errs = object_meta_update(obj["metadata"], old["metadata"])
        return errs + _fixed("ResourceClaimTemplateSpec", obj, old)


def _fixed(spec_type: str, obj: Obj, old: Obj) -> list[FieldError]:
    if semantic_equal(obj.get("spec"), old.get("spec")):
        return []
    return [field.invalid("spec", render(spec_type, obj.get("spec")), IMMUTABLE)]


def _template_meta(meta: dict[str, Any], path: str) -> list[FieldError]:
    """``ValidateTemplateObjectMeta``: labels and annotations are what a template may carry."""
    errs: list[FieldError] = []
    annotations, at = meta.get("annotations") or {}, field.child(path, "annotations")
    for key in sorted(annotations):
        errs += [field.invalid(at, key, message) for message in names.is_qualified_name(key.lower())]
    return errs + labels(meta.get("labels"), field.child(path, "labels"))
