"""strategy/create and strategy/update: what the registry stores, refuses and warns of.

The real pipeline runs: decode, default, convert, prepare, validate, warn, canonicalize. Values the reference drew at
random or from its clock (a LimitRange's generated name, a volume's phase transition time) are compared by shape.
"""

from __future__ import annotations

import json
import re

from kas.api.errors import ApiError
from kas.api.scheme import SCHEME, DecodeError, encode_json
from kas.registry import pipeline
from kas.registry.strategy import Context

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\Z")


def run(vector) -> dict:
    parts = vector["in"]["resource"].split("/")
    group, version, plural = parts if len(parts) == 3 else ("", *parts)
    resource = SCHEME.resource(group, version, plural)
    ctx = Context(
        now="2024-01-02T03:04:05Z", namespace="ns1" if resource.namespaced else "",
        uid="00000000-0000-4000-8000-000000000001", user={"username": "admin", "groups": ["system:masters", "system:authenticated"]},
    )  # fmt: skip
    return written(resource, vector["in"], ctx)


def written(resource, given: dict, ctx: Context) -> dict:
    """What comes of writing ``given["object"]``, over ``given["oldObject"]`` when there is one."""
    try:
        obj, _ = pipeline.decode_input(resource, json.loads(json.dumps(given["object"])))
        if "oldObject" in given:
            old, _ = pipeline.decode_input(resource, json.loads(json.dumps(given["oldObject"])))
            for o in (obj, old):
                o.setdefault("metadata", {})["resourceVersion"] = "1"
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


def mask(got: dict, want: dict) -> None:
    """Replace what cannot be equal by what was expected, when it has the right shape."""
    got_meta, want_meta = got.get("metadata", {}), want.get("metadata", {})
    if UUID.match(want_meta.get("name", "")) and UUID.match(got_meta.get("name", "")):
        got_meta["name"] = want_meta["name"]
    for path in ("status",):
        a, b = got.get(path), want.get(path)
        if isinstance(a, dict) and isinstance(b, dict) and "lastPhaseTransitionTime" in b:
            if TIME.match(a.get("lastPhaseTransitionTime", "")):
                a["lastPhaseTransitionTime"] = b["lastPhaseTransitionTime"]


def check(vector: dict, group: list[dict]) -> None:
    want, got = vector["out"], run(vector)
    if "decodeError" in want:
        assert "decodeError" in got, got
        assert want["decodeError"] in got["decodeError"]
        return
    if "object" in want and "object" in got:
        want = json.loads(json.dumps(want))
        want["object"].get("metadata", {}).pop("resourceVersion", None)
        mask(got["object"], want["object"])
    assert got == want
