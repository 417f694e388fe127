"""Validation of whole pods: creation, updates of the pod and of its subresources (``pkg/apis/core/validation``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kas.config import features
from kas.kinds.core.objectmeta import object_meta, object_meta_update
from kas.kinds.core.pod import security
from kas.kinds.core.pod.options import Options
from kas.kinds.core.pod.scheduling import REQUIRED, tolerations
from kas.kinds.core.pod.spec import MAX_INT32, MIRROR, passes_checks, spec, specific_annotations
from kas.kinds.core.resources import amount, is_native
from kas.meta import cached, field, names
from kas.meta.checks import legacy_ip, unsupported
from kas.meta.equality import semantic_equal
from kas.meta.field import FieldError
from kas.meta.ip import parse_ip
from kas.types.gostruct import render, render_list, sorted_map, spec_diff
from kas.types.scheme import builtin_field, builtin_type

Pod = Mapping[str, Any]
UPDATABLE = (
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
    "`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
APPARMOR_PREFIX = security.APPARMOR
MAX_HEALTH_MESSAGE = 1024
MAX_IMAGE_REF = 256
DIGESTS = "ImageVolumeWithDigest"
POD_RESIZE = "InPlacePodLevelResourcesVerticalScaling"
# The statuses of containers, and the part of the spec that has these containers; ephemeral ones never restart.
STATUSES = {"containerStatuses": "containers", "initContainerStatuses": "initContainers", "ephemeralContainerStatuses": ""}


def metadata_and_spec(pod: Pod, options: Options, passed: bool | None = None) -> list[FieldError]:
    """``validatePodMetadataAndSpec``: the rules of creation and of every change of the spec; ``passed`` is the result of
    ``passes_checks`` for its spec if known.
    """
    meta, body = pod["metadata"], pod.get("spec") or {}
    if passed is None:
        passed = passes_checks(body)
    errs = object_meta(meta, True, names.dns_subdomain)
    errs += specific_annotations(meta.get("annotations"), body, "metadata.annotations", options)
    errs += spec(body, meta.get("name") or "", "spec", options, passed, MIRROR in (meta.get("annotations") or ()))
    if not body.get("serviceAccountName"):
        for i, volume in enumerate(body.get("volumes") or ()):
            for j, source in enumerate((volume.get("projected") or {}).get("sources") or ()):
                if source.get("serviceAccountToken") is not None:
                    at = f"spec.volumes[{i}].projected.sources[{j}].serviceAccountToken"
                    errs.append(field.forbidden(at, "must not be specified when serviceAccountName is not set"))
    for kind in ("containers", "initContainers") if not passed else ():
        for i, container in enumerate(body.get(kind) or ()):
            image = container.get("image") or ""
            if image != image.strip():
                message = "must not have leading or trailing whitespace"
                errs.append(field.invalid(f"spec.{kind}[{i}].image", image, message))
    return errs


def create(pod: Pod, options: Options, passed: bool | None = None) -> list[FieldError]:
    """``ValidatePodCreate``: ``metadata_and_spec``, no ephemeral containers, no node while gated, and legacy annotations that equal their
    fields; ``passed`` as there.
    """
    errs = metadata_and_spec(pod, options, passed)
    body = pod.get("spec") or {}
    if body.get("ephemeralContainers"):
        errs.append(field.forbidden("spec.ephemeralContainers", "cannot be set on create"))
    if body.get("nodeName") and body.get("schedulingGates"):
        errs.append(field.forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared"))
    return errs + security.annotations_match_fields(pod["metadata"].get("annotations") or {}, body, "spec")


# -- updates -----------------------------------------------------------------------------------------------------------


def _annotation_changes(pod: Pod, old: Pod, options: Options) -> list[FieldError]:
    path = "metadata.annotations"
    new_map, old_map = pod["metadata"].get("annotations") or {}, old["metadata"].get("annotations") or {}
    errs: list[FieldError] = []
    if new_map == old_map:
        return specific_annotations(new_map, pod.get("spec") or {}, path, options)
    for key in sorted(old_map):
        if new_map.get(key) == old_map[key]:
            continue
        if key.startswith(APPARMOR_PREFIX):
            errs.append(field.forbidden(f"{path}[{key}]", "may not remove or update AppArmor annotations"))
        if key == MIRROR:
            errs.append(field.forbidden(f"{path}[{key}]", "may not remove or update mirror pod annotation"))
    for key in sorted(new_map.keys() - old_map.keys()):
        if key.startswith(APPARMOR_PREFIX):
            errs.append(field.forbidden(f"{path}[{key}]", "may not add AppArmor annotations"))
        if key == MIRROR:
            errs.append(field.forbidden(f"{path}[{key}]", "may not add mirror pod annotation"))
    return errs + specific_annotations(new_map, pod.get("spec") or {}, path, options)


def _container_changes(new: list[dict], old: list[dict], path: str) -> tuple[list[FieldError], bool]:
    if len(new) != len(old):
        return [field.forbidden(path, "pod updates may not add or remove containers")], True
    errs: list[FieldError] = []
    for i, container in enumerate(new):
        image = container.get("image") or ""
        if not image:
            errs.append(field.required(f"{path}[{i}].image"))
        if image != image.strip():
            errs.append(field.invalid(f"{path}[{i}].image", image, "must not have leading or trailing whitespace"))
    return errs, False


def _tolerated(item: dict) -> tuple[Any, ...]:
    """Return a toleration without its duration, as a key."""
    return tuple(item.get(name) or "" for name in ("key", "operator", "value", "effect"))


def _added_tolerations(new: list[dict], old: list[dict], path: str, options: Options) -> list[FieldError]:
    left = {_tolerated(item) for item in new}
    for item in old:
        if _tolerated(item) not in left:
            return [field.forbidden(path, "existing toleration can not be modified except its tolerationSeconds")]
    return tolerations(new, path, options.comparing_tolerations)


def _deleted_gates(new: list[dict], old: list[dict], path: str) -> list[FieldError]:
    had = {gate.get("name") or "" for gate in old}
    added = {gate.get("name") or "": i for i, gate in enumerate(new)}
    why = "only deletion is allowed, but found new scheduling gate"
    return [field.forbidden(f"{path}[{i}].name", f"{why} '{name}'") for name, i in added.items() if name not in had]


def _narrowed_node_selector(new: Mapping[str, str], old: Mapping[str, str], path: str) -> list[FieldError]:
    if any(new.get(key) != value for key, value in old.items()):
        message = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        return [field.invalid(path, sorted_map(new), message)]
    return []


def _only_additions(new: Pod, old: Pod) -> bool:
    if not old.get("matchExpressions") and not old.get("matchFields"):
        return not (new.get("matchExpressions") or new.get("matchFields"))
    for key in ("matchExpressions", "matchFields"):
        had = old.get(key) or []
        if had and not semantic_equal((new.get(key) or [])[: len(had)], had, builtin_field("core.v1.NodeSelectorTerm", key)):
            return False
    return True


def _narrowed_node_affinity(new: Pod | None, old: Pod | None, path: str) -> list[FieldError]:
    if not old or old.get(REQUIRED) is None:
        return []
    old_terms = old[REQUIRED].get("nodeSelectorTerms") or []
    given = ((new or {}).get(REQUIRED) or {}).get("nodeSelectorTerms")
    new_terms = given or []
    at = f"{path}.{REQUIRED}.nodeSelectorTerms"
    if old_terms and len(old_terms) != len(new_terms):
        message = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        return [field.invalid(at, render_list("core.NodeSelectorTerm", given), message)]
    errs = []
    for i, term in enumerate(old_terms):
        if not _only_additions(new_terms[i], term):
            message = "only additions are allowed (no mutations or deletions)"
            errs.append(field.invalid(f"{at}[{i}]", render("core.NodeSelectorTerm", new_terms[i]), message))
    return errs


def _put(target: dict[str, Any], source: Pod, key: str) -> None:
    if key in source:
        target[key] = source[key]
    else:
        target.pop(key, None)


def update(pod: Pod, old: Pod, options: Options) -> list[FieldError]:
    """``ValidatePodUpdate``: of the spec only the fields in ``UPDATABLE`` may change.

    Scheduling gates may be removed; while ``old`` is gated nodeSelector and node affinity may be narrowed, too. Stops early if containers
    were added or removed, or if the deadline is invalid.
    """
    errs = object_meta_update(pod["metadata"], old["metadata"])
    errs += metadata_and_spec(pod, options)
    errs += _annotation_changes(pod, old, options)
    new_spec, old_spec = pod.get("spec") or {}, old.get("spec") or {}
    for kind in ("containers", "initContainers"):
        found, stop = _container_changes(new_spec.get(kind) or [], old_spec.get(kind) or [], f"spec.{kind}")
        errs += found
        if stop:
            return errs
    deadline, old_deadline = new_spec.get("activeDeadlineSeconds"), old_spec.get("activeDeadlineSeconds")
    at = "spec.activeDeadlineSeconds"
    if deadline is not None:
        if not 0 <= deadline <= MAX_INT32:
            errs.append(field.invalid(at, deadline, f"must be between 0 and {MAX_INT32}, inclusive"))
            return errs
        if old_deadline is not None and old_deadline < deadline:
            errs.append(field.invalid(at, deadline, "must be less than or equal to previous value"))
            return errs
    elif old_deadline is not None:
        errs.append(field.invalid(at, None, "must not update from a positive integer to nil value"))
    errs += _added_tolerations(new_spec.get("tolerations") or [], old_spec.get("tolerations") or [], "spec.tolerations", options)
    errs += _deleted_gates(new_spec.get("schedulingGates") or [], old_spec.get("schedulingGates") or [], "spec.schedulingGates")
    if semantic_equal(new_spec, old_spec, builtin_type("core.v1.PodSpec")):
        return errs
    munged = dict(new_spec)
    for kind in ("containers", "initContainers"):
        if munged.get(kind):
            munged[kind] = [dict(c) for c in munged[kind]]
            for container, before in zip(munged[kind], old_spec[kind], strict=True):
                _put(container, before, "image")
        else:
            munged.pop(kind, None)
    for key in ("activeDeadlineSeconds", "schedulingGates", "tolerations"):
        _put(munged, old_spec, key)
    old_grace = old_spec.get("terminationGracePeriodSeconds")
    if old_grace is not None and old_grace < 0 and munged.get("terminationGracePeriodSeconds") == 1:
        munged["terminationGracePeriodSeconds"] = old_grace
    if old_spec.get("schedulingGates"):
        errs += _gated_changes(munged, old_spec)
    if not semantic_equal(munged, old_spec, builtin_type("core.v1.PodSpec")):
        diff = spec_diff("core.PodSpec", old_spec, munged)
        errs.append(field.forbidden("spec", f"pod updates may not change fields other than {UPDATABLE}\n{diff}"))
    return errs


def _gated_changes(munged: dict[str, Any], old_spec: Pod) -> list[FieldError]:
    """Check that a gated pod's nodes are only narrowed; allowed changes are reverted in ``munged``."""
    errs: list[FieldError] = []
    if not semantic_equal(munged.get("nodeSelector"), old_spec.get("nodeSelector"), builtin_field("core.v1.PodSpec", "nodeSelector")):
        new, had = munged.get("nodeSelector") or {}, old_spec.get("nodeSelector") or {}
        errs += _narrowed_node_selector(new, had, "spec.nodeSelector")
        _put(munged, old_spec, "nodeSelector")
    affinity = munged.get("affinity")
    new, had = (affinity or {}).get("nodeAffinity"), (old_spec.get("affinity") or {}).get("nodeAffinity")
    if semantic_equal(new, had, builtin_field("core.v1.Affinity", "nodeAffinity")):
        return errs
    errs += _narrowed_node_affinity(new, had, "spec.affinity.nodeAffinity")
    if affinity is None:
        munged["affinity"] = {"nodeAffinity": had}
    elif old_spec.get("affinity") is None and affinity.get("podAffinity") is None and affinity.get("podAntiAffinity") is None:
        del munged["affinity"]
    else:
        munged["affinity"] = {**affinity, "nodeAffinity": had}
        if had is None:
            del munged["affinity"]["nodeAffinity"]
    return errs


