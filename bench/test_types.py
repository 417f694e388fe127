"""Codecs of kas._codecs on a 6.5 KB pod and a 1.5 KB ConfigMap. Run with ``pytest bench/test_types.py --benchmark-enable``."""

from __future__ import annotations

import orjson
import pytest

from kas.types.scheme import (
    BUILTIN,
    decode,
    decode_plain,
    decode_protobuf,
    default,
    duplicate_fields,
    encode_json,
    encode_json_split,
    encode_protobuf,
    encode_stored,
    transcode_json_to_protobuf,
)

IMAGE = "registry.example.com/team/app:1.2.3"
NOW = "2024-01-02T03:04:05Z"


def container(name: str) -> dict:
    probe = {"httpGet": {"path": "/healthz", "port": "http", "scheme": "HTTP"}, "initialDelaySeconds": 3, "timeoutSeconds": 1}
    probe |= {"periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
    env = [{"name": f"ENV_{i}", "value": f"value-{i}-abcdef"} for i in range(12)]
    env.append({"name": "POD_IP", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}})
    token = "/var/run/secrets/kubernetes.io/serviceaccount"
    return {
        "name": name, "image": IMAGE, "command": ["/bin/app", "--flag=value"], "args": ["--x", "--y=z"],
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}], "env": env,
        "resources": {"limits": {"cpu": "500m", "memory": "128Mi"}, "requests": {"cpu": "100m", "memory": "64Mi"}},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "token", "readOnly": True, "mountPath": token}],
        "livenessProbe": probe, "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent", "securityContext": {"runAsNonRoot": True, "allowPrivilegeEscalation": False},
    }  # fmt: skip


def container_status(name: str) -> dict:
    return {
        "name": name, "state": {"running": {"startedAt": NOW}}, "lastState": {}, "ready": True, "restartCount": 0, "image": IMAGE,
        "imageID": "sha256:" + "a" * 64, "containerID": "containerd://" + "b" * 64, "started": True,
    }  # fmt: skip


def pod() -> dict:
    names = {f'k:{{"name":"ENV_{i}"}}': {".": {}, "f:name": {}, "f:value": {}} for i in range(8)}
    owned = {"f:spec": {"f:containers": {'k:{"name":"app"}': {".": {}, "f:image": {}, "f:name": {}, "f:env": {".": {}, **names}}}}}
    sources = [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
    ]
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    uid = "0b7e1d6e-5d7c-4d0e-9a52-0d6c1f2d3e4f"
    return {
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {
            "name": "web-7d4b9c6f5-abcde", "generateName": "web-7d4b9c6f5-", "namespace": "default", "uid": uid, "generation": 1,
            "creationTimestamp": NOW, "labels": {"app": "web", "pod-template-hash": "7d4b9c6f5", "tier": "front"},
            "annotations": {"note": "x" * 200, "prometheus.io/scrape": "true"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d4b9c6f5", "uid": uid, "controller": True}],
            "managedFields": [{"manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1", "time": NOW,
                               "fieldsType": "FieldsV1", "fieldsV1": owned}],
        },
        "spec": {
            "volumes": [{"name": "data", "emptyDir": {}}, {"name": "token", "projected": {"sources": sources, "defaultMode": 420}}],
            "containers": [container("app"), container("sidecar")], "restartPolicy": "Always", "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst", "serviceAccountName": "default", "serviceAccount": "default", "nodeName": "node-1",
            "securityContext": {}, "schedulerName": "default-scheduler", "priority": 0, "enableServiceLinks": True,
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
        },
        "status": {
            "phase": "Running", "hostIP": "10.0.0.1", "podIP": "10.1.0.5", "podIPs": [{"ip": "10.1.0.5"}], "startTime": NOW,
            "conditions": [{"type": t, "status": "True", "lastProbeTime": None, "lastTransitionTime": NOW} for t in kinds],
            "containerStatuses": [container_status("app"), container_status("sidecar")], "qosClass": "Burstable",
        },
    }  # fmt: skip


def config_map() -> dict:
    data = {f"key-{i:02d}.conf": "listen 80; server_name example.com; root /srv;\n" * 2 for i in range(12)}
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "cm", "uid": "u", "creationTimestamp": NOW}, "data": data}


class Sample:
    """One object in each of its forms."""

    def __init__(self, obj: dict) -> None:
        group, _, version = obj["apiVersion"].rpartition("/")
        self.type = BUILTIN.known(group, version, obj["kind"]).type
        self.raw = orjson.dumps(obj)
        self.parsed = orjson.loads(self.raw)
        self.typed, _ = decode(self.type, self.parsed)
        self.json = encode_json(self.type, self.typed)
        self.protobuf = encode_protobuf(self.type, self.typed)


SAMPLES = {"pod": Sample(pod()), "configmap": Sample(config_map())}


@pytest.fixture(params=sorted(SAMPLES))
def sample(request) -> Sample:
    return SAMPLES[request.param]


def test_loads(benchmark, sample):
    """orjson alone, to compare with."""
    benchmark(orjson.loads, sample.raw)


def test_decode(benchmark, sample):
    benchmark(decode, sample.type, sample.parsed)


def test_decode_plain(benchmark, sample):
    """Instead of loads, duplicate_fields and decode."""
    assert benchmark(decode_plain, sample.type, sample.raw) == sample.typed


def test_encode_json(benchmark, sample):
    benchmark(encode_json, sample.type, sample.typed)


def test_encode_json_split(benchmark, sample):
    benchmark(encode_json_split, sample.type, sample.typed)


def test_encode_stored(benchmark, sample):
    benchmark(encode_stored, sample.type, sample.typed)


def test_encode_protobuf(benchmark, sample):
    benchmark(encode_protobuf, sample.type, sample.typed)


def test_decode_protobuf(benchmark, sample):
    benchmark(decode_protobuf, sample.type, sample.protobuf)


def test_transcode(benchmark, sample):
    assert benchmark(transcode_json_to_protobuf, sample.type, sample.json) == sample.protobuf


def test_duplicate_fields(benchmark, sample):
    assert benchmark(duplicate_fields, sample.raw) == []


def test_constant_defaults(benchmark, sample):
    typed, _ = decode(sample.type, sample.parsed)
    benchmark(default, sample.type, typed)
