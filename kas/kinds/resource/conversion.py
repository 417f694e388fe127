"""resource.k8s.io: v1beta1 has a request's exact form and a device's basics in other places than v1 and v1beta2.

``pkg/apis/resource/v1beta1/conversion.go``. Between v1 and v1beta2, and for DeviceClass, only the version differs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kas.types.conversion import Obj, converts

GROUP = "resource.k8s.io"
_EXACT = ("deviceClassName", "selectors", "allocationMode", "count", "adminAccess", "tolerations", "capacity")
_EXACT_MAY_BE_EMPTY = ("selectors", "adminAccess", "capacity")
_BASIC = (
    "attributes", "capacity", "consumesCounters", "nodeName", "nodeSelector", "allNodes", "taints", "bindsToNode", "bindingConditions",
    "bindingFailureConditions", "allowMultipleAllocations", "nodeAllocatableResourceMappings",
)  # fmt: skip


def _map_requests(spec: Obj, change) -> Obj:
    devices = spec.get("devices")
    if not devices or not devices.get("requests"):
        return spec
    return {**spec, "devices": {**devices, "requests": [change(r) for r in devices["requests"]]}}


def _exactly(request: Obj) -> Obj:
    """Convert from v1beta1 to v1: move the fields of the exact form into ``exactly`` if any is set."""
    exact = {k: request[k] for k in _EXACT if request.get(k) or (k in _EXACT_MAY_BE_EMPTY and request.get(k) is not None)}
    out = {k: v for k, v in request.items() if k not in _EXACT}
    if exact:
        out["exactly"] = exact
    return out


def _flat(request: Obj) -> Obj:
    exact = request.get("exactly")
    out = {k: v for k, v in request.items() if k != "exactly"}
    return {**out, **exact} if exact is not None else out


def _basic(device: Obj) -> Obj:
    return {"name": device.get("name", ""), "basic": {k: device[k] for k in _BASIC if k in device}}


def _unbasic(device: Obj) -> Obj:
    return {**{k: v for k, v in device.items() if k != "basic"}, **(device.get("basic") or {})}


def _claim(obj: Obj, change: Callable[[Obj], Obj]) -> Obj:
    return {**obj, "spec": _map_requests(obj.get("spec") or {}, change)}


def _template(obj: Obj, change: Callable[[Obj], Obj]) -> Obj:
    spec = obj.get("spec") or {}
    return {**obj, "spec": {**spec, "spec": _map_requests(spec.get("spec") or {}, change)}}


def _slice(obj: Obj, change: Callable[[Obj], Obj]) -> Obj:
    spec = dict(obj.get("spec") or {})
    if spec.get("devices"):
        spec["devices"] = [change(d) for d in spec["devices"]]
    # v1beta1 has no pointers here, so unset and zero are the same.
    for name in ("nodeName", "allNodes"):
        if name in spec and not spec[name]:
            del spec[name]
    return {**obj, "spec": spec}


def _register() -> None:
    kinds = {
        "ResourceClaim": (_claim, _exactly, _flat),
        "ResourceClaimTemplate": (_template, _exactly, _flat),
        "ResourceSlice": (_slice, _unbasic, _basic),
    }
    for kind, (walk, up, down) in kinds.items():
        old = (GROUP, "v1beta1", kind)
        for version in ("v1", "v1beta2"):
            new = (GROUP, version, kind)
            converts(old, new)(partial(walk, change=up))
            converts(new, old)(partial(walk, change=down))


_register()
