"""Flags of kube-apiserver's sections "features", "metrics", "logs" and "traces"."""

from __future__ import annotations

from kas.config.flags.row import Flag, no_effect

_SPLIT = "errors (as text also warnings) go to standard error, the rest to standard output."
_BUFFER = "Size of the buffer for standard output; 0 = write every line at once."

FEATURES = (
    Flag("contention-profiling", "bool", False, "Profile blocking on locks.",
         no_effect("one thread serves requests and waits for no lock", False)),
    Flag("debug-socket-path", "string", "",
         "Unix socket (mode 0600) on which the first worker serves the paths of --profiling, whether or not that is set."),
    Flag("enable-priority-and-fairness", "bool", True,
         "Queue requests by priority levels, which share the sum of --max-requests-inflight and --max-mutating-requests-inflight; "
         "if false, these two are separate limits."),
    Flag("profiling", "bool", False,
         "Serve /debug/: samples, threads and memory of a worker, and PUT for the log verbosity.", upstream="true"),
)  # fmt: skip

METRICS = (
    Flag("allow-metric-labels", "stringToString", {},
         "Allowed values of metric labels; others are shown as unexpected: metric,label=value,…."),
    Flag("allow-metric-labels-manifest", "string", "", "YAML file with the same, used if --allow-metric-labels is not set."),
    Flag("disabled-metrics", "strings", (), "Metrics to hide."),
    Flag("show-hidden-metrics-for-version", "string", "",
         "1.35 shows the metrics that are hidden because they are deprecated."),
)  # fmt: skip

LOGS = (
    Flag("log-flush-frequency", "duration", 5.0, "How often the buffers of --log-*-info-buffer-size are written."),
    Flag("log-json-info-buffer-size", "quantity", 0, "With --log-json-split-stream. " + _BUFFER),
    Flag("log-json-split-stream", "bool", False, "With --logging-format=json: " + _SPLIT),
    Flag("log-text-info-buffer-size", "quantity", 0, "With --log-text-split-stream. " + _BUFFER),
    Flag("log-text-split-stream", "bool", False, "With --logging-format=text: " + _SPLIT),
    Flag("logging-format", "string", "text", "text or json."),
    Flag("v", "Level", 0, "Log verbosity: 1 logs steps of the start, 3 requests, 6 everything.", short="v"),
    Flag("vmodule", "pattern=N,...", "",
         "Log verbosity of single files, by name without .py or, with a slash, by path below kas/: "
         "http_logging=3,controllers/*=6."),
)  # fmt: skip

TRACES = (
    Flag("tracing-config-file", "string", "",
         "TracingConfiguration file: where spans are sent (OTLP over gRPC), and how many requests are sampled. "
         "Needs the extra kas[tracing]."),
)
