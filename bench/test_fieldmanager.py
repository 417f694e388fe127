"""Managed fields: what the bookkeeping of a write costs. Budget: pod update ≤ 60 µs, pod create ≤ 30, ConfigMap create ≤ 10."""

from __future__ import annotations

import orjson
import pytest

from kas.patch.fieldmanager import apply, builtin, field_set, update

NOW, LATER = "2024-01-02T03:04:05Z", "2024-01-02T03:04:06Z"
STATUS = field_set(["status"])


def container(i: int) -> dict:
    return {
        "name": f"app-{i}",
        "image": f"registry.example.com/team/app:{i}.2.3",
        "args": ["--listen=:8080", "--verbose", f"--shard={i}"],
        "env": [{"name": f"VARIABLE_{k}", "value": f"value number {k} of container {i}"} for k in range(6)],
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}, {"name": "m", "containerPort": 9090, "protocol": "TCP"}],
        "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
        "livenessProbe": {
            "httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"}, "initialDelaySeconds": 5, "timeoutSeconds": 1,
            "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3,
        },
        "volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "config", "mountPath": "/etc/app", "readOnly": True}],
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {"runAsNonRoot": True, "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }  # fmt: skip


def pod() -> dict:
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": "web-5d4f8c7b9-abcde", "namespace": "production", "uid": "2f9c1c59-5d0e-4f0f-9f5b-0a4f4e4f5a61",
            "resourceVersion": "12345", "creationTimestamp": NOW,
            "labels": {"app": "web", "pod-template-hash": "5d4f8c7b9", "tier": "front"},
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "9090"},
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d4f8c7b9", "uid": "u-1", "controller": True},
            ],
        },
        "spec": {
            "volumes": [
                {"name": "data", "emptyDir": {}},
                {"name": "config", "configMap": {"name": "web", "defaultMode": 420}},
                {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}], "defaultMode": 420}},
            ],
            "containers": [container(i) for i in range(3)],
            "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default", "serviceAccount": "default", "nodeName": "node-7", "securityContext": {},
            "schedulerName": "default-scheduler",
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}],
            "priority": 0, "enableServiceLinks": True, "preemptionPolicy": "PreemptLowerPriority",
        },
        "status": {
            "phase": "Running", "hostIP": "10.0.0.7", "podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}], "startTime": NOW,
            "qosClass": "Burstable",
            "conditions": [
                {"type": t, "status": "True", "lastProbeTime": None, "lastTransitionTime": NOW}
                for t in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
            ],
            "containerStatuses": [
                {
                    "name": f"app-{i}", "ready": True, "restartCount": 0, "image": f"registry.example.com/team/app:{i}.2.3",
                    "imageID": "sha256:" + "ab" * 32, "containerID": "containerd://" + "cd" * 32, "started": True,
                    "lastState": {}, "state": {"running": {"startedAt": NOW}},
                }
                for i in range(3)
            ],
        },
    }  # fmt: skip


def copied(obj: dict) -> dict:
    return orjson.loads(orjson.dumps(obj))


@pytest.fixture(scope="module")
def schema():
    return builtin("", "v1", "Pod")


@pytest.fixture(scope="module")
def live(schema) -> dict:
    """A stored pod with three managers."""
    full = pod()
    first = copied(full)
    first["status"] = {}
    del first["spec"]["nodeName"]
    first["metadata"]["managedFields"] = update(schema, None, first, "kube-controller-manager", now=NOW, reset_fields=STATUS)
    second = copied(first)
    second["status"] = full["status"]
    second["metadata"]["managedFields"] = update(schema, first, second, "kubelet", subresource="status", now=NOW)
    third = copied(second)
    third["metadata"]["annotations"]["team"] = "a"
    third["metadata"]["managedFields"] = update(schema, second, third, "annotator", now=NOW, reset_fields=STATUS)
    assert len(third["metadata"]["managedFields"]) == 3
    return copied(third)


def test_create_pod(benchmark, schema) -> None:
    obj = pod()
    obj["status"] = {}
    assert benchmark(lambda: update(schema, None, obj, "kubectl-create", now=NOW, reset_fields=STATUS))


def test_create_config_map(benchmark) -> None:
    schema = builtin("", "v1", "ConfigMap")
    data = {f"key-{i}": "x" * 150 for i in range(8)}
    obj = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "c", "namespace": "n"}, "data": data}
    assert benchmark(lambda: update(schema, None, obj, "kubectl-create", now=NOW))


def test_update_pod(benchmark, schema, live) -> None:
    new = copied(live)
    new["metadata"]["labels"]["tier"] = "back"
    new["spec"]["containers"][1]["image"] = "registry.example.com/team/app:9"
    got = benchmark(lambda: update(schema, live, new, "kubectl-edit", now=LATER, reset_fields=STATUS))
    assert len(got) == 4


def test_update_pod_without_change(benchmark, schema, live) -> None:
    new = copied(live)
    got = benchmark(lambda: update(schema, live, new, "kubectl-edit", now=LATER, reset_fields=STATUS))
    assert got is live["metadata"]["managedFields"]


def test_update_pod_status(benchmark, schema, live) -> None:
    new = copied(live)
    new["status"]["conditions"][2]["status"] = "False"
    new["status"]["conditions"][2]["lastTransitionTime"] = LATER
    new["status"]["containerStatuses"][0]["ready"] = False
    assert benchmark(lambda: update(schema, live, new, "kubelet", subresource="status", now=LATER))


def test_apply_config_map(benchmark) -> None:
    schema = builtin("", "v1", "ConfigMap")
    config = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "c", "namespace": "n"}, "data": {"a": "1", "b": "2"}}
    live = apply(schema, None, config, "one", now=NOW)
    changed = {**config, "data": {"a": "2", "c": "3"}}
    assert benchmark(lambda: apply(schema, live, changed, "one", now=LATER))["data"] == {"a": "2", "c": "3"}
