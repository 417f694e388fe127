"""golden: upstream's golden files; their JSON is indented."""

from __future__ import annotations

import base64

import orjson

from kas.types import yaml_codec
from kas.types.scheme import (
    BUILTIN,
    decode,
    decode_plain,
    decode_protobuf,
    encode_json,
    encode_json_split,
    encode_protobuf,
    encode_stored,
    envelope,
    open_envelope,
    pretty_json,
    transcode_json_to_protobuf,
)


def check(vector: dict, group: list[dict]) -> None:
    given, want = vector["in"], vector["out"]
    kind = BUILTIN.kind(given["group"], given["version"], given["kind"])
    assert kind is not None, "unknown kind"
    typed, unknown = decode(kind.type, orjson.loads(given["json"]))
    assert unknown == []
    assert decode_plain(kind.type, given["json"].encode()) in (typed, None)
    canonical = encode_json(kind.type, typed)
    assert pretty_json(canonical).decode() == given["json"]
    protobuf = base64.b64decode(want["protobuf"])
    if "kind" not in kind.type.by_name:  # neither a WatchEvent nor its envelope has a kind
        assert envelope("", "", encode_protobuf(kind.type, typed)) == protobuf
    else:
        assert encode_protobuf(kind.type, typed, api_version=kind.api_version, kind=kind.kind) == protobuf
        assert transcode_json_to_protobuf(kind.type, canonical, api_version=kind.api_version, kind=kind.kind) == protobuf
    if (typed.get("metadata") or {}).get("creationTimestamp"):  # not a list: the record of an object
        *parts, message = encode_stored(kind.type, typed, least=0)
        assert tuple(parts) == encode_json_split(kind.type, typed)
        assert message == encode_protobuf(kind.type, {**typed, "metadata": {**typed["metadata"], "resourceVersion": ""}})
    api_version, name, raw, _ = open_envelope(protobuf)
    back = {"kind": name, "apiVersion": api_version, **decode_protobuf(kind.type, raw)}
    assert encode_json(kind.type, back) == canonical
    assert yaml_codec.encode(orjson.loads(canonical)).decode() == want["yaml"]
    assert encode_json(kind.type, decode(kind.type, yaml_codec.decode(want["yaml"].encode())[0])[0]) == canonical
