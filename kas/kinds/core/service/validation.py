"""Validation of Services (``pkg/apis/core/validation`` ``ValidateService``, ``ValidateServiceUpdate``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kas import checks
from kas.checks import Scope
from kas.config import features
from kas.kinds.core.objectmeta import object_meta, object_meta_update
from kas.kinds.core.pod.probes import PORT_RANGE, PROTOCOLS, port_num_or_name
from kas.kinds.core.service.defaults import externally_accessible
from kas.meta import field, names
from kas.meta.checks import legacy_cidr, legacy_ip, non_special_ip, repeats, unsupported
from kas.meta.field import FieldError
from kas.meta.ip import parse_ip
from kas.meta.labelselectors import labels
from kas.meta.metachecks import LABELS
from kas.types.checktables import ANY, ENUM, Checked, Message, each, either, need, whole
from kas.types.gostruct import render

Spec = Mapping[str, Any]
TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
TRAFFIC_POLICIES = ("Cluster", "Local")
FAMILIES = ("IPv4", "IPv6")
FAMILY_POLICIES = ("PreferDualStack", "RequireDualStack", "SingleStack")
DISTRIBUTIONS = ("PreferClose", "PreferSameZone", "PreferSameNode")
TOPOLOGY_HINTS = "service.kubernetes.io/topology-aware-hints"
TOPOLOGY_MODE = "service.kubernetes.io/topology-mode"
SOURCE_RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"
ONLY_LOAD_BALANCER = "may only be used when `type` is 'LoadBalancer'"
NOT_EXTERNAL_NAME = "may not be set for ExternalName services"
ONE_PER_FAMILY = "may specify no more than one IP for each IP family"
SET_ONCE = "may not change once set"
MAX_AFFINITY_SECONDS = 86400


_PORT = {
    "protocol": need(ENUM), "port": need(checks.integer(1, 65535)), "appProtocol": checks.qualified_name(),
    "targetPort": need(checks.by_kind(integer=checks.integer(1, 65535), text=checks.port_name())),
}  # fmt: skip
_NAMES, _NUMBERS = Scope("names"), Scope("numbers")
_NAMED = Message({**_PORT, "name": need(checks.dns_label().claim(_NAMES))}, keys=[(_NUMBERS, ("protocol", "port"))])
_INSIDE = {
    "type": need(checks.option("ClusterIP")), "selector": whole(LABELS), "internalTrafficPolicy": need(ENUM),
    "trafficDistribution": checks.option(*DISTRIBUTIONS), "publishNotReadyAddresses": ANY, "ipFamilyPolicy": checks.option("SingleStack"),
    "ipFamilies": each(checks.option("IPv4"), 1, 1), "ports": need(either(
        each({**_PORT, "name": checks.dns_label()}, 1, 1, unique=False), each(_NAMED, 2, opens=[_NAMES, _NUMBERS], unique=False),
    )),
}  # fmt: skip


def _first_address(spec: Spec) -> bool:
    return bool(spec["clusterIPs"][0] == spec["clusterIP"])


# Cluster-internal services with a single IPv4 address, or none.
CHECK = Checked(
    "core.v1.ServiceSpec",
    Message(
        {
            **_INSIDE, "clusterIP": need(_ADDRESS := checks.any_of(checks.ipv4(), checks.option("None"))),
            "clusterIPs": need(each(_ADDRESS, 1, 1)), "sessionAffinity": need(checks.option("None")),
        },
        rules=[(("clusterIP", "clusterIPs"), _first_address)],
    ),
)  # fmt: skip
# Annotations that have rules.
_ANNOTATIONS = frozenset((TOPOLOGY_HINTS, TOPOLOGY_MODE, SOURCE_RANGES))


def is_headless(spec: Spec) -> bool:
    """Whether the cluster IPs say that the service has none."""
    return spec.get("clusterIPs") == ["None"]


def needs_health_check(spec: Spec) -> bool:
    """``NeedsHealthCheck``: a load balancer that routes traffic only to nodes with endpoints."""
    return spec.get("type") == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


def port_and_protocol(number: int, protocol: str, path: str) -> list[FieldError]:
    """Validate what ports of Services and Endpoints have in common."""
    errs: list[FieldError] = []
    if not 1 <= number <= 65535:
        errs.append(field.invalid(f"{path}.port", number, PORT_RANGE))
    if protocol not in PROTOCOLS:
        at = f"{path}.protocol"
        errs.append(unsupported(at, protocol, PROTOCOLS) if protocol else field.required(at))
    return errs


def _port(port: Spec, need_name: bool, seen: set[str], path: str) -> list[FieldError]:
    name, number, protocol = port.get("name") or "", port.get("port") or 0, port.get("protocol") or ""
    errs: list[FieldError] = []
    if name:
        errs += [field.invalid(f"{path}.name", name, m) for m in names.is_dns1123_label(name)]
        if name in seen:
            errs.append(field.duplicate(f"{path}.name", name))
        seen.add(name)
    elif need_name:
        errs.append(field.required(f"{path}.name"))
    errs += port_and_protocol(number, protocol, path)
    errs += port_num_or_name(port.get("targetPort"), f"{path}.targetPort")
    if port.get("appProtocol") is not None:
        errs += [field.invalid(f"{path}.appProtocol", port["appProtocol"], m) for m in names.is_qualified_name(port["appProtocol"])]
    return errs


def _by_type(spec: Spec) -> list[FieldError]:
    kind, errs = spec.get("type"), []
    if kind in ("LoadBalancer", "NodePort") and is_headless(spec):
        message = f"may not be set to 'None' for {kind} services"
        errs.append(field.invalid("spec.clusterIPs[0]", "None", message))
    if kind == "ExternalName":
        if spec.get("clusterIPs"):
            errs.append(field.forbidden("spec.clusterIPs", NOT_EXTERNAL_NAME))
        if spec.get("ipFamilies"):
            errs.append(field.forbidden("spec.ipFamilies", NOT_EXTERNAL_NAME))
        if spec.get("ipFamilyPolicy") is not None:
            errs.append(field.forbidden("spec.ipFamilyPolicy", NOT_EXTERNAL_NAME))
        target = (spec.get("externalName") or "").removesuffix(".")
        if target:
            errs += [field.invalid("spec.externalName", target, m) for m in names.is_dns1123_subdomain(target)]
        else:
            errs.append(field.required("spec.externalName"))
    return errs


def _affinity(spec: Spec) -> list[FieldError]:
    kind, config = spec.get("sessionAffinity") or "", spec.get("sessionAffinityConfig")
    if kind not in ("ClientIP", "None"):
        at = "spec.sessionAffinity"
        return [unsupported(at, kind, ("ClientIP", "None")) if kind else field.required(at)]
    path = "spec.sessionAffinityConfig"
    if kind == "None":
        return [field.forbidden(path, "must not be set when session affinity is None")] if config is not None else []
    why = "when session affinity type is ClientIP"
    if config is None:
        return [field.required(path, why)]
    if config.get("clientIP") is None:
        return [field.required(f"{path}.clientIP", why)]
    seconds = config["clientIP"].get("timeoutSeconds")
    if seconds is None:
        return [field.required(f"{path}.clientIP.timeoutSeconds", why)]
    if not 0 < seconds <= MAX_AFFINITY_SECONDS:
        message = f"must be greater than 0 and less than {MAX_AFFINITY_SECONDS}"
        return [field.invalid(f"{path}.clientIP.timeoutSeconds", seconds, message)]
    return []


def cluster_ips(spec: Spec, old: Spec | None = None) -> list[FieldError]:
    """``ValidateServiceClusterIPsRelatedFields``; allocation also runs it before it allocates addresses."""
    if spec.get("type") == "ExternalName":
        return []
    errs: list[FieldError] = []
    ips, families, policy = spec.get("clusterIPs") or [], spec.get("ipFamilies") or [], spec.get("ipFamilyPolicy")
    path, first = "spec.clusterIPs", spec.get("clusterIP") or ""
    if first:
        if not ips:
            errs.append(field.required(path))
        elif ips[0] != first:
            errs.append(field.invalid(path, ips, "first value must match `clusterIP`"))
    elif ips:
        errs.append(field.invalid(path, ips, "must be empty when `clusterIP` is not specified"))
    again = set(repeats(families))
    for i, family in enumerate(families):
        if family not in FAMILIES:
            errs.append(unsupported(f"spec.ipFamilies[{i}]", family, FAMILIES))
        if i in again:
            errs.append(field.duplicate(f"spec.ipFamilies[{i}]", family))
    if policy is not None and policy not in FAMILY_POLICIES:
        errs.append(unsupported("spec.ipFamilyPolicy", policy, FAMILY_POLICIES))
    known = frozenset((old or {}).get("clusterIPs") or ())
    bad = False
    for i, ip in enumerate(ips):
        if i == 0 and ip == "None":
            if len(ips) > 1:
                bad = True
                errs.append(field.invalid(path, ips, "'None' must be the first and only value"))
            continue
        found = legacy_ip(f"{path}[{i}]", ip, known)
        bad = bad or bool(found)
        errs += found
    if len(ips) > 2:
        errs.append(field.invalid(path, ips, "may only hold up to 2 values"))
    if bad:
        return errs
    parsed = [parse_ip(ip) for ip in ips]
    if len(ips) > 1 and len({ip.family for ip in parsed if ip}) != 2:
        errs.append(field.invalid(path, ips, ONE_PER_FAMILY))
    if not is_headless(spec):
        for i, (ip, family) in enumerate(zip(parsed, families, strict=False)):
            if ip is not None and family in FAMILIES and ip.family != int(family[-1]):
                message = f"expected an {family} value as indicated by `ipFamilies[{i}]`"
                errs.append(field.invalid(f"{path}[{i}]", ips[i], message))
    return errs


def _duplicate_ports(ports: list[dict[str, Any]]) -> list[FieldError]:
    errs: list[FieldError] = []
    seen: set[tuple] = set()
    for i, port in enumerate(ports):
        node = port.get("nodePort") or 0
        if not node:
            continue
        key = (port.get("protocol") or "", node)
        if key in seen:
            errs.append(field.duplicate(f"spec.ports[{i}].nodePort", node))
        seen.add(key)
    seen = set()
    for i, port in enumerate(ports):
        key = (port.get("protocol") or "", port.get("port") or 0)
        if key in seen:
            shown = render("core.ServicePort", {"protocol": key[0], "port": key[1]})
            errs.append(field.duplicate(f"spec.ports[{i}]", shown))
        seen.add(key)
    return errs


def _source_ranges(spec: Spec, annotations: Mapping[str, str], old: Spec, noted: str | None) -> list[FieldError]:
    """Validate source ranges; ``noted`` is the stored service's annotation, which is not validated again."""
    ranges = spec.get("loadBalancerSourceRanges") or []
    known = frozenset(r.strip() for r in old.get("loadBalancerSourceRanges") or ())
    errs: list[FieldError] = []
    if ranges:
        path = "spec.LoadBalancerSourceRanges"
        if spec.get("type") != "LoadBalancer":
            errs.append(field.forbidden(path, ONLY_LOAD_BALANCER))
        for i, cidr in enumerate(ranges):
            errs += legacy_cidr(f"{path}[{i}]", cidr.strip(), known)
    elif SOURCE_RANGES in annotations:
        path, text = f"metadata.annotations[{SOURCE_RANGES}]", annotations[SOURCE_RANGES].strip()
        if spec.get("type") != "LoadBalancer":
            errs.append(field.forbidden(path, ONLY_LOAD_BALANCER))
        for cidr in text.split(",") if text and annotations[SOURCE_RANGES] != noted else ():
            errs += legacy_cidr(path, cidr.strip())
    return errs


