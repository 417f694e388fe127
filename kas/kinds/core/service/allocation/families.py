"""The IP families of a Service, derived from its policy, its addresses and the cluster's families.

``initIPFamilyFields`` of upstream ``pkg/registry/core/service/storage/alloc.go``. No I/O: changes ``spec``, raises 422.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kas.kinds.core.service.validation import cluster_ips
from kas.meta import errors, field
from kas.meta.field import FieldError
from kas.meta.ip import parse_ip

Spec = dict[str, Any]
SINGLE, PREFER, REQUIRE = "SingleStack", "PreferDualStack", "RequireDualStack"
POLICY = "spec.ipFamilyPolicy"
WITH_ADDRESS = ("ClusterIP", "NodePort", "LoadBalancer")


def family_of(ip: str) -> str:
    """Return ``IPv4`` or ``IPv6``; the text has been validated."""
    parsed = parse_ip(ip)
    return "IPv6" if parsed is not None and parsed.family == 6 else "IPv4"


def is_headless(spec: Spec) -> bool:
    """Whether the service requests no address in either of the two fields."""
    return spec.get("clusterIP") == "None" or (spec.get("clusterIPs") or [""])[0] == "None"


def _list(spec: Spec, key: str) -> list[str]:
    return spec.get(key) or []


def _shrunk(spec: Spec, was: Spec, key: str) -> bool:
    now = _list(spec, key)
    return bool(now) and len(now) < len(_list(was, key))


def left_alone(spec: Spec, was: Spec | None) -> bool:
    """Whether a PreferDualStack service keeps its families because an update does not touch its addresses."""
    if was is None or spec.get("ipFamilyPolicy") != PREFER or spec.get("type") != was.get("type"):
        return False
    if spec.get("type") not in WITH_ADDRESS or was.get("ipFamilyPolicy") not in (None, PREFER):
        return False
    return all(_list(spec, key) == _list(was, key) for key in ("clusterIPs", "ipFamilies"))


def _default_policy(spec: Spec, was: Spec | None) -> str:
    if was is not None and was.get("ipFamilyPolicy"):
        return was["ipFamilyPolicy"]
    # Without a selector the families of a headless service's endpoints are unknown.
    return REQUIRE if spec.get("clusterIP") == "None" and not spec.get("selector") else SINGLE


def _add_other(spec: Spec) -> None:
    first = spec["ipFamilies"][0]
    spec["ipFamilies"] = [first, "IPv6" if first == "IPv4" else "IPv4"]


def init_family_fields(name: str, spec: Spec, was: Spec | None, configured: Sequence[str]) -> None:
    """Fill in ``ipFamilyPolicy`` and ``ipFamilies``. ``configured`` are the cluster's families, the default first."""
    if spec.get("type") == "ExternalName" or left_alone(spec, was):
        return
    if spec.get("ipFamilyPolicy") is None:
        spec["ipFamilyPolicy"] = _default_policy(spec, was)
    policy = spec["ipFamilyPolicy"]
    _refuse(name, cluster_ips(spec, was))
    errs: list[FieldError] = []
    if was is not None:
        errs += _narrow(spec, was, policy)
    if policy == SINGLE:
        for key, what in (("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")):
            if len(_list(spec, key)) == 2:
                message = f"must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified"
                errs.append(field.invalid(POLICY, policy, message))
    errs += _infer(spec, configured)
    _refuse(name, errs)
    if spec.get("clusterIP") == "None" and not spec.get("selector"):
        if not spec.get("ipFamilies"):
            spec["ipFamilies"] = [configured[0]]
        if len(spec["ipFamilies"]) < 2 and policy != SINGLE:
            _add_other(spec)
        return
    if policy == REQUIRE and len(configured) < 2:
        errs.append(field.invalid(POLICY, policy, "this cluster is not configured for dual-stack services"))
    for i, family in enumerate(_list(spec, "ipFamilies")):
        if family not in configured:
            errs.append(field.invalid(f"spec.ipFamilies[{i}]", family, "not configured on this cluster"))
    _refuse(name, errs)
    if not spec.get("ipFamilies"):
        spec["ipFamilies"] = [configured[0]]
    if policy != SINGLE and len(spec["ipFamilies"]) == 1 and len(configured) == 2:
        _add_other(spec)


def _narrow(spec: Spec, was: Spec, policy: str) -> list[FieldError]:
    """Drop the second entries under the policy SingleStack. Returns errors if an update drops them under another policy."""
    if policy == SINGLE:
        for key in ("clusterIPs", "ipFamilies"):
            if _list(spec, key) == _list(was, key) and len(_list(spec, key)) > 1:
                spec[key] = spec[key][:1]
        return []
    errs = []
    for key, what in (("clusterIPs", "cluster IP"), ("ipFamilies", "IP family")):
        if _shrunk(spec, was, key):
            errs.append(field.invalid(POLICY, policy, f"must be 'SingleStack' to release the secondary {what}"))
    return errs


def _infer(spec: Spec, configured: Sequence[str]) -> list[FieldError]:
    """Return the families of the given addresses."""
    errs: list[FieldError] = []
    families = list(_list(spec, "ipFamilies"))
    for i, ip in enumerate(_list(spec, "clusterIPs")):
        if ip == "None":
            break
        if i < len(families):
            continue
        family = family_of(ip)
        if family in configured:
            families.append(family)
        else:
            errs.append(field.invalid(f"spec.clusterIPs[{i}]", spec["clusterIPs"], f"{family} is not configured on this cluster"))
    if families:
        spec["ipFamilies"] = families
    return errs


def _refuse(name: str, errs: list[FieldError]) -> None:
    if errs:
        raise errors.invalid("", "Service", name, errs)
