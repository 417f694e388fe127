"""StatefulSets (upstream ``pkg/registry/apps/statefulset``, ``pkg/apis/apps/validation``)."""

from __future__ import annotations

from typing import Any

from kas.api import field
from kas.api.equality import semantic_equal
from kas.api.field import FieldError
from kas.api.gostruct import render
from kas.api.validation import names
from kas.api.validation.checks import not_more_than_100_percent, positive_int_or_percent, unsupported
from kas.api.validation.claims import claim_spec, claim_spec_warnings
from kas.api.validation.coremeta import object_meta, object_meta_update
from kas.api.validation.labelselectors import convertible
from kas.api.validation.podoptions import DEFAULT, Options, options_for_template
from kas.api.validation.workloads import always_restarted, at_most, counts, not_decremented, percent_or_int, selected_template, selector
from kas.registry.strategy import Context, Obj, strategy_for, take
from kas.registry.workload import Workload

MUTABLE = (
    "replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit", "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)  # fmt: skip
FROZEN = (
    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', "
    "'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
)


def _update_strategy(strategy: dict[str, Any]) -> list[FieldError]:
    kind, body, path = strategy.get("type") or "", strategy.get("rollingUpdate"), "spec.updateStrategy"
    if not kind:
        return [field.required(path)]
    if kind == "OnDelete":
        if body is None:
            return []
        shown = render("RollingUpdateStatefulSet", body)
        return [field.invalid(f"{path}.rollingUpdate", shown, "only allowed for updateStrategy 'RollingUpdate'")]
    if kind != "RollingUpdate":
        shown = render("StatefulSetUpdateStrategy", strategy)
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
    """Containers mount claims of the set like volumes; the template is checked as if it had those volumes, which come first."""
    claims = spec.get("volumeClaimTemplates")
    if not claims:
        return spec
    template = spec.get("template") or {}
    pod = template.get("spec") or {}
    made = [(c.get("metadata") or {}).get("name") or "" for c in claims]
    fresh = [name for name in dict.fromkeys(made) if name and not names.is_dns1123_label(name)]
    extra = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in fresh]
    volumes = extra + [v for v in pod.get("volumes") or () if v.get("name") not in fresh]
    return {**spec, "template": {**template, "spec": {**pod, "volumes": volumes}}}


def _spec(spec: dict[str, Any], options: Options, created: bool, whole: bool = True) -> list[FieldError]:
    """``created``: what never changes later is checked. Not ``whole``: the template was not valid before, and its pods are left alone."""
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
    return errs + always_restarted(spec, "spec", "StatefulSet") if convertible(spec.get("selector")) else errs


@strategy_for("apps", "statefulsets")
class StatefulSetStrategy(Workload):
    def _prepare(self, obj: Obj, old: Obj | None) -> None:
        """maxUnavailable belongs to a feature that is off."""
        body = ((obj.get("spec") or {}).get("updateStrategy") or {}).get("rollingUpdate")
        before = (((old or {}).get("spec") or {}).get("updateStrategy") or {}).get("rollingUpdate") or {}
        if body and "maxUnavailable" in body and before.get("maxUnavailable") is None:
            del body["maxUnavailable"]

    def prepare_for_create(self, ctx: Context, obj: Obj) -> None:
        self._prepare(obj, None)
        super().prepare_for_create(ctx, obj)

    def prepare_for_update(self, ctx: Context, obj: Obj, old: Obj) -> None:
        self._prepare(obj, old)
        super().prepare_for_update(ctx, obj, old)

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        return object_meta(obj["metadata"], True, names.dns_label) + _spec(obj.get("spec") or {}, DEFAULT, True)

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        spec, before = obj.get("spec") or {}, old.get("spec") or {}
        options = options_for_template(before.get("template"))
        errs = object_meta_update(obj["metadata"], old["metadata"])
        errs += _spec(spec, options, False, not _spec(before, options, False))
        fixed = dict(spec)
        for key in MUTABLE:
            take(fixed, before, key)
        if not semantic_equal(fixed, before):
            errs.append(field.forbidden("spec", FROZEN))
        return errs

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
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
        return self.warnings(obj) + self._claim_warnings(obj, "")

    def warnings_on_update(self, ctx: Context, obj: Obj, old: Obj) -> list[str]:
        """The claims are told of in any update, under the path upstream gives them there."""
        return super().warnings_on_update(ctx, obj, old) + self._claim_warnings(obj, ".Spec")
