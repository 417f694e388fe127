"""Merge schemas of custom resources, made from the type descriptor of a CRD version.

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
    """Return the merge schema of a CRD version; without a type descriptor everything is deduced.

    ``convert`` as in Schema. Build it once when the CRD is accepted, not per request.
    """
    if type is None:
        return deduced_schema(api_version, kind)
    root = Node()
    _object(root, type, type.schema.get("x-kubernetes-map-type"), preserve_unknown or type.preserve)
    return Schema(root, api_version, kind, convert)


def _kind(f: scheme.Field) -> str:
    # A list's or map's ``type`` is that of its elements.
    return "" if f.card == "single" and f.type == "intOrString" else f.schema.get("type") or ""


def _leaf(f: scheme.Field) -> Node | None:
    """Return the node of a scalar; None if the field may contain other values."""
    kind = _kind(f)
    if kind in _SCALARS:
        return leaf(_SCALARS[kind])
    return leaf("string" if (f.format or "") in ("", "byte") else "untyped") if kind == "string" else None


def _node(f: scheme.Field, preserve: bool = False) -> Node:
    """Return the node of a value; nodes of the fields below it are made on first use."""
    known = _leaf(f)
    if known is not None:
        return known
    kind, preserve = _kind(f), preserve or f.preserve
    node = Node() if kind else scalar("untyped")
    if kind in ("", "array"):
        keys = list(f.list_map_keys) if f.list_type == "map" else None
        item = _node(f.of([]).element, preserve) if isinstance(f.schema.get("items"), dict) else ATOMIC
        node.set_list(item, f.list_type not in ("map", "set"), keys)
    if kind in ("", "object"):
        shape = f.of({})
        if shape.card == "map":
            node.set_map(f.map_type == "atomic", _node(shape.element, preserve), False)
            node.set_fields({})
        else:
            _object(node, shape.message if shape.card == "single" else None, f.map_type, preserve)
    return node


def _preserving(f: scheme.Field) -> Node:
    return _node(f, True)


def _object(node: Node, type: TypeDesc | None, map_type: str | None, preserve: bool) -> None:
    """Set the map of ``node``; ``type`` None is an object without a schema."""
    load = _preserving if preserve else _node
    fields = {f.name: Field(f.name, _leaf(f), default=f.default, load=load, of=f) for f in (type.fields if type is not None else ())}
    if type is not None and type.embedded:
        meta = type_node(builtin_type("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"), structured=False, own=True)
        fields |= {name: Field(name, n) for name, n in (("apiVersion", leaf("string")), ("kind", leaf("string")), ("metadata", meta))}
    elem = None
    if type is not None and type.additional is not None:
        elem = _node(type.additional, preserve)
    elif (type is not None and type.allows_additional) or (
        (type is None or type.schema.get("additionalProperties") is None) and (preserve or not fields)
    ):
        elem = DEDUCED
    node.set_map(map_type == "atomic", elem, elem is DEDUCED and not fields)
    node.set_fields(fields)
