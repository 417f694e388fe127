"""The managed fields of a new object, written directly as text, are those that a comparison with an empty object finds."""

from __future__ import annotations

import random
from typing import Any

import orjson
import pytest

from kas._codecs import RawJSON, write_json
from kas.apiextensions.mergeschema import crd_schema
from kas.patch.fieldmanager import builtin, create, field_set, update
from kas.types.scheme import BUILTIN, decode, encode_json, encode_stored, schema_type
from tests.types.randomobjects import struct

NOW = "2026-01-02T03:04:05Z"
RESETS = ([], ["status"], ["spec", "metadata.labels"], ["status", "metadata.deletionTimestamp", "metadata.ownerReferences"], ["metadata"])
KINDS = [k for k in BUILTIN.kinds if any(f.name == "metadata" for f in k.type.json_fields) and not k.kind.endswith("List")]
DEPLOYMENT = BUILTIN.kind("apps", "v1", "Deployment")
NAMES = ["a", "x-y", "app.kubernetes.io/name", "1", "é", "<b>", 'q"uote', "back\\slash", "line\nbreak"]


def same(schema: Any, obj: dict[str, Any], reset: list[str]) -> bool:
    """Computes both ways and compares them; returns whether the fast path was taken."""
    want = update(schema, None, obj, "m", now=NOW, reset_fields=field_set(reset))
    got = create(schema, obj, "m", now=NOW, reset_fields=field_set(reset))
    assert len(got) == len(want)
    if not got or type(got[0]["fieldsV1"]) is not RawJSON:
        assert got == want
        return not got
    text = got[0]["fieldsV1"]
    assert text == write_json(want[0]["fieldsV1"], sort_keys=False)
    assert {**got[0], "fieldsV1": orjson.loads(bytes(text))} == want[0]
    return True


def renamed(r: random.Random, value: Any, names: list[str]) -> Any:
    """The value with other keys in its maps and other texts."""
    if isinstance(value, dict):
        return {k: renamed(r, v, names) for k, v in value.items()}
    if isinstance(value, list):
        return [renamed(r, v, names) for v in value]
    return r.choice(names) if isinstance(value, str) and r.random() < 0.7 else value


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: f"{k.group}.{k.version}.{k.kind}")
def test_every_kind(kind):
    r = random.Random(f"{kind.api_version}/{kind.kind}")
    schema = builtin(kind.group, kind.version, kind.kind)
    for n in range(40):
        obj = decode(kind.type, struct(r, kind.type, 0))[0]
        names = NAMES if n % 4 == 0 else NAMES[:4]
        for key in list(obj):
            if key != "metadata":
                obj[key] = renamed(r, obj[key], names)
        obj["metadata"] = {
            "name": "a", "namespace": "n", **{k: v for k, v in obj.get("metadata", {}).items() if k != "managedFields"},
            "labels": dict.fromkeys(r.sample(names, r.randrange(len(names))), "x"),
        }  # fmt: skip
        if r.random() < 0.3:
            obj["metadata"]["labels"] = r.choice([None, {}])
        if r.random() < 0.2 and "spec" in obj:
            obj["spec"] = r.choice([None, {}])
        same(schema, obj, r.choice(RESETS))


POD: dict[str, Any] = {
    "apiVersion": "v1", "kind": "Pod",
    "metadata": {"name": "p", "namespace": "n", "labels": {"app": "x", "app.kubernetes.io/part-of": "y"}, "annotations": {}},
    "spec": {
        "containers": [
            {
                "name": "b", "image": "i", "ports": [{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 79, "protocol": "UDP"}],
                "env": [{"name": "B", "value": "1"}, {"name": "A"}], "resources": {"limits": {"cpu": "1"}}, "command": ["x"],
            },
            {"name": "a", "image": "i"},
        ],
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "volumes": [{"name": "v", "emptyDir": {}}],
        "securityContext": {},
        "restartPolicy": "Always",
    },
    "status": {},
}  # fmt: skip


