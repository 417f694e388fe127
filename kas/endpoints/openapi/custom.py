"""OpenAPI of custom resources, from their definitions.

``describe`` returns what ``OpenAPI`` needs for one CustomResourceDefinition. Schemas are kept in v3 form; ``structural_v2`` reduces one
to v2, whose clients support neither alternatives nor null. Source of the behaviour: apiextensions-apiserver
``pkg/controller/openapi/builder`` and ``.../v2``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kas.endpoints.openapi.operations import ServedResource, ServedSubresource
from kas.endpoints.openapi.schemas import GVK, META, V2_PREFIX, Schema

SELECTABLE = "x-kubernetes-selectable-fields"
SCALE = "io.k8s.api.autoscaling.v1.Scale"
_CONVENTIONS = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"
_VERSIONED = "defines the versioned schema of this representation of an object."
# The descriptions that upstream's builder gives to these members, verbatim, because documents are compared by their digests.
_TYPE_FIELDS: dict[str, Schema] = {
    "apiVersion": {
        "type": "string",
        "description": f"APIVersion {_VERSIONED} Servers should convert recognized schemas to the latest internal value, and may reject "
        f"unrecognized values. More info: {_CONVENTIONS}#resources",
    },
    "kind": {
        "type": "string",
        "description": "Kind is a string value representing the REST resource this object represents. Servers may infer this from the "
        f"endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: {_CONVENTIONS}#types-kinds",
    },
}
_EMBEDDED_FIELDS: dict[str, Schema] = {
    "apiVersion": {"type": "string", "description": f"apiVersion {_VERSIONED} More info: {_CONVENTIONS}#resources"},
    "kind": {
        "type": "string",
        "description": f"kind is a string value representing the type of this object. In CamelCase. More info: {_CONVENTIONS}#types-kinds",
    },
}


@dataclass(frozen=True, slots=True)
class Part:
    """The contribution of one definition to a group version.

    ``tag`` changes whenever the contribution does. ``load`` returns it, in the form of ``describe``, when a document is built.
    """

    group: str
    version: str
    tag: str
    load: Callable[[], tuple[list[ServedResource], dict[str, Schema]]]


def definition_name(group: str, version: str, kind: str) -> str:
    """Return ``com.example.v1.Widget`` for the kind Widget of example.com/v1."""
    return ".".join([*reversed(group.split(".")), version, kind])


def _object_meta() -> Schema:
    return {"$ref": f"{V2_PREFIX}{META}ObjectMeta", "description": f"Standard object's metadata. More info: {_CONVENTIONS}#metadata"}


def _list_meta() -> Schema:
    return {"$ref": f"{V2_PREFIX}{META}ListMeta", "description": f"Standard list metadata. More info: {_CONVENTIONS}#types-kinds"}


def _embedded(schema: Schema) -> Schema:
    """Return the schema with apiVersion, kind and metadata added to embedded resources, and with the types of int-or-string."""
    out = dict(schema)
    if isinstance(out.get("properties"), dict):
        out["properties"] = {name: _embedded(found) for name, found in out["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(out.get(key), dict):
            out[key] = _embedded(out[key])
    if schema.get("x-kubernetes-int-or-string") and not schema.get("anyOf") and not schema.get("allOf"):
        out["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    if schema.get("x-kubernetes-embedded-resource"):
        out["properties"] = out.get("properties", {}) | _EMBEDDED_FIELDS | {"metadata": _object_meta()}
        required = list(out.get("required") or ())
        out["required"] = required + [name for name in ("kind", "apiVersion") if name not in required]
    return out


def structural_v2(schema: Schema) -> Schema:
    """Return the part of a custom resource's schema that v2 can express, as upstream publishes it."""
    if GVK in schema and schema.get("x-kubernetes-preserve-unknown-fields"):
        return {"type": "object", GVK: schema[GVK]}
    dropped = {"allOf", "anyOf", "oneOf", "not", "nullable", "default"}
    if schema.get("nullable"):
        dropped |= {"type", "items", "properties"}
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        dropped |= {"items", "properties"}
        if schema.get("type") in ("object", "array"):  # kubectl would take it for one whose members are known
            dropped |= {"type"}
    out = {key: value for key, value in schema.items() if key not in dropped}
    if "properties" in out:
        nullable = {name for name, found in out["properties"].items() if found.get("nullable")}
        out["properties"] = {name: structural_v2(found) for name, found in out["properties"].items()}
        required = [name for name in out.get("required", ()) if name not in nullable]
        if "required" in out and not required:
            del out["required"]
        elif required:
            out["required"] = required
    if isinstance(additional := schema.get("additionalProperties"), dict) and additional.get("nullable"):
        out.pop("required", None)
    for key in ("items", "additionalProperties"):
        if isinstance(out.get(key), dict):
            out[key] = structural_v2(out[key])
    return out


def describe(crd: dict[str, Any]) -> tuple[list[ServedResource], dict[str, Schema]]:
    """Return the served resources of a definition, and the OpenAPI definitions (by name) of their kinds and lists."""
    spec, names = crd["spec"], (crd.get("status") or {}).get("acceptedNames") or crd["spec"]["names"]
    served, definitions = [], {}
    for version in spec["versions"]:
        if not version.get("served"):
            continue
        group, name, kind = spec["group"], version["name"], names["kind"]
        list_kind = names.get("listKind") or f"{kind}List"
        own, own_list = definition_name(group, name, kind), definition_name(group, name, list_kind)
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        root: Schema = {"type": "object"}  # without a schema, nothing is known about the fields
        if schema is not None:
            root = _embedded(schema)
            root["properties"] = (root.get("properties") or {}) | _TYPE_FIELDS | {"metadata": _object_meta()}
        root[GVK] = [{"group": group, "kind": kind, "version": name}]
        if version.get("selectableFields"):
            paths = [f["jsonPath"].removeprefix(".") for f in version["selectableFields"]]
            root[SELECTABLE] = [{"fieldPath": path} for path in paths]
        definitions[own] = root
        definitions[own_list] = {
            "type": "object",
            "description": f"{list_kind} is a list of {kind}",
            "required": ["items"],
            "properties": _TYPE_FIELDS
            | {
                "items": {
                    "type": "array", "items": {"$ref": V2_PREFIX + own},
                    "description": f"List of {names['plural']}. More info: {_CONVENTIONS}",
                },
                "metadata": _list_meta(),
            },
            GVK: [{"group": group, "kind": list_kind, "version": name}],
        }
        if SELECTABLE in root:
            definitions[own_list][SELECTABLE] = root[SELECTABLE]
        subresources = version.get("subresources") or {}
        verbs = ("get", "patch", "update")
        subs = []
        if subresources.get("status") is not None:
            subs.append(ServedSubresource("status", group, name, kind, verbs, own))
        if subresources.get("scale") is not None:
            subs.append(ServedSubresource("scale", "autoscaling", "v1", "Scale", verbs, SCALE))
        all_verbs = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
        namespaced = spec["scope"] == "Namespaced"
        served.append(ServedResource(group, name, names["plural"], kind, namespaced, all_verbs, own, own_list, False, True, tuple(subs)))
    return served, definitions
