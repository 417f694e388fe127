"""crd/create, crd/update and crd/mutated: CustomResourceDefinition through the real write pipeline."""

from __future__ import annotations

import json

from kas.registry.strategy import Context
from kas.types.scheme import BUILTIN
from tests.vectors.kinds.strategy import written


def run(vector: dict) -> dict:
    resource = BUILTIN.resource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
    ctx = Context(now="2024-01-02T03:04:05Z", uid="00000000-0000-4000-8000-000000000001")
    return written(resource, vector["in"], ctx)


def check(vector: dict, group: list[dict]) -> None:
    want, got = json.loads(json.dumps(vector["out"])), run(vector)
    if "decodeError" in want:
        assert "decodeError" in got, got
        assert want["decodeError"] in got["decodeError"]
        return
    want.get("object", {}).get("metadata", {}).pop("resourceVersion", None)
    assert got == want
