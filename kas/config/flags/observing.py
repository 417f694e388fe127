"""Flags of kube-apiserver's sections "features", "metrics", "logs" and "traces"."""

from __future__ import annotations

from kas.config.flags.row import Flag, no_effect

_SPLIT = "errors, and as text warnings, to standard error, the rest to standard output."
_BUFFER = "How much of what goes to standard output may wait; 0: every line is written at once."

FEATURES = (
    Flag("contention-profiling", "bool", False, "Profile blocking on locks.",
         no_effect("what serves requests is one thread, which waits for no lock", False)),
    Flag("debug-socket-path", "string", "",
         "Unix socket (mode 0600) on which the first worker serves what --profiling does, with or without it, to who may open it."),
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
    Flag("show-hidden-metrics-for-version", "string", "",
         "1.35: show metrics that are hidden because they are deprecated."),
)  # fmt: skip

LOGS = (
    Flag("log-flush-frequency", "duration", 5.0, "How often what waits in the buffers of --log-*-info-buffer-size is written."),
    Flag("log-json-info-buffer-size", "quantity", 0, "With --log-json-split-stream. " + _BUFFER),
    Flag("log-json-split-stream", "bool", False, "With --logging-format=json: " + _SPLIT),
    Flag("log-text-info-buffer-size", "quantity", 0, "With --log-text-split-stream. " + _BUFFER),
    Flag("log-text-split-stream", "bool", False, "With --logging-format=text: " + _SPLIT),
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
