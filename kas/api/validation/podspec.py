"""Pod specs and pod templates (``pkg/apis/core/validation`` ``ValidatePodSpec``, ``ValidatePodTemplateSpec``).

``spec`` checks what pods and templates share; ``template`` is what workloads call; the rules of whole pods are in
``pods.py``. Absent keys are Go's nil or zero values: defaulting has run before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kas._fast_pods import usual_containers, usual_tolerations, usual_volumes
from kas.api import field
from kas.api.field import FieldError
from kas.api.gostruct import render
from kas.api.validation import metadata, names, scheduling, security
from kas.api.validation.checks import legacy_ip, unsupported
from kas.api.validation.containers import PodFacts, ephemeral_containers, init_containers, regular_containers
from kas.api.validation.labelselectors import labels
from kas.api.validation.resources import amount, container_requirements, pod_requirements
from kas.api.validation.volumes import volumes

Spec = Mapping[str, Any]
MAX_INT32 = 2147483647
RESTART_POLICIES = ("Always", "OnFailure", "Never")
DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
MIRROR = "kubernetes.io/config.mirror"


@dataclass(slots=True, frozen=True)
class Options:
    """Leniency towards what is already stored, and whether this is a pod or the template of one."""

    is_pod: bool = False
    allow_invalid_deletion_cost: bool = False
    allow_invalid_affinity_values: bool = False
    allow_invalid_node_values: bool = False
    allow_invalid_spread_selector: bool = False
    allow_host_sysctls: bool = False
    old_ips: frozenset[str] = frozenset()


DEFAULT = Options()
FOR_PODS = Options(is_pod=True)
# Where leniency may be due; most specs have none of it.
_LENIENT = frozenset(("affinity", "topologySpreadConstraints", "dnsConfig", "hostAliases"))
_NO_CLAIMS: frozenset[str] = frozenset()


def options_for_template(old: Spec | None) -> Options:
    """``options_for`` the pod template of a stored workload."""
    return options_for((old or {}).get("spec") or {}, (old or {}).get("metadata"))


def options_for(old_spec: Spec | None, old_meta: Spec | None, is_pod: bool = False) -> Options:
    """``GetValidationOptionsFromPodSpecAndMeta``: what the stored object already does wrong stays allowed."""
    if old_spec is None:
        return FOR_PODS if is_pod else DEFAULT
    annotations = (old_meta or {}).get("annotations") or {}
    if _LENIENT.isdisjoint(old_spec) and DELETION_COST not in annotations and not (old_spec.get("securityContext") or {}).get("sysctls"):
        return FOR_PODS if is_pod else DEFAULT
    affinity = old_spec.get("affinity") or {}
    bad_affinity = any(
        scheduling._pod_affinity(affinity.get(k) or {}, False, "")
        and not scheduling._pod_affinity(affinity.get(k) or {}, True, "")
        for k in ("podAffinity", "podAntiAffinity")
    )
    node = (affinity.get("nodeAffinity") or {}).get(scheduling.REQUIRED)
    bad_node = bool(node and scheduling.node_selector(node, False, "") and not scheduling.node_selector(node, True, ""))
    spread = old_spec.get("topologySpreadConstraints") or []
    bad_spread = any("labelSelector" in e.field for e in scheduling.topology_spread(spread, ""))
    host_sysctls = bool((old_spec.get("securityContext") or {}).get("sysctls")) and bool(
        old_spec.get("hostNetwork") or old_spec.get("hostIPC")
    )
    ips = set((old_spec.get("dnsConfig") or {}).get("nameservers") or ())
    ips.update(alias.get("ip") or "" for alias in old_spec.get("hostAliases") or ())
    return Options(
        is_pod, bool(_deletion_cost(annotations, "")), bad_affinity, bad_node, bad_spread, host_sysctls, frozenset(ips)
    )


# -- annotations -------------------------------------------------------------------------------------------------------


def _deletion_cost(annotations: Mapping[str, str], path: str) -> list[FieldError]:
    text = annotations.get(DELETION_COST)
    if text is None:
        return []
    digits = text[1:] if text[:1] in "+-" else text
    # Neither a leading plus nor leading zeros: the value round-trips as text.
    plain = digits.isascii() and digits.isdigit() and text[:1] != "+" and (digits == "0" or digits[0] != "0") and text != "-0"
    if plain and -(1 << 31) <= int(text) < 1 << 31:
        return []
    return [field.invalid(f"{path}[{DELETION_COST}]", text, "must be a 32bit integer")]


def specific_annotations(annotations: Mapping[str, str] | None, spec: Spec, path: str, options: Options) -> list[FieldError]:
    if not annotations:
        return []
    errs: list[FieldError] = []
    if MIRROR in annotations and not spec.get("nodeName"):
        message = "must set spec.nodeName if mirror pod annotation is set"
        errs.append(field.invalid(f"{path}[{MIRROR}]", annotations[MIRROR], message))
    if not options.allow_invalid_deletion_cost:
        errs += _deletion_cost(annotations, path)
    return errs + security.pod_annotations(annotations, spec, path)


# -- parts -------------------------------------------------------------------------------------------------------------


def _resource_claims(claims: list[dict[str, Any]], path: str) -> list[FieldError]:
    errs: list[FieldError] = []
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
            errs.append(field.invalid(at, render("PodResourceClaim", claim), message))
        if by_name is None and by_template is None:
            message = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            errs.append(field.invalid(at, render("PodResourceClaim", claim), message))
        for key, value in (("resourceClaimName", by_name), ("resourceClaimTemplateName", by_template)):
            if value is not None:
                errs += [field.invalid(f"{at}.{key}", value, m) for m in names.is_dns1123_subdomain(value)]
    return errs


def _pod_resources(spec: Spec, claims: frozenset[str], path: str) -> list[FieldError]:
    resources = spec["resources"]
    errs: list[FieldError] = []
    if resources.get("claims") is not None:
        errs.append(field.forbidden(f"{path}.claims", "claims cannot be set for Resources at pod-level"))
    errs += pod_requirements(resources, claims, path)
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    totals = aggregate_requests(spec)
    for name in sorted(totals):
        given = requests.get(name, "0")
        if totals[name] > amount(given):
            message = f"must be greater than or equal to aggregate container requests of {format_amount(totals[name], name)}"
            errs.append(field.invalid(f"{path}.requests[{name}]", given, message))
    for i, container in enumerate(spec.get("containers") or ()):
        for name, limit in ((container.get("resources") or {}).get("limits") or {}).items():
            if name in limits and amount(limit) > amount(limits[name]):
                at = f"{path}.containers[{i}][{name}].limits"
                errs.append(field.invalid(at, limit, f"must be less than or equal to pod limits of {limits[name]}"))
    return errs


def aggregate_requests(spec: Spec, kind: str = "requests") -> dict[str, int]:
    """``resourcehelper.AggregateContainerRequests``: the pod's need in billionths, init containers included."""
    total: dict[str, int] = {}
    for container in spec.get("containers") or ():
        for name, quantity in ((container.get("resources") or {}).get(kind) or {}).items():
            total[name] = total.get(name, 0) + amount(quantity)
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        own = {n: amount(q) for n, q in ((container.get("resources") or {}).get(kind) or {}).items()}
        if container.get("restartPolicy") == "Always":
            for name, n in own.items():
                total[name] = total.get(name, 0) + n
                sidecars[name] = sidecars.get(name, 0) + n
            own = dict(sidecars)
        else:
            own = {name: own.get(name, 0) + sidecars.get(name, 0) for name in own.keys() | sidecars.keys()}
        for name, n in own.items():
            peak[name] = max(peak.get(name, 0), n)
    for name, n in peak.items():
        total[name] = max(total.get(name, 0), n)
    return total


