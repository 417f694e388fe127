"""Every kind of the scheme: random objects survive JSON, protobuf and YAML, and the encoders agree with one another."""

from __future__ import annotations

import random

import orjson
import pytest

from kas.api import yaml_codec
from kas.api.scheme import SCHEME, Field, TypeDesc, decode, decode_protobuf, encode_json, encode_protobuf, transcode_json_to_protobuf

TEXTS = ["", "a", "x-y", "é€😀", "<&>", 'q"uote', "line\nbreak", "1.5", "true", "tab\t", "back\\slash", "\u2028"]
SCALARS = {
    "string": lambda r: r.choice(TEXTS),
    "int32": lambda r: r.choice([0, 1, -1, 127, 128, 2**31 - 1, -(2**31)]),
    "int64": lambda r: r.choice([0, 1, -1, 300, 2**63 - 1, -(2**63)]),
    "bool": lambda r: r.random() < 0.5,
    "double": lambda r: r.choice([0, 1, 1.5, -2.25, 1e300]),
    "bytes": lambda r: r.choice(["", "YQ==", "aGVsbG8=", "AAEC"]),
}
SPECIAL = {
    "Quantity": lambda r: r.choice(["0", "1", "100m", "5Gi", "1e3", "-3k"]),
    "Time": lambda r: r.choice(["2024-01-02T03:04:05Z", "1969-12-31T23:59:59Z", "9999-12-31T23:59:59Z", "0000-03-01T00:00:00Z"]),
    "MicroTime": lambda r: r.choice(["2024-01-02T03:04:05.000006Z", "1969-12-31T23:59:59.999999Z"]),
    "Duration": lambda r: r.choice(["0s", "1h2m3.5s", "-1ms"]),
    "IntOrString": lambda r: r.choice([0, 80, -1, "http", ""]),
    "RawExtension": lambda r: r.choice([{"kind": "X", "b": [1, None, {"a": 1.5}]}, "text", 5, True]),
    "Unknown": lambda r: {"kind": "X"},
    "FieldsV1": lambda r: {"f:metadata": {"f:labels": {".": {}}}},
    "JSON": lambda r: r.choice([{"a": 1}, "x", 1, [1]]),
    "Verbs": lambda r: ["get", ""],
    "ExtraValue": lambda r: ["a", "b"],
    "JSONSchemaPropsOrBool": lambda r: r.choice([True, False, {"type": "string"}]),
    "JSONSchemaPropsOrArray": lambda r: r.choice([{"type": "string"}, [{"type": "string"}, {}]]),
    "JSONSchemaPropsOrStringArray": lambda r: r.choice([{"type": "string"}, ["a", "b"]]),
}


def element(r: random.Random, field: Field, depth: int):
    if field.message is None:
        return SCALARS[field.type](r)
    if field.message.custom_json is not None:
        return SPECIAL[field.message.kind_name](r)
    return struct(r, field.message, depth + 1)


def struct(r: random.Random, type: TypeDesc, depth: int) -> dict:
    out = {}
    for field in type.json_fields:
        if field.type_meta or r.random() < (0.1, 0.3, 0.5, 0.75, 0.97)[min(depth, 4)]:
            continue
        if field.card == "list":
            out[field.name] = [element(r, field, depth) for _ in range(r.randrange(3))]
        elif field.card == "map":
            out[field.name] = {r.choice(TEXTS): element(r, field, depth) for _ in range(r.randrange(3))}
        else:
            out[field.name] = element(r, field, depth)
    return out


@pytest.mark.parametrize("kind", SCHEME.kinds, ids=lambda k: f"{k.group}.{k.version}.{k.kind}")
def test_random_objects_survive(kind):
    r = random.Random(f"{kind.api_version}/{kind.kind}")
    for _ in range(3):
        typed, unknown = decode(kind.type, struct(r, kind.type, 0))
        assert unknown == []
        data = encode_json(kind.type, typed)
        assert decode(kind.type, orjson.loads(data))[0] == typed
        assert yaml_codec.decode(yaml_codec.encode(orjson.loads(data)))[0] == orjson.loads(data)
        if kind.type.proto is None and not any(f.pb > 0 for f in kind.type.fields):
            continue  # Table and its like have no protobuf form
        protobuf = encode_protobuf(kind.type, typed)
        assert transcode_json_to_protobuf(kind.type, data) == protobuf
        again = decode_protobuf(kind.type, protobuf)
        assert encode_protobuf(kind.type, again) == protobuf
        # Empty lists and maps do not travel in protobuf: what came back is the stored form.
        assert encode_json(kind.type, {**again, **{k: typed[k] for k in ("kind", "apiVersion") if k in typed}}) == encode_json(
            kind.type, typed, stored=True
        )
