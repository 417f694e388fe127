"""StatefulSets (upstream ``pkg/registry/apps/statefulset``, ``pkg/apis/apps/validation``)."""

from __future__ import annotations

from typing import Any

from kas import checks
from kas.kinds.apps.defaults import default_template
from kas.kinds.core.claims import claim_spec, claim_spec_warnings
from kas.kinds.core.objectmeta import object_meta, object_meta_update
from kas.kinds.core.pod.defaults import round_up_requirements
from kas.kinds.core.pod.options import DEFAULT, Options, options_for_template
from kas.kinds.core.workload.strategy import Workload
from kas.kinds.core.workload.validation import (
    COUNT,
    SELECTED,
    SOME_SHARE,
    always_restarted,
    at_most,
    counts,
    not_decremented,
    percent_or_int,
    selected_template,
    selector,
)
from kas.meta import field, names
from kas.meta.age import age
from kas.meta.checks import not_more_than_100_percent, positive_int_or_percent, unsupported
from kas.meta.equality import semantic_equal
from kas.meta.field import FieldError
from kas.meta.labelselectors import converted
from kas.registry.printing.cells import containers, part
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, strategy_for, take
from kas.types.checktables import ANY, Checked, either, need
from kas.types.defaults import defaults_for
from kas.types.early import early_defaults_for
from kas.types.gostruct import render
from kas.types.scheme import builtin_type

MUTABLE = (
    "replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit", "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)  # fmt: skip
FROZEN = (
    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', "
    "'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
)


_KEPT = need(checks.option("Retain", "Delete"))
# Claims are volumes of the template; sets that have claims are left to the rules.
CHECK = Checked(
    "apps.v1.StatefulSetSpec",
    {
        **SELECTED, "replicas": COUNT, "minReadySeconds": COUNT, "revisionHistoryLimit": ANY, "ordinals": {"start": COUNT},
        "podManagementPolicy": need(checks.option("OrderedReady", "Parallel")), "serviceName": checks.dns_label(),
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": _KEPT, "whenScaled": _KEPT}, "updateStrategy": need(either(
            {"type": need(checks.option("RollingUpdate")), "rollingUpdate": {"partition": COUNT, "maxUnavailable": SOME_SHARE}},
            {"type": need(checks.option("OnDelete"))},
        )),
    },
)  # fmt: skip


def _update_strategy(strategy: dict[str, Any]) -> list[FieldError]:
    kind, body, path = strategy.get("type") or "", strategy.get("rollingUpdate"), "spec.updateStrategy"
    if not kind:
        return [field.required(path)]
    if kind == "OnDelete":
        if body is None:
            return []
        shown = render("apps.RollingUpdateStatefulSetStrategy", body)
        return [field.invalid(f"{path}.rollingUpdate", shown, "only allowed for updateStrategy 'RollingUpdate'")]
    if kind != "RollingUpdate":
        shown = render("apps.StatefulSetUpdateStrategy", strategy)
        return [field.invalid(path, shown, "must be 'RollingUpdate' or 'OnDelete'")]
    if body is None:
        return []
    errs = counts(body, f"{path}.rollingUpdate", "partition")
    unavailable, at = body.get("maxUnavailable"), f"{path}.rollingUpdate.maxUnavailable"
    if unavailable is not None:
        errs += positive_int_or_percent(unavailable, at)
        if percent_or_int(unavailable) == 0:
            errs.append(field.invalid(at, unavailable, "cannot be 0"))
        errs += not_more_than_100_percent(unavailable, at)
    return errs


