"""Every kind of the scheme: random objects survive JSON, protobuf and YAML, and the encoders agree with one another."""

from __future__ import annotations

import random

import orjson
import pytest

from kas.types import yaml_codec
from kas.types.scheme import BUILTIN, decode, decode_protobuf, encode_json, encode_protobuf, transcode_json_to_protobuf
from tests.types.randomobjects import struct


@pytest.mark.parametrize("kind", BUILTIN.kinds, ids=lambda k: f"{k.group}.{k.version}.{k.kind}")
def test_random_objects_survive_every_format(kind):
    r = random.Random(f"{kind.api_version}/{kind.kind}")
    for _ in range(3):
        typed, unknown = decode(kind.type, struct(r, kind.type, 0))
        assert unknown == []
        data = encode_json(kind.type, typed)
        stored = decode(kind.type, orjson.loads(data))[0]
        assert encode_json(kind.type, stored) == data
        assert decode(kind.type, orjson.loads(encode_json(kind.type, stored)))[0] == stored
        assert yaml_codec.decode(yaml_codec.encode(orjson.loads(data)))[0] == orjson.loads(data)
        if kind.type.fields and not any(f.pb > 0 for f in kind.type.fields):
            continue  # Table and similar types have no protobuf form
        protobuf = encode_protobuf(kind.type, typed)
        assert transcode_json_to_protobuf(kind.type, data) == protobuf
        again = decode_protobuf(kind.type, protobuf)
        assert encode_protobuf(kind.type, again) == protobuf
        # Empty lists and maps are not kept in protobuf: the result is the stored form.
        assert encode_json(kind.type, {**again, **{k: typed[k] for k in ("kind", "apiVersion") if k in typed}}) == encode_json(
            kind.type, typed, stored=True
        )