def format_amount(nano: int, name: str = "") -> str:
    """A canonical quantity of that many billionths: binary suffixes for memory-like resources, decimal otherwise."""
    unit = 10**9
    if nano % unit:
        for suffix, scale in (("m", 10**6), ("u", 10**3), ("n", 1)):
            if nano % scale == 0:
                return f"{nano // scale}{suffix}"
    whole = nano // unit
    binary = name in ("memory", "ephemeral-storage", "storage") or name.startswith("hugepages-")
    suffixes = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei") if binary else ("k", "M", "G", "T", "P", "E")
    step, best = (1024 if binary else 1000), ""
    for suffix in suffixes:
        if whole == 0 or whole % step:
            break
        whole, best = whole // step, suffix
    return f"{whole}{best}"


def _host_ports(spec: Spec, path: str, options: Options) -> list[FieldError]:
    errs: list[FieldError] = []
    for i, container in enumerate(spec.get("containers") or ()):
        for j, port in enumerate(container.get("ports") or ()):
            host = port.get("hostPort") or 0
            if (options.is_pod or host) and host != (port.get("containerPort") or 0):
                at = f"{path}.containers[{i}].ports[{j}].hostPort"
                errs.append(field.invalid(at, host, "must match `containerPort` when `hostNetwork` is true"))
    return errs


def _dns_config(spec: Spec, path: str, options: Options) -> list[FieldError]:
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
        errs += legacy_ip(f"{path}.nameservers[{i}]", server, tuple(options.old_ips))
    if len(searches) > 32:
        errs.append(field.invalid(f"{path}.searches", searches, "must not have more than 32 search paths"))
    if len(" ".join(searches)) > 2048:
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


