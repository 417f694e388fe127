"""Strategy of PodDisruptionBudget (upstream ``pkg/registry/policy/poddisruptionbudget``)."""

from __future__ import annotations

from typing import Any

from kas.meta import field
from kas.meta.age import age
from kas.meta.checks import conditions, nonnegative, not_more_than_100_percent, positive_int_or_percent, unsupported
from kas.meta.field import FieldError
from kas.meta.labelselectors import label_selector
from kas.registry.printing.cells import part
from kas.registry.printing.rows import printer
from kas.registry.strategy import Context, Obj, Strategy, strategy_for
from kas.types.gostruct import render

UNHEALTHY_POLICIES = ("AlwaysAllow", "IfHealthyBudget")


@strategy_for("policy", "poddisruptionbudgets")
class PodDisruptionBudgetStrategy(Strategy):
    """PodDisruptionBudgets; only the generic rules apply to their metadata."""

    def validate(self, ctx: Context, obj: Obj) -> list[FieldError]:
        """``ValidatePodDisruptionBudget``; the name is left to the generic checks."""
        return _spec(obj.get("spec") or {}, allow_invalid_values=False)

    def validate_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """Validate the whole new object, tolerating errors of a stored selector."""
        stored = (old.get("spec") or {}).get("selector")
        tolerated = stored is not None and bool(label_selector(stored, ""))
        return _spec(obj.get("spec") or {}, tolerated)

    def validate_status_update(self, ctx: Context, obj: Obj, old: Obj) -> list[FieldError]:
        """``ValidatePodDisruptionBudgetStatusUpdate``: conditions, and no count is negative."""
        status = obj.get("status") or {}
        errs = conditions(status.get("conditions"), "status.conditions")
        for name in ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"):
            errs += nonnegative(status.get(name) or 0, f"status.{name}")
        return errs


def _spec(spec: dict[str, Any], allow_invalid_values: bool) -> list[FieldError]:
    errs: list[FieldError] = []
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        shown = render("policy.PodDisruptionBudgetSpec", spec)
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


@printer("policy", "PodDisruptionBudget")
def pod_disruption_budget_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, min available, max unavailable, allowed disruptions, age."""
    spec = part(obj, "spec")
    return [
        obj["metadata"].get("name", ""), str(spec.get("minAvailable", "N/A")), str(spec.get("maxUnavailable", "N/A")),
        part(obj, "status").get("disruptionsAllowed", 0), age(obj, now),
    ]  # fmt: skip
