"""Strategy of ResourcePoolStatusRequest (upstream ``pkg/registry/resource/resourcepoolstatusrequest``).

It is served if its version is enabled, whatever the gate DRAResourcePoolStatus says. KEP-5677 has that gate govern the API, too, but the
recorded facts of 1.36.2, which name the gate of each gated resource (``featureGate``), name none here. So the gate only governs the
controller and its role.
"""

from __future__ import annotations

from typing import Any

from kas.kinds.core.objectmeta import object_meta, object_meta_update
from kas.meta import field, names
from kas.meta.age import since
from kas.meta.checks import conditions, dns_subdomain, immutable, invalid_each
from kas.meta.field import FieldError
from kas.registry.printing.cells import NONE, part
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, Strategy, strategy_for
from kas.types.gostruct import render, served
from kas.types.scheme import builtin_field, builtin_type

MAX_LIMIT = MAX_POOLS = 1000
MAX_CONDITIONS = 10
MAX_ERROR = 256
MAX_NAME = 253
_COUNTS = ("totalDevices", "allocatedDevices", "availableDevices", "unavailableDevices")


@strategy_for("resource.k8s.io", "resourcepoolstatusrequests")
class ResourcePoolStatusRequestStrategy(Strategy):
    """ResourcePoolStatusRequests, which are answered once: neither the spec nor an answer may change."""

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """Validate driver, pool and the limit of pools in the answer."""
        errs = object_meta(obj["metadata"], False, names.dns_subdomain)
        spec = obj.get("spec") or {}
        errs += _driver(spec.get("driver") or "", "spec.driver")
        if spec.get("poolName") is not None:
            errs += _pool_name(spec["poolName"], "spec.poolName")
        limit = spec.get("limit")
        if limit is None:
            errs.append(field.required("spec.limit"))
        elif limit > MAX_LIMIT:
            errs.append(field.invalid("spec.limit", limit, f"must be less than or equal to {MAX_LIMIT}"))
        else:
            errs += _at_least(limit, 1, "spec.limit")
        return errs

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """Check that the spec does not change."""
        shown = served("resource.v1alpha3.ResourcePoolStatusRequestSpec", obj.get("spec"))
        return object_meta_update(obj["metadata"], old["metadata"]) + immutable(
            obj.get("spec"), old.get("spec"), "spec", shown, builtin_type("resource.v1alpha3.ResourcePoolStatusRequestSpec")
        )

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """Validate the pools and conditions of the first status; after that it may not change."""
        errs = object_meta_update(obj["metadata"], old["metadata"])
        if old.get("status") is not None:
            return errs + immutable(
                obj.get("status"), old["status"], "status", render("resource.v1alpha3.ResourcePoolStatusRequestStatus", obj.get("status")),
                builtin_field("resource.v1alpha3.ResourcePoolStatusRequest", "status"),
            )
        if obj.get("status") is None:
            return errs
        status = obj["status"]
        items, pools, count = status.get("conditions") or [], status.get("pools") or [], status.get("poolCount")
        errs += conditions(items, "status.conditions")
        errs += [field.required("status.poolCount")] if count is None else _at_least(count, 0, "status.poolCount")
        if len(pools) > MAX_POOLS:
            errs.append(field.too_many("status.pools", len(pools), MAX_POOLS))
        else:
            for i, pool in enumerate(pools):
                errs += _pool(pool, field.index("status.pools", i))
        if len(items) > MAX_CONDITIONS:
            errs.append(field.too_many("status.conditions", len(items), MAX_CONDITIONS))
        return errs


def _at_least(value: int, least: int, path: str) -> list[FieldError]:
    return [] if value >= least else [field.invalid(path, value, f"must be greater than or equal to {least}")]


def _driver(name: str, path: str) -> list[FieldError]:
    """Check a driver's name, which may have letters of either case."""
    return invalid_each(path, name, names.is_dns1123_subdomain_caseless(name)) if name else [field.required(path)]


def _pool_name(name: str, path: str) -> list[FieldError]:
    """``validate.ResourcePoolName``: subdomains separated by slashes."""
    errs = [field.too_long(path, MAX_NAME)] if len(name.encode()) > MAX_NAME else []
    for i, segment in enumerate(name.split("/")):
        found = [f"segment {i}: {m}" for m in names.is_dns1123_subdomain(segment)] if segment else [f"segment {i}: must not be empty"]
        errs += invalid_each(path, segment if segment else name, found)
    return errs


def _pool(pool: dict[str, Any], path: str) -> list[FieldError]:
    errs = _driver(pool.get("driver") or "", field.child(path, "driver"))
    name, at = pool.get("poolName") or "", field.child(path, "poolName")
    errs += _pool_name(name, at) if name else [field.required(at)]
    generation, at = pool.get("generation") or 0, field.child(path, "generation")
    errs += _at_least(generation, 0, at) if generation else [field.required(at)]
    for name, least in (("resourceSliceCount", 1), *((name, 0) for name in _COUNTS)):
        if pool.get(name) is not None:
            errs += _at_least(pool[name], least, field.child(path, name))
    if pool.get("nodeName") is not None:
        errs += dns_subdomain(pool["nodeName"], field.child(path, "nodeName"))
    if len((pool.get("validationError") or "").encode()) > MAX_ERROR:
        errs.append(field.too_long(field.child(path, "validationError"), MAX_ERROR))
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
