"""Strategies of Workload and PodGroup (upstream ``pkg/registry/scheduling/{workload,podgroup}``, KEP-4671)."""

from __future__ import annotations

from typing import Any

from kas.config import features
from kas.kinds.core.columns import name_and_age
from kas.kinds.core.objectmeta import object_meta, object_meta_update
from kas.meta import field, names
from kas.meta.age import age
from kas.meta.checks import (
    conditions,
    dns_label,
    dns_subdomain,
    immutable,
    qualified_name,
    repeats,
    required_path_segment,
    unsupported,
)  # fmt: skip
from kas.meta.field import FieldError
from kas.registry.printing.cells import NONE, is_true, part
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, Strategy, strategy_for
from kas.types.gostruct import served
from kas.types.scheme import builtin_field

MAX_TEMPLATES, MAX_CLAIMS, MAX_TOPOLOGIES = 8, 4, 1
MAX_PRIORITY = 1_000_000_000
DISRUPTION_MODES = ("Pod", "PodGroup")
_FIXED = {  # immutable fields of a group, and the gate without which each may not be set
    **dict.fromkeys(("podGroupTemplateRef", "schedulingPolicy"), ""),
    "schedulingConstraints": "TopologyAwareWorkloadScheduling",
    "resourceClaims": "",
    **dict.fromkeys(("disruptionMode", "priorityClassName", "priority"), "WorkloadAwarePreemption"),
}


@strategy_for("scheduling.k8s.io", "workloads")
class WorkloadStrategy(Strategy):
    """Workloads, whose spec is immutable."""

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidateWorkload``: at least one template of a pod group, with unique names."""
        errs = object_meta(obj["metadata"], True, names.dns_subdomain)
        spec = obj.get("spec") or {}
        if spec.get("controllerRef") is not None:
            errs += _controller_ref(spec["controllerRef"], "spec.controllerRef")
        templates, path = spec.get("podGroupTemplates") or [], "spec.podGroupTemplates"
        if not templates:
            errs.append(field.required(path))
        elif len(templates) > MAX_TEMPLATES:
            errs.append(field.too_many(path, len(templates), MAX_TEMPLATES))
        else:
            errs += _named_once("PodGroupTemplate", templates, path)
            for i, template in enumerate(templates):
                at = field.index(path, i)
                errs += _name(template, at) + _group(template, at)
        return errs

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateWorkloadUpdate``: neither controller nor templates may change."""
        errs = object_meta_update(obj["metadata"], old["metadata"])
        new, before = obj.get("spec") or {}, old.get("spec") or {}
        for name in ("controllerRef", "podGroupTemplates"):
            errs += _immutable("WorkloadSpec", new, before, name)
        templates, path = new.get("podGroupTemplates") or [], "spec.podGroupTemplates"
        if len(templates) > MAX_TEMPLATES:
            errs.append(field.too_many(path, len(templates), MAX_TEMPLATES))
        return errs if templates else [*errs, field.required(path)]


def _named_once(kind: str, items: list[dict[str, Any]], path: str) -> list[FieldError]:
    """Check that names, the keys of these lists, are unique."""
    found = repeats(item.get("name") or "" for item in items)
    return [field.duplicate(field.index(path, i), served(f"scheduling.v1alpha2.{kind}", items[i])) for i in found]


def _name(item: dict[str, Any], path: str) -> list[FieldError]:
    name, at = item.get("name") or "", field.child(path, "name")
    return dns_label(name, at) if name else [field.required(at)]


def _immutable(spec: str, new: dict[str, Any], old: dict[str, Any], name: str) -> list[FieldError]:
    value = new.get(name)
    type = f"scheduling.v1alpha2.{spec}"
    return immutable(value, old.get(name), f"spec.{name}", served(type, value, name), builtin_field(type, name))