def _host_aliases(items: list[dict[str, Any]], path: str, options: Options) -> list[FieldError]:
    errs: list[FieldError] = []
    for i, alias in enumerate(items):
        errs += legacy_ip(f"{path}[{i}].ip", alias.get("ip") or "", tuple(options.old_ips))
        for j, name in enumerate(alias.get("hostnames") or ()):
            errs += [field.invalid(f"{path}[{i}].hostnames[{j}]", name, m) for m in names.is_dns1123_subdomain(name)]
    return errs


def _hostname_override(spec: Spec, path: str) -> list[FieldError]:
    name = spec["hostnameOverride"]
    errs = [field.invalid(f"{path}.hostnameOverride", name, m) for m in names.is_dns1123_subdomain(name)]
    if len(name) > 64:
        errs.append(field.too_long(f"{path}.hostnameOverride", 64))
    if spec.get("setHostnameAsFQDN"):
        message = "must be false when `hostnameOverride` is set"
        errs.append(field.invalid(f"{path}.setHostnameAsFQDN", True, message))
    if spec.get("hostNetwork"):
        errs.append(field.forbidden(f"{path}.hostnameOverride", "may not be specified when hostNetwork is true"))
    return errs


# -- the whole ---------------------------------------------------------------------------------------------------------


def is_usual(pod: Spec) -> bool:
    """Whether a quick look says that nothing is wrong with containers and volumes, nor to be warned of."""
    items = pod.get("volumes")
    if items and not usual_volumes(items):
        return False
    return usual_containers(pod.get("containers"), pod.get("initContainers"), {v["name"]: v for v in items or ()})


def spec(pod: Spec, pod_name: str, path: str, options: Options = DEFAULT, usual: bool | None = None) -> list[FieldError]:
    """``pod_name`` is "" in templates; ``usual`` is what ``is_usual`` says when it has been asked before."""
    get = pod.get
    regular, init = get("containers") or [], get("initContainers") or []
    restart = get("restartPolicy") or ""
    errs: list[FieldError] = []
    if get("terminationGracePeriodSeconds") is None:
        errs.append(field.required(f"{path}.terminationGracePeriodSeconds"))
    if usual is None:
        usual = is_usual(pod)
    items, claims = get("volumes") or [], _NO_CLAIMS
    if usual:
        valid_volumes = {volume["name"]: volume for volume in items}
    else:
        valid_volumes, found = volumes(items, pod_name, options.is_pod, f"{path}.volumes")
        errs += found
    if get("resourceClaims"):
        claims = frozenset(c["name"] for c in pod["resourceClaims"] if c.get("name"))
        errs += _resource_claims(pod["resourceClaims"], f"{path}.resourceClaims")
    if not usual or get("ephemeralContainers"):
        facts = PodFacts(
            valid_volumes, claims, get("terminationGracePeriodSeconds") or 0, restart, get("hostUsers") is not False,
            (get("os") or {}).get("name"),
        )  # fmt: skip
        if not usual:
            errs += regular_containers(regular, facts, f"{path}.containers")
            if init:
                errs += init_containers(init, regular, facts, f"{path}.initContainers")
        if get("ephemeralContainers"):
            errs += ephemeral_containers(pod["ephemeralContainers"], regular + init, facts, f"{path}.ephemeralContainers")
    if get("resources") is not None:
        errs += _pod_resources(pod, claims, f"{path}.resources")
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
    if get("securityContext"):
        errs += security.pod_security(pod, f"{path}.securityContext", options.allow_host_sysctls)
    elif get("shareProcessNamespace") and get("hostPID"):
        errs += security.pod_security(pod, f"{path}.securityContext")
    if get("affinity") is not None:
        allow = options.allow_invalid_affinity_values
        errs += scheduling.affinity(pod["affinity"], allow, options.allow_invalid_node_values, f"{path}.affinity")
    if get("dnsConfig") is not None or get("dnsPolicy") == "None":
        errs += _dns_config(pod, f"{path}.dnsConfig", options)
    if get("readinessGates") or get("schedulingGates"):
        errs += _gates(pod, path)
    if get("topologySpreadConstraints"):
        at, allow = f"{path}.topologySpreadConstraints", options.allow_invalid_spread_selector
        errs += scheduling.topology_spread(pod["topologySpreadConstraints"], at, allow)
    errs += security.windows_host_process(pod, path)
    if get("hostUsers") is False:
        errs += security.host_users(pod, path)
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
    if get("tolerations") and not usual_tolerations(pod["tolerations"]):
        errs += scheduling.tolerations(pod["tolerations"], f"{path}.tolerations")
    if get("hostAliases"):
        errs += _host_aliases(pod["hostAliases"], f"{path}.hostAliases", options)
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
        errs += container_requirements({"limits": pod["overhead"]}, frozenset(), f"{path}.overhead")
    if get("os") is not None:
        errs += security.os_rules(pod, path)
    if get("hostnameOverride") is not None:
        errs += _hostname_override(pod, path)
    return errs


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
