"""Merge schemas: what structured-merge-diff knows of a type, from the type tables or from a CRD's schema.

Upstream reads OpenAPI (kube-openapi ``pkg/schemaconv``); the rules are the same. Lists without a list type and types or
fields marked so are atomic; other maps and structs merge by key; types without a schema are *deduced* from the value:
maps merge, lists are atomic.

Two graphs exist for built-in types. The *structured* one also knows what Go's encoder writes or omits for unset fields,
because upstream compares Go structs: a pod's empty ``spec.containers`` is null, not absent. Applied configurations and
custom resources are compared as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kas._fast_fields import MISSING, SCALARS, Field, Node

Obj = dict[str, Any]

_SCALAR_TYPES = {
    "string": "string", "bytes": "string", "bool": "boolean", "int32": "numeric", "int64": "numeric", "uint32": "numeric",
    "uint64": "numeric", "double": "numeric", "float": "numeric",
}  # fmt: skip
_ZERO = {"string": "", "bool": False, "double": 0, "int32": 0, "int64": 0, "uint32": 0, "uint64": 0, "float": 0}


class Schema:
    """The merge type of one kind in one version.

    ``convert(obj, api_version)`` gives (Schema, object) in another version of the kind, or None when that version is not
    served any more: entries of such versions are dropped, as upstream does.
    """

    __slots__ = ("api_version", "convert", "kind", "root", "structured")

    def __init__(
        self,
        root: Node,
        api_version: str,
        kind: str,
        convert: Callable[[Obj, str], tuple[Schema, Obj] | None] | None = None,
        structured: bool = False,
    ) -> None:
        self.root, self.api_version, self.kind, self.convert, self.structured = root, api_version, kind, convert, structured

    def __repr__(self) -> str:
        return f"Schema({self.api_version}, Kind={self.kind})"

    def at(self, obj: Obj, api_version: str) -> tuple[Schema, Obj] | None:
        """The object in ``api_version`` and that version's schema; None when the version is gone."""
        if api_version == self.api_version:
            return self, obj
        return None if self.convert is None else self.convert(obj, api_version)


def scalar(kind: str) -> Node:
    node = Node()
    node.scalar = SCALARS[kind]
    return node


def _untyped() -> tuple[Node, Node]:
    # The types upstream calls __untyped_atomic_ and __untyped_deduced_.
    atomic, deduced = scalar("untyped"), scalar("untyped")
    atomic.set_list(atomic, True)
    atomic.set_map(True, atomic)
    deduced.set_list(atomic, True)
    deduced.set_map(False, deduced, True)
    return atomic, deduced


ATOMIC, DEDUCED = _untyped()


def deduced_schema(api_version: str, kind: str) -> Schema:
    """For kinds without any schema."""
    return Schema(DEDUCED, api_version, kind)


# Built-in types. ------------------------------------------------------------------------------------

_nodes: dict[tuple[str, bool], Node] = {}


def type_node(desc, structured: bool = True) -> Node:
    """The node of a type description (kas.api.scheme.TypeDesc). Nodes are made once and may refer to each other."""
    key = (desc.name, structured)
    node = _nodes.get(key)
    if node is not None:
        return node
    custom = desc.custom_json
    if custom:
        node = _nodes[key] = _custom_node(custom)
        return node
    node = _nodes[key] = Node()
    fields = desc.json_fields
    node.set_map(desc.map_type == "atomic", None if fields else DEDUCED, not fields)
    declared = {}
    for f in fields:
        zero, omit = _go_encoding(f) if structured else (MISSING, 0)
        # Entries of managedFields are what we compute: they never take part in it.
        skip = f.name == "managedFields" and desc.kind_name == "ObjectMeta"
        declared[f.name] = Field(f.name, _field_node(f, structured), zero, omit, f.default, skip)
    node.set_fields(declared)
    return node


def _custom_node(custom: str) -> Node:
    form = custom.split(";")[0]
    if form == "quantity-string" or form.startswith("rfc3339"):
        return scalar("untyped")
    if form == "go-duration-string":
        return scalar("string")
    if custom == "raw-json;empty=null" or form == "raw-json":
        return ATOMIC
    if form == "list-of-string":
        node = Node()
        node.set_list(scalar("string"), True)
        return node
    # int-or-string and "this or that" have no single type in OpenAPI, so everything is let through.
    node = scalar("untyped")
    node.set_list(ATOMIC, True)
    node.set_map(False, DEDUCED, True)
    return node


def _element_node(f, structured: bool) -> Node:
    if f.type != "message":
        return scalar(_SCALAR_TYPES[f.type])
    desc = f.message
    if desc.custom_json and desc.kind_name in ("JSON", "FieldsV1"):
        # These two are objects of unknown content to OpenAPI, not RawExtensions.
        return DEDUCED
    return type_node(desc, structured)


def _field_node(f, structured: bool) -> Node:
    element = _element_node(f, structured)
    node = Node()
    if f.card == "list":
        keyed = f.list_type == "map"
        node.set_list(element, f.list_type not in ("map", "set"), f.list_map_keys if keyed else None)
        return node
    if f.card == "map":
        node.set_map(f.map_type == "atomic", element)
        return node
    return element.map_is(f.map_type == "atomic") if f.map_type else element


def _go_encoding(f) -> tuple[Any, int]:
    """What Go writes for the unset field (MISSING: nothing), and which values it leaves out; see Field."""
    if f.type == "bytes" or f.card != "single":
        return (MISSING, 2) if f.omitempty else (None, 0)
    if f.ptr:
        return (MISSING, 1) if f.omitempty else (None, 0)
    if f.type != "message":
        return (MISSING, 2) if f.omitempty else (_ZERO[f.type], 0)
    custom = f.message.custom_json or ""
    if custom.startswith("list-of-string"):
        return (MISSING, 2) if f.omitempty else (None, 0)
    # encoding/json never takes a struct for empty; only omitzero drops it.
    if f.omitzero:
        return MISSING, 1
    if custom.startswith("quantity"):
        return "0", 0
    if custom.startswith("int-or-string"):
        return 0, 0
    if custom.startswith("go-duration"):
        return "0s", 0
    return (None, 0) if custom else ({}, 0)


# Custom resources. ----------------------------------------------------------------------------------


def crd_schema(open_api: Obj | None, api_version: str, kind: str, object_meta, preserve_unknown: bool = False) -> Schema:
    """The merge schema of a CRD version's ``openAPIV3Schema``; ``object_meta`` is ObjectMeta's type description."""
    if not open_api:
        return deduced_schema(api_version, kind)
    meta = type_node(object_meta, structured=False)
    root = _property_node({**open_api, "x-kubernetes-embedded-resource": True}, meta, preserve_unknown)
    return Schema(root, api_version, kind)


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
    node.set_fields({name: Field(name, n, MISSING, 0, defaults.get(name)) for name, n in properties.items()})
