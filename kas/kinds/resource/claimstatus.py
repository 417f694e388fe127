"""The status of a ResourceClaim (upstream ``pkg/apis/resource/validation``: validateResourceClaimStatusUpdate and below)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kas.kinds.core.pod.scheduling import node_selector
from kas.kinds.resource.devices import (
    MAX_CONFIGS,
    MAX_REQUESTS,
    binding_conditions,
    configuration,
    each,
    each_unique,
    pool_name,
    raw_object,
    request_reference,
    share_id,
    tolerations,
)  # fmt: skip
from kas.meta import field
from kas.meta.checks import conditions, csi_driver_name, dns_label, immutable, unsupported
from kas.meta.field import FieldError
from kas.meta.ipchecks import validate_interface_address
from kas.types.gostruct import render
from kas.types.scheme import builtin_type

MAX_RESERVED_FOR = 256
MAX_RESULTS = 32
MAX_CONDITIONS = 8
MAX_DATA = 10 * 1024
MAX_INTERFACE_NAME, MAX_HARDWARE_ADDRESS, MAX_IPS = 256, 128, 16
SOURCES = ("FromClaim", "FromClass")

_PARTS = ("driver", "pool", "device", "shareID")


class DeviceID(NamedTuple):
    """The identity of an allocated device; absent parts are "". The names are those that Go prints."""

    Driver: str
    Pool: str
    Device: str
    ShareID: str


def device_id(device: dict[str, Any]) -> DeviceID:
    """Return the identity of an allocated device, or of a device in the status."""
    return DeviceID(*(device.get(key) or "" for key in _PARTS))


def allocated(allocation: dict[str, Any] | None) -> frozenset[DeviceID]:
    """Return the identities of all devices of an allocation."""
    return frozenset(device_id(result) for result in ((allocation or {}).get("devices") or {}).get("results") or ())


def update(status: dict[str, Any], old: dict[str, Any], deleted: bool, known: Mapping[str, frozenset[str]], path: str) -> list[FieldError]:
    """Validate a status; ``known`` are the claim's requests with their subrequests. An allocation is immutable once made."""
    allocation, reserved, at = status.get("allocation"), status.get("reservedFor") or [], field.child(path, "reservedFor")
    errs = each_unique(reserved, MAX_RESERVED_FOR, _consumer, lambda ref: ref.get("uid") or "", at)
    devices = allocated(allocation)
    errs += each_unique(
        status.get("devices"), -1, lambda device, here: _device(device, devices, here), device_id, field.child(path, "devices")
    )
    if reserved:
        if allocation is None:
            errs.append(field.forbidden(at, "may not be specified when `allocated` is not set"))
        elif deleted and {_whole(ref) for ref in reserved} - {_whole(ref) for ref in old.get("reservedFor") or ()}:
            text = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
            errs.append(field.forbidden(at, text))
    if allocation is not None:
        at = field.child(path, "allocation")
        if old.get("allocation") is not None:
            shown, of = render("resource.AllocationResult", allocation), builtin_type("resource.v1.AllocationResult")
            errs += immutable(allocation, old["allocation"], at, shown, of)
        else:
            errs += _allocation(allocation, at, known)
    return errs


def _whole(ref: dict[str, str]) -> frozenset[tuple[str, str]]:
    return frozenset(ref.items())


def _consumer(ref: dict[str, Any], path: str) -> list[FieldError]:
    return [field.required(field.child(path, name)) for name in ("resource", "name", "uid") if not ref.get(name)]


def _allocation(allocation: dict[str, Any], path: str, known: Mapping[str, frozenset[str]]) -> list[FieldError]:
    def reference(name: str, at: str) -> list[FieldError]:
        return request_reference(name, at, known)

    def result(item: dict[str, Any], at: str) -> list[FieldError]:
        errs = reference(item.get("request") or "", field.child(at, "request"))
        errs += csi_driver_name(item.get("driver") or "", field.child(at, "driver"))
        errs += pool_name(item.get("pool") or "", field.child(at, "pool"))
        errs += dns_label(item.get("device") or "", field.child(at, "device")) + binding_conditions(item, at)
        errs += tolerations(item.get("tolerations"), field.child(at, "tolerations"))
        return errs + share_id(item.get("shareID"), field.child(at, "shareID"))

    def config(item: dict[str, Any], at: str) -> list[FieldError]:
        source = item.get("source") or ""
        errs: list[FieldError] = []
        if not source:
            errs.append(field.required(field.child(at, "source")))
        elif source not in SOURCES:
            errs.append(unsupported(field.child(at, "source"), source, SOURCES))
        errs += each_unique(item.get("requests"), MAX_REQUESTS, reference, str, field.child(at, "requests"))
        return errs + configuration(item, at, stored=False)

    devices = allocation.get("devices") or {}
    errs = each(devices.get("results"), MAX_RESULTS, result, field.child(path, "devices", "results"))
    errs += each(devices.get("config"), 2 * MAX_CONFIGS, config, field.child(path, "devices", "config"))
    if allocation.get("nodeSelector") is not None:
        errs += node_selector(allocation["nodeSelector"], False, field.child(path, "nodeSelector"))
    return errs


def _device(device: dict[str, Any], devices: frozenset[DeviceID], path: str) -> list[FieldError]:
    errs = csi_driver_name(device.get("driver") or "", field.child(path, "driver"))
    errs += pool_name(device.get("pool") or "", field.child(path, "pool"))
    errs += dns_label(device.get("device") or "", field.child(path, "device"))
    errs += share_id(device.get("shareID"), field.child(path, "shareID"))
    if device_id(device) not in devices:
        errs.append(field.invalid(path, device_id(device)._asdict(), "must be an allocated device in the claim"))
    items, at = device.get("conditions") or [], field.child(path, "conditions")
    if len(items) > MAX_CONDITIONS:
        errs.append(field.too_many(at, len(items), MAX_CONDITIONS))
    errs += conditions(items, at)
    if device.get("data") is not None:
        errs += raw_object(device["data"], field.child(path, "data"), False, MAX_DATA)
    return errs + _network(device.get("networkData"), field.child(path, "networkData"))


def _network(data: dict[str, Any] | None, path: str) -> list[FieldError]:
    if data is None:
        return []
    errs: list[FieldError] = []
    for name, most in (("interfaceName", MAX_INTERFACE_NAME), ("hardwareAddress", MAX_HARDWARE_ADDRESS)):
        if len((data.get(name) or "").encode()) > most:
            errs.append(field.too_long(field.child(path, name), most))

    def address(text: str, at: str) -> list[FieldError]:
        return validate_interface_address(at, text)

    return errs + each_unique(data.get("ips"), MAX_IPS, address, str, field.child(path, "ips"))
