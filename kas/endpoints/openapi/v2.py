"""The OpenAPI v2 document: one for the whole server."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kas.endpoints.openapi.operations import Operation
from kas.endpoints.openapi.parameters import QUERY
from kas.endpoints.openapi.schemas import GVK, V2_PREFIX, Schema

CODES = {200: "OK", 201: "Created", 202: "Accepted"}


def query(name: str, kind: str, text: str = "") -> dict[str, Any]:
    """Return a query parameter in Swagger 2.0; ``kind`` is its JSON type."""
    out: dict[str, Any] = {"in": "query", "name": name, "type": kind, "uniqueItems": True}
    return out | ({"description": text} if text else {})


def gvk_extension(gvk: tuple[str, str, str]) -> dict[str, str]:
    """Return the value of ``x-kubernetes-group-version-kind``."""
    return {"group": gvk[0], "kind": gvk[2], "version": gvk[1]}


def _operation(o: Operation) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = []
    if o.body:
        body: dict[str, Any] = {"in": "body", "name": "body", "schema": {"$ref": V2_PREFIX + o.body}}
        parameters.append(body | ({"required": True} if o.body_required else {}))
    parameters += [{"$ref": f"#/parameters/{name}"} for name in o.parameters]
    parameters += [query(name, kind) for name, kind in o.own]
    schema = {"$ref": V2_PREFIX + o.response} if o.response else {"type": "string"}
    responses = {str(code): {"description": CODES[code], "schema": schema} for code in o.codes}
    out: dict[str, Any] = {
        "consumes": list(o.consumes), "description": o.text, "operationId": o.id, "produces": list(o.produces),
        "responses": responses | {"401": {"description": "Unauthorized"}}, "schemes": ["https"], "tags": [o.tag],
    }  # fmt: skip
    if not o.consumes:
        del out["consumes"]
    if parameters:
        out["parameters"] = parameters
    if o.action:
        out["x-kubernetes-action"] = o.action
    if o.gvk:
        out[GVK] = gvk_extension(o.gvk)
    return out


def _without_defaults(schema: Any) -> Any:
    """Return a schema without defaults, which upstream shows only in v3."""
    if isinstance(schema, list):
        return [_without_defaults(found) for found in schema]
    if not isinstance(schema, dict):
        return schema
    out = {key: _without_defaults(found) for key, found in schema.items() if key not in ("default", "properties")}
    if "properties" in schema:
        out["properties"] = {name: _without_defaults(found) for name, found in schema["properties"].items()}
    return out


def hoist(item: dict[str, Any], shared: list[dict[str, Any]]) -> None:
    """Move parameters that all operations of a path share to the path, with those of ``shared``. Both lists are sorted by name."""
    own = [operation.get("parameters", []) for operation in item.values()]
    common = [p for p in own[0] if all(p in parameters for parameters in own[1:])]
    for operation, parameters in zip(item.values(), own, strict=True):
        rest = [p for p in parameters if p not in common]
        operation.pop("parameters", None)
        if rest:
            operation["parameters"] = sorted(rest, key=_parameter_name)
    if shared or common:
        item["parameters"] = sorted(shared + common, key=_parameter_name)


def _parameter_name(parameter: dict[str, Any]) -> str:
    return parameter.get("name") or parameter["$ref"].rpartition("/")[2]


def path_items(operations: Iterable[Operation]) -> dict[str, Any]:
    """Return the paths of ``operations``, sorted."""
    paths: dict[str, Any] = {}
    shared: dict[str, list[dict[str, Any]]] = {}
    for o in operations:
        paths.setdefault(o.path, {})[o.method] = _operation(o)
        shared[o.path] = [
            {"description": text, "in": "path", "name": name, "required": True, "type": "string", "uniqueItems": True}
            for name, text in o.path_parameters.items()
        ]
        if o.action and o.action != "connect":
            shared[o.path].append({"$ref": "#/parameters/pretty"})
    for path, item in paths.items():
        hoist(item, shared[path])
    return dict(sorted(paths.items()))


def shown(definitions: dict[str, Schema]) -> dict[str, Schema]:
    """Return the definitions in v2 form."""
    return {name: _without_defaults(schema) for name, schema in definitions.items()}


def document(operations: Iterable[Operation], definitions: dict[str, Schema], server_version: str) -> dict[str, Any]:
    """Return the whole document as a dict; ``definitions`` are those to publish."""
    return {
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": server_version},
        "paths": path_items(operations),
        "definitions": shown(definitions),
        "parameters": {name: query(name, *rest) for name, rest in QUERY.items()},
        "security": [{"BearerToken": []}],
        "securityDefinitions": {
            "BearerToken": {"description": "Bearer Token authentication", "in": "header", "name": "authorization", "type": "apiKey"}
        },
    }