def _traffic(spec: Spec) -> list[FieldError]:
    errs: list[FieldError] = []
    external, health = spec.get("externalTrafficPolicy") or "", spec.get("healthCheckNodePort") or 0
    at = "spec.externalTrafficPolicy"
    if not externally_accessible(dict(spec)):
        if external:
            errs.append(field.invalid(at, external, "may only be set for externally-accessible services"))
    elif external not in TRAFFIC_POLICIES:
        errs.append(unsupported(at, external, TRAFFIC_POLICIES) if external else field.required(at))
    at = "spec.healthCheckNodePort"
    if not needs_health_check(spec):
        if health:
            message = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
            errs.append(field.invalid(at, health, message))
    elif not 1 <= health <= 65535:
        errs.append(field.invalid(at, health, PORT_RANGE) if health else field.required(at))
    internal = spec.get("internalTrafficPolicy")
    at = "spec.internalTrafficPolicy"
    if internal is None:
        if spec.get("type") in ("NodePort", "LoadBalancer", "ClusterIP"):
            errs.append(field.required(at))
    elif internal not in TRAFFIC_POLICIES:
        errs.append(unsupported(at, internal, TRAFFIC_POLICIES))
    distribution = spec.get("trafficDistribution")
    if distribution is not None and distribution not in DISTRIBUTIONS:
        errs.append(unsupported("spec.trafficDistribution", distribution, DISTRIBUTIONS))
    return errs


