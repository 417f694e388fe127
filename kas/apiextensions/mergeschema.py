"""Merge schemas of custom resources, from the descriptor of a CRD version.

Upstream: kube-openapi ``pkg/schemaconv/openapi.go`` over what apiextensions' ``controller/openapi/builder`` publishes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kas.patch.fieldmanager import Field, Node
from kas.patch.fieldmanager.builtin import type_node
from kas.patch.fieldmanager.schema import ATOMIC, DEDUCED, Schema, deduced_schema, leaf, scalar
from kas.types import scheme
from kas.types.scheme import TypeDesc, builtin_type

Obj = dict[str, Any]
_SCALARS = {"integer": "numeric", "number": "numeric", "boolean": "boolean"}


def crd_schema(
    type: TypeDesc | None,
    api_version: str,
    kind: str,
    preserve_unknown: bool = False,
    convert: Callable[[Obj, str], tuple[Schema, Obj] | None] | None = None,
) -> Schema:
    """The merge schema of a CRD version, from the descriptor of its schema; without one everything is deduced.

    ``convert`` as in Schema. Build it once when the CRD is accepted, not per request.
    """
    if type is None:
        return deduced_schema(api_version, kind)
    meta = type_node(builtin_type("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"), structured=False)
    root = Node()
    _object(root, type, type.schema.get("x-kubernetes-map-type"), meta, preserve_unknown or type.preserve)
    return Schema(root, api_version, kind, convert)


def _value_node(f: scheme.Field, meta: Node, preserve: bool) -> Node:
    preserve = preserve or f.preserve
    # A list's or map's ``type`` is that of what it holds.
    kind = "" if f.card == "single" and f.type == "intOrString" else f.schema.get("type") or ""
    if kind in _SCALARS:
        return leaf(_SCALARS[kind])
    if kind == "string":
        return leaf("string" if (f.format or "") in ("", "byte") else "untyped")
    node = Node() if kind else scalar("untyped")
    if kind in ("", "array"):
        keys = list(f.list_map_keys) if f.list_type == "map" else None
        item = _value_node(f.element, meta, preserve) if isinstance(f.schema.get("items"), dict) else ATOMIC
        node.set_list(item, f.list_type not in ("map", "set"), keys)
    if kind in ("", "object"):
        if f.card == "map":
            node.set_map(f.map_type == "atomic", _value_node(f.element, meta, preserve), False)
            node.set_fields({})
        else:
            _object(node, f.message if f.card == "single" else None, f.map_type, meta, preserve)
    return node


def _object(node: Node, type: TypeDesc | None, map_type: str | None, meta: Node, preserve: bool) -> None:
    """``type`` None is an object of which nothing is known."""
    fields = {f.name: Field(f.name, _value_node(f, meta, preserve), default=f.default) for f in (type.fields if type is not None else ())}
    if type is not None and type.embedded:
        fields |= {name: Field(name, n) for name, n in (("apiVersion", leaf("string")), ("kind", leaf("string")), ("metadata", meta))}
    elem = None
    if type is not None and type.additional is not None:
        elem = _value_node(type.additional, meta, preserve)
    elif (type is not None and type.allows_additional) or (
        (type is None or type.schema.get("additionalProperties") is None) and (preserve or not fields)
    ):
        elem = DEDUCED
    node.set_map(map_type == "atomic", elem, elem is DEDUCED and not fields)
    node.set_fields(fields)
