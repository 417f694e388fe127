"""Strategy of ResourcePoolStatusRequest (upstream ``pkg/registry/resource/resourcepoolstatusrequest``)."""

from __future__ import annotations

from typing import Any

from kas.api import field
from kas.api.field import FieldError
from kas.api.validation import names
from kas.api.validation.checks import conditions, csi_driver_name, dns_subdomain, immutable
from kas.api.validation.coremeta import object_meta, object_meta_update
from kas.api.validation.devices import pool_name
from kas.registry.strategy import Context, Obj, Strategy, strategy_for

MAX_LIMIT = 1000
_COUNTS = ("totalDevices", "allocatedDevices", "availableDevices", "unavailableDevices")


@strategy_for("resource.k8s.io", "resourcepoolstatusrequests")
class ResourcePoolStatusRequestStrategy(Strategy):
    """A question that is answered once: neither spec nor a given answer changes."""

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        errs = object_meta(obj["metadata"], False, names.dns_subdomain)
        spec = obj.get("spec") or {}
        driver = spec.get("driver") or ""
        errs += csi_driver_name(driver, "spec.driver") if driver else [field.required("spec.driver", "driver name is required")]
        if spec.get("poolName"):
            errs += pool_name(spec["poolName"], "spec.poolName")
        limit = spec.get("limit")
        if limit is not None and limit < 1:
            errs.append(field.invalid("spec.limit", limit, "must be at least 1"))
        if limit is not None and limit > MAX_LIMIT:
            errs.append(field.invalid("spec.limit", limit, f"must not exceed {MAX_LIMIT}"))
        return errs

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        return object_meta_update(obj["metadata"], old["metadata"]) + immutable(obj.get("spec"), old.get("spec"), "spec")

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        errs = object_meta_update(obj["metadata"], old["metadata"])
        if old.get("status"):
            return errs + immutable(obj.get("status"), old["status"], "status")
        status = obj.get("status") or {}
        for i, pool in enumerate(status.get("pools") or ()):
            errs += _pool(pool, field.index("status.pools", i))
        errs += conditions(status.get("conditions"), "status.conditions")
        if (status.get("poolCount") or 0) < 0:
            errs.append(field.invalid("status.poolCount", status["poolCount"], "must be non-negative"))
        return errs


def _pool(pool: dict[str, Any], path: str) -> list[FieldError]:
    errs = csi_driver_name(pool.get("driver") or "", field.child(path, "driver"))
    errs += pool_name(pool.get("poolName") or "", field.child(path, "poolName"))
    if pool.get("nodeName"):
        errs += dns_subdomain(pool["nodeName"], field.child(path, "nodeName"))
    for name in _COUNTS:
        if (pool.get(name) or 0) < 0:
            errs.append(field.invalid(field.child(path, name), pool[name], "must be non-negative"))
    slices = pool.get("resourceSliceCount")
    if slices is not None and slices < 1:
        errs.append(field.invalid(field.child(path, "resourceSliceCount"), slices, "must be at least 1"))
    if (pool.get("generation") or 0) < 0:
        errs.append(field.invalid(field.child(path, "generation"), pool["generation"], "must be non-negative"))
    return errs
