"""Metrics of conversion webhooks, with upstream's names (apiextensions-apiserver ``pkg/apiserver/conversion/metrics.go``)."""

from __future__ import annotations

from kas.client.deprecatedcerts import OutdatedCertificates
from kas.observe.metrics import Registry

# Failure types of a conversion.
CALL, MALFORMED = "conversion_webhook_call_failure", "conversion_webhook_malformed_response_failure"
PARTIAL, NOTHING = "conversion_webhook_partial_response_failure", "conversion_webhook_no_objects_returned_failure"
INVALID = "conversion_webhook_invalid_converted_object_failure"
_BUCKETS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0)


class ConversionMetrics:
    """The conversion metrics of all definitions in a worker process."""

    def __init__(self, metrics: Registry) -> None:
        self._requests = metrics.counter(
            "apiserver_conversion_webhook_request_total",
            "Counter for conversion webhook requests with success/failure and failure error type", ("result", "failure_type"),
        )  # fmt: skip
        self._seconds = metrics.histogram(
            "apiserver_conversion_webhook_duration_seconds", "Conversion webhook request latency", ("result", "failure_type"), _BUCKETS
        )
        self._conversions = metrics.histogram(
            "apiserver_crd_conversion_webhook_duration_seconds", "CRD webhook conversion duration in seconds",
            ("crd_name", "from_version", "to_version", "succeeded"), tuple(0.001 * 2**i for i in range(15)),
        )  # fmt: skip
        self.outdated = OutdatedCertificates(metrics)

    def called(self, seconds: float, failure: str = "") -> None:
        """Count one webhook call; ``failure`` is its failure type, or "" for success."""
        labels = ("failure" if failure else "success", failure)
        self._requests.inc(labels)
        self._seconds.observe(labels, seconds)

    def converted(self, definition: str, before: str, after: str, seconds: float, succeeded: bool) -> None:
        """Observe a conversion of a definition's objects from one version to another."""
        self._conversions.observe((definition, before, after, "true" if succeeded else "false"), seconds)
