"""Strategy of ResourcePoolStatusRequest (upstream ``pkg/registry/resource/resourcepoolstatusrequest``)."""

from __future__ import annotations

from typing import Any

from kas.kinds.core.objectmeta import object_meta, object_meta_update
from kas.kinds.resource.devices import pool_name
from kas.meta import field, names
from kas.meta.age import since
from kas.meta.checks import conditions, csi_driver_name, dns_subdomain, immutable
from kas.meta.field import FieldError
from kas.registry.printing.cells import NONE, part
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, Strategy, strategy_for
from kas.types.gostruct import render
from kas.types.scheme import builtin_field, builtin_type

MAX_LIMIT = 1000
_COUNTS = ("totalDevices", "allocatedDevices", "availableDevices", "unavailableDevices")


@strategy_for("resource.k8s.io", "resourcepoolstatusrequests")
class ResourcePoolStatusRequestStrategy(Strategy):
    """A question that is answered once: neither spec nor a given answer changes."""

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """Driver, pool and how many pools may be told of."""
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
        """The spec may not change."""
        shown = render("resource.v1alpha3.ResourcePoolStatusRequestSpec", obj.get("spec"))
        return object_meta_update(obj["metadata"], old["metadata"]) + immutable(
            obj.get("spec"), old.get("spec"), "spec", shown, builtin_type("resource.v1alpha3.ResourcePoolStatusRequestSpec")
        )

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """Each pool and condition when the status is written first; after that it may not change."""
        errs = object_meta_update(obj["metadata"], old["metadata"])
        if old.get("status"):
            return errs + immutable(
                obj.get("status"), old["status"], "status", render("resource.v1alpha3.ResourcePoolStatusRequestStatus", obj.get("status")),
                builtin_field("resource.v1alpha3.ResourcePoolStatusRequest", "status"),
            )
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


@printer("resource.k8s.io", "ResourcePoolStatusRequest")
def resource_pool_status_request_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, driver, sums over the pools ("-" without any), pool count, state, completion, age."""
    status = obj.get("status")
    found = status or {}
    conditions, pools, count = found.get("conditions") or (), found.get("pools") or [], found.get("poolCount") or 0
    state = next((c["type"] for c in conditions if c.get("type") in ("Complete", "Failed") and c.get("status") == "True"), "Pending")
    done: Obj = next((c for c in conditions if c.get("type") == "Complete" and c.get("status") == "True"), {})
    if status is None or state == "Failed":
        sums = ["-"] * 5
    else:
        keys = ("totalDevices", "availableDevices", "allocatedDevices", "unavailableDevices")
        sums = [str(sum(p.get(key) or 0 for p in pools)) for key in keys]
        sums.append(str(sum(p.get("validationError") is not None for p in pools)))
    text = f"Complete ({len(pools)}/{count} pools)" if state == "Complete" and count > len(pools) else state
    completed = done.get("lastTransitionTime")
    return [
        obj["metadata"].get("name", ""), part(obj, "spec").get("driver", ""), *sums, count, text,
        since(completed, now) if completed else NONE,
    ]  # fmt: skip
