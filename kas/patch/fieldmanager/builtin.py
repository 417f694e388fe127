"""Merge schemas of the built-in kinds, built from the scheme, which also converts objects to the versions of other entries.

Field and type names come from the type tables; how Go writes an unset field follows from its kind and its JSON tag.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import orjson

from kas._codecs import go_numbers
from kas.meta.errors import ApiError
from kas.patch._fieldsets import MISSING, Field, Node, is_written
from kas.patch.fieldmanager.schema import ATOMIC, DEDUCED, Schema, leaf, scalar
from kas.types import scheme
from kas.types.conversion import convert
from kas.types.unstructured import conversion_error

_SCALAR_TYPES = {
    "string": "string", "bytes": "string", "bool": "boolean", "int32": "numeric", "int64": "numeric", "uint32": "numeric",
    "uint64": "numeric", "double": "numeric", "float": "numeric",
}  # fmt: skip
_ZERO = {"string": "", "bool": False, "double": 0, "int32": 0, "int64": 0, "uint32": 0, "uint64": 0, "float": 0}


@cache
def builtin(group: str, version: str, kind: str) -> Schema:
    """Return the schema of a built-in kind. Raises KeyError for an unknown one."""
    found = scheme.find_builtin_kind(group, version, kind)
    if found is None:
        raise KeyError(f"{group}/{version}, Kind={kind}")

    def other_version(obj: dict[str, Any], api_version: str) -> tuple[Schema, dict[str, Any]] | None:
        other_group, _, other = api_version.rpartition("/")
        if other_group != group or scheme.find_builtin_kind(group, other, kind) is None:
            return None
        return builtin(group, other, kind), convert(obj, group, version, other, kind)

    root = type_node(found.type)

    def written(obj: dict[str, Any]) -> tuple[Schema, dict[str, Any]]:
        return _as_written(group, version, kind), _go_writes(found, root, obj)

    return Schema(root, found.api_version, kind, other_version, structured=True, written=written)


@cache
def _as_written(group: str, version: str, kind: str) -> Schema:
    """Return the schema of the objects that Go writes of the kind, and of configurations merged into them."""
    found = scheme.find_builtin_kind(group, version, kind)
    assert found is not None
    typed = builtin(group, version, kind)

    def other_version(obj: dict[str, Any], api_version: str) -> tuple[Schema, dict[str, Any]] | None:
        assert typed.convert is not None
        try:
            given, _ = scheme.decode(found.type, go_numbers(found.type, obj))
        except scheme.DecodeError as e:
            why = conversion_error(found.type, e)
            raise ApiError(500, "", f"unable to convert unstructured object to {group}/{version}, Kind={kind}: {why}") from None
        at = typed.convert({**given, "apiVersion": typed.api_version, "kind": kind}, api_version)
        if at is None:
            return None
        assert at[0].written is not None
        return at[0].written(at[1])

    return Schema(type_node(found.type, structured=False), found.api_version, kind, other_version)


def _go_writes(kind: scheme.Kind, root: Node, obj: dict[str, Any]) -> dict[str, Any]:
    """Return an object as Go writes it: with the values of unset fields and without omitted ones, and without its managedFields."""
    meta = obj.get("metadata")
    if meta and "managedFields" in meta:
        meta = meta.copy()
        del meta["managedFields"]
        obj = {**obj, "metadata": meta}
    if is_written(root, obj):
        return obj  # most stored objects
    out: dict[str, Any] = orjson.loads(scheme.encode_json(kind.type, obj))
    return out


_nodes: dict[tuple[str, bool, bool], Node] = {}


def type_node(desc: scheme.TypeDesc, structured: bool = True, own: bool = False) -> Node:
    """Return the node of a type. Each node is made once; nodes may refer to each other.

    ``structured`` False leaves Go's zero values out of comparisons, for objects that were never Go structs. ``own`` is for an object's own
    ObjectMeta, whose managedFields this package computes and excludes from comparisons; those in a template's metadata are compared.
    """
    key = (desc.name, structured, own)
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
    is_object = {"kind", "apiVersion"} <= desc.by_name.keys()
    for f in fields:
        zero, omit = _go_encoding(f)
        default = f.default
        if not structured:
            if default is None and f.type in _ZERO and zero is not MISSING:
                default = zero  # OpenAPI's default for a string or number that is always written; it completes the keys of list items
            zero, omit = MISSING, 0
        skip = own and f.name == "managedFields"
        declared[f.name] = Field(f.name, _field_node(f, structured, is_object and f.name == "metadata"), zero, omit, default, skip)
    node.set_fields(declared)
    return node


def _custom_node(custom: str) -> Node:
    form = custom.split(";")[0]
    if form == "quantity-string" or form.startswith("rfc3339"):
        return leaf("untyped")
    if form == "go-duration-string":
        return leaf("string")
    if custom == "raw-json;empty=null" or form == "raw-json":
        return ATOMIC
    if form == "list-of-string":
        node = Node()
        node.set_list(leaf("string"), True)
        return node
    # int-or-string and types of alternatives ("this or that") have no single type in OpenAPI, so any value is accepted.
    node = scalar("untyped")
    node.set_list(ATOMIC, True)
    node.set_map(False, DEDUCED, True)
    return node


def _element_node(f: scheme.Field, structured: bool, own: bool) -> Node:
    if f.type != "message":
        return leaf(_SCALAR_TYPES[f.type])
    desc = f.message
    assert desc is not None
    if desc.custom_json and desc.kind_name in ("JSON", "FieldsV1"):
        # OpenAPI describes these two as objects of unknown content, not as RawExtensions.
        return DEDUCED
    return type_node(desc, structured, own)


def _field_node(f: scheme.Field, structured: bool, own: bool = False) -> Node:
    element = _element_node(f, structured, own)
    node = Node()
    if f.card == "list":
        keyed = f.list_type == "map"
        node.set_list(element, f.list_type not in ("map", "set"), f.list_map_keys if keyed else None)
        return node
    if f.card == "map":
        node.set_map(f.map_type == "atomic", element)
        return node
    return element.map_is(f.map_type == "atomic") if f.map_type else element


def _go_encoding(f: scheme.Field) -> tuple[Any, int]:
    """Return what Go writes for the unset field (MISSING: nothing) and which values it omits; see Field."""
    if f.type == "bytes" or f.card != "single":
        return (MISSING, 2) if f.omitempty else (None, 0)
    if f.ptr:
        return (MISSING, 1) if f.omitempty else (None, 0)
    if f.type != "message":
        return (MISSING, 2) if f.omitempty else (_ZERO[f.type], 0)
    custom = f.message.custom_json or "" if f.message is not None else ""
    if custom.startswith("list-of-string"):
        return (MISSING, 2) if f.omitempty else (None, 0)
    # encoding/json never omits a struct as empty; only omitzero, which only times have, drops it. So an empty object is always written.
    if f.omitzero:
        return MISSING, 1
    if custom.startswith("quantity"):
        return "0", 0
    if custom.startswith("int-or-string"):
        return 0, 0
    if custom.startswith("go-duration"):
        return "0s", 0
    if custom:
        return None, 0
    if f.message is not None and "atomic" in (f.map_type, f.message.map_type):
        # Compared as a whole, not by its members.
        return orjson.loads(scheme.encode_json(f.message, {})), 0
    return {}, 0
