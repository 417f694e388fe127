"""Strategies of Workload and PodGroup (upstream ``pkg/registry/scheduling/{workload,podgroup}``, KEP-4671)."""

from __future__ import annotations

from typing import Any

from kas.api import field
from kas.api.field import FieldError
from kas.api.validation import names
from kas.api.validation.checks import conditions, dns_label, dns_subdomain, immutable, qualified_name, required_path_segment
from kas.api.validation.coremeta import object_meta, object_meta_update
from kas.registry.strategy import Context, Obj, Strategy, strategy_for

MAX_TEMPLATES = 8
# Gates TopologyAwareWorkloadScheduling, DRAWorkloadResourceClaims and WorkloadAwarePreemption are off by default: their
# fields are dropped unless the stored object has them.
_GATED = ("schedulingConstraints", "resourceClaims", "disruptionMode", "priorityClassName", "priority")


@strategy_for("scheduling.k8s.io", "workloads")
class WorkloadStrategy(Strategy):
    """A workload's templates are fixed; the controller reference may be set once."""

    def prepare_for_create(self, ctx: Context, obj: Obj) -> None:
        super().prepare_for_create(ctx, obj)
        for template in (obj.get("spec") or {}).get("podGroupTemplates") or ():
            _drop_gated(template, {})

    def prepare_for_update(self, ctx: Context, obj: Obj, old: Obj) -> None:
        super().prepare_for_update(ctx, obj, old)
        stored = (old.get("spec") or {}).get("podGroupTemplates") or []
        used = {name: True for template in stored for name in _GATED if template.get(name) is not None}
        for template in (obj.get("spec") or {}).get("podGroupTemplates") or ():
            _drop_gated(template, used)

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
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
                    errs.append(field.duplicate(at, template))
                seen.add(name)
                errs += _policy(template.get("schedulingPolicy") or {}, field.child(at, "schedulingPolicy"))
        return errs

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        errs = object_meta_update(obj["metadata"], old["metadata"])
        new, before = obj.get("spec") or {}, old.get("spec") or {}
        if before.get("controllerRef") is not None:
            errs += immutable(new.get("controllerRef"), before["controllerRef"], "spec.controllerRef")
        elif new.get("controllerRef") is not None:
            errs += _controller_ref(new["controllerRef"], "spec.controllerRef")
        return errs + immutable(new.get("podGroupTemplates"), before.get("podGroupTemplates"), "spec.podGroupTemplates")


@strategy_for("scheduling.k8s.io", "podgroups")
class PodGroupStrategy(Strategy):
    """Everything in the spec is fixed; the scheduler reports in the status."""

    def prepare_for_create(self, ctx: Context, obj: Obj) -> None:
        super().prepare_for_create(ctx, obj)
        _drop_gated(obj.get("spec") or {}, {})

    def prepare_for_update(self, ctx: Context, obj: Obj, old: Obj) -> None:
        super().prepare_for_update(ctx, obj, old)
        _drop_gated(obj.get("spec") or {}, old.get("spec") or {})

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        errs = object_meta(obj["metadata"], True, names.dns_subdomain)
        spec = obj.get("spec") or {}
        if spec.get("podGroupTemplateRef") is not None:
            errs += _template_ref(spec["podGroupTemplateRef"], "spec.podGroupTemplateRef")
        return errs + _policy(spec.get("schedulingPolicy") or {}, "spec.schedulingPolicy")

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        errs = object_meta_update(obj["metadata"], old["metadata"])
        new, before = obj.get("spec") or {}, old.get("spec") or {}
        for name in ("podGroupTemplateRef", "schedulingPolicy", *_GATED):
            errs += immutable(new.get(name), before.get(name), f"spec.{name}")
        return errs

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        errs = object_meta_update(obj["metadata"], old["metadata"])
        status = obj.get("status") or {}
        errs += conditions(status.get("conditions"), "status.conditions")
        for i, claim in enumerate(status.get("resourceClaimStatuses") or ()):
            path, name = field.index("status.resourceClaimStatuses", i), claim.get("name") or ""
            errs += qualified_name(name, field.child(path, "name")) if name else [field.required(field.child(path, "name"))]
        return errs


def _drop_gated(spec: dict[str, Any], stored: dict[str, Any]) -> None:
    for name in _GATED:
        if stored.get(name) is None:
            spec.pop(name, None)


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
