"""crd/create, crd/update and crd/mutated: CustomResourceDefinition through the real write pipeline."""

from __future__ import annotations

import json

from kas.api.errors import ApiError
from kas.api.scheme import SCHEME, DecodeError, encode_json
from kas.registry import pipeline
from kas.registry.strategy import Context


def run(vector: dict) -> dict:
    resource = SCHEME.resource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
    ctx = Context(now="2024-01-02T03:04:05Z", uid="00000000-0000-4000-8000-000000000001")
    try:
        obj, _ = pipeline.decode_input(resource, json.loads(json.dumps(vector["in"]["object"])))
        if "oldObject" in vector["in"]:
            old, _ = pipeline.decode_input(resource, json.loads(json.dumps(vector["in"]["oldObject"])))
            for o in (obj, old):
                o["metadata"]["resourceVersion"] = "1"
            obj, warnings = pipeline.build_update(resource, obj, old, ctx)
        else:
            obj, warnings = pipeline.build_create(resource, obj, ctx)
    except DecodeError as err:
        return {"decodeError": str(err)}
    except ApiError as err:
        status = err.status()
        del status["kind"], status["apiVersion"]
        return {"error": status, "warnings": []}
    stored = json.loads(encode_json(resource.type, pipeline.from_storage(resource, obj)))
    stored["metadata"].pop("resourceVersion", None)
    return {"object": stored, "warnings": warnings}


def check(vector: dict, group: list[dict]) -> None:
    want, got = json.loads(json.dumps(vector["out"])), run(vector)
    if "decodeError" in want:
        assert "decodeError" in got, got
        assert want["decodeError"] in got["decodeError"]
        return
    want.get("object", {}).get("metadata", {}).pop("resourceVersion", None)
    assert got == want