# -- status ------------------------------------------------------------------------------------------------------------


def _restarts_all(spec: Pod) -> bool:
    """Whether the end of a container may restart all containers."""
    rules = [r for k in ("containers", "initContainers") for c in spec.get(k) or () for r in c.get("restartPolicyRules") or ()]
    return any(rule.get("action") == "RestartAllContainers" for rule in rules)


def _may_restart(container: Pod, spec: Pod, code: int) -> bool:
    """``ContainerShouldRestart``: the first matching rule, else the container's own policy, else the pod's."""
    for rule in container.get("restartPolicyRules") or ():
        codes = rule.get("exitCodes") or {}
        if codes.get("operator") in ("In", "NotIn") and (code in (codes.get("values") or ())) == (codes["operator"] == "In"):
            return True
    policy = container.get("restartPolicy") or spec.get("restartPolicy")
    return policy != "Never" and (policy != "OnFailure" or code != 0)


def _some_ended(statuses: list[dict]) -> bool:
    for item in statuses:
        state = item.get("state")
        if state and state.get("terminated") is not None:
            return True
    return False


def _state_transitions(new: list[dict], old: list[dict], containers: list[dict], spec: Pod, path: str) -> list[FieldError]:
    """Check that a terminated container stays so, unless it may restart."""
    errs = []
    running: set[str] = {s.get("name") or "" for s in new if (s.get("state") or {}).get("terminated") is None}
    by_name: dict[str | None, dict] = {}
    for item in containers:
        by_name.setdefault(item.get("name"), item)
    for i, before in enumerate(old):
        ended = (before.get("state") or {}).get("terminated")
        if ended is None or (before.get("name") or "") not in running:
            continue
        container = by_name.get(before.get("name"))
        if container is None or not _may_restart(container, spec, ended.get("exitCode") or 0):
            errs.append(field.forbidden(f"{path}[{i}].state", "may not be transitioned to non-terminated state"))
    return errs


