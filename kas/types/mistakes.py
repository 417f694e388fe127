"""Stored objects that are none. No server writes one whose fields have other types than its kind's, and what comes from etcd is decoded on
its way in; but a file can be written by another hand, and who decodes does not ask for a name. Whoever fails over an object asks here
whether the object is why."""

from __future__ import annotations

from typing import Any

from kas.types.scheme import DecodeError, decode, find_builtin_kind, in_namespaces


def mistake(obj: Any) -> str:
    """What is wrong with the types of a built-in object's fields, in the words of Go's decoder, which name the field, or that it has no
    name or namespace; empty when nothing is, or its kind is not built in."""
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
