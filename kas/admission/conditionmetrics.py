"""Counts what match conditions came to, of webhooks and of policies, under upstream's names (``pkg/admission/metrics``)."""

from __future__ import annotations

from kas.observe.metrics import Registry

_LABELS = ("name", "kind", "type", "operation")
_OF = (
    "identified by name of resource containing the match condition and broken out for each kind containing matchConditions (webhook or "
    "policy), operation and admission type (validate or admit)."
)


class ConditionMetrics:
    """``kind`` is what has the conditions, "webhook" or "policy"; ``type`` is upstream's name for the sort of admission, ``excluding`` that
    where nothing is asked, which is another one."""

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
        """A condition came to no value."""
        self._errors.inc((name, *self._where, operation))

    def excluded(self, name: str, operation: str) -> None:
        """A condition did not hold."""
        self._exclusions.inc((name, *self._excluding, operation))

    def evaluated(self, name: str, operation: str, seconds: float) -> None:
        """It took as long until conditions did not hold, or came to no value; upstream leaves out those that all hold."""
        self._seconds.observe((name, *self._where, operation), seconds)