def _load_balancer_class(spec: Spec, old: Spec | None) -> list[FieldError]:
    name, path = spec.get("loadBalancerClass"), "spec.loadBalancerClass"
    errs: list[FieldError] = []
    balanced = spec.get("type") == "LoadBalancer"
    if old is not None and balanced and old.get("type") == "LoadBalancer" and old.get("loadBalancerClass") != name:
        errs.append(field.invalid(path, name, SET_ONCE))
    if name is not None:
        if balanced:
            errs += [field.invalid(path, name, m) for m in names.is_qualified_name(name)]
        else:
            errs.append(field.forbidden(path, ONLY_LOAD_BALANCER))
    return errs


def service(obj: Spec, old: Spec | None = None) -> list[FieldError]:
    """``ValidateService``; addresses that ``old`` already has are tolerated."""
    meta, spec, before = obj["metadata"], obj.get("spec") or {}, (old or {}).get("spec") or {}
    annotations, ports = meta.get("annotations") or {}, spec.get("ports") or []
    errs: list[FieldError] = []
    # The metadata of an update was validated as such.
    if old is None:
        relaxed = features.DEFAULT.enabled("RelaxedServiceNameValidation")
        errs += object_meta(meta, True, names.dns_label if relaxed else names.dns1035_label)
    if CHECK.passes(spec) and _ANNOTATIONS.isdisjoint(annotations):
        return errs
    hints, mode = annotations.get(TOPOLOGY_HINTS), annotations.get(TOPOLOGY_MODE)
    if hints is not None and mode is not None and hints != mode:
        message = f"must match annotations[{TOPOLOGY_HINTS}] when both are specified"
        errs.append(field.invalid(f"metadata.annotations[{TOPOLOGY_MODE}]", mode, message))
    if not ports and not is_headless(spec) and spec.get("type") != "ExternalName":
        errs.append(field.required("spec.ports"))
    errs += _by_type(spec)
    seen: set[str] = set()
    for i, port in enumerate(ports):
        errs += _port(port, len(ports) > 1, seen, f"spec.ports[{i}]")
    errs += labels(spec.get("selector"), "spec.selector")
    errs += _affinity(spec)
    errs += cluster_ips(spec, before)
    known = frozenset(before.get("externalIPs") or ())
    for i, ip in enumerate(spec.get("externalIPs") or ()):
        at = f"spec.externalIPs[{i}]"
        errs += legacy_ip(at, ip, known) or non_special_ip(ip, at)
    kind = spec.get("type") or ""
    if kind not in TYPES:
        errs.append(unsupported("spec.type", kind, TYPES) if kind else field.required("spec.type"))
    if kind == "ClusterIP":
        for i, port in enumerate(ports):
            if port.get("nodePort"):
                errs.append(field.forbidden(f"spec.ports[{i}].nodePort", "may not be used when `type` is 'ClusterIP'"))
    errs += _duplicate_ports(ports)
    noted = (((old or {}).get("metadata") or {}).get("annotations") or {}).get(SOURCE_RANGES)
    errs += _source_ranges(spec, annotations, before, noted)
    allocate = spec.get("allocateLoadBalancerNodePorts")
    if allocate is not None and kind != "LoadBalancer":
        errs.append(field.forbidden("spec.allocateLoadBalancerNodePorts", ONLY_LOAD_BALANCER))
    if kind == "LoadBalancer" and allocate is None:
        errs.append(field.required("allocateLoadBalancerNodePorts"))
    return errs + _load_balancer_class(spec, None) + _traffic(spec)


