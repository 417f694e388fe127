"""Diagnosis of corrupt stored objects.

No server writes an object whose fields have other types than its kind's, and objects from etcd are decoded when they arrive. But other
programs can write to the storage, and decoding does not require a name. Code that fails on an object asks here whether the object is the
cause.
"""

from __future__ import annotations

from typing import Any

from kas.types.scheme import DecodeError, decode, find_builtin_kind, in_namespaces


def mistake(obj: Any) -> str:
    """What is wrong with a built-in object: a field of the wrong type (in the words of Go's decoder, which name the field), or a missing
    name or namespace. Empty when nothing is wrong or the kind is not built in.
    """
    if not isinstance(obj, dict):
        return "it is no object"
    group, _, version = str(obj.get("apiVersion") or "").rpartition("/")
    kind = find_builtin_kind(group, version, str(obj.get("kind") or ""))
    if kind is None:
        return ""
    try:
        decode(kind.type, obj)
    except DecodeError as e:
        return str(e)
    meta = obj.get("metadata")
    if not isinstance(meta, dict):
        return "it has no metadata"
    if not meta.get("name"):
        return "it has no name"
    return "it has no namespace" if not meta.get("namespace") and in_namespaces(kind) else ""
