"""Server-side apply: steps of several managers on one object, by built-in, CRD and missing schemas."""

from functools import cache

from kas.apiextensions.mergeschema import crd_schema
from kas.meta.errors import ApiError
from kas.patch.fieldmanager import Schema, apply, deduced_schema, type_node, update
from kas.types.scheme import BUILTIN, schema_type

NOW = "2024-01-02T03:04:05Z"

WIDGET = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "size": {"type": "integer"},
                "color": {"type": "string"},
                "port": {"x-kubernetes-int-or-string": True},
                "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                "atomicTags": {"type": "array", "x-kubernetes-list-type": "atomic", "items": {"type": "string"}},
                "plain": {"type": "array", "items": {"type": "string"}},
                "parts": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name", "kind"],
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {
                            "name": {"type": "string"},
                            "kind": {"type": "string", "default": "std"},
                            "qty": {"type": "integer"},
                            "opts": {"type": "object", "additionalProperties": {"type": "string"}},
                        },
                    },
                },
                "atomicMap": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
                "granularMap": {"type": "object", "additionalProperties": {"type": "string"}},
                "nested": {
                    "type": "object",
                    "properties": {
                        "a": {"type": "object", "properties": {"b": {"type": "string"}, "c": {"type": "string"}}},
                    },
                },
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            },
        },
        "status": {"type": "object", "properties": {"phase": {"type": "string"}, "ready": {"type": "boolean"}}},
    },
}


@cache
def schema_of(kind: str) -> Schema:
    """The vectors hold unstructured objects, so built-in types are compared without Go's zero values."""
    if kind == "Widget":
        return crd_schema(schema_type("Widget", WIDGET), "example.com/v1", kind)
    if kind == "Schemaless":
        return deduced_schema("example.com/v1", kind)
    group = "apps" if kind == "Deployment" else ""
    found = BUILTIN.kind(group, "v1", kind)
    return Schema(type_node(found.type, structured=False), found.api_version, kind)


def without_entries(obj):
    meta = {k: v for k, v in obj.get("metadata", {}).items() if k != "managedFields"}
    return {**obj, "metadata": meta}


def check(vector, group):
    kind, live = vector["in"]["kind"], None
    schema = schema_of(kind)
    for number, (step, want) in enumerate(zip(vector["in"]["steps"], vector["out"], strict=True)):
        at = f"step {number}"
        obj = step["object"]
        error = None
        try:
            if step["op"] == "apply":
                live = apply(schema, live, obj, step["manager"], now=NOW, force=step["force"])
            else:
                entries = update(schema, live, obj, step["manager"], now=NOW)
                live = {**obj, "metadata": {**obj.get("metadata", {}), "managedFields": entries}}
        except ApiError as e:
            error = e
        if want["error"] is not None:
            assert error is not None, (at, want["error"])
            assert error.message == want["error"], at
            if want.get("status"):
                status = {k: v for k, v in error.status().items() if k not in ("kind", "apiVersion")}
                assert status == want["status"], at
            continue
        assert error is None, (at, error)
        assert without_entries(live) == want["live"], at
        entries = [{k: v for k, v in e.items() if k != "time"} for e in live["metadata"].get("managedFields", [])]
        assert entries == (want["managedFields"] or []), at