@strategy_for("scheduling.k8s.io", "podgroups")
class PodGroupStrategy(Strategy):
    """PodGroups; the spec is immutable, and the scheduler reports in the status."""

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidatePodGroup``."""
        errs = object_meta(obj["metadata"], True, names.dns_subdomain)
        spec = obj.get("spec") or {}
        if spec.get("podGroupTemplateRef") is not None:
            errs += _template_ref(spec["podGroupTemplateRef"], "spec.podGroupTemplateRef")
        return errs + _group(spec, "spec")

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidatePodGroupUpdate``: immutable fields may neither change nor be set while their gate is off."""
        errs = object_meta_update(obj["metadata"], old["metadata"])
        new, before = obj.get("spec") or {}, old.get("spec") or {}
        for name, gate in _FIXED.items():
            changed = _immutable("PodGroupSpec", new, before, name)
            if not gate or features.DEFAULT.enabled(gate):
                errs += changed
            elif changed and new.get(name) not in (None, ""):  # stored values may be removed
                errs.append(field.forbidden(f"spec.{name}", ""))
            if changed and name == "resourceClaims" and len(new.get(name) or ()) > MAX_CLAIMS:
                errs.append(field.too_many(f"spec.{name}", len(new[name]), MAX_CLAIMS))
        return errs

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidatePodGroupStatusUpdate``: metadata, conditions and created claims, each for one in the spec."""
        errs = object_meta_update(obj["metadata"], old["metadata"])
        status, path = obj.get("status") or {}, "status.resourceClaimStatuses"
        errs += conditions(status.get("conditions"), "status.conditions")
        claims = status.get("resourceClaimStatuses") or []
        known = {claim.get("name") or "" for claim in (obj.get("spec") or {}).get("resourceClaims") or ()}
        for i, claim in enumerate(claims):
            name = claim.get("name") or ""
            if name not in known:
                at = field.child(field.index(path, i), "name")
                errs.append(field.invalid(at, name, "must match the name of an entry in `spec.resourceClaims`"))
        stored = (old.get("status") or {}).get("resourceClaimStatuses") or []
        if claims == stored:
            return errs
        if len(claims) > MAX_CLAIMS:
            return [*errs, field.too_many(path, len(claims), MAX_CLAIMS)]
        errs += _named_once("PodGroupResourceClaimStatus", claims, path)
        for i, claim in enumerate(claims):
            if claim.get("resourceClaimName") is not None and claim not in stored:
                errs += dns_subdomain(claim["resourceClaimName"], field.child(field.index(path, i), "resourceClaimName"))
        return errs


def _group(spec: dict[str, Any], path: str) -> list[FieldError]:
    """Validate what pod groups and their templates have in common."""
    errs = _policy(spec.get("schedulingPolicy") or {}, field.child(path, "schedulingPolicy"))
    topologies, at = (spec.get("schedulingConstraints") or {}).get("topology") or [], field.child(path, "schedulingConstraints", "topology")
    if len(topologies) > MAX_TOPOLOGIES:
        errs.append(field.too_many(at, len(topologies), MAX_TOPOLOGIES))
    else:
        for i, topology in enumerate(topologies):
            key, here = topology.get("key") or "", field.child(field.index(at, i), "key")
            errs += qualified_name(key, here) if key else [field.required(here)]
    claims, at = spec.get("resourceClaims") or [], field.child(path, "resourceClaims")
    if len(claims) > MAX_CLAIMS:
        errs.append(field.too_many(at, len(claims), MAX_CLAIMS))
    else:
        errs += _named_once("PodGroupResourceClaim", claims, at)
        for i, claim in enumerate(claims):
            errs += _claim(claim, field.index(at, i))
    mode, name, priority = spec.get("disruptionMode"), spec.get("priorityClassName"), spec.get("priority")
    if mode is not None and mode not in DISRUPTION_MODES:
        errs.append(unsupported(field.child(path, "disruptionMode"), mode, DISRUPTION_MODES))
    if name:
        errs += dns_subdomain(name, field.child(path, "priorityClassName"))
    if priority is not None and priority > MAX_PRIORITY:
        errs.append(field.invalid(field.child(path, "priority"), priority, f"must be less than or equal to {MAX_PRIORITY}"))
    return errs


def _claim(claim: dict[str, Any], path: str) -> list[FieldError]:
    """Check a claim reference: an existing claim, or a template to create one from."""
    members = ("resourceClaimName", "resourceClaimTemplateName")
    errs = _one_of(claim, members, path) + _name(claim, path)
    for name in members:
        if claim.get(name) is not None:
            errs += dns_subdomain(claim[name], field.child(path, name))
    return errs


def _controller_ref(ref: dict[str, Any], path: str) -> list[FieldError]:
    errs = dns_subdomain(ref["apiGroup"], field.child(path, "apiGroup")) if ref.get("apiGroup") else []
    errs += required_path_segment(ref.get("kind") or "", field.child(path, "kind"))
    return errs + required_path_segment(ref.get("name") or "", field.child(path, "name"))


def _template_ref(ref: dict[str, Any], path: str) -> list[FieldError]:
    workload = ref.get("workload")
    if workload is None:
        return _one_of(ref, ("workload",), path)
    at = field.child(path, "workload")
    name, template = workload.get("workloadName") or "", workload.get("podGroupTemplateName") or ""
    errs = dns_subdomain(name, field.child(at, "workloadName")) if name else [field.required(field.child(at, "workloadName"))]
    here = field.child(at, "podGroupTemplateName")
    return errs + (dns_label(template, here) if template else [field.required(here)])


def _one_of(union: dict[str, Any], members: tuple[str, ...], path: str) -> list[FieldError]:
    """Check that exactly one member of the union is set."""
    present, all_ = ([f"`{name}`" for name in found] for found in ([m for m in members if union.get(m) is not None], members))
    if len(present) == 1:
        return []
    text = ", ".join(all_)
    if not present:
        return [field.invalid(path, "", f"must specify one of: {text}")]
    return [field.invalid(path, "{" + ", ".join(present) + "}", f"must specify exactly one of: {text}")]


def _policy(policy: dict[str, Any], path: str) -> list[FieldError]:
    """Check that exactly one of basic and gang is set."""
    errs = _one_of(policy, ("basic", "gang"), path)
    if policy.get("gang") is not None:
        count, at = policy["gang"].get("minCount") or 0, field.child(path, "gang", "minCount")
        if count == 0:
            errs.append(field.required(at))
        elif count < 0:
            errs.append(field.invalid(at, count, "must be greater than or equal to 1"))
    return errs


@printer("scheduling.k8s.io", "PodGroup")
def pod_group_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, policy, workload, state, age."""
    spec, conditions = part(obj, "spec"), part(obj, "status").get("conditions") or ()
    state = "Pending"
    for c in conditions:
        if c.get("type") == "PodGroupScheduled":
            state = "Scheduled" if c.get("status") == "True" else "Unschedulable"
    if is_true(conditions, "DisruptionTarget"):
        state = next(c.get("reason", "") for c in conditions if c.get("type") == "DisruptionTarget")
    return [
        obj["metadata"].get("name", ""), "Gang" if "gang" in part(spec, "schedulingPolicy") else "Basic",
        part(spec, "podGroupTemplateRef", "workload").get("workloadName") or NONE, state, age(obj, now),
    ]  # fmt: skip


printer("scheduling.k8s.io", "Workload")(name_and_age)
