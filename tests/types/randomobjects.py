"""Random objects of any type of the scheme."""

from __future__ import annotations

import random

from kas.types.scheme import Field, TypeDesc

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