def _dual_stack(items: list[dict], path: str, had: list[dict] | None) -> list[FieldError]:
    if items == had and len(items) == 1:
        return []
    errs: list[FieldError] = []
    ips = [item.get("ip") or "" for item in items]
    old = {item.get("ip") or "" for item in had or ()}
    for i, ip in enumerate(ips):
        errs += legacy_ip(f"{path}[{i}]", ip, old)
    if len(ips) > 1:
        parsed = [parse_ip(ip) for ip in ips]
        if None in parsed:
            bad = parsed.index(None)
            errs.append(field.internal(path, f"failed to check for dual stack with error:invalid IP[{bad}]: {ips[bad]}"))
        if len({ip.family for ip in parsed if ip}) != 2 or len(ips) > 2:
            message = "may specify no more than one IP for each IP family"
            errs.append(field.invalid(path, render_list("core.PodIP", items), message))
    return errs


def status_update(pod: Pod, old: Pod, options: Options, passed: bool = False) -> list[FieldError]:
    """``ValidatePodStatusUpdate``: the QoS class and the node stay, terminated containers only run again if their restart policy allows it,
    and lists of addresses have at most one per family. The spec is not validated again; ``passed`` as in ``object_meta_update``.
    """
    errs = object_meta_update(pod["metadata"], old["metadata"], passed=passed)
    errs += _annotation_changes(pod, old, options)
    status, old_status = pod.get("status") or {}, old.get("status") or {}
    body, old_spec = pod.get("spec") or {}, old.get("spec") or {}
    for i, condition in enumerate(status.get("conditions") or ()):
        kind = condition.get("type") or ""
        if "observedGeneration" in condition:
            errs += _observed(condition, f"status.conditions[{i}]")
        if kind not in ("PodScheduled", "Ready", "Initialized"):
            errs += [field.invalid(f"status.conditions[{i}].Type", kind, m) for m in cached.qualified_name(kind)]
    if (body.get("nodeName") or "") != (old_spec.get("nodeName") or ""):
        errs.append(field.forbidden("status.nodeName", "may not be changed directly"))
    nominated = status.get("nominatedNodeName") or ""
    if nominated and nominated != (old_status.get("nominatedNodeName") or ""):
        errs += [field.invalid("status.nominatedNodeName", nominated, m) for m in names.is_dns1123_subdomain(nominated)]
        if old_spec.get("nodeName") and features.DEFAULT.enabled("ClearingNominatedNodeNameAfterBinding"):
            errs.append(field.forbidden("status.nominatedNodeName", "may not be set on pods that are already bound to a node"))
    errs += _observed(status, "status")
    if (status.get("qosClass") or "") != (old_status.get("qosClass") or ""):
        errs.append(field.invalid("status.qosClass", status.get("qosClass") or "", "field is immutable"))
    for key, kind in STATUSES.items() if not STATUSES.keys().isdisjoint(old_status) else ():
        before = old_status.get(key)
        if before and _some_ended(before) and not (kind and _restarts_all(old_spec)):
            errs += _state_transitions(status.get(key) or [], before, old_spec.get(kind) or [], old_spec, f"status.{key}")
    if status.get("resourceClaimStatuses"):
        errs += _claim_statuses(status["resourceClaimStatuses"], body.get("resourceClaims") or [])
    if status.get("extendedResourceClaimStatus") is not None:
        errs += _extended_claim(status["extendedResourceClaimStatus"], body, "status.extendedResourceClaimStatus")
    if status.get("nodeAllocatableResourceClaimStatuses"):
        errs += _node_allocatable(status, body)
    if status.get("podIPs"):
        errs += _dual_stack(status["podIPs"], "status.podIPs", old_status.get("podIPs"))
    hosts = status.get("hostIPs")
    if hosts:
        if (status.get("hostIP") or "") != (hosts[0].get("ip") or ""):
            errs.append(field.invalid("status.hostIPs[0].ip", hosts[0].get("ip") or "", "must be equal to `hostIP`"))
        errs += _dual_stack(hosts, "status.hostIPs", old_status.get("hostIPs"))
    return errs if STATUSES.keys().isdisjoint(status) else errs + _container_statuses(status, body)


