"""Values as kube-apiserver keeps them in etcd: objects in their storage version, without resourceVersion.

Built-in kinds are protobuf in an envelope (``k8s\\0``, apiVersion and kind beside the message); CustomResourceDefinitions, APIServices and
custom resources are JSON with a final newline. Both are read for every kind, in any known version. The key of an object is the one that
kas uses. Upstream: ``runtime/serializer/protobuf``, ``storage/etcd3/store.go``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from kas._codecs import (
    DecodeError,
    TypeDesc,
    decode,
    decode_protobuf,
    encode_json,
    encode_protobuf,
    envelope,
    open_envelope,
    stored_as_json,
    write_json,
)

Obj = dict[str, Any]
# (apiVersion, kind) -> its type; None for a custom resource's kind
TypeOf = Callable[[str, str], TypeDesc | None]

PROTOBUF = b"k8s\0"
# Members of metadata that are not stored.
LEFT_OUT = ("resourceVersion", "selfLink")


def encode(type: TypeDesc | None, obj: Obj) -> bytes:
    """Returns the value of an object, whose apiVersion and kind are those of the storage version. ``type`` is None for a custom resource.
    Raises EncodeError."""
    metadata = obj.get("metadata") or {}
    if any(name in metadata for name in LEFT_OUT):
        obj = {**obj, "metadata": {k: v for k, v in metadata.items() if k not in LEFT_OUT}}
    if type is None:
        return write_json(obj) + b"\n"
    if stored_as_json(type):
        return encode_json(type, obj) + b"\n"
    return envelope(obj["apiVersion"], obj["kind"], encode_protobuf(type, obj))


def read(value: bytes, type_of: TypeOf) -> Obj:
    """Returns the object of a value, with apiVersion and kind first. Raises DecodeError for an invalid value or an unknown kind."""
    if not value.startswith(PROTOBUF):
        return _read_json(value, type_of)
    api_version, kind, message, _ = open_envelope(value)
    type_ = type_of(api_version, kind)
    if type_ is None:
        raise DecodeError(f'no kind "{kind}" is registered for version "{api_version}"')
    return {"kind": kind, "apiVersion": api_version, **decode_protobuf(type_, message)}


def _read_json(value: bytes, type_of: TypeOf) -> Obj:
    try:
        obj = orjson.loads(value)
    except orjson.JSONDecodeError as e:
        raise DecodeError(f"couldn't get version/kind; json parse error: {e}") from None
    if not isinstance(obj, dict) or not isinstance(obj.get("apiVersion"), str) or not isinstance(obj.get("kind"), str):
        raise DecodeError("the value names no apiVersion and kind")
    type_ = type_of(obj["apiVersion"], obj["kind"])
    if type_ is None:
        return obj
    typed, _ = decode(type_, obj)
    return {"kind": obj["kind"], "apiVersion": obj["apiVersion"], **{k: v for k, v in typed.items() if k not in ("kind", "apiVersion")}}
