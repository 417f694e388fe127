"""Strategy of PodDisruptionBudget (upstream ``pkg/registry/policy/poddisruptionbudget``)."""

from __future__ import annotations

from typing import Any

from kas.api import field
from kas.api.field import FieldError
from kas.api.validation.checks import conditions, go_struct, nonnegative, not_more_than_100_percent, positive_int_or_percent, unsupported
from kas.api.validation.labelselectors import label_selector
from kas.registry.strategy import Context, Obj, Strategy, strategy_for

UNHEALTHY_POLICIES = ("AlwaysAllow", "IfHealthyBudget")


@strategy_for("policy", "poddisruptionbudgets")
class PodDisruptionBudgetStrategy(Strategy):
    """The kind's own validation leaves metadata to the generic check."""

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        return _spec(obj.get("spec") or {}, allow_invalid_values=False)

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        stored = (old.get("spec") or {}).get("selector")
        tolerated = stored is not None and bool(label_selector(stored, ""))
        return _spec(obj.get("spec") or {}, tolerated)

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        status = obj.get("status") or {}
        errs = conditions(status.get("conditions"), "status.conditions")
        for name in ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"):
            errs += nonnegative(status.get(name) or 0, f"status.{name}")
        return errs


def _spec(spec: dict[str, Any], allow_invalid_values: bool) -> list[FieldError]:
    errs: list[FieldError] = []
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        shown = go_struct(
            spec, ("MinAvailable", "minAvailable", None), ("Selector", "selector", None), ("MaxUnavailable", "maxUnavailable", None),
            ("UnhealthyPodEvictionPolicy", "unhealthyPodEvictionPolicy", None),
        )  # fmt: skip
        errs.append(field.invalid("spec", shown, "minAvailable and maxUnavailable cannot be both set"))
    for name in ("minAvailable", "maxUnavailable"):
        value = spec.get(name)
        if value is not None:
            path = field.child("spec", name)
            errs += positive_int_or_percent(value, path) + not_more_than_100_percent(value, path)
    if spec.get("selector") is not None:
        errs += label_selector(spec["selector"], "spec.selector", allow_invalid_values)
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy is not None and policy not in UNHEALTHY_POLICIES:
        errs.append(unsupported("spec.unhealthyPodEvictionPolicy", policy, UNHEALTHY_POLICIES))
    return errs