def _container_statuses(status: Pod, spec: Pod) -> list[FieldError]:
    errs: list[FieldError] = []
    system = "linux" if spec.get("os") is None else spec["os"].get("name")
    for key in STATUSES:
        errs += _container_users(status.get(key) or [], system, f"status.{key}")
    for key, spec_key in STATUSES.items():
        if spec_key:
            errs += _allocated_resources(status.get(key) or [], spec.get(spec_key) or [], f"status.{key}")
    for i, item in enumerate(status.get("ephemeralContainerStatuses") or ()):
        if item.get("allocatedResourcesStatus"):
            at = f"status.ephemeralContainerStatuses[{i}].allocatedResourcesStatus"
            errs.append(field.forbidden(at, "must not be specified in container status"))
    for key in STATUSES if features.DEFAULT.enabled(DIGESTS) else ():
        errs += _image_volumes(status.get(key) or [], f"status.{key}")
    return errs


def _image_volumes(items: list[dict], path: str) -> list[FieldError]:
    """Check that the images of mounted volumes are named."""
    errs: list[FieldError] = []
    for i, item in enumerate(items):
        for j, mount in enumerate(item.get("volumeMounts") or ()):
            image = (mount.get("volumeStatus") or {}).get("image")
            if image is None:
                continue
            at, ref = f"{path}[{i}].volumeMounts[{j}].volumeStatus.imageVolumeStatus.imageRef", image.get("imageRef") or ""
            if not ref:
                errs.append(field.required(at, "imageRef must not be empty"))
            elif names.byte_length(ref) > MAX_IMAGE_REF:
                errs.append(field.too_long(at, MAX_IMAGE_REF))
    return errs


