"""Answers of every format are recorded as JSON."""

from __future__ import annotations

import gzip

import orjson
import pytest

from kas.audit.answers import as_json
from kas.types import cbor
from kas.types.scheme import BUILTIN, encode_protobuf, envelope

JSON, YAML, PROTOBUF = b"application/json", b"application/yaml", b"application/vnd.kubernetes.protobuf"
OBJECT = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "x"}, "data": {"a": "b"}}
STATUS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 404}


def protobuf(value: dict) -> bytes:
    kind = BUILTIN.known("", "v1", value["kind"])
    return envelope("v1", value["kind"], encode_protobuf(kind.type, value))


@pytest.mark.parametrize("value", [OBJECT, STATUS])
@pytest.mark.parametrize("form", ["json", "pretty", "yaml", "protobuf", "cbor", "gzip"])
def test_objects_in_every_format(value, form):
    headers, body = [(b"content-type", JSON)], orjson.dumps(value) + b"\n"
    if form == "pretty":
        body = orjson.dumps(value, option=orjson.OPT_INDENT_2)
    elif form == "yaml":
        headers, body = [(b"content-type", YAML)], b"apiVersion: v1\nkind: %s\nmetadata: {}\n" % value["kind"].encode()
    elif form == "protobuf":
        headers, body = [(b"content-type", PROTOBUF)], protobuf(value)
    elif form == "cbor":
        headers, body = [(b"content-type", b"application/cbor")], cbor.encode(value)
    elif form == "gzip":
        headers, body = [(b"content-type", JSON), (b"content-encoding", b"gzip")], gzip.compress(body)
    found = as_json(headers, body, whole=True)
    assert found is not None and found.startswith(b'{"kind":"%s"' % value["kind"].encode())
    if form not in ("yaml",):
        assert orjson.loads(found) == value
    # A Status is recorded at every level; it is never long enough to be compressed.
    only_status = as_json(headers, body, whole=False)
    assert (only_status is not None) == (value is STATUS and form != "gzip")


def test_custom_resources_begin_with_their_version():
    body = b'{"apiVersion":"example.org/v1","items":[],"kind":"GearList","metadata":{}}'
    assert as_json([(b"content-type", JSON)], body, whole=True) == body
    assert as_json([(b"content-type", JSON)], body, whole=False) is None


@pytest.mark.parametrize(
    ("media", "body"),
    [(JSON, b'{"major":"1"}'), (JSON, b'{\n  "major": "1"\n}'), (b"text/plain", b'{"kind":"x"}'), (PROTOBUF, b"\x0a\x00"), (JSON, b"")],
)
def test_answers_that_are_no_objects_are_not_recorded(media, body):
    assert as_json([(b"content-type", media)], body, whole=True) is None


def test_deeply_nested_json_is_compacted() -> None:
    """It was a panic."""
    body = b'{\n"kind":"A","a":' + b'{"a":' * 400 + b"1" + b"}" * 401
    assert as_json([(b"content-type", JSON)], body, whole=True) == body.replace(b"\n", b"")