def _with_claims(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the spec with the set's claims as the template's first volumes, because containers mount them like volumes."""
    claims = spec.get("volumeClaimTemplates")
    if not claims:
        return spec
    template = spec.get("template") or {}
    pod = template.get("spec") or {}
    made = [(c.get("metadata") or {}).get("name") or "" for c in claims]
    fresh = dict.fromkeys(name for name in dict.fromkeys(made) if name and not names.is_dns1123_label(name))
    extra = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in fresh]
    volumes = extra + [v for v in pod.get("volumes") or () if v.get("name") not in fresh]
    return {**spec, "template": {**template, "spec": {**pod, "volumes": volumes}}}


def _spec(spec: dict[str, Any], options: Options, created: bool, whole: bool = True) -> list[FieldError]:
    """Validate the spec; ``created``: also immutable fields. Not ``whole``: the template was stored invalid and is not validated."""
    if CHECK.passes(spec):
        return selected_template(spec, "spec", "", "StatefulSet", options, whole)
    errs: list[FieldError] = []
    policy = spec.get("podManagementPolicy") or ""
    if not policy:
        errs.append(field.required("spec.podManagementPolicy"))
    elif policy not in ("OrderedReady", "Parallel"):
        errs.append(field.invalid("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'"))
    errs += _update_strategy(spec.get("updateStrategy") or {})
    retention = spec.get("persistentVolumeClaimRetentionPolicy")
    for key in ("whenDeleted", "whenScaled"):
        if retention is not None and retention.get(key) not in ("Retain", "Delete"):
            at = f"spec.persistentVolumeClaimRetentionPolicy.{key}"
            errs.append(unsupported(at, retention.get(key) or "", ("Retain", "Delete")))
    for i, claim in enumerate(spec.get("volumeClaimTemplates") or ()) if created else ():
        errs += claim_spec(claim.get("spec") or {}, f"spec.volumeClaimTemplates[{i}].spec")
    errs += counts(spec, "spec", "replicas", "minReadySeconds")
    errs += counts(spec.get("ordinals") or {}, "spec.ordinals", "start")
    name = spec.get("serviceName")
    if created and name:
        errs += [field.invalid("spec.serviceName", name, m) for m in names.is_dns1123_label(name)]
    errs += selector(spec, "spec", "empty selector is invalid for statefulset")
    errs += selected_template(_with_claims(spec), "spec", "", "StatefulSet", options, whole)
    return errs + always_restarted(spec, "spec", "StatefulSet") if converted(spec.get("selector")) is None else errs


@strategy_for("apps", "statefulsets")
class StatefulSetStrategy(Workload):
    """StatefulSets: a Workload with claim templates, of whose spec only some fields may change."""

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidateStatefulSet``; the name is a DNS label, because the pods' hostnames begin with it."""
        return object_meta(obj["metadata"], True, names.dns_label) + _spec(obj.get("spec") or {}, DEFAULT, True)

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateStatefulSetUpdate``: only a few fields of the spec may change; errors that the stored one already has are tolerated."""
        spec, before = obj.get("spec") or {}, old.get("spec") or {}
        options = options_for_template(before.get("template"))
        errs = object_meta_update(obj["metadata"], old["metadata"])
        errs += _spec(spec, options, False, not _spec(before, options, False))
        fixed = dict(spec)
        for key in MUTABLE:
            take(fixed, before, key)
        if not semantic_equal(fixed, before, builtin_type("apps.v1.StatefulSetSpec")):
            errs.append(field.forbidden("spec", FROZEN))
        return errs

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateStatefulSetStatusUpdate``: no count is negative or above its total; collisionCount never decreases."""
        status, above = obj.get("status") or {}, "cannot be greater than status.replicas"
        errs = counts(
            status, "status", "replicas", "readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas",
            "observedGeneration", "collisionCount",
        )  # fmt: skip
        for key in ("readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"):
            errs += at_most(status, key, "replicas", above)
        errs += at_most(status, "availableReplicas", "readyReplicas", "cannot be greater than status.readyReplicas")
        errs += object_meta_update(obj["metadata"], old["metadata"])
        return errs + not_decremented(status, old.get("status") or {})

    def _claim_warnings(self, obj: Obj, part: str) -> list[str]:
        spec, out = obj.get("spec") or {}, []
        for i, claim in enumerate(spec.get("volumeClaimTemplates") or ()):
            out += claim_spec_warnings(claim.get("spec") or {}, f"spec.volumeClaimTemplates[{i}]{part}")
        if (spec.get("revisionHistoryLimit") or 0) < 0:
            text = "a negative value retains all historical revisions; a value >= 0 is recommended"
            out.append(f"spec.revisionHistoryLimit: {text}")
        return out

    def warnings_on_create(self, ctx: Context, obj: Obj) -> list[str]:
        """The warnings of the pod template, then those of the claim templates."""
        return self.warnings(obj) + self._claim_warnings(obj, "")

    def warnings_on_update(self, ctx: Context, obj: Obj, old: Obj) -> list[str]:
        """Return the warnings of the pod template, and in every update those of the claims, under upstream's path for them."""
        return super().warnings_on_update(ctx, obj, old) + self._claim_warnings(obj, ".Spec")


@early_defaults_for("apps", "v1", "StatefulSet")
def early_stateful_set(obj: Obj) -> None:
    """Give a partition only to a strategy without a type; an explicit RollingUpdate without a body stays without one."""
    spec: Any = obj.get("spec")
    if spec is None:
        spec = obj["spec"] = {}
    strategy: Any = spec.get("updateStrategy")
    if strategy is None:
        strategy = spec["updateStrategy"] = {}
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
        if strategy.get("rollingUpdate") is None:
            strategy["rollingUpdate"] = {"partition": 0}


@defaults_for("apps", "v1", "StatefulSet")
def default_stateful_set(obj: Obj) -> None:
    """Apply computed defaults: pod template, retention policy, and version, kind, phase and rounded requests of each claim template."""
    spec = default_template(obj)
    policy = spec.get("persistentVolumeClaimRetentionPolicy")
    if policy is None:
        policy = spec["persistentVolumeClaimRetentionPolicy"] = {}
    for key in ("whenDeleted", "whenScaled"):
        if not policy.get(key):
            policy[key] = "Retain"
    for claim in spec.get("volumeClaimTemplates") or ():
        claim["apiVersion"], claim["kind"] = "v1", "PersistentVolumeClaim"
        status = claim.setdefault("status", {})
        if not status.get("phase"):
            status["phase"] = "Pending"
        round_up_requirements((claim.get("spec") or {}).get("resources"))


@printer("apps", "StatefulSet")
def stateful_set_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, ready of wanted replicas, age, containers, images."""
    spec, status = part(obj, "spec"), part(obj, "status")
    ratio = f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}"
    return [obj["metadata"].get("name", ""), ratio, age(obj, now), *containers(part(spec, "template"))]
