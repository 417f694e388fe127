"""Durations of the CEL rules of custom resources (apiserver ``pkg/cel/metrics``). One set per process, like the compiled rules."""

from __future__ import annotations

from kas.observe.metrics import Histogram, Timer

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)

COMPILATION = Histogram("apiserver_cel_compilation_duration_seconds", "CEL compilation time in seconds.", (), _BUCKETS)
EVALUATION = Histogram("apiserver_cel_evaluation_duration_seconds", "CEL evaluation time in seconds.", (), _BUCKETS)
compiled = Timer(COMPILATION, ()).add  # observes each schema whose rules were compiled
evaluated = Timer(EVALUATION, ()).add  # observes each value whose rules were evaluated
