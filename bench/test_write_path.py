"""Measures the write verbs through the whole chain, stored and answered: in-process, one request at a time.

So every write waits for its own commit and two thread switches; with many clients at once, both are shared.
"""

from __future__ import annotations

import itertools

import orjson
import pytest

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
MERGE, STRATEGIC = b"application/merge-patch+json", b"application/strategic-merge-patch+json"
APPLY = b"application/apply-patch+yaml"
numbers = itertools.count(1)


def config_map(name: str, value: int = 0) -> bytes:
    labels = {"app": "bench", "tier": "load"}
    return orjson.dumps(
        {
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels},
            "data": {"value": str(value), "pad": "0123456789abcdef" * 61},
        }
    )  # fmt: skip


def pod(name: str) -> bytes:
    """About 6 KB: four containers with environment, probes, resources and mounts."""
    containers = [
        {
            "name": f"c{i}", "image": f"registry.example/app:{i}", "command": ["/bin/app", f"--shard={i}"],
            "env": [{"name": f"E{j}", "value": f"value-{j}" * 6} for j in range(12)],
            "ports": [{"containerPort": 8080 + i, "name": f"p{i}"}],
            "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "200m", "memory": "128Mi"}},
            "livenessProbe": {"httpGet": {"path": "/healthz", "port": 8080}}, "volumeMounts": [{"name": "v", "mountPath": "/data"}],
        }
        for i in range(4)
    ]  # fmt: skip
    meta = {"name": name, "labels": {"app": "bench"}, "annotations": {f"note-{i}": "x" * 200 for i in range(8)}}
    spec = {"containers": containers, "volumes": [{"name": "v", "emptyDir": {}}]}
    return orjson.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})


@pytest.fixture(scope="module")
def send(api):
    def call(method: str, path: str, body: bytes = b"", kind: bytes = b"application/json", status: int = 200) -> None:
        request = api.request(method, path, body)
        request.headers = [h for h in request.headers if h[0] != b"content-type"] + [(b"content-type", kind)]
        answer = api.loop.run_until_complete(api.server.chain(request))
        assert answer.status == status, answer.body

    account = b'{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default"}}'
    api.call("POST", "/api/v1/namespaces/default/serviceaccounts", account)
    call("POST", CONFIG_MAPS, config_map("kept"), status=201)
    call("PATCH", f"{CONFIG_MAPS}/applied?fieldManager=bench", config_map("applied"), APPLY, status=201)
    call("POST", PODS, pod("kept"), status=201)
    return call


def test_create_config_map(benchmark, send):
    benchmark(lambda: send("POST", CONFIG_MAPS, config_map(f"c{next(numbers)}"), status=201))


def test_update_config_map(benchmark, send):
    benchmark(lambda: send("PUT", f"{CONFIG_MAPS}/kept", config_map("kept", next(numbers))))


def test_merge_patch_config_map(benchmark, send):
    benchmark(lambda: send("PATCH", f"{CONFIG_MAPS}/kept", b'{"data":{"value":"%d"}}' % next(numbers), MERGE))


def test_apply_config_map(benchmark, send):
    benchmark(lambda: send("PATCH", f"{CONFIG_MAPS}/applied?fieldManager=bench", config_map("applied", next(numbers)), APPLY))


def test_create_pod(benchmark, send):
    benchmark(lambda: send("POST", PODS, pod(f"p{next(numbers)}"), status=201))


def test_patch_pod_status(benchmark, send):
    patch = b'{"status":{"phase":"Running","message":"%d","conditions":[{"type":"Ready","status":"True"}]}}'
    benchmark(lambda: send("PATCH", f"{PODS}/kept/status", patch % next(numbers), STRATEGIC))


def test_delete_config_map(benchmark, send):
    def prepare():
        name = f"d{next(numbers)}"
        send("POST", CONFIG_MAPS, config_map(name), status=201)
        return (name,), {}

    benchmark.pedantic(lambda name: send("DELETE", f"{CONFIG_MAPS}/{name}"), setup=prepare, rounds=300)