def _released(shown: list[str] | None, old: list[str], ips: list[str] | None, policy: str | None, path: str, what: str) -> list[FieldError]:
    """Check that primary entries stay; a secondary one may be added, or removed if the policy is single-stack.

    Also for families, the cluster IPs determine whether the primary entry was released.
    """
    errs: list[FieldError] = []
    new = shown or []
    if len(old) == len(new):
        return [field.invalid(f"{path}[{i}]", new, SET_ONCE) for i, value in enumerate(old) if value != new[i]]
    if len(old) > len(new) and not ips:
        errs.append(field.invalid(f"{path}[0]", shown, f"primary {what} can not be unset"))
    if old and new and old[0] != new[0]:
        errs.append(field.invalid(f"{path}[0]", ips, SET_ONCE))
    if len(old) > len(new) == 1 and policy != "SingleStack":
        message = f"must be set to 'SingleStack' when releasing the secondary {what}"
        errs.append(field.invalid("spec.ipFamilyPolicy", policy, message))
    return errs


def service_update(obj: Spec, old: Spec) -> list[FieldError]:
    """``ValidateServiceUpdate``: restricted changes of addresses, families, class and health check port; then the whole new object."""
    new_spec, old_spec = obj.get("spec") or {}, old.get("spec") or {}
    errs = object_meta_update(obj["metadata"], old["metadata"])
    if "ExternalName" not in (new_spec.get("type"), old_spec.get("type")):
        now, was = is_headless(new_spec), is_headless(old_spec)
        ips, policy = new_spec.get("clusterIPs"), new_spec.get("ipFamilyPolicy")
        if not (now and was):
            errs += _released(ips, old_spec.get("clusterIPs") or [], ips, policy, "spec.clusterIPs", "clusterIP")
        if not now and not was:
            families, had = new_spec.get("ipFamilies") or [], old_spec.get("ipFamilies") or []
            if len(families) == len(had):
                errs += [field.invalid("spec.ipFamilies[0]", families, SET_ONCE) for a, b in zip(families, had, strict=True) if a != b]
            else:
                errs += _released(new_spec.get("ipFamilies"), had, ips, policy, "spec.ipFamilies", "ipFamily")
    errs += _load_balancer_class(new_spec, old_spec)
    if needs_health_check(old_spec) and needs_health_check(new_spec):
        if (new_spec.get("healthCheckNodePort") or 0) != (old_spec.get("healthCheckNodePort") or 0):
            errs.append(field.forbidden("spec.healthCheckNodePort", "field is immutable"))
    return errs + service(obj, old)