def _observed(item: Pod, path: str) -> list[FieldError]:
    observed = item.get("observedGeneration") or 0
    return [field.invalid(f"{path}.observedGeneration", observed, "must be a non-negative integer")] if observed < 0 else []


def _extended_claim(status: Pod, spec: Pod, path: str) -> list[FieldError]:
    """Validate the claim for extended resources: which request serves which resource of which container."""
    mappings = status.get("requestMappings") or []
    errs: list[FieldError] = []
    if not mappings:
        errs.append(field.required(f"{path}.requestMappings", "at least one request mapping is required"))
    known = {c.get("name") or "": c for k in ("initContainers", "containers") for c in spec.get(k) or ()}
    seen: set[tuple[str, str, str]] = set()
    for i, item in enumerate(mappings):
        at = f"{path}.requestMappings[{i}]"
        name, resource, request = item.get("containerName") or "", item.get("resourceName") or "", item.get("requestName") or ""
        if name not in known:
            message = "must match the name of an entry in spec.initContainers.name or spec.containers.name"
            errs.append(field.invalid(f"{at}.containerName", name, message))
        elif resource not in ((known[name].get("resources") or {}).get("requests") or {}):
            message = "must match the extended resource name of an entry in spec.initContainers.resources.requests"
            errs.append(field.invalid(f"{at}.resourceName", resource, f"{message} or spec.containers.resources.requests"))
        errs += [field.invalid(f"{path}.requestName", request, m) for m in names.is_dns1123_label(request)]
        if (name, resource, request) in seen:
            errs.append(field.duplicate(f"{at}.containerName", name))
            errs.append(field.duplicate(f"{at}.resourceName", resource))
            errs.append(field.duplicate(f"{at}.requestName", request))
        seen.add((name, resource, request))
    claim = status.get("resourceClaimName") or ""
    if not claim:
        return [*errs, field.required(f"{path}.resourceClaimName")]
    return errs + [field.invalid(f"{path}.resourceClaimName", claim, m) for m in names.is_dns1123_subdomain(claim)]


