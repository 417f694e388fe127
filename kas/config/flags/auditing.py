"""Flags of kube-apiserver's section "auditing"."""

from __future__ import annotations

from typing import Any

from kas.config.flags.row import Flag


def _sink(sink: str, mode: str, batch: tuple[int, float, int, bool, float]) -> list[Flag]:
    """Return the flags that the log and the webhook share; ``batch`` is (size, wait in seconds, burst, throttle, queries per second)."""
    rows: list[tuple[str, str, Any, str]] = [
        ("batch-buffer-size", "int", 10000, "Most events that wait to be written in mode batch, per worker."),
        ("batch-max-size", "int", batch[0], "Most events in a batch."),
        ("batch-max-wait", "duration", batch[1], "How long an incomplete batch may wait."),
        ("batch-throttle-burst", "int", batch[2], "Most batches sent at once after a pause."),
        ("batch-throttle-enable", "bool", batch[3], "Whether batches are throttled."),
        ("batch-throttle-qps", "float32", batch[4], "Most batches per second."),
        ("mode", "string", mode,
         "Whether requests wait until their events are written: batch (no), blocking (yes), or blocking-strict (and fail with them)."),
        ("truncate-enabled", "bool", False, "Truncate events and batches that are too large."),
        ("truncate-max-batch-size", "int", 10485760, "Largest batch, in bytes."),
        ("truncate-max-event-size", "int", 102400, "Largest event, in bytes."),
        ("version", "string", "audit.k8s.io/v1", "API version of the events."),
    ]
    return [Flag(f"audit-{sink}-{name}", kind, default, text) for name, kind, default, text in rows]


AUDITING = (
    Flag("audit-policy-file", "path", "", "Policy file that defines which requests are recorded, and in how much detail."),
    Flag("audit-log-path", "string", "", "File to which events are written; '-' is standard output."),
    Flag("audit-webhook-config-file", "path", "", "Kubeconfig of the webhook to which events are sent."),
    *_sink("log", "blocking", (1, 0.0, 0, False, 0.0)),
    Flag("audit-log-compress", "bool", False, "Compress rotated files."),
    Flag("audit-log-format", "string", "json", "Format of a line: json or legacy."),
    Flag("audit-log-maxage", "int", 366, "Days to keep rotated files."),
    Flag("audit-log-maxbackup", "int", 100, "Number of rotated files to keep."),
    Flag("audit-log-maxsize", "int", 100, "Size in megabytes at which a file is rotated."),
    *_sink("webhook", "batch", (400, 30.0, 15, True, 10.0)),
    Flag("audit-webhook-initial-backoff", "duration", 10.0, "Pause before the first retry."),
)  # fmt: skip
