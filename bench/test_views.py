"""Tables, discovery and OpenAPI: what kubectl's list requests and a client's first request cost.

Run with ``pytest bench/test_views.py --benchmark-enable --benchmark-only``.
"""

from __future__ import annotations

import orjson
import pytest

from kas.endpoints import discovery
from kas.endpoints.openapi import OpenAPI, builtin
from kas.registry import printing as printers
from kas.types.scheme import BUILTIN

NOW = 1_790_000_000.0
SERVED = [r for r in BUILTIN.resources if r.served_by_default]


def pod(i: int) -> dict:
    running = {"state": {"running": {"startedAt": "2026-01-01T00:00:05Z"}}, "ready": True, "started": True, "restartCount": i % 3}
    return {
        "metadata": {"name": f"pod-{i}", "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"app": "web"}},
        "spec": {"nodeName": "node-1", "containers": [{"name": "a", "image": "web:1"}, {"name": "b", "image": "side:1"}]},
        "status": {
            "phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}],
            "conditions": [{"type": kind, "status": "True"} for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")],
            "containerStatuses": [{"name": "a"} | running, {"name": "b"} | running],
        },
    }  # fmt: skip


PODS = [pod(i) for i in range(500)]


def test_table_of_500_pods(benchmark):
    made = benchmark(printers.table, ("", "v1", "Pod"), PODS, now=NOW, list_metadata={"resourceVersion": "1"})
    assert len(made["rows"]) == 500


def test_aggregated_discovery(benchmark):
    versions = discovery.builtin_versions(SERVED, BUILTIN.groups)
    body = benchmark(lambda: orjson.dumps(discovery.aggregated(versions, core=False)))
    assert b"deployments" in body


@pytest.mark.parametrize("path", ["v2", "api/v1"])
def test_openapi_from_nothing(benchmark, path):
    def build():
        server = OpenAPI([builtin(r) for r in SERVED], "v1.36.2")
        return server.v2() if path == "v2" else server.v3(path)

    assert benchmark(build).gzipped