def load_balancer_status(status: Spec, old: Spec, spec: Spec) -> list[FieldError]:
    """``ValidateLoadBalancerStatus``: ingress points require a load balancer; addresses in ``old`` may keep their form."""
    entries = status.get("ingress") or []
    path = "status.loadBalancer.ingress"
    if entries and spec.get("type") != "LoadBalancer":
        return [field.forbidden(path, "may only be used when `spec.type` is 'LoadBalancer'")]
    known = frozenset(e.get("ip") or "" for e in old.get("ingress") or ())
    errs: list[FieldError] = []
    for i, entry in enumerate(entries):
        at, ip, mode, host = f"{path}[{i}]", entry.get("ip") or "", entry.get("ipMode"), entry.get("hostname") or ""
        if ip:
            errs += legacy_ip(f"{at}.ip", ip, known)
        if mode is None:
            if ip:
                errs.append(field.required(f"{at}.ipMode", "must be specified when `ip` is set"))
        elif not ip:
            errs.append(field.forbidden(f"{at}.ipMode", "may not be specified when `ip` is not set"))
        elif mode not in ("Proxy", "VIP"):
            errs.append(unsupported(f"{at}.ipMode", mode, ("Proxy", "VIP")))
        if host:
            errs += [field.invalid(f"{at}.hostname", host, m) for m in names.is_dns1123_subdomain(host)]
            if parse_ip(host) is not None:
                errs.append(field.invalid(f"{at}.hostname", host, "must be a DNS name, not an IP address"))
    return errs
