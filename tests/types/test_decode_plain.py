"""decode_plain returns what the general decoder returns, or None."""

from __future__ import annotations

import json

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kas._codecs import apply_constant_defaults
from kas.meta import gojson
from kas.types.scheme import BUILTIN, DecodeError, decode, decode_plain, duplicate_fields

POD = BUILTIN.known("", "v1", "Pod").type
SECRET = BUILTIN.known("", "v1", "Secret").type
EXAMPLE = {
    "kind": "Pod", "apiVersion": "v1",
    "metadata": {"name": "a", "creationTimestamp": None, "labels": {"a": "b", "é": ""}, "annotations": {}, "finalizers": [],
                 "managedFields": [{"manager": "m", "fieldsV1": {"f:a": {".": {}, 'k:{"b":1}': {"f:c": [1, -2, True, None, "x"]}}}}]},
    "spec": {"containers": [{"name": "c", "image": "", "args": ["a\\b\n", "\u2028", "😀" * 99 + '"'],
                             "resources": {"limits": {"cpu": "1500m", "memory": "1Gi"}},
                             "livenessProbe": {"httpGet": {"port": 80, "path": "/"}, "initialDelaySeconds": 0},
                             "ports": [{"containerPort": 80, "hostPort": 0}], "stdin": False, "tty": True}],
             "terminationGracePeriodSeconds": 30, "tolerations": [], "nodeSelector": {}},
    "status": {"startTime": "2024-01-02T03:04:05+00:00"},
}  # fmt: skip


def long_way(type_, data: bytes):
    """Returns the general decoder's result, or None where decode_plain must return None, too."""
    try:
        value = gojson.loads(data)
        if duplicate_fields(data) or not isinstance(value, dict):
            return None
        typed, unknown = decode(type_, value, data)
    except (gojson.JSONError, DecodeError):
        return None
    return None if unknown else typed


def check(type_, data: bytes) -> None:
    got = decode_plain(type_, data)
    if got is not None:
        assert json.dumps(got) == json.dumps(long_way(type_, data)), data  # including the order of keys
        apply_constant_defaults(type_, got)
        assert decode_plain(type_, data, True) == got, data


@pytest.mark.parametrize("indent", [None, 2])
def test_an_object_as_clients_send_it(indent) -> None:
    data = json.dumps(EXAMPLE, indent=indent).encode()
    assert decode_plain(POD, data) is not None
    check(POD, data)
    check(POD, b" \r\n" + orjson.dumps(EXAMPLE) + b"\n\t")


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "{}x", '{"metadata"}', '{"metadata":}', '{"metadata":{},}', '{,"metadata":{}}', '{"metadata":{} "spec":{}}',
     '{"metadata":{"name":"a","name":"a"}}', '{"metadata":{"labels":{"a":"b","a":"c"}}}', '{"unknown":1}', '{"metadata":{"name":1}}',
     '{"metadata":{"name":"a\nb"}}', '{"metadata":{"name":"\\t\n"}}', '{"metadata":{"name":"\\x"}}', '{"metadata":{"name":"\\u12g4"}}',
     '{"metadata":{"generation":01}}', '{"metadata":{"generation":-0}}',
     '{"metadata":{"generation":1.0}}', '{"metadata":{"generation":1e3}}', '{"metadata":{"generation":-}}',
     '{"metadata":{"n\\u0061me":"a"}}',
     '{"metadata":{"generation":12345678901234567890}}', '{"spec":{"priority":4294967296}}', '{"spec":{"hostNetwork":truex}}',
     '{"spec":{"hostNetwork":tru}}', '{"spec":{"containers":[{"name":"a"},]}}', '{"spec":{"containers":[null]}}', '{"metadata":{"name":"a}',
     '{"spec":{"containers":{}}}', '{"metadata":{"creationTimestamp":"yesterday"}}', '{"metadata":{"labels":{"a":null}}}',
     '{"metadata":nul}',
     '{"metadata":{"managedFields":[{"fieldsV1":' + '{"f:a":' * 200 + "{}" + "}" * 200 + "}]}}"],
)  # fmt: skip
def test_doubtful_documents_are_left_to_the_general_decoder(text) -> None:
    assert decode_plain(POD, text.encode()) is None


def test_broken_utf8_is_left_to_the_general_decoder() -> None:
    assert decode_plain(POD, b'{"metadata":{"name":"\xff"}}') is None
    assert decode_plain(POD, b'{"metadata":{"name":"\xed\xa0\x80"}}') is None
    assert decode_plain(SECRET, b'{"data":{"a":"AA=A"}}') is None
    check(POD, b'{"metadata":{"name":"\\ud800","labels":{"\\udc00x":"\\ud83d\\ude00"}}}')


whole = orjson.dumps(EXAMPLE)
places = st.integers(0, len(whole) - 1)


@settings(max_examples=600, deadline=None)
@given(st.lists(st.tuples(places, places, st.sampled_from([b"", *(bytes((c,)) for c in b'",{}[]:0-e\\\xc3n u')]))))
def test_damaged_texts(changes) -> None:
    data = whole
    for at, until, piece in changes:
        data = data[:at] + piece + data[at + (until % 4) :]
    check(POD, data)


texts = st.text(max_size=5) | st.sampled_from(["1", "1Gi", "AA=="])
values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**33) | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "a", "containers", "f:a"]), inner, max_size=3),
    max_leaves=8,
)


FIELDS = [f.name for f in POD.by_name["spec"].message.json_fields]


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(["metadata", "spec", "status", "kind"]), st.sampled_from(FIELDS), values)
def test_values_of_any_type(part, field, value) -> None:
    check(POD, json.dumps({part: {field: value}}).encode())
    check(POD, orjson.dumps({part: value}))
