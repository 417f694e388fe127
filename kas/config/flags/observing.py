"""Flags of kube-apiserver's sections "features", "metrics", "logs" and "traces"."""

from __future__ import annotations

from kas.config.flags.row import Flag, no_effect

_UNBUFFERED = no_effect("every line is written at once")
_ONE_STREAM = no_effect("all lines go to standard error", False)

FEATURES = (
    Flag("contention-profiling", "bool", False, "Profile blocking on locks.", no_effect("no profile tells of locks", False)),
    Flag("debug-socket-path", "string", "", "Unix socket that serves profiles without authentication.",
         no_effect("profiles are served under /debug/ with --profiling")),
    Flag("enable-priority-and-fairness", "bool", True,
         "Queue requests by priority levels, which share the sum of --max-requests-inflight and --max-mutating-requests-inflight; "
         "without it each of these is a limit by itself."),
    Flag("profiling", "bool", False, "Serve /debug/: samples, threads and memory of a worker, and PUT of the verbosity.", upstream="true"),
)  # fmt: skip

METRICS = (
    Flag("allow-metric-labels", "stringToString", {},
         "Values that labels of metrics may have, others are shown as unexpected: metric,label=value,…."),
    Flag("allow-metric-labels-manifest", "string", "", "YAML file with the same, for when the flag is not given."),
    Flag("disabled-metrics", "strings", (), "Metrics that are not shown."),
    Flag("show-hidden-metrics-for-version", "string", "", "Version whose hidden metrics are shown.", no_effect("kas hides no metric")),
)  # fmt: skip

LOGS = (
    Flag("log-flush-frequency", "duration", 5.0, "How often logs are flushed.", _UNBUFFERED),
    Flag("log-json-info-buffer-size", "quantity", 0, "Buffer of information in JSON.", _UNBUFFERED),
    Flag("log-json-split-stream", "bool", False, "Information in JSON to standard output.", _ONE_STREAM),
    Flag("log-text-info-buffer-size", "quantity", 0, "Buffer of information as text.", _UNBUFFERED),
    Flag("log-text-split-stream", "bool", False, "Information as text to standard output.", _ONE_STREAM),
    Flag("logging-format", "string", "text", "text or json."),
    Flag("v", "Level", 0, "Log verbosity: 1 tells steps of the start, 3 requests, 6 everything.", short="v"),
    Flag("vmodule", "pattern=N,...", "",
         "Verbosity of single files, by their names without .py or, with a slash, by their paths below kas/: "
         "http_logging=3,controllers/*=6."),
)  # fmt: skip

TRACES = (
    Flag("tracing-config-file", "string", "", "TracingConfiguration file: where spans go (OTLP over gRPC), and of how many requests. Needs "
         "the extra kas[tracing]."),
)
