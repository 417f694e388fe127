"""Documents that are said to read alike as JSON and YAML give the same value with the YAML decoder."""

from __future__ import annotations

import json

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kas._codecs import duplicate_fields, reads_alike
from kas.types import yaml_codec

TEXT = st.text(alphabet="aZ019 .:#-'\"\\/<>&*!%@`{}[],?|~=\n\té", max_size=8)
VALUE = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(10**20), 10**20), st.floats(allow_nan=False, allow_infinity=False), TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXT, inner, max_size=4)),
    max_leaves=12,
)


@settings(max_examples=800, deadline=None)
@given(st.dictionaries(TEXT, VALUE, max_size=4), st.booleans(), st.booleans())
@example({"<<": {"a": 1}, "yes": "no", "1": "0x1"}, True, False)
def test_the_value_is_the_same(value, compact, ascii_only):
    data = json.dumps(value, separators=(",", ":") if compact else None, ensure_ascii=ascii_only).encode()
    if reads_alike(data):
        assert yaml_codec.decode(data) == (orjson.loads(data), [])


@settings(max_examples=500, deadline=None)
@given(st.text(alphabet='{}[]",: a1-0.e\\ntu#', max_size=24).map(lambda t: b'{"a":' + t.encode() + b"}"))
def test_documents_that_are_not_json_are_not_alike(data):
    if not reads_alike(data):
        return
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return
    if not duplicate_fields(data):
        assert yaml_codec.decode(data) == (value, [])


@pytest.mark.parametrize(
    "data",
    [
        b"", b"[]", b"a: 1", b'{"a":1.5}', b'{"a":1e3}', b'{"a":-0}', b'{"a":1234567890123456789012}', b'{"a":"\\u0061"}', b'{"a":"\\/"}',
        b'{"a"\n:1}', b'{"a":\t1}', '{"a":"é"}'.encode(), b'{"' + b"a" * 1100 + b'":1}', b'{"a":' * 600 + b"1" + b"}" * 600,
    ],
)  # fmt: skip
def test_documents_that_may_differ_are_not_alike(data):
    assert not reads_alike(data)


def test_a_common_document_is_alike():
    text = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"line\\nline \\"q\\""},"n":[1,-2,true,null]}\n'
    assert reads_alike(text)


@pytest.mark.parametrize("depth", [63, 64, 65, 200])
def test_repeated_keys_are_found_at_any_depth(depth):
    data = b'{"a":' * depth + b'{"b":1,"b":2}' + b"}" * depth
    assert duplicate_fields(data) == [".".join(["a"] * depth + ["b"])]


def test_repeated_keys_are_found_among_many():
    data = b"{" + b",".join(b'"k%d":"%s"' % (i, b"x\\\"y" * 20) for i in range(1000)) + b',"k7":1}'
    assert duplicate_fields(data) == ["k7"]
