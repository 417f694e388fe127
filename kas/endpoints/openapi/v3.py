"""OpenAPI v3 documents: one for each group version, and one for each discovery root."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kas.endpoints.openapi.operations import Operation
from kas.endpoints.openapi.parameters import QUERY
from kas.endpoints.openapi.schemas import GVK, V3_PREFIX, Schema, to_v3
from kas.endpoints.openapi.v2 import CODES, gvk_extension, hoist


def _query(name: str, kind: str, text: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {"in": "query", "name": name, "schema": {"type": kind, "uniqueItems": True}}
    return out | ({"description": text} if text else {})


def _operation(o: Operation) -> dict[str, Any]:
    schema = {"$ref": V3_PREFIX + o.response} if o.response else {"type": "string"}
    content = {media: {"schema": schema} for media in o.produces}
    responses = {str(code): {"description": CODES[code], "content": content} for code in o.codes}
    out: dict[str, Any] = {
        "description": o.text, "operationId": o.id, "responses": responses | {"401": {"description": "Unauthorized"}}, "tags": [o.tag],
    }  # fmt: skip
    parameters = [_query(name, *QUERY[name]) for name in o.parameters] + [_query(name, kind) for name, kind in o.own]
    if parameters:
        out["parameters"] = parameters
    if o.body:
        body: dict[str, Any] = {"content": {media: {"schema": {"$ref": V3_PREFIX + o.body}} for media in o.consumes}}
        out["requestBody"] = body | ({"required": True} if o.body_required else {})
    if o.action:
        out["x-kubernetes-action"] = o.action
    if o.gvk:
        out[GVK] = gvk_extension(o.gvk)
    return out


def path_items(operations: Iterable[Operation]) -> dict[str, Any]:
    """Return the paths of ``operations``, sorted."""
    paths: dict[str, Any] = {}
    shared: dict[str, list[dict[str, Any]]] = {}
    for o in operations:
        paths.setdefault(o.path, {})[o.method] = _operation(o)
        shared[o.path] = [
            {"description": text, "in": "path", "name": name, "required": True, "schema": {"type": "string", "uniqueItems": True}}
            for name, text in o.path_parameters.items()
        ]
        if o.action and o.action != "connect":
            shared[o.path].append(_query("pretty", *QUERY["pretty"]))
    for path, item in paths.items():
        hoist(item, shared[path])
    return dict(sorted(paths.items()))


def shown(definitions: dict[str, Schema]) -> dict[str, Schema]:
    """Return the definitions in v3 form."""
    return {name: to_v3(name, schema) for name, schema in definitions.items()}


def document(operations: Iterable[Operation], definitions: dict[str, Schema], server_version: str) -> dict[str, Any]:
    """Return the whole document as a dict; ``definitions`` are those to publish, in v2 form."""
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": server_version},
        "paths": path_items(operations),
        "components": {
            "schemas": shown(definitions),
            "securitySchemes": {
                "BearerToken": {"description": "Bearer Token authentication", "in": "header", "name": "authorization", "type": "apiKey"}
            },
        },
    }


def document_of_definitions(definitions: dict[str, Schema]) -> dict[str, Any]:
    """Return the document frame for CustomResourceDefinitions, with the built-in ``definitions`` that they need, in v2 form."""
    info = {"title": "Kubernetes CRD Swagger", "version": "v0.1.0"}  # as in apiextensions-apiserver's builder
    return {"openapi": "3.0.0", "info": info, "paths": {}, "components": {"schemas": shown(definitions)}}