def _claim_statuses(items: list[dict], claims: list[dict]) -> list[FieldError]:
    errs: list[FieldError] = []
    known, seen = {c.get("name") or "" for c in claims}, set()
    for i, item in enumerate(items):
        at, name, claim = f"status.resourceClaimStatuses[{i}]", item.get("name") or "", item.get("resourceClaimName")
        if name not in known:
            errs.append(field.invalid(f"{at}.name", name, "must match the name of an entry in `spec.resourceClaims`"))
        if name in seen:
            errs.append(field.duplicate(f"{at}.name", name))
        seen.add(name)
        if claim is not None:
            errs += [field.invalid(f"{at}.resourceClaimName", claim, m) for m in names.is_dns1123_subdomain(claim)]
    return errs


def _node_allocatable(status: Pod, spec: Pod) -> list[FieldError]:
    """``validateNodeAllocatableResourceClaimStatus``: what claims take of the node's own resources, and for which containers. The claims
    must be the pod's, by name or made from a template.
    """
    items = status.get("nodeAllocatableResourceClaimStatuses") or ()
    if not items:
        return []
    errs: list[FieldError] = []
    known = {ref.get("resourceClaimName") for ref in (*(spec.get("resourceClaims") or ()), *(status.get("resourceClaimStatuses") or ()))}
    for i, item in enumerate(items):
        at, claim = f"status.nodeAllocatableResourceClaimStatuses[{i}]", item.get("resourceClaimName") or ""
        if not claim:
            errs.append(field.required(f"{at}.resourceClaimName", "must not be empty"))
        if claim not in known:
            errs.append(field.invalid(f"{at}.resourceClaimName", claim, "no mapping found in pod reference"))
        for key in ("containers", "resources"):
            if not item.get(key):
                errs.append(field.required(f"{at}.{key}", "must not be empty"))
        for name, text in sorted((item.get("resources") or {}).items()):
            if not is_native(name):
                errs.append(field.invalid(f"{at}.resources[{name}]", name, "must be a node allocatable resource name"))
            if amount(text) < 0:
                errs.append(field.invalid(f"{at}.resources[{name}]", text, "must be non-negative"))
    return errs