def test_a_common_pod_takes_the_fast_path():
    assert same(builtin("", "v1", "Pod"), POD, ["status"])


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"name": "p", "labels": {"<": "x"}}},
        {"metadata": {"name": "p", "managedFields": []}},
        {"spec": {"containers": [{"name": "a"}, {"name": "a"}]}},
        {"spec": {"containers": {"name": "a"}}},
        {"spec": {"containers": "text"}},
    ],
)
def test_the_fast_path_leaves_unusual_objects_to_the_other(change):
    assert not same(builtin("", "v1", "Pod"), {**POD, **change}, ["status"])


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"containers": None, "unheard": 1}},
        {"spec": {"containers": ["x"]}},
        {"status": {"conditions": ["x"]}},
    ],
)
def test_an_object_that_contradicts_its_schema_gets_no_managers(change):
    obj = {**POD, **change}
    assert update(builtin("", "v1", "Pod"), None, obj, "m", now=NOW, reset_fields=field_set(["status"])) == []
    assert create(builtin("", "v1", "Pod"), obj, "m", now=NOW, reset_fields=field_set(["status"])) == []


def test_an_update_that_contradicts_its_schema_leaves_no_managers():
    """Its entries would belong to an object that cannot be compared with the next one."""
    schema = builtin("", "v1", "Pod")
    live = {**POD, "metadata": {**POD["metadata"], "managedFields": update(schema, None, POD, "m", now=NOW)}}
    assert update(schema, live, {**live, "spec": {"containers": ["x"]}}, "n", now=NOW) == []
    assert update(schema, {**live, "spec": {"containers": ["x"]}}, live, "n", now=NOW) == []


def test_managed_fields_built_as_text_encode_alike():
    kind = BUILTIN.known("", "v1", "Pod")
    obj = orjson.loads(orjson.dumps(POD))
    obj["metadata"]["creationTimestamp"] = NOW
    sets = {**obj, "metadata": {**obj["metadata"], "managedFields": update(builtin("", "v1", "Pod"), None, obj, "m", now=NOW)}}
    texts = {**obj, "metadata": {**obj["metadata"], "managedFields": create(builtin("", "v1", "Pod"), obj, "m", now=NOW)}}
    assert encode_json(kind.type, texts) == encode_json(kind.type, sets)
    assert encode_stored(kind.type, texts, least=0) == encode_stored(kind.type, sets, least=0)


def test_paths_of_a_custom_object_are_sorted_as_texts():
    """On creation, too: of the keys of a map, 11 comes before 6."""
    schema = {
        "properties": {
            "ints": {"type": "array", "items": {"type": "integer"}, "x-kubernetes-list-type": "set"},
            "ports": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port"],
                "items": {"type": "object", "properties": {"port": {"type": "integer"}}},
            },
        }
    }  # fmt: skip
    type_ = schema_type("Widget", schema)
    obj: dict[str, Any] = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}}
    obj |= {"ints": [6, 11], "ports": [{"port": 80}, {"port": 443}]}
    obj["metadata"]["managedFields"] = create(crd_schema(type_, "example.com/v1", "Widget"), obj, "m", now=NOW)
    text = encode_json(type_, obj)
    assert b'"f:ints":{".":{},"v:11":{},"v:6":{}}' in text
    assert text.index(rb'"k:{\"port\":443}"') < text.index(rb'"k:{\"port\":80}"')


def test_only_the_objects_own_managed_fields_are_left_out():
    """Those in the metadata of a pod template belong to its writer."""
    entry = {"manager": "m", "operation": "Update", "apiVersion": "v1"}
    template = {"metadata": {"name": "t", "managedFields": [entry]}}
    obj = decode(DEPLOYMENT.type, {"metadata": {"name": "a", "labels": {"b": "c"}}, "spec": {"template": template}})[0]
    schema = builtin("apps", "v1", "Deployment")
    assert same(schema, obj, [])
    (made,) = update(schema, None, obj, "m", now=NOW)
    assert made["fieldsV1"]["f:metadata"] == {"f:labels": {".": {}, "f:b": {}}}
    assert made["fieldsV1"]["f:spec"]["f:template"]["f:metadata"] == {"f:managedFields": {}, "f:name": {}}
