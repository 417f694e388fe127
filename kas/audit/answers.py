"""Response bodies for the audit log: as JSON, whatever encoding the client received."""

from __future__ import annotations

from typing import Any

import orjson

from kas.meta.largejson import write_nested
from kas.request.http import Headers
from kas.types.scheme import DecodeError, decode_protobuf, encode_json, find_builtin_kind, open_envelope

# The prefixes of all API objects (the second is that of custom resources, whose fields are sorted). What has no kind (/version, OpenAPI
# documents, text) is not recorded.
OBJECT = (b'{"kind":"', b'{"apiVersion":"')
STATUS = b'{"kind":"Status"'


def as_json(headers: Headers, body: bytes, whole: bool) -> bytes | None:
    """Return the body as compact JSON if it is an API object, else None.

    Without ``whole`` only a Status is returned; other bodies are decoded only as far as needed to see that they are none.
    """
    media, packed = b"", False
    for name, value in headers:
        if name == b"content-type":
            media = value
        elif name == b"content-encoding":
            packed = True
    if packed:
        if not whole:
            return None  # a Status is never long enough to be compressed
        from isal import igzip

        body = igzip.decompress(body)
    if media == b"application/json":
        if body.startswith(OBJECT if whole else STATUS):
            return body
        if body.startswith(b"{\n") and (whole or b'"Status"' in body[:24]):
            return _object(orjson.loads(body))
        return None
    if media == b"application/vnd.kubernetes.protobuf":
        return _of_protobuf(body, whole)
    if media == b"application/yaml" and (whole or b"kind: Status\n" in body):
        from kas.types import yaml_codec  # PyYAML is large

        return _object(yaml_codec.decode(body)[0])
    if media == b"application/cbor" and (whole or b"FStatus" in body):
        from kas.types import cbor  # behind a feature gate

        return _object(cbor.decode(body))
    return None


def _object(value: Any) -> bytes | None:
    """Return the object as JSON with kind first, the one position that is the same in all Go structs."""
    if not isinstance(value, dict) or "kind" not in value:
        return None
    return write_nested({"kind": value["kind"], **value})


def _of_protobuf(body: bytes, whole: bool) -> bytes | None:
    try:
        api_version, name, raw, _ = open_envelope(body)
    except DecodeError:
        return None  # a protobuf document that is not an object
    if not whole and name != "Status":
        return None
    group, _, version = api_version.rpartition("/")
    kind = find_builtin_kind(group, version, name)
    if kind is None:
        return None
    return encode_json(kind.type, {"kind": name, "apiVersion": api_version, **decode_protobuf(kind.type, raw)})
