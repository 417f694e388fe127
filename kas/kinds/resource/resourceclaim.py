"""Strategies of ResourceClaim and ResourceClaimTemplate (upstream ``pkg/registry/resource/{resourceclaim,...template}``)."""

from __future__ import annotations

from typing import Any

from kas.kinds.core.columns import name_and_age
from kas.kinds.core.objectmeta import object_meta, object_meta_update
from kas.kinds.resource import claimspec, claimstatus
from kas.meta import field, names
from kas.meta.age import age
from kas.meta.checks import IMMUTABLE
from kas.meta.equality import semantic_equal
from kas.meta.field import FieldError
from kas.meta.labelselectors import labels
from kas.registry.printing.cells import part
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, Strategy, strategy_for
from kas.types.gostruct import render
from kas.types.scheme import builtin_type


@strategy_for("resource.k8s.io", "resourceclaims")
class ResourceClaimStrategy(Strategy):
    """ResourceClaims; the spec is immutable, and the status has allocation, reservations and device data."""

    costly = True  # selectors are expressions

    def prepare_for_status_update(self, ctx: Context, obj: Obj, old: Obj) -> None:
        """Drop the data of devices that this write deallocates."""
        super().prepare_for_status_update(ctx, obj, old)
        status, before = obj.get("status") or {}, old.get("status") or {}
        if status.get("devices") and before.get("allocation") is not None:
            gone = claimstatus.allocated(before.get("allocation")) - claimstatus.allocated(status.get("allocation"))
            kept = [device for device in status["devices"] if claimstatus.device_id(device) not in gone]
            obj["status"] = {k: v for k, v in status.items() if k != "devices"} | ({"devices": kept} if kept else {})

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidateResourceClaim``."""
        errs = object_meta(obj["metadata"], True, names.dns_subdomain)
        return errs + claimspec.device_claim((obj.get("spec") or {}).get("devices") or {}, "spec.devices")

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateResourceClaimUpdate``: the spec may not change."""
        errs = object_meta(obj["metadata"], True, names.dns_subdomain) + object_meta_update(obj["metadata"], old["metadata"])
        return errs + _fixed("resource.ResourceClaimSpec", obj, old)

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateResourceClaimStatusUpdate``; a claim that is being deleted accepts no new users."""
        errs = object_meta_update(obj["metadata"], old["metadata"])
        known = claimspec.request_names((obj.get("spec") or {}).get("devices") or {})
        deleted = bool(obj["metadata"].get("deletionTimestamp"))
        return errs + claimstatus.update(obj.get("status") or {}, old.get("status") or {}, deleted, known, "status")


@strategy_for("resource.k8s.io", "resourceclaimtemplates")
class ResourceClaimTemplateStrategy(Strategy):
    """ResourceClaimTemplates, with an immutable spec and no status."""

    costly = True

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidateResourceClaimTemplate``."""
        errs = object_meta(obj["metadata"], True, names.dns_subdomain)
        spec = obj.get("spec") or {}
        errs += _template_meta(spec.get("metadata") or {}, "spec.metadata")
        return errs + claimspec.device_claim((spec.get("spec") or {}).get("devices") or {}, "spec.spec.devices")

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateResourceClaimTemplateUpdate``: the spec may not change."""
        errs = object_meta_update(obj["metadata"], old["metadata"])
        return errs + _fixed("resource.ResourceClaimTemplateSpec", obj, old)


def _fixed(spec_type: str, obj: Obj, old: Obj) -> list[FieldError]:
    if semantic_equal(obj.get("spec"), old.get("spec"), builtin_type(spec_type.replace(".", ".v1."))):
        return []
    return [field.invalid("spec", render(spec_type, obj.get("spec")), IMMUTABLE)]


def _template_meta(meta: dict[str, Any], path: str) -> list[FieldError]:
    """``ValidateTemplateObjectMeta``: a template may have labels and annotations only."""
    errs: list[FieldError] = []
    annotations, at = meta.get("annotations") or {}, field.child(path, "annotations")
    for key in sorted(annotations):
        errs += [field.invalid(at, key, message) for message in names.is_qualified_name(key.lower())]
    return errs + labels(meta.get("labels"), field.child(path, "labels"))


@printer("resource.k8s.io", "ResourceClaim")
def resource_claim_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, states, age."""
    status, deleted = part(obj, "status"), bool(obj["metadata"].get("deletionTimestamp"))
    states = ["deleted"] if deleted else []
    if status.get("allocation") is not None:
        states.append("allocated")
        if status.get("reservedFor"):
            states.append("reserved")
    elif not deleted:
        states.append("pending")
    return [obj["metadata"].get("name", ""), ",".join(states), age(obj, now)]


printer("resource.k8s.io", "ResourceClaimTemplate")(name_and_age)
