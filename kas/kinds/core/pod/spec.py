"""Validation of pod specs and pod templates (``pkg/apis/core/validation`` ``ValidatePodSpec``, ``ValidatePodTemplateSpec``).

``spec`` validates what pods and templates share; workloads call ``template``; the rules of whole pods are in ``validation.py``. Absent keys
are Go's nil or zero values, as defaults have been applied.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kas.config import capabilities
from kas.kinds.core.pod import scheduling, security
from kas.kinds.core.pod.checks import PARTS, REST
from kas.kinds.core.pod.containers import PodFacts, ephemeral_containers, init_containers, regular_containers, volumes_of_files
from kas.kinds.core.pod.options import DEFAULT, DELETION_COST, Options, deletion_cost
from kas.kinds.core.pod.volumes import volumes
from kas.kinds.core.resources import NO_CLAIMS, ClaimNames, aggregate, amount, container_requirements, is_hugepages, pod_requirements
from kas.meta import field, gojson, names, quantity
from kas.meta import objectmeta as metadata
from kas.meta.checks import legacy_ip, unsupported
from kas.meta.field import FieldError
from kas.meta.labelselectors import labels
from kas.types.gostruct import render

Spec = Mapping[str, Any]
MAX_INT32 = 2147483647
RESTART_POLICIES = ("Always", "OnFailure", "Never")
DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
MIRROR = "kubernetes.io/config.mirror"
TOLERATIONS = "scheduler.alpha.kubernetes.io/tolerations"
_TOLERATION = {
    "Key": "string", "Operator": "core.TolerationOperator", "Value": "string", "Effect": "core.TaintEffect", "TolerationSeconds": "int64"
}




# -- annotations -------------------------------------------------------------------------------------------------------


def _annotated_tolerations(text: str, path: str, comparing: bool) -> list[FieldError]:
    """Validate an annotation that nothing reads any more: it must be JSON of tolerations."""
    try:
        items = gojson.structs(text, "core.Toleration", _TOLERATION)
    except gojson.JSONError as err:
        return [field.invalid(path, TOLERATIONS, str(err))]
    return scheduling.tolerations(items, f"{path}.{TOLERATIONS}", comparing)


def specific_annotations(annotations: Mapping[str, str] | None, spec: Spec, path: str, options: Options) -> list[FieldError]:
    """``ValidatePodSpecificAnnotations``; ``path`` is that of the annotations.

    Mirror pods have a node, alpha tolerations follow the rules of the spec's, the deletion cost is a 32-bit integer unless the stored one
    is not, and legacy profiles are known.
    """
    if not annotations:
        return []
    errs: list[FieldError] = []
    if MIRROR in annotations and not spec.get("nodeName"):
        message = "must set spec.nodeName if mirror pod annotation is set"
        errs.append(field.invalid(f"{path}[{MIRROR}]", annotations[MIRROR], message))
    if annotations.get(TOLERATIONS):
        errs += _annotated_tolerations(annotations[TOLERATIONS], path, scheduling.compares(spec))
    if DELETION_COST in annotations:
        found = deletion_cost(annotations, path)
        if found and not options.deletion_cost:
            errs += found
    return errs + security.pod_annotations(annotations, spec, path)


# -- parts -------------------------------------------------------------------------------------------------------------


def _resource_claims(claims: list[dict[str, Any]], path: str, mirror: bool) -> list[FieldError]:
    errs: list[FieldError] = []
    if mirror:
        return [field.forbidden(field.ROOT, "static pods do not support resource claims") for _ in claims]
    seen: set[str] = set()
    for i, claim in enumerate(claims):
        at, name = f"{path}[{i}]", claim.get("name") or ""
        by_name, by_template = claim.get("resourceClaimName"), claim.get("resourceClaimTemplateName")
        if not name:
            errs.append(field.required(f"{at}.name"))
        elif name in seen:
            errs.append(field.duplicate(f"{at}.name", name))
        else:
            errs += [field.invalid(f"{at}.name", name, m) for m in names.is_dns1123_label(name)]
            seen.add(name)
        if by_name is not None and by_template is not None:
            message = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            errs.append(field.invalid(at, render("core.PodResourceClaim", claim), message))
        if by_name is None and by_template is None:
            message = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            errs.append(field.invalid(at, render("core.PodResourceClaim", claim), message))
        for key, value in (("resourceClaimName", by_name), ("resourceClaimTemplateName", by_template)):
            if value is not None:
                errs += [field.invalid(f"{at}.{key}", value, m) for m in names.is_dns1123_subdomain(value)]
    return errs


def _pod_resources(spec: Spec, claims: ClaimNames, path: str, options: Options) -> list[FieldError]:
    resources = spec["resources"]
    if (spec.get("os") or {}).get("name") == "windows":
        return [field.forbidden(path, "may not be set for a windows pod")]
    errs: list[FieldError] = []
    if resources.get("claims") is not None:
        errs.append(field.forbidden(f"{path}.claims", "claims may not be set for Resources at pod-level"))
    errs += pod_requirements(resources, claims, path, options)
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    for kind, given in (("requests", requests), ("limits", limits)):
        totals = aggregate(spec, kind)
        for name in sorted(totals.keys() & given.keys()):
            if totals[name] > quantity.parse(given[name]) and (kind == "requests" or is_hugepages(name)):
                message = f"must be greater than or equal to aggregate container {kind} of {totals[name]}"
                errs.append(field.invalid(f"{path}.{kind}[{name}]", given[name], message))
    for i, container in enumerate(spec.get("containers") or ()):
        for name, limit in ((container.get("resources") or {}).get("limits") or {}).items():
            if name in limits and amount(limit) > amount(limits[name]):
                at = f"{path}.containers[{i}][{name}].limits"
                errs.append(field.invalid(at, limit, f"must be less than or equal to pod limits of {limits[name]}"))
    return errs


def _host_ports(spec: Spec, path: str, options: Options) -> list[FieldError]:
    errs: list[FieldError] = []
    for i, container in enumerate(spec.get("containers") or ()):
        for j, port in enumerate(container.get("ports") or ()):
            host = port.get("hostPort") or 0
            if (options.is_pod or host) and host != (port.get("containerPort") or 0):
                at = f"{path}.containers[{i}].ports[{j}].hostPort"
                errs.append(field.invalid(at, host, "must match `containerPort` when `hostNetwork` is true"))
    return errs


def _dns_config(spec: Spec, path: str) -> list[FieldError]:
    config = spec.get("dnsConfig")
    if spec.get("dnsPolicy") == "None":
        if config is None:
            return [field.required(path, "must provide `dnsConfig` when `dnsPolicy` is None")]
        if not config.get("nameservers"):
            message = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            return [field.required(f"{path}.nameservers", message)]
    if config is None:
        return []
    errs: list[FieldError] = []
    servers, searches = config.get("nameservers") or [], config.get("searches") or []
    if len(servers) > 3:
        errs.append(field.invalid(f"{path}.nameservers", servers, "must not have more than 3 nameservers"))
    for i, server in enumerate(servers):
        errs += legacy_ip(f"{path}.nameservers[{i}]", server)
    if len(searches) > 32:
        errs.append(field.invalid(f"{path}.searches", searches, "must not have more than 32 search paths"))
    if names.byte_length(" ".join(searches)) > 2048:
        message = "must not have more than 2048 characters (including spaces) in the search list"
        errs.append(field.invalid(f"{path}.searches", searches, message))
    for i, search in enumerate(searches):
        if search != ".":
            bare = search.removesuffix(".")
            messages = names.is_dns1123_subdomain_with_underscore(bare)
            errs += [field.invalid(f"{path}.searches[{i}]", bare, m) for m in messages]
    for i, option in enumerate(config.get("options") or ()):
        if not option.get("name"):
            errs.append(field.required(f"{path}.options[{i}]", "must not be empty"))
    return errs


def _gates(spec: Spec, path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    for i, gate in enumerate(spec.get("readinessGates") or ()):
        kind = gate.get("conditionType") or ""
        at = f"{path}.readinessGates[{i}].conditionType"
        errs += [field.invalid(at, kind, m) for m in names.is_qualified_name(kind)]
    seen: set[str] = set()
    for i, gate in enumerate(spec.get("schedulingGates") or ()):
        at, name = f"{path}.schedulingGates[{i}]", gate.get("name") or ""
        errs += [field.invalid(at, name, m) for m in names.is_qualified_name(name)]
        if name in seen:
            errs.append(field.duplicate(at, name))
        seen.add(name)
    return errs


def _host_aliases(items: list[dict[str, Any]], path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    for i, alias in enumerate(items):
        errs += legacy_ip(f"{path}[{i}].ip", alias.get("ip") or "")
        for j, name in enumerate(alias.get("hostnames") or ()):
            errs += [field.invalid(f"{path}[{i}].hostnames[{j}]", name, m) for m in names.is_dns1123_subdomain(name)]
    return errs


def _hostname_override(spec: Spec, path: str) -> list[FieldError]:
    name, at = spec["hostnameOverride"], f"{path}.hostnameOverride"
    others = ("setHostnameAsFQDN", "hostNetwork")
    errs = [field.forbidden(at, f"may not be specified when {other} is true") for other in others if spec.get(other)]
    if names.byte_length(name) > 64:
        errs.append(field.too_long(at, 64))
    return errs + [field.invalid(at, name, m) for m in names.is_dns1123_subdomain(name)]


# -- the whole ---------------------------------------------------------------------------------------------------------


def passes_checks(pod: Spec) -> bool:
    """The fast path of validation: whether containers and volumes certainly have no errors and no warnings."""
    return capabilities.CURRENT.allow_privileged and PARTS.passes(pod)


def spec(
    pod: Spec, pod_name: str, path: str, options: Options = DEFAULT, passed: bool | None = None, mirror: bool = False
) -> list[FieldError]:
    """``ValidatePodSpec``.

    ``pod_name`` is "" in templates; ``passed`` is the result of ``passes_checks`` if known; ``mirror``: the spec is a static pod's.
    """
    if passed is None:
        passed = passes_checks(pod)
    if passed and REST.passes(pod):
        return []
    get = pod.get
    regular, init = get("containers") or [], get("initContainers") or []
    restart = get("restartPolicy") or ""
    errs: list[FieldError] = []
    if get("terminationGracePeriodSeconds") is None:
        errs.append(field.required(f"{path}.terminationGracePeriodSeconds"))
    items, claims = get("volumes") or [], NO_CLAIMS
    if passed:
        valid_volumes = {volume["name"]: volume for volume in items}
    else:
        valid_volumes, found = volumes(items, pod_name, options, f"{path}.volumes")
        errs += found
    if get("resourceClaims"):
        claims = ClaimNames(c["name"] for c in pod["resourceClaims"] if c.get("name"))
        errs += _resource_claims(pod["resourceClaims"], f"{path}.resourceClaims", mirror)
    if not passed or get("ephemeralContainers"):
        facts = PodFacts(
            valid_volumes, claims, get("terminationGracePeriodSeconds") or 0, restart, get("hostUsers") is not False,
            None if get("os") is None else pod["os"].get("name") or "", options,
        )  # fmt: skip
        if not passed:
            errs += regular_containers(regular, facts, f"{path}.containers")
            if init:
                errs += init_containers(init, regular, facts, f"{path}.initContainers")
        if get("ephemeralContainers"):
            errs += ephemeral_containers(pod["ephemeralContainers"], regular + init, facts, f"{path}.ephemeralContainers")
    if get("resources") is not None:
        errs += _pod_resources(pod, claims, f"{path}.resources", options)
    if get("hostNetwork"):
        errs += _host_ports(pod, path, options)
    if restart not in RESTART_POLICIES:
        at = f"{path}.restartPolicy"
        errs.append(unsupported(at, restart, RESTART_POLICIES) if restart else field.required(at))
    if get("dnsPolicy") not in DNS_POLICIES:
        at = f"{path}.dnsPolicy"
        errs.append(unsupported(at, pod["dnsPolicy"], DNS_POLICIES) if get("dnsPolicy") else field.required(at))
    if get("nodeSelector"):
        errs += labels(pod["nodeSelector"], f"{path}.nodeSelector")
    if get("securityContext") or (get("shareProcessNamespace") and get("hostPID")):
        errs += security.pod_security(pod, f"{path}.securityContext", options)
    if get("affinity") is not None:
        errs += scheduling.affinity(pod["affinity"], options, f"{path}.affinity")
    if get("dnsConfig") is not None or get("dnsPolicy") == "None":
        errs += _dns_config(pod, f"{path}.dnsConfig")
    if get("readinessGates") or get("schedulingGates"):
        errs += _gates(pod, path)
    if get("topologySpreadConstraints"):
        errs += scheduling.topology_spread(pod["topologySpreadConstraints"], f"{path}.topologySpreadConstraints", options)
    errs += security.windows_host_process(pod, path)
    errs += _names_and_limits(pod, path, options)
    if not passed or get("ephemeralContainers"):
        errs += volumes_of_files(pod, path)
    return errs


def _names_and_limits(pod: Spec, path: str, options: Options) -> list[FieldError]:
    """Validate the second half of ``ValidatePodSpec``: independent fields, in upstream's order."""
    get = pod.get
    errs: list[FieldError] = []
    if get("hostUsers") is False:
        errs += security.host_users(pod, path, options)
    if get("hostnameOverride") is not None:
        errs += _hostname_override(pod, path)
    for key in ("serviceAccountName", "nodeName"):
        if get(key):
            errs += [field.invalid(f"{path}.{key}", pod[key], m) for m in names.is_dns1123_subdomain(pod[key])]
    deadline = get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= MAX_INT32:
        at = f"{path}.activeDeadlineSeconds"
        errs.append(field.invalid(at, deadline, f"must be between 1 and {MAX_INT32}, inclusive"))
    for key in ("hostname", "subdomain"):
        if get(key):
            errs += [field.invalid(f"{path}.{key}", pod[key], m) for m in names.is_dns1123_label(pod[key])]
    if get("tolerations"):
        errs += scheduling.tolerations(pod["tolerations"], f"{path}.tolerations", options.comparing_tolerations)
    if get("hostAliases"):
        errs += _host_aliases(pod["hostAliases"], f"{path}.hostAliases")
    if get("priorityClassName"):
        name = pod["priorityClassName"]
        errs += [field.invalid(f"{path}.priorityClassName", name, m) for m in names.is_dns1123_subdomain(name)]
    if get("runtimeClassName") is not None:
        name = pod["runtimeClassName"]
        errs += [field.invalid(f"{path}.runtimeClassName", name, m) for m in names.is_dns1123_subdomain(name)]
    preemption = get("preemptionPolicy")
    if preemption is not None and preemption not in ("PreemptLowerPriority", "Never"):
        at = f"{path}.preemptionPolicy"
        valid = ("PreemptLowerPriority", "Never")
        errs.append(unsupported(at, preemption, valid) if preemption else field.required(at))
    if get("overhead"):
        errs += container_requirements({"limits": pod["overhead"]}, NO_CLAIMS, f"{path}.overhead", options)
    if get("os") is not None:
        errs += security.os_rules(pod, path)
    if get("schedulingGroup") is not None:
        errs += _scheduling_group(pod["schedulingGroup"], f"{path}.schedulingGroup.podGroupName")
    return errs


def _scheduling_group(group: Spec, path: str) -> list[FieldError]:
    name = group.get("podGroupName")
    if name is None:
        return [field.invalid(path, None, "must specify one of: `podGroupName`")]
    return [field.invalid(path, name, m) for m in names.is_dns1123_subdomain(name)]


def template(item: Spec, path: str, options: Options = DEFAULT) -> list[FieldError]:
    """``ValidatePodTemplateSpec``."""
    meta, pod = item.get("metadata") or {}, item.get("spec") or {}
    annotations = meta.get("annotations")
    errs = labels(meta.get("labels"), f"{path}.labels")
    if annotations:
        errs += metadata.validate_annotations(annotations, f"{path}.annotations")
        errs += specific_annotations(annotations, pod, f"{path}.annotations", options)
    errs += spec(pod, "", f"{path}.spec", options)
    if annotations:
        errs += security.annotations_match_fields(annotations, pod, f"{path}.spec")
    if pod.get("ephemeralContainers"):
        message = "ephemeral containers not allowed in pod template"
        errs.append(field.forbidden(f"{path}.spec.ephemeralContainers", message))
    return errs
