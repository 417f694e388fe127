"""The spec of a ResourceClaim (upstream ``pkg/apis/resource/validation``: validateDeviceClaim and below)."""

from __future__ import annotations

from typing import Any

from kas.kinds.resource.devices import (
    MAX_CONFIGS,
    MAX_CONSTRAINTS,
    MAX_REQUESTS,
    configuration,
    each,
    each_unique,
    fully_qualified_name,
    request_reference,
    selectors,
    tolerations,
)  # fmt: skip
from kas.meta import field
from kas.meta.checks import dns_label, dns_subdomain, unsupported
from kas.meta.compilebudget import CompileBudget
from kas.meta.field import FieldError

MAX_FIRST_AVAILABLE = 8
ALLOCATION_MODES = ("All", "ExactCount")


def _name(item: dict[str, Any]) -> str:
    return item.get("name") or ""


def request_names(devices: dict[str, Any]) -> dict[str, frozenset[str]]:
    """Return the names of subrequests by request name."""
    return {_name(r): frozenset(_name(s) for s in r.get("firstAvailable") or ()) for r in devices.get("requests") or ()}


def device_claim(devices: dict[str, Any], path: str) -> list[FieldError]:
    """``validateDeviceClaim``: requests with distinct names, constraints and configurations that refer to them, and limits of all."""
    known = request_names(devices)

    def reference(name: str, at: str) -> list[FieldError]:
        return request_reference(name, at, known)

    def constraint(item: dict[str, Any], at: str) -> list[FieldError]:
        errs = each_unique(item.get("requests"), MAX_REQUESTS, reference, str, field.child(at, "requests"))
        for name in ("matchAttribute", "distinctAttribute"):
            if item.get(name) is not None:
                return errs + fully_qualified_name(item[name], field.child(at, name))
        text = 'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set'
        return [*errs, field.required(at, text)]

    def config(item: dict[str, Any], at: str) -> list[FieldError]:
        errs = each_unique(item.get("requests"), MAX_REQUESTS, reference, str, field.child(at, "requests"))
        return errs + configuration(item, at, stored=False)

    allowance = CompileBudget()
    errs = each_unique(
        devices.get("requests"), MAX_REQUESTS, lambda item, at: _request(item, at, allowance), _name, field.child(path, "requests")
    )
    errs += each(devices.get("constraints"), MAX_CONSTRAINTS, constraint, field.child(path, "constraints"))
    return errs + each(devices.get("config"), MAX_CONFIGS, config, field.child(path, "config"))


def _request(request: dict[str, Any], path: str, allowance: CompileBudget) -> list[FieldError]:
    errs = dns_label(_name(request), field.child(path, "name"))
    exactly, alternatives = request.get("exactly"), request.get("firstAvailable") or []
    if exactly is None and not alternatives:
        errs.append(field.required(path, "exactly one of `exactly` or `firstAvailable` is required"))
    elif exactly is not None and alternatives:
        text = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set"
        errs.append(field.invalid(path, None, text))
    elif exactly is not None:
        errs += _wanted(exactly, field.child(path, "exactly"), allowance)
    else:
        def alternative(item: dict[str, Any], at: str) -> list[FieldError]:
            return dns_label(_name(item), field.child(at, "name")) + _wanted(item, at, allowance)

        errs += each_unique(alternatives, MAX_FIRST_AVAILABLE, alternative, _name, field.child(path, "firstAvailable"))
    return errs


def _wanted(request: dict[str, Any], path: str, allowance: CompileBudget) -> list[FieldError]:
    """Validate class, selectors, amount and tolerations, of an exact request or an alternative."""
    name, at = request.get("deviceClassName") or "", field.child(path, "deviceClassName")
    errs = dns_subdomain(name, at) if name else [field.required(at)]
    errs += selectors(request.get("selectors"), field.child(path, "selectors"), allowance)
    mode, count, at = request.get("allocationMode") or "", request.get("count") or 0, field.child(path, "count")
    if mode == "All":
        if count != 0:
            errs.append(field.invalid(at, count, "must not be specified when allocationMode is 'All'"))
    elif mode == "ExactCount":
        if count <= 0:
            errs.append(field.invalid(at, count, "must be greater than zero"))
    else:
        errs.append(unsupported(field.child(path, "allocationMode"), mode, ALLOCATION_MODES))
    return errs + tolerations(request.get("tolerations"), field.child(path, "tolerations"))
