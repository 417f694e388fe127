"""Strategies of Workload and PodGroup (upstream ``pkg/registry/scheduling/{workload,podgroup}``, KEP-4671)."""

from __future__ import annotations

from typing import Any

from kas.kinds.core.columns import name_and_age
from kas.kinds.core.objectmeta import object_meta, object_meta_update
from kas.meta import field, names
from kas.meta.age import age
from kas.meta.checks import conditions, dns_label, dns_subdomain, immutable, qualified_name, required_path_segment
from kas.meta.field import FieldError
from kas.registry.printing.cells import NONE, is_true, part
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, Strategy, strategy_for
from kas.types.gostruct import served
from kas.types.scheme import builtin_field

MAX_TEMPLATES = 8
_FIXED = ("schedulingConstraints", "resourceClaims", "disruptionMode", "priorityClassName", "priority")


@strategy_for("scheduling.k8s.io", "workloads")
class WorkloadStrategy(Strategy):
    """A workload's templates are fixed; the controller reference may be set once."""

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidateWorkload``: at least one template for a group of pods, each with a name of its own."""
        errs = object_meta(obj["metadata"], True, names.dns_subdomain)
        spec = obj.get("spec") or {}
        if spec.get("controllerRef") is not None:
            errs += _controller_ref(spec["controllerRef"], "spec.controllerRef")
        templates, path = spec.get("podGroupTemplates") or [], "spec.podGroupTemplates"
        if not templates:
            errs.append(field.required(path, "must have at least one item"))
        elif len(templates) > MAX_TEMPLATES:
            errs.append(field.too_many(path, len(templates), MAX_TEMPLATES))
        else:
            seen: set[str] = set()
            for i, template in enumerate(templates):
                at, name = field.index(path, i), template.get("name") or ""
                errs += dns_label(name, field.child(at, "name")) if name else [field.required(field.child(at, "name"))]
                if name in seen:
                    errs.append(field.duplicate(at, served("scheduling.v1alpha2.PodGroupTemplate", template)))
                seen.add(name)
                errs += _policy(template.get("schedulingPolicy") or {}, field.child(at, "schedulingPolicy"))
        return errs

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateWorkloadUpdate``: the templates may not change, the controller may be set once."""
        errs = object_meta_update(obj["metadata"], old["metadata"])
        new, before = obj.get("spec") or {}, old.get("spec") or {}
        if before.get("controllerRef") is not None:
            errs += _immutable("WorkloadSpec", new, before, "controllerRef")
        elif new.get("controllerRef") is not None:
            errs += _controller_ref(new["controllerRef"], "spec.controllerRef")
        return errs + _immutable("WorkloadSpec", new, before, "podGroupTemplates")


def _immutable(spec: str, new: dict[str, Any], old: dict[str, Any], name: str) -> list[FieldError]:
    value = new.get(name)
    type = f"scheduling.v1alpha2.{spec}"
    return immutable(value, old.get(name), f"spec.{name}", served(type, value, name), builtin_field(type, name))


@strategy_for("scheduling.k8s.io", "podgroups")
class PodGroupStrategy(Strategy):
    """Everything in the spec is fixed; the scheduler reports in the status."""

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidatePodGroup``."""
        errs = object_meta(obj["metadata"], True, names.dns_subdomain)
        spec = obj.get("spec") or {}
        if spec.get("podGroupTemplateRef") is not None:
            errs += _template_ref(spec["podGroupTemplateRef"], "spec.podGroupTemplateRef")
        return errs + _policy(spec.get("schedulingPolicy") or {}, "spec.schedulingPolicy")

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidatePodGroupUpdate``: template, policy and the other fixed fields may not change."""
        errs = object_meta_update(obj["metadata"], old["metadata"])
        new, before = obj.get("spec") or {}, old.get("spec") or {}
        for name in ("podGroupTemplateRef", "schedulingPolicy", *_FIXED):
            errs += _immutable("PodGroupSpec", new, before, name)
        return errs

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidatePodGroupStatusUpdate``: metadata, conditions and the names of resource claims."""
        errs = object_meta_update(obj["metadata"], old["metadata"])
        status = obj.get("status") or {}
        errs += conditions(status.get("conditions"), "status.conditions")
        for i, claim in enumerate(status.get("resourceClaimStatuses") or ()):
            path, name = field.index("status.resourceClaimStatuses", i), claim.get("name") or ""
            errs += qualified_name(name, field.child(path, "name")) if name else [field.required(field.child(path, "name"))]
        return errs


def _controller_ref(ref: dict[str, Any], path: str) -> list[FieldError]:
    errs = dns_subdomain(ref["apiGroup"], field.child(path, "apiGroup")) if ref.get("apiGroup") else []
    errs += required_path_segment(ref.get("kind") or "", field.child(path, "kind"))
    return errs + required_path_segment(ref.get("name") or "", field.child(path, "name"))


def _template_ref(ref: dict[str, Any], path: str) -> list[FieldError]:
    workload = ref.get("workload")
    if workload is None:
        return [field.invalid(path, "", "must specify one of: `workload`")]
    at = field.child(path, "workload")
    name, template = workload.get("workloadName") or "", workload.get("podGroupTemplateName") or ""
    errs = dns_subdomain(name, field.child(at, "workloadName")) if name else [field.required(field.child(at, "workloadName"))]
    here = field.child(at, "podGroupTemplateName")
    return errs + (dns_label(template, here) if template else [field.required(here)])


def _policy(policy: dict[str, Any], path: str) -> list[FieldError]:
    """Exactly one of basic and gang."""
    present = [name for name in ("basic", "gang") if policy.get(name) is not None]
    if not present:
        return [field.invalid(path, "", "must specify one of: `basic`, `gang`")]
    if len(present) > 1:
        shown = "{" + ", ".join(f"`{name}`" for name in present) + "}"
        return [field.invalid(path, shown, "must specify exactly one of: `basic`, `gang`")]
    if present == ["gang"]:
        count, at = policy["gang"].get("minCount") or 0, field.child(path, "gang", "minCount")
        if count == 0:
            return [field.required(at)]
        if count < 0:
            return [field.invalid(at, count, "must be greater than or equal to 1")]
    return []


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