def _container_users(items: list[dict], system: str | None, path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    for i, item in enumerate(items):
        linux = (item.get("user") or {}).get("linux")
        if linux is None:
            continue
        at = f"{path}[{i}].user.linux"
        if system == "windows":
            errs.append(field.forbidden(at, "cannot be set for a windows pod"))
        if system != "linux":
            continue
        errs += security._id(linux.get("uid") or 0, f"{at}.uid")
        errs += security._id(linux.get("gid") or 0, f"{at}.gid")
        for j, group in enumerate(linux.get("supplementalGroups") or ()):
            errs += security._id(group, f"{at}.supplementalGroups[{j}]")
    return errs


def _allocated_resources(items: list[dict], containers: list[dict], path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    for item in items:
        if item.get("allocatedResourcesStatus"):
            break
    else:
        return errs
    by_name = {c.get("name"): c for c in containers}
    for i, item in enumerate(items):
        container = by_name.get(item.get("name"))
        for j, allocated in enumerate(item.get("allocatedResourcesStatus") or ()):
            at, name = f"{path}[{i}].allocatedResourcesStatus[{j}]", allocated.get("name") or ""
            if container is not None:
                resources = container.get("resources") or {}
                if name.startswith("claim:"):
                    known = set()
                    for claim in resources.get("claims") or ():
                        known.add("claim:" + (claim.get("name") or "") + ("/" + claim["request"] if claim.get("request") else ""))
                    message = (
                        "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' "
                        "or 'claim:<claimName>' if request is empty"
                    )
                else:
                    known = set(resources.get("requests") or ())
                    message = "must match one of the container's resource requests"
                if name not in known:
                    errs.append(field.invalid(f"{at}.name", name, message))
            seen: set[str] = set()
            for k, health in enumerate(allocated.get("resources") or ()):
                state, rid = health.get("health") or "", health.get("resourceID") or ""
                if state not in ("Healthy", "Unhealthy", "Unknown"):
                    valid = ("Healthy", "Unhealthy", "Unknown")
                    errs.append(unsupported(f"{at}.resources[{k}].health", state, valid))
                told = health.get("message")
                if told == "":
                    errs.append(field.required(f"{at}.resources[{k}].message", "must be non-empty if specified"))
                elif told is not None and names.byte_length(told) > MAX_HEALTH_MESSAGE:
                    errs.append(field.too_long(f"{at}.resources[{k}].message", MAX_HEALTH_MESSAGE))
                if rid in seen:
                    errs.append(field.duplicate(f"{at}.resources[{k}].resourceID", rid))
                seen.add(rid)
    return errs


# -- other subresources --------------------------------------------------------------------------------------------------


def ephemeral_containers_update(pod: Pod, old: Pod, options: Options) -> list[FieldError]:
    """``ValidatePodEphemeralContainersUpdate``: existing ones can neither change nor be removed; a static pod cannot have any, which is
    then the only error.
    """
    errs = object_meta_update(pod["metadata"], old["metadata"])
    errs += metadata_and_spec(pod, options)
    errs += _annotation_changes(pod, old, options)
    if MIRROR in (old["metadata"].get("annotations") or {}):
        return [field.forbidden(field.ROOT, "static pods do not support ephemeral containers")]
    now = {c.get("name") or "": c for c in (pod.get("spec") or {}).get("ephemeralContainers") or ()}
    for before in (old.get("spec") or {}).get("ephemeralContainers") or ():
        name = before.get("name") or ""
        quoted = field.go_quote(name)
        if name not in now:
            errs.append(field.forbidden("spec.ephemeralContainers", f"existing ephemeral containers {quoted} may not be removed\n"))
        elif not semantic_equal(now[name], before, builtin_type("core.v1.EphemeralContainer")):
            diff = spec_diff("core.EphemeralContainer", before, now[name])
            message = f"existing ephemeral containers {quoted} may not be changed\n{diff}"
            errs.append(field.forbidden("spec.ephemeralContainers", message))
    return errs


def _without_cpu_memory(new: Pod, old: Pod) -> dict[str, Any]:
    """Return the requirements as if only cpu and memory had not changed. Claims are lost, as upstream."""
    out: dict[str, Any] = {}
    for kind in ("limits", "requests"):
        kept = {k: v for k, v in (new.get(kind) or {}).items() if k not in ("cpu", "memory")}
        kept.update((k, v) for k, v in (old.get(kind) or {}).items() if k in ("cpu", "memory"))
        if kept:
            out[kind] = kept
    return out


def _removed(new: Pod, old: Pod, path: str, what: str = "") -> list[FieldError]:
    """Check that requests and limits, of a container or the pod, are not removed."""
    errs = []
    for kind in ("requests", "limits"):
        if (old.get(kind) or {}).keys() - (new.get(kind) or {}).keys():
            errs.append(field.forbidden(f"{path}.{kind}", f"{what}resource {kind} cannot be removed"))
    return errs


def _resized_pod_resources(munged: dict[str, Any], new: Pod | None, old: Pod | None) -> list[FieldError]:
    """Validate a resize of pod-level resources; allowed changes are reverted in ``munged``."""
    if old is not None and new is None:
        return [field.forbidden("spec.resources", "pod-level resources cannot be removed")]
    errs = _removed(new or {}, old or {}, "spec.resources", "pod-level ")
    kept = _without_cpu_memory(new or {}, old or {})
    if (new or {}).get("claims"):
        kept["claims"] = (new or {})["claims"]
    if kept or old is not None:
        munged["resources"] = kept
    else:
        munged.pop("resources", None)
    if not semantic_equal(kept, old, builtin_type("core.v1.ResourceRequirements")):
        errs.append(field.forbidden("spec", "only cpu and memory resources are mutable at pod-level"))
    return errs


def _reordered(new: Pod, old: Pod) -> list[FieldError]:
    errs = []
    for kind in ("containers", "initContainers"):
        now, before = new.get(kind) or (), old.get(kind) or ()
        if len(now) != len(before):
            errs.append(field.forbidden(f"spec.{kind}", f"{kind} may not be added or removed on resize"))
            continue
        for i, (container, had) in enumerate(zip(now, before, strict=True)):
            if (container.get("name") or "") != (had.get("name") or ""):
                errs.append(field.forbidden(f"spec.{kind}[{i}].name", f"{kind} may not be renamed or reordered on resize"))
    return errs


def resize(pod: Pod, old: Pod, options: Options, qos_of: Callable[[Any], str]) -> list[FieldError]:
    """``ValidatePodResize``; ``qos_of`` computes the quality-of-service class of a pod."""
    errs = object_meta_update(pod["metadata"], old["metadata"])
    errs += metadata_and_spec(pod, options)
    body, old_spec, old_status = pod.get("spec") or {}, old.get("spec") or {}, old.get("status") or {}
    if MIRROR in (old["metadata"].get("annotations") or {}):
        return [field.forbidden(field.ROOT, "static pods cannot be resized")]
    if (old_spec.get("os") or {}).get("name") == "windows":
        return [field.forbidden(field.ROOT, "windows pods cannot be resized")]
    if (old_status.get("qosClass") or qos_of(old)) != qos_of(pod):
        shown = (pod.get("status") or {}).get("qosClass") or ""
        errs.append(field.invalid("spec", shown, "Pod QOS Class may not change as a result of resizing"))
    if not _resize_supported(old):
        errs.append(field.forbidden("spec", "Pod running on node without support for resize"))
    munged = dict(body)
    new_own, old_own = body.get("resources"), old_spec.get("resources")
    if any(own and (own.get("requests") or own.get("limits")) for own in (new_own, old_own)):
        if not features.DEFAULT.enabled(POD_RESIZE):
            message = f"resize of pods with pod-level resources is forbidden when {POD_RESIZE}Enabled feature gate is disabled"
            return [*errs, field.forbidden(field.ROOT, message)]
        errs += _resized_pod_resources(munged, new_own, old_own)
    if old_status.get("nodeAllocatableResourceClaimStatuses"):
        errs.append(field.forbidden("spec", "pods with node allocatable resource claims cannot be resized"))
    found = _reordered(body, old_spec)
    if found:
        return errs + found
    pairs = {k: list(zip(body.get(k) or (), old_spec.get(k) or (), strict=True)) for k in ("initContainers", "containers")}
    fixed = _fixed(old_spec)
    for kind, both in pairs.items():
        for i, (container, before) in enumerate(both):
            if kind == "containers" or i not in fixed:
                errs += _removed(container.get("resources") or {}, before.get("resources") or {}, f"spec.{kind}[{i}].resources")
    for kind in ("containers", "initContainers"):
        kept = []
        for i, (container, before) in enumerate(pairs[kind]):
            if kind == "initContainers" and i in fixed:
                kept.append(container)
                if not semantic_equal(container, before, builtin_type("core.v1.Container")):
                    errs.append(field.forbidden("spec", "resources for non-sidecar init containers are immutable"))
                continue
            resources = _without_cpu_memory(container.get("resources") or {}, before.get("resources") or {})
            left = {**container, "resources": resources}
            kept.append(left)
            if not semantic_equal(left, before, builtin_type("core.v1.Container")):
                path, of_init = ("spec", "") if kind == "containers" else (f"spec.{kind}[{i}]", " for init or sidecar containers")
                errs.append(field.forbidden(path, f"only cpu and memory resources{of_init} are mutable"))
            if kind == "initContainers" and container.get("restartPolicy") != "Always":
                errs += _resized_init(container, before, f"spec.{kind}[{i}]")
        if kept:
            munged[kind] = kept
    if not errs and not semantic_equal(munged, old_spec, builtin_type("core.v1.PodSpec")):
        errs.append(field.forbidden("spec", "only cpu and memory resources are mutable"))
    return errs


def _fixed(spec: Pod) -> frozenset[int]:
    """Return the ids of init containers that cannot be resized: without the gate, all except sidecars."""
    if features.DEFAULT.enabled("InPlacePodVerticalScalingInitContainers"):
        return frozenset()
    return frozenset(i for i, container in enumerate(spec.get("initContainers") or ()) if container.get("restartPolicy") != "Always")


def _resized_init(container: Pod, before: Pod, path: str) -> list[FieldError]:
    if semantic_equal(container, before, builtin_type("core.v1.Container")):
        return []
    message = "non-sidecar init containers with a resize policy of RestartContainer cannot be resized"
    policies = [item.get("restartPolicy") for item in container.get("resizePolicy") or ()]
    return [field.forbidden(path, message) for policy in policies if policy == "RestartContainer"]


def _resize_supported(pod: Pod) -> bool:
    for item in (pod.get("status") or {}).get("containerStatuses") or ():
        if (item.get("state") or {}).get("running") is not None:
            return item.get("resources") is not None
    return True


def binding(obj: Pod) -> list[FieldError]:
    """``ValidatePodBinding``: the target must be a Node, also meant by an empty kind, with a name. Metadata is not validated."""
    target = obj.get("target") or {}
    errs: list[FieldError] = []
    if target.get("kind") not in (None, "", "Node"):
        errs.append(unsupported("target.kind", target["kind"], ("Node", "<empty>")))
    if not target.get("name"):
        errs.append(field.required("target.name"))
    return errs
