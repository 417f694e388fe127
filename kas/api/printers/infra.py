"""Rows of networking, discovery, storage, node and dynamic resource kinds."""

from __future__ import annotations

from typing import Any

from kas.api.printers.age import age, since
from kas.api.printers.cells import NONE, UNSET, first_three, load_balancer, name_with_default, part, selector
from kas.api.printers.core import name_and_age
from kas.api.printers.registry import printer

Object = dict[str, Any]


def _hosts(rules: list[Object]) -> str:
    shown: list[str] = []
    for rule in rules:
        if len(shown) == 3:
            return f"{','.join(shown)} + {len(rules) - 3} more..."
        if rule.get("host"):
            shown.append(rule["host"])
    return ",".join(shown) or "*"


@printer("networking.k8s.io", "Ingress")
def ingress(obj: Object, now: float) -> list[Any]:
    spec = part(obj, "spec")
    return [
        obj["metadata"].get("name", ""), spec.get("ingressClassName", NONE), _hosts(spec.get("rules") or []),
        load_balancer(part(obj, "status")), "80, 443" if spec.get("tls") else "80", age(obj, now),
    ]  # fmt: skip


@printer("networking.k8s.io", "IngressClass")
def ingress_class(obj: Object, now: float) -> list[Any]:
    spec = part(obj, "spec")
    ref, text = spec.get("parameters"), NONE
    if ref is not None:
        group = ref.get("apiGroup")
        text = ref.get("kind", "") + ("" if group is None else f".{group}") + f"/{ref.get('name', '')}"
    name = name_with_default(obj, "ingressclass.kubernetes.io/is-default-class")
    return [name, spec.get("controller", ""), text, age(obj, now)]


@printer("networking.k8s.io", "NetworkPolicy")
def network_policy(obj: Object, now: float) -> list[Any]:
    return [obj["metadata"].get("name", ""), selector(part(obj, "spec").get("podSelector")), age(obj, now)]


@printer("networking.k8s.io", "ServiceCIDR")
def service_cidr(obj: Object, now: float) -> list[Any]:
    return [obj["metadata"].get("name", ""), ",".join(part(obj, "spec").get("cidrs") or ()), age(obj, now)]


@printer("networking.k8s.io", "IPAddress")
def ip_address(obj: Object, now: float) -> list[Any]:
    """Upstream's row has one cell, the age, more than the kind has columns."""
    ref, text = part(obj, "spec").get("parentRef"), NONE
    if ref is not None:
        group, namespace = ref.get("group"), ref.get("namespace")
        resource = ref.get("resource", "") + (f".{group}" if group else "")
        text = "/".join([resource.lower(), *([namespace] if namespace else []), ref.get("name", "")])
    return [obj["metadata"].get("name", ""), text, age(obj, now)]


def _slice_port(port: Object) -> str:
    number = port.get("port")
    return str(port.get("name", "*") if number is None else number)


@printer("discovery.k8s.io", "EndpointSlice")
def endpoint_slice(obj: Object, now: float) -> list[Any]:
    ports = [_slice_port(p) for p in obj.get("ports") or ()]
    addresses = [a for e in obj.get("endpoints") or () for a in e.get("addresses") or ()]
    return [
        obj["metadata"].get("name", ""), obj.get("addressType", ""), first_three(ports) or UNSET,
        first_three(addresses) or UNSET, age(obj, now),
    ]  # fmt: skip


