"""Metrics of webhooks, under upstream's names (``pkg/admission/metrics``)."""

from __future__ import annotations

from kas.admission.conditionmetrics import ConditionMetrics
from kas.admission.webhook._texts import Allowed
from kas.client.deprecatedcerts import OutdatedCertificates
from kas.observe.metrics import Labels, Registry, Timer

# Reasons for a rejection.
NO_ERROR, CALLING_ERROR, SERVER_ERROR = "no_error", "calling_webhook_error", "apiserver_internal_error"
MAX_CODE = 600
OK = 200


class WebhookMetrics(Allowed):
    """``kind`` is "admit" or "validating", upstream's labels."""

    def __init__(self, metrics: Registry, kind: str) -> None:
        self._kind = kind
        self._seconds = metrics.histogram(
            "apiserver_admission_webhook_admission_duration_seconds",
            "Admission webhook latency histogram in seconds, identified by name and broken out for each operation and API resource and "
            "type (validate or admit).",
            ("name", "type", "operation", "rejected"), (0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10, 25),
        )  # fmt: skip
        self._requests = metrics.counter(
            "apiserver_admission_webhook_request_total",
            "Admission webhook request total, identified by name and broken out for each admission type (validating or admit) and "
            "operation. Additional labels specify whether the request was rejected or not and an HTTP status code. Codes greater than 600 "
            "are truncated to 600, to keep the metrics cardinality bounded.",
            ("name", "type", "operation", "code", "rejected"),
        )
        self._rejections = metrics.counter(
            "apiserver_admission_webhook_rejection_count",
            "Admission webhook rejection count, identified by name and broken out for each admission type (validating or admit) and "
            "operation. Additional labels specify an error type (calling_webhook_error or apiserver_internal_error if an error occurred; "
            "no_error otherwise) and optionally a non-zero rejection code if the webhook rejects the request with an HTTP status code "
            "(honored by the apiserver when the code is greater or equal to 400). Codes greater than 600 are truncated to 600, to keep "
            "the metrics cardinality bounded.",
            ("name", "type", "operation", "error_type", "rejection_code"),
        )
        self._open = metrics.counter(
            "apiserver_admission_webhook_fail_open_count",
            "Admission webhook fail open count, identified by name and broken out for each admission type (validating or admit).",
            ("name", "type"),
        )
        self.outdated = OutdatedCertificates(metrics)
        # As many entries as the counter has children.
        self._called: dict[tuple[str, str, int, bool], tuple[Labels, Timer]] = {}
        super().__init__(self._requests)
        self.conditions = ConditionMetrics(metrics, "webhook", kind, "admit" if kind == "admit" else "validate")

    def called(self, name: str, operation: str, seconds: float, code: int, rejected: bool) -> None:
        """Count a call; ``code`` is that of the answer, 0 for an error of this server."""
        known = self._called.get((name, operation, code, rejected))
        if known is None:
            said = "true" if rejected else "false"
            known = (name, self._kind, operation, str(min(code, MAX_CODE)), said), Timer(self._seconds, (name, self._kind, operation, said))
            self._called[name, operation, code, rejected] = known
        self._requests.inc(known[0])
        known[1].add(seconds)

    def first(self, name: str, operation: str, seconds: float) -> tuple[Labels, Timer]:
        """Count the first allowed call, and return the labels and the Timer that count further ones."""
        self.called(name, operation, seconds, OK, False)
        return self._called[name, operation, OK, False]

    def rejected(self, name: str, operation: str, why: str, code: int) -> None:
        """Count a request refused because of a webhook."""
        self._rejections.inc((name, self._kind, operation, why, str(min(code, MAX_CODE))))

    def failed_open(self, name: str) -> None:
        """Count a request that continues although the webhook could not be called."""
        self._open.inc((name, self._kind))
