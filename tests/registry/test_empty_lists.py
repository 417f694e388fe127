"""An empty list or map at every place of the types: errors print it as Go does, and it has no other effect."""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from kas.meta.errors import ApiError
from kas.registry import pipeline
from kas.registry.strategy import Context
from kas.types.scheme import BUILTIN, DecodeError, TypeDesc, encode_json
from tests.types.randomobjects import struct

# Where upstream checks whether a list is nil, not whether it has items.
ASKED_FOR_NIL = {
    "allocatable": "the default of a node's, copied from capacity",
    "claims": "of resources at pod level, which may not be set",
    "policies": "of an autoscaler's behavior, defaulted where there are none",
    "dependencies": "of a CRD's schema, which are not supported",
    "devices": "of a resource slice, beside shared counters",
    "sharedCounters": "of a resource slice, beside devices",
    "ephemeralContainers": "of which most fields may not be set",
    "selectors": "of a request for devices in v1beta1: with any such field it is an exact one",
    "tolerations": "likewise",
    "matchLabels": "of a selector that may be absent: one with empty members is there",
    "matchExpressions": "likewise",
}

STORED = [r for r in BUILTIN.resources if r.storage_gvk]


def places(type_: TypeDesc, obj: dict[str, Any], path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Yields (path, empty value) of every list and map that the object lacks although its parent exists."""
    for field in type_.json_fields:
        value, inner = obj.get(field.name), field.message
        at = (*path, field.name)
        if field.card != "single" and value is None:
            yield at, [] if field.card == "list" else {}
        elif value is None or inner is None or inner.custom_json is not None:
            continue
        elif field.card == "single":
            yield from places(inner, value, at)
        else:
            for key, item in value.items() if field.card == "map" else enumerate(value):
                yield from places(inner, item, (*at, key))


def put(obj: dict[str, Any], path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    out: Any = copy.deepcopy(obj)
    inner = out
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return out


def outcome(resource: Any, obj: dict[str, Any], old: dict[str, Any] | None) -> tuple[str, Any]:
    namespace = "ns1" if resource.namespaced else ""
    ctx = Context(now="2024-01-02T03:04:05Z", namespace=namespace, uid="u1", user={"username": "a", "groups": []})
    try:
        new, _ = pipeline.decode_input(resource, copy.deepcopy(obj))
        if old is None:
            new, warnings = pipeline.build_create(resource, new, ctx)
        else:
            before, _ = pipeline.decode_input(resource, copy.deepcopy(old))
            new, warnings = pipeline.build_update(resource, new, before, ctx)
    except (DecodeError, ApiError) as e:
        text = str(e.status()["message"]) if isinstance(e, ApiError) else str(e)
        # The lines of a unified diff move when one of them changes.
        return "refused", re.sub(r"\n@@.*?\n(?=[],])", "", text, flags=re.S)
    return "stored", (orjson.loads(encode_json(pipeline.stored_type(resource), new, stored=True)), warnings)


@pytest.mark.parametrize("resource", STORED, ids=lambda r: f"{r.group}.{r.version}.{r.resource}")
@pytest.mark.parametrize("updated", [False, True], ids=["create", "update"])
def test_an_empty_list_changes_only_messages(resource, updated) -> None:
    r = random.Random(resource.resource)
    for depth in (0, 1):
        obj = struct(r, resource.type, depth)
        obj["metadata"] = {"name": "a", "uid": "u1", **({"namespace": "ns1"} if resource.namespaced else {})}
        old = struct(r, resource.type, depth) | {"metadata": obj["metadata"]} if updated else None
        kind, plain = outcome(resource, obj, old)
        found = list(places(resource.type, obj))
        for path, value in r.sample(found, min(len(found), 40)):
            if not ASKED_FOR_NIL.keys().isdisjoint(path):
                continue
            was, said = outcome(resource, put(obj, path, value), old)
            assert was == kind, (path, plain, said)
            if was == "refused":
                said, plain_said = (text.replace("[]", "null").replace("{}", "null") for text in (said, plain))
                assert said == plain_said, path
            else:
                assert said == plain, path
