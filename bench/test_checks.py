"""Measures the compiled checks and the validation rules that they spare a valid object.

Run with ``pytest bench/test_checks.py --benchmark-enable``.
"""

from __future__ import annotations

import pytest

from kas.apiextensions.schemachecks import schema_check
from kas.apiextensions.schemavalues import SchemaValidator
from kas.kinds.core.pod.checks import PARTS, REST
from kas.kinds.core.pod.spec import spec as spec_rules
from kas.meta.metachecks import METADATA
from kas.types.defaults import apply_defaults
from kas.types.scheme import BUILTIN, decode

META = {
    "name": "web-7d4b9c6f5-abcde", "generateName": "web-7d4b9c6f5-", "namespace": "default", "uid": "u", "generation": 1,
    "labels": {"app": "web", "pod-template-hash": "7d4b9c6f5"}, "annotations": {f"note-{i}": "x" * 200 for i in range(8)},
    "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d4b9c6f5", "uid": "u", "controller": True}],
    "managedFields": [{"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {}}],
}  # fmt: skip
CONTAINERS = [
    {
        "name": f"c{i}", "image": f"registry.example/app:{i}", "env": [{"name": f"E{j}", "value": f"value-{j}"} for j in range(12)],
        "ports": [{"containerPort": 8080 + i, "name": f"p{i}"}], "volumeMounts": [{"name": "v", "mountPath": "/data"}],
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "200m", "memory": "128Mi"}},
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": 8080}},
    }
    for i in range(4)
]  # fmt: skip
SPEC = {"containers": CONTAINERS, "volumes": [{"name": "v", "emptyDir": {}}], "serviceAccountName": "default"}
FIELD = {"type": "object", "required": ["name"], "properties": {
    "name": {"type": "string", "pattern": "^[a-z]+$"}, "port": {"type": "integer", "minimum": 1, "maximum": 65535},
    "mode": {"type": "string", "enum": ["a", "b"]}, "labels": {"type": "object", "additionalProperties": {"type": "string"}},
}}  # fmt: skip
SCHEMA = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"items": {"type": "array", "items": FIELD}}}}}
CUSTOM = {"spec": {"items": [{"name": "abc", "port": i + 1, "mode": "a", "labels": {"a": "b"}} for i in range(20)]}}


@pytest.fixture(scope="module")
def pod() -> dict:
    kind = BUILTIN.known("", "v1", "Pod")
    obj, _ = decode(kind.type, {"apiVersion": "v1", "kind": "Pod", "metadata": META, "spec": SPEC})
    apply_defaults(kind, obj)
    return obj


def test_metadata(benchmark, pod):
    assert benchmark(METADATA.passes, pod["metadata"])


def test_pod(benchmark, pod):
    assert benchmark(lambda spec: PARTS.passes(spec) and REST.passes(spec), pod["spec"])


def test_pod_by_the_rules(benchmark, pod):
    assert benchmark(spec_rules, pod["spec"], "web", "spec", passed=False) == []


def test_schema(benchmark):
    assert benchmark(schema_check(SCHEMA).passes, CUSTOM)


def test_schema_by_the_validator(benchmark):
    assert benchmark(SchemaValidator(SCHEMA).errors, CUSTOM) == []
