"""Metrics of match conditions of webhooks and policies, under upstream's names (``pkg/admission/metrics``)."""

from __future__ import annotations

from kas.observe.metrics import Registry

_LABELS = ("name", "kind", "type", "operation")
_OF = (
    "identified by name of resource containing the match condition and broken out for each kind containing matchConditions (webhook or "
    "policy), operation and admission type (validate or admit)."
)


class ConditionMetrics:
    """``kind`` is the owner of the conditions, "webhook" or "policy". ``type`` is upstream's label for the kind of admission;
    ``excluding`` is the label for exclusions, which differs."""

    def __init__(self, metrics: Registry, kind: str, type: str, excluding: str = "") -> None:
        self._where, self._excluding = (kind, type), (kind, excluding or type)
        self._errors = metrics.counter(
            "apiserver_admission_match_condition_evaluation_errors_total", f"Admission match condition evaluation errors count, {_OF}",
            _LABELS,
        )  # fmt: skip
        self._exclusions = metrics.counter(
            "apiserver_admission_match_condition_exclusions_total", f"Admission match condition evaluation exclusions count, {_OF}", _LABELS
        )
        self._seconds = metrics.histogram(
            "apiserver_admission_match_condition_evaluation_seconds",
            "Admission match condition evaluation time in seconds, identified by name and broken out for each kind containing "
            "matchConditions (webhook or policy), operation and type (validate or admit).",
            _LABELS, (0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25),
        )  # fmt: skip

    def failed(self, name: str, operation: str) -> None:
        """Count a condition whose evaluation failed."""
        self._errors.inc((name, *self._where, operation))

    def excluded(self, name: str, operation: str) -> None:
        """Count an exclusion by a false condition."""
        self._exclusions.inc((name, *self._excluding, operation))

    def evaluated(self, name: str, operation: str, seconds: float) -> None:
        """Record the duration of an evaluation with a false or failed condition; upstream does not record the others."""
        self._seconds.observe((name, *self._where, operation), seconds)
