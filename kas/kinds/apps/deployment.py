"""Deployments (upstream ``pkg/registry/apps/deployment``, ``pkg/apis/apps/validation``)."""

from __future__ import annotations

from typing import Any

from kas import checks
from kas.kinds.apps.defaults import default_rolling_update, default_template
from kas.kinds.core.objectmeta import object_meta, object_meta_update
from kas.kinds.core.pod.options import DEFAULT, Options, options_for_template
from kas.kinds.core.workload.strategy import Workload
from kas.kinds.core.workload.validation import (
    COUNT,
    SELECTED,
    SHARE,
    SOME_SHARE,
    at_most,
    counts,
    immutable_selector,
    not_decremented,
    percent_or_int,
    selected_template,
    selector,
)
from kas.meta import field, names
from kas.meta.age import age
from kas.meta.checks import nonnegative, not_more_than_100_percent, positive_int_or_percent, unsupported
from kas.meta.field import FieldError
from kas.meta.scalars import int64
from kas.registry.printing.cells import containers, part, selector_text
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, strategy_for
from kas.types.checktables import ANY, Checked, Message, either, need
from kas.types.defaults import defaults_for
from kas.types.gostruct import render
from kas.types.scheme import DecodeError

ABOVE = "cannot be greater than status.replicas"


_ROLLING = either(
    {"maxUnavailable": need(SOME_SHARE), "maxSurge": SHARE}, {"maxUnavailable": SHARE, "maxSurge": need(SOME_SHARE)}
)  # fmt: skip
_STRATEGY = either(
    {"type": need(checks.option("RollingUpdate")), "rollingUpdate": need(_ROLLING)}, {"type": need(checks.option("Recreate"))}
)  # fmt: skip


def _in_time(spec: Obj) -> bool:
    return int(spec["progressDeadlineSeconds"]) > (spec.get("minReadySeconds") or 0)


CHECK = Checked(
    "apps.v1.DeploymentSpec",
    Message(
        {
            **SELECTED, "replicas": COUNT, "strategy": need(_STRATEGY), "minReadySeconds": COUNT, "revisionHistoryLimit": COUNT,
            "paused": ANY,
            "progressDeadlineSeconds": COUNT,
        },
        rules=[(("progressDeadlineSeconds",), _in_time)],
    ),
)  # fmt: skip


def _strategy(strategy: dict[str, Any]) -> list[FieldError]:
    kind, body, path = strategy.get("type"), strategy.get("rollingUpdate"), "spec.strategy.rollingUpdate"
    if kind == "Recreate":
        if body is not None:
            return [field.forbidden(path, "may not be specified when strategy `type` is 'Recreate'")]
        return []
    if kind != "RollingUpdate":
        return [unsupported("spec.strategy", render("apps.DeploymentStrategy", strategy), ("Recreate", "RollingUpdate"))]
    if body is None:
        return [field.required(path, "this should be defaulted and never be nil")]
    # An empty text is not a number and is refused as an invalid percentage.
    unavailable, surge = (0 if body.get(name) is None else body[name] for name in ("maxUnavailable", "maxSurge"))
    errs = positive_int_or_percent(unavailable, f"{path}.maxUnavailable")
    errs += positive_int_or_percent(surge, f"{path}.maxSurge")
    if percent_or_int(unavailable) == 0 and percent_or_int(surge) == 0:
        errs.append(field.invalid(f"{path}.maxUnavailable", unavailable, "may not be 0 when `maxSurge` is 0"))
    return errs + not_more_than_100_percent(unavailable, f"{path}.maxUnavailable")


def _spec(obj: Obj, options: Options) -> list[FieldError]:
    spec = obj.get("spec") or {}
    if CHECK.passes(spec) and ROLLBACK_TO not in (obj["metadata"].get("annotations") or ()):
        return selected_template(spec, "spec", "", "ReplicaSet", options)
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
    """Deployments: a Workload with an immutable selector."""

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidateDeployment``."""
        return object_meta(obj["metadata"], True, names.dns_subdomain) + _spec(obj, DEFAULT)

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateDeploymentUpdate``: the selector may not change, and errors that the stored pod template already has are tolerated."""
        spec, before = obj.get("spec") or {}, old.get("spec") or {}
        errs = object_meta_update(obj["metadata"], old["metadata"])
        errs += _spec(obj, options_for_template(before.get("template")))
        return errs + immutable_selector(spec, before)

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidateDeploymentStatusUpdate``: no count is negative or above its total; collisionCount never decreases."""
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


ROLLBACK_TO = "deprecated.deployment.rollback.revisionRollbackTo"


def _rollback(obj: Obj) -> None:
    """Check that the revision of a rollback is a number; an empty one counts as absent."""
    notes = (obj.get("metadata") or {}).get("annotations") or {}
    if ROLLBACK_TO in notes:
        revision = notes.pop(ROLLBACK_TO)
        if revision:
            try:
                notes[ROLLBACK_TO] = str(int64(revision))
            except DecodeError as err:
                raise DecodeError(f"failed to parse annotation[{ROLLBACK_TO}]={revision} as int64: {err}") from err


@defaults_for("apps", "v1", "Deployment")
def default_deployment(obj: Obj) -> None:
    """Apply computed defaults: pod template, and a rolling update by 25%. Raises DecodeError for a rollback annotation that is no int64."""
    _rollback(obj)
    default_rolling_update(default_template(obj).setdefault("strategy", {}), "25%", "25%")


@printer("apps", "Deployment")
def deployment_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, ready of wanted replicas, up to date, available, age, containers, images, selector."""
    spec, status = part(obj, "spec"), part(obj, "status")
    return [
        obj["metadata"].get("name", ""), f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}",
        status.get("updatedReplicas", 0), status.get("availableReplicas", 0), age(obj, now),
        *containers(part(spec, "template")), selector_text(spec.get("selector")),
    ]  # fmt: skip
