"""strategy/create and strategy/update: the objects that the registry stores, its refusals and warnings.

Objects come in as bodies of requests do, and the real pipeline runs: decode, default, convert, prepare, validate, warn, canonicalize.
Values that kube-apiserver generated at random or from its clock (a LimitRange's generated name, a volume's phase transition time) are
compared by their form.
"""

from __future__ import annotations

import json
import re

from kas.endpoints.bodyerrors import BodyError
from kas.endpoints.codec import decode_body
from kas.meta.errors import ApiError
from kas.registry import pipeline
from kas.registry.strategy import Context
from kas.request.http import JSON_TYPE, Request
from kas.types.scheme import BUILTIN, encode_json

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\Z")


def run(vector) -> dict:
    parts = vector["in"]["resource"].split("/")
    group, version, plural = parts if len(parts) == 3 else ("", *parts)
    resource = BUILTIN.resource(group, version, plural)
    ctx = Context(
        now="2024-01-02T03:04:05Z", namespace="ns1" if resource.namespaced else "",
        uid="00000000-0000-4000-8000-000000000001", user={"username": "admin", "groups": ["system:masters", "system:authenticated"]},
    )  # fmt: skip
    return written(resource, vector["in"], ctx)


def sent(resource, obj: dict) -> dict:
    """The object as a request sends it, in the version that it is stored in. Raises BodyError."""
    request = Request("POST", "/", "", [JSON_TYPE], json.dumps(obj).encode())
    kind = BUILTIN.kind(resource.group, resource.version, resource.kind)
    return pipeline.to_storage(resource, decode_body(request, kind, field_validation="Ignore"))


def written(resource, given: dict, ctx: Context) -> dict:
    """The result of writing ``given["object"]``, over ``given["oldObject"]`` when there is one."""
    try:
        obj = sent(resource, given["object"])
        if "oldObject" in given:
            old = sent(resource, given["oldObject"])
            for o in (obj, old):
                o.setdefault("metadata", {})["resourceVersion"] = "1"
            obj, warnings = pipeline.build_update(resource, obj, old, ctx)
        else:
            obj, warnings = pipeline.build_create(resource, obj, ctx)
    except BodyError as err:
        return {"decodeError": err.why}
    except ApiError as err:
        status = err.status()
        del status["kind"], status["apiVersion"]
        return {"error": status, "warnings": []}
    stored = json.loads(encode_json(resource.type, pipeline.from_storage(resource, obj)))
    stored["metadata"].pop("resourceVersion", None)
    return {"object": stored, "warnings": warnings}


def mask(got: dict, want: dict) -> None:
    """Replaces values that cannot be equal by the expected ones, if they have the right form."""
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