@printer("storage.k8s.io", "StorageClass")
def storage_class(obj: Object, now: float) -> list[Any]:
    name = name_with_default(obj, "storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
    return [
        name, obj.get("provisioner", ""), obj.get("reclaimPolicy", "Delete"), obj.get("volumeBindingMode", "Immediate"),
        obj.get("allowVolumeExpansion", False), age(obj, now),
    ]  # fmt: skip


@printer("storage.k8s.io", "VolumeAttributesClass")
def volume_attributes_class(obj: Object, now: float) -> list[Any]:
    return [obj["metadata"].get("name", ""), obj.get("driverName", ""), age(obj, now)]


@printer("storage.k8s.io", "VolumeAttachment")
def volume_attachment(obj: Object, now: float) -> list[Any]:
    spec = part(obj, "spec")
    return [
        obj["metadata"].get("name", ""), spec.get("attacher", ""), part(spec, "source").get("persistentVolumeName") or "",
        spec.get("nodeName", ""), part(obj, "status").get("attached", False), age(obj, now),
    ]  # fmt: skip


@printer("storage.k8s.io", "CSINode")
def csi_node(obj: Object, now: float) -> list[Any]:
    return [obj["metadata"].get("name", ""), len(part(obj, "spec").get("drivers") or ()), age(obj, now)]


@printer("storage.k8s.io", "CSIDriver")
def csi_driver(obj: Object, now: float) -> list[Any]:
    spec = part(obj, "spec")
    requests = spec.get("tokenRequests")
    return [
        obj["metadata"].get("name", ""), spec.get("attachRequired", True), spec.get("podInfoOnMount", False),
        spec.get("storageCapacity", False), UNSET if requests is None else ",".join(r.get("audience", "") for r in requests),
        spec.get("requiresRepublish", False), ",".join(spec.get("volumeLifecycleModes") or ()) or NONE, age(obj, now),
    ]  # fmt: skip


@printer("storage.k8s.io", "CSIStorageCapacity")
def csi_storage_capacity(obj: Object, now: float) -> list[Any]:
    """Registered upstream, but the resource itself answers with the default table."""
    return [obj["metadata"].get("name", ""), obj.get("storageClassName", ""), obj.get("capacity", UNSET)]


@printer("node.k8s.io", "RuntimeClass")
def runtime_class(obj: Object, now: float) -> list[Any]:
    return [obj["metadata"].get("name", ""), obj.get("handler", ""), age(obj, now)]


printer("resource.k8s.io", "DeviceClass")(name_and_age)
printer("resource.k8s.io", "ResourceClaimTemplate")(name_and_age)


@printer("resource.k8s.io", "ResourceClaim")
def resource_claim(obj: Object, now: float) -> list[Any]:
    status, deleted = part(obj, "status"), bool(obj["metadata"].get("deletionTimestamp"))
    states = ["deleted"] if deleted else []
    if status.get("allocation") is not None:
        states.append("allocated")
        if status.get("reservedFor"):
            states.append("reserved")
    elif not deleted:
        states.append("pending")
    return [obj["metadata"].get("name", ""), ",".join(states), age(obj, now)]


@printer("resource.k8s.io", "ResourceSlice")
def resource_slice(obj: Object, now: float) -> list[Any]:
    spec = part(obj, "spec")
    return [
        obj["metadata"].get("name", ""), spec.get("nodeName") or "", spec.get("driver", ""), part(spec, "pool").get("name", ""),
        age(obj, now),
    ]  # fmt: skip


@printer("resource.k8s.io", "DeviceTaintRule")
def device_taint_rule(obj: Object, now: float) -> list[Any]:
    taint = part(obj, "spec", "taint")
    added = taint.get("timeAdded")
    return [
        obj["metadata"].get("name", ""), taint.get("key", ""), taint.get("value", ""), taint.get("effect", ""),
        since(added, now) if added else "", age(obj, now),
    ]  # fmt: skip


@printer("resource.k8s.io", "ResourcePoolStatusRequest")
def resource_pool_status_request(obj: Object, now: float) -> list[Any]:
    status = obj.get("status")
    found = status or {}
    conditions, pools, count = found.get("conditions") or (), found.get("pools") or [], found.get("poolCount") or 0
    state = next((c["type"] for c in conditions if c.get("type") in ("Complete", "Failed") and c.get("status") == "True"), "Pending")
    done: Object = next((c for c in conditions if c.get("type") == "Complete" and c.get("status") == "True"), {})
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
