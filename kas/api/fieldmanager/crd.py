"""Merge schemas of custom resources, from the OpenAPI schema of a CRD version.

Upstream: kube-openapi ``pkg/schemaconv/openapi.go`` over what apiextensions' ``controller/openapi/builder`` publishes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kas._fast_fields import Field, Node
from kas.api.fieldmanager.builtin import type_node
from kas.api.fieldmanager.schema import ATOMIC, DEDUCED, Schema, deduced_schema, scalar
from kas.api.scheme import SCHEME

Obj = dict[str, Any]


def crd_schema(
    open_api: Obj | None,
    api_version: str,
    kind: str,
    preserve_unknown: bool = False,
    convert: Callable[[Obj, str], tuple[Schema, Obj] | None] | None = None,
) -> Schema:
    """The merge schema of a CRD version's ``openAPIV3Schema`` (structural); without one everything is deduced.

    ``convert`` as in Schema. Build it once when the CRD is accepted, not per request.
    """
    if not open_api:
        return deduced_schema(api_version, kind)
    meta = type_node(SCHEME.type("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"), structured=False)
    root = _property_node({**open_api, "x-kubernetes-embedded-resource": True}, meta, preserve_unknown)
    return Schema(root, api_version, kind, convert)


def _property_node(s: Obj, meta: Node, preserve: bool) -> Node:
    preserve = preserve or s.get("x-kubernetes-preserve-unknown-fields") is True
    kind = s.get("type") or ""
    if s.get("x-kubernetes-int-or-string"):
        kind = ""
    if kind in ("integer", "number"):
        return scalar("numeric")
    if kind == "boolean":
        return scalar("boolean")
    if kind == "string":
        return scalar("string" if s.get("format", "") in ("", "byte") else "untyped")
    node = Node() if kind else scalar("untyped")
    if kind in ("", "array"):
        items = s.get("items")
        list_type = s.get("x-kubernetes-list-type")
        keys = s.get("x-kubernetes-list-map-keys") if list_type == "map" else None
        item = _property_node(items, meta, preserve) if isinstance(items, dict) else ATOMIC
        node.set_list(item, list_type not in ("map", "set"), keys)
    if kind in ("", "object"):
        _object(node, s, meta, preserve)
    return node


def _object(node: Node, s: Obj, meta: Node, preserve: bool) -> None:
    properties = {name: _property_node(p, meta, preserve) for name, p in (s.get("properties") or {}).items()}
    defaults = {name: p.get("default") for name, p in (s.get("properties") or {}).items()}
    if s.get("x-kubernetes-embedded-resource"):
        properties |= {"apiVersion": scalar("string"), "kind": scalar("string"), "metadata": meta}
    extra = s.get("additionalProperties")
    elem = None
    if isinstance(extra, dict):
        elem = _property_node(extra, meta, preserve)
    elif extra or (extra is None and (preserve or not properties)):
        elem = DEDUCED
    node.set_map(s.get("x-kubernetes-map-type") == "atomic", elem, elem is DEDUCED and not properties)
    node.set_fields({name: Field(name, n, default=defaults.get(name)) for name, n in properties.items()})
