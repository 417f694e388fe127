"""Flags of kube-apiserver's section "auditing"."""

from __future__ import annotations

from typing import Any

from kas.config.flags.row import Flag


def _sink(sink: str, mode: str, batch: tuple[int, float, int, bool, float]) -> list[Flag]:
    """The flags the log and the webhook have alike; ``batch`` is (size, wait in seconds, burst, throttle, queries a second)."""
    rows: list[tuple[str, str, Any, str]] = [
        ("batch-buffer-size", "int", 10000, "Events that may wait to be written, in each worker, in mode batch."),
        ("batch-max-size", "int", batch[0], "Most events of one batch."),
        ("batch-max-wait", "duration", batch[1], "How long a batch that is not full may wait."),
        ("batch-throttle-burst", "int", batch[2], "Batches that may go at once when there were none for a while."),
        ("batch-throttle-enable", "bool", batch[3], "Whether batches are throttled."),
        ("batch-throttle-qps", "float32", batch[4], "Batches a second."),
        ("mode", "string", mode, "Whether requests wait for their events: batch, blocking, or blocking-strict (or are refused)."),
        ("truncate-enabled", "bool", False, "Whether events that are too large are shortened."),
        ("truncate-max-batch-size", "int", 10485760, "Largest batch, in bytes."),
        ("truncate-max-event-size", "int", 102400, "Largest event, in bytes."),
        ("version", "string", "audit.k8s.io/v1", "API version of the events."),
    ]
    return [Flag(f"audit-{sink}-{name}", kind, default, text) for name, kind, default, text in rows]


AUDITING = (
    Flag("audit-policy-file", "path", "", "Policy: which requests are recorded, and how much of them."),
    Flag("audit-log-path", "string", "", "File the events are written to; '-' is standard output."),
    Flag("audit-webhook-config-file", "path", "", "Kubeconfig of the webhook the events are sent to."),
    *_sink("log", "blocking", (1, 0.0, 0, False, 0.0)),
    Flag("audit-log-compress", "bool", False, "Compress the files that were rotated away."),
    Flag("audit-log-format", "string", "json", "Form of a line: json or legacy."),
    Flag("audit-log-maxage", "int", 366, "Days old files are kept."),
    Flag("audit-log-maxbackup", "int", 100, "Old files that are kept."),
    Flag("audit-log-maxsize", "int", 100, "Size in megabytes at which a file is rotated."),
    *_sink("webhook", "batch", (400, 30.0, 15, True, 10.0)),
    Flag("audit-webhook-initial-backoff", "duration", 10.0, "First pause after a failure."),
)  # fmt: skip
