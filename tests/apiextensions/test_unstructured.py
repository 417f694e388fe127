"""Types that are created on demand, and their objects as bytes."""

from __future__ import annotations

import orjson
import pytest

from kas.apiextensions import customtypes, traits
from kas.types.defaults import apply_defaults
from kas.types.scheme import EncodeError, Kind, encode_json, encode_stored, lazy_schema_type, schema_type

SPEC = {"type": "object", "properties": {"b": {"type": "string", "default": "x"}, "a": {"type": "integer"}}}
SCHEMA = {"type": "object", "properties": {"spec": SPEC}}


def test_a_type_is_created_on_demand():
    asked = []
    lazy = lazy_schema_type("com.example.v1.Widget", lambda: asked.append(1) or SCHEMA)
    assert (lazy.kind_name, lazy.custom, lazy.embedded) == ("Widget", True, True) and not asked
    obj = {"spec": {"a": 1, "c": 2}}
    assert customtypes.decode(lazy, obj) == ["spec.c"] and obj == {"spec": {"a": 1}}
    apply_defaults(Kind("example.com", "v1", "Widget", lazy), obj)
    assert obj == {"spec": {"a": 1, "b": "x"}} and lazy.schema is SCHEMA and asked == [1]


def test_an_error_of_creating_a_type_is_raised_until_it_succeeds():
    answers = [LookupError("gone"), SCHEMA]

    def load():
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    lazy = lazy_schema_type("Widget", load)
    with pytest.raises(LookupError):
        lazy.by_name  # noqa: B018
    assert list(lazy.by_name) == ["spec"]


def test_stored_objects_have_sorted_keys():
    meta = {"uid": "u", "name": "n", "resourceVersion": "5"}
    obj = {"kind": "Widget", "spec": {"b": "<", "a": [1.0, None]}, "apiVersion": "v", "metadata": meta}
    head, tail, prefix, metadata_tail, message = encode_stored(schema_type("Widget", SCHEMA), obj)
    assert head + b'"resourceVersion":"7",' + tail == (
        b'{"apiVersion":"v","kind":"Widget","metadata":{"name":"n","resourceVersion":"7","uid":"u"},"spec":{"a":[1,null],"b":"\\u003c"}}'
    )
    assert (prefix, metadata_tail, message) == (1, 0, None)
    assert orjson.loads(encode_json(schema_type("Widget", SCHEMA), obj)) == obj
    del obj["metadata"]["uid"]
    head, tail, *_ = encode_stored(schema_type("Widget", SCHEMA), obj)
    assert head.endswith(b'"metadata":{"name":"n",') and tail.startswith(b"}")  # nothing follows: no comma
    del obj["metadata"]
    with pytest.raises(EncodeError):
        encode_stored(schema_type("Widget", SCHEMA), obj)


def nested(depth):
    value = {}
    for _ in range(depth):
        value = {"x": value}
    return {"metadata": {"name": "n", "uid": "u"}, "spec": value}


def test_objects_nested_too_deeply_are_not_stored():
    type_ = schema_type("Widget", {"x-kubernetes-preserve-unknown-fields": True})
    encode_stored(type_, nested(480))
    with pytest.raises(EncodeError, match="exceeded max depth"):
        encode_stored(type_, nested(600))


@pytest.mark.parametrize(("schema", "want"), [
    ({"type": "string"}, (False, False)),
    ({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}, (False, True)),
    ({"type": "object", "additionalProperties": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                                                 "items": {"type": "object", "properties": {"k": {"type": "string"}}}}}, (False, True)),
    ({"type": "array", "items": {"type": "object", "x-kubernetes-embedded-resource": True}}, (True, False)),
])  # fmt: skip
def test_traits(schema, want):
    assert traits.of(schema_type("Widget", {"type": "object", "properties": {"a": schema}})) == want


def test_a_negative_zero_is_the_integer_that_go_reads_back():
    kind = schema_type("Widget", {"type": "object"})
    obj = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": {"a": -0.0, "b": [-0.0, 0.5]}}
    assert encode_json(kind, obj).endswith(b'"spec":{"a":0,"b":[0,0.5]}}')
    assert b'"spec":{"a":0,"b":[0,0.5]}' in b"".join(encode_stored(kind, obj)[:2])
