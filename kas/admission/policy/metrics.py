"""Metrics of admission policies, under upstream's names (``policy/{validating,mutating}/metrics``)."""

from __future__ import annotations

from kas.admission.conditionmetrics import ConditionMetrics
from kas.observe.metrics import Registry

NO_ERROR, COMPILE_ERROR, INVALID_ERROR, OUT_OF_BUDGET = "no_error", "compile_error", "invalid_error", "out_of_budget"
_BUCKETS = (0.0000005, 0.001, 0.01, 0.1, 1.0)


class ValidatingMetrics:
    """As upstream, counts only validations that failed or were not evaluated, by what was done (``allow``, ``deny``, ``warn``, ``audit``)
    and why."""

    def __init__(self, metrics: Registry) -> None:
        self.conditions = ConditionMetrics(metrics, "policy", "validate")
        labels = ("policy", "policy_binding", "error_type", "enforcement_action")
        self._checks = metrics.counter(
            "apiserver_validating_admission_policy_check_total",
            "Validation admission policy check total, labeled by policy and further identified by binding and enforcement action taken.",
            labels,
        )
        self._seconds = metrics.histogram(
            "apiserver_validating_admission_policy_check_duration_seconds",
            "Validation admission latency for individual validation expressions in seconds, labeled by policy and further including "
            "binding and enforcement action taken.",
            labels, _BUCKETS,
        )  # fmt: skip

    def observe(self, policy: str, binding: str, error: str, action: str, seconds: float) -> None:
        """Record the result of one validation."""
        labels = policy, binding, error, action
        self._checks.inc(labels)
        self._seconds.observe(labels, seconds)


class MutatingMetrics:
    """Counts every mutation."""

    def __init__(self, metrics: Registry) -> None:
        self.conditions = ConditionMetrics(metrics, "policy", "mutate")
        labels = ("policy", "policy_binding", "error_type")
        self._checks = metrics.counter(
            "apiserver_mutating_admission_policy_check_total",
            "Mutation admission policy check total, labeled by policy and further identified by binding.", labels,
        )  # fmt: skip
        self._seconds = metrics.histogram(
            "apiserver_mutating_admission_policy_check_duration_seconds",
            "Mutation admission latency for individual mutation expressions in seconds, labeled by policy and binding.", labels, _BUCKETS,
        )  # fmt: skip

    def observe(self, policy: str, binding: str, error: str, seconds: float) -> None:
        """Record the result of one mutation."""
        labels = policy, binding, error
        self._checks.inc(labels)
        self._seconds.observe(labels, seconds)


def error_type(why: str) -> str:
    """Return the type of the error in a message; like upstream, by its prefix."""
    if why.startswith("compilation"):
        return COMPILE_ERROR
    return OUT_OF_BUDGET if why.startswith("validation failed due to running out of cost budget") else INVALID_ERROR
