"""Deployments (upstream ``pkg/registry/apps/deployment``, ``pkg/apis/apps/validation``)."""

from __future__ import annotations

from typing import Any

from kas.api import field
from kas.api.defaults.apps import ROLLBACK_TO
from kas.api.field import FieldError
from kas.api.gostruct import in_order, render
from kas.api.validation import names
from kas.api.validation.checks import immutable, nonnegative, not_more_than_100_percent, positive_int_or_percent, unsupported
from kas.api.validation.coremeta import object_meta, object_meta_update
from kas.api.validation.podoptions import DEFAULT, Options, options_for_template
from kas.api.validation.workloads import at_most, counts, not_decremented, percent_or_int, selected_template, selector
from kas.registry.strategy import Context, Obj, strategy_for
from kas.registry.workload import Workload

ABOVE = "cannot be greater than status.replicas"


def _strategy(strategy: dict[str, Any]) -> list[FieldError]:
    kind, body, path = strategy.get("type"), strategy.get("rollingUpdate"), "spec.strategy.rollingUpdate"
    if kind == "Recreate":
        if body is not None:
            return [field.forbidden(path, "may not be specified when strategy `type` is 'Recreate'")]
        return []
    if kind != "RollingUpdate":
        return [unsupported("spec.strategy", render("DeploymentStrategy", strategy), ("Recreate", "RollingUpdate"))]
    if body is None:
        return [field.required(path, "this should be defaulted and never be nil")]
    unavailable, surge = body.get("maxUnavailable"), body.get("maxSurge")
    errs = positive_int_or_percent(unavailable or 0, f"{path}.maxUnavailable")
    errs += positive_int_or_percent(surge or 0, f"{path}.maxSurge")
    if percent_or_int(unavailable) == 0 and percent_or_int(surge) == 0:
        errs.append(field.invalid(f"{path}.maxUnavailable", unavailable or 0, "may not be 0 when `maxSurge` is 0"))
    return errs + not_more_than_100_percent(unavailable, f"{path}.maxUnavailable")


def _spec(obj: Obj, options: Options) -> list[FieldError]:
    spec = obj.get("spec") or {}
    errs = counts(spec, "spec", "replicas")
    errs += selector(spec, "spec", "empty selector is invalid for deployment")
    errs += selected_template(spec, "spec", "invalid label selector", "ReplicaSet", options)
    errs += _strategy(spec.get("strategy") or {})
    errs += counts(spec, "spec", "minReadySeconds", "revisionHistoryLimit")
    revision = int((obj["metadata"].get("annotations") or {}).get(ROLLBACK_TO) or 0)
    errs += nonnegative(revision, "spec.rollback.version")
    deadline = spec.get("progressDeadlineSeconds")
    if deadline is not None:
        errs += counts(spec, "spec", "progressDeadlineSeconds")
        if deadline <= (spec.get("minReadySeconds") or 0):
            errs.append(field.invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds"))
    return errs


@strategy_for("apps", "deployments")
class DeploymentStrategy(Workload):
    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        return object_meta(obj["metadata"], True, names.dns_subdomain) + _spec(obj, DEFAULT)

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        spec, before = obj.get("spec") or {}, old.get("spec") or {}
        errs = object_meta_update(obj["metadata"], old["metadata"])
        errs += _spec(obj, options_for_template(before.get("template")))
        return errs + immutable(in_order(spec.get("selector")), before.get("selector"), "spec.selector")

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        status = obj.get("status") or {}
        errs = object_meta_update(obj["metadata"], old["metadata"])
        errs += counts(
            status, "status", "observedGeneration", "replicas", "updatedReplicas", "readyReplicas", "availableReplicas",
            "unavailableReplicas", "terminatingReplicas", "collisionCount",
        )  # fmt: skip
        for key in ("updatedReplicas", "readyReplicas", "availableReplicas"):
            errs += at_most(status, key, "replicas", ABOVE)
        errs += at_most(status, "availableReplicas", "readyReplicas", "cannot be greater than readyReplicas")
        return errs + not_decremented(status, old.get("status") or {})
