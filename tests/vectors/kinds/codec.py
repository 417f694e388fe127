"""codec: canonical JSON, protobuf with its envelope, and YAML of one object, in every direction."""

from __future__ import annotations

import base64

import orjson

from kas._codecs import apply_constant_defaults
from kas.types import yaml_codec
from kas.types.scheme import (
    BUILTIN,
    decode,
    decode_plain,
    decode_protobuf,
    encode_json,
    encode_protobuf,
    open_envelope,
    transcode_json_to_protobuf,
)


def check(vector: dict, group: list[dict]) -> None:
    given, want = vector["in"], vector["out"]
    kind = BUILTIN.kind(given["group"], given["version"], given["kind"])
    assert kind is not None, "unknown kind"
    check_object(kind, given["json"].encode(), want)


def check_object(kind, canonical: bytes, want: dict) -> None:
    typed, unknown = decode(kind.type, orjson.loads(canonical))
    assert unknown == []
    plain = decode_plain(kind.type, canonical)
    assert plain in (typed, None)
    if plain is not None:
        apply_constant_defaults(kind.type, plain)
        assert decode_plain(kind.type, canonical, True) == plain
    assert encode_json(kind.type, typed) == canonical
    protobuf = base64.b64decode(want["protobuf"])
    assert encode_protobuf(kind.type, typed, api_version=kind.api_version, kind=kind.kind) == protobuf
    assert transcode_json_to_protobuf(kind.type, canonical, api_version=kind.api_version, kind=kind.kind) == protobuf
    api_version, name, raw, content_type = open_envelope(protobuf)
    assert (api_version, name, content_type) == (kind.api_version, kind.kind, "")
    back = {"kind": name, "apiVersion": api_version, **decode_protobuf(kind.type, raw)}
    assert encode_json(kind.type, back) == canonical
    assert yaml_codec.encode(orjson.loads(canonical)).decode() == want["yaml"]
    assert encode_json(kind.type, decode(kind.type, yaml_codec.decode(want["yaml"].encode())[0])[0]) == canonical
