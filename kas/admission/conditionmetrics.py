"""Counts what match conditions came to, of webhooks and of policies, under upstream's names (``pkg/admission/metrics``)."""

from __future__ import annotations

from kas.observe.metrics import Registry

_LABELS = ("name", "kind", "type", "operation")
_OF = (
    "identified by name of resource containing the match condition and broken out for each kind containing matchConditions (webhook or "
    "policy), operation and admission type (validate or admit)."
)


class ConditionMetrics:
    """``kind`` is what has the conditions, "webhook" or "policy"; ``type`` is upstream's name for the sort of admission."""

    def __init__(self, metrics: Registry, kind: str, type: str) -> None:
        self._where = kind, type
        self._errors = metrics.counter(
            "apiserver_admission_match_condition_evaluation_errors_total", f"Admission match condition evaluation errors count, {_OF}",
            _LABELS,
        )  # fmt: skip
        self._exclusions = metrics.counter(
            "apiserver_admission_match_condition_exclusions_total", f"Admission match condition evaluation exclusions count, {_OF}", _LABELS
        )

    def failed(self, name: str, operation: str) -> None:
        """A condition came to no value."""
        self._errors.inc((name, *self._where, operation))

    def excluded(self, name: str, operation: str) -> None:
        """A condition did not hold."""
        self._exclusions.inc((name, *self._where, operation))
