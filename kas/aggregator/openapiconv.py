"""Conversion of OpenAPI v2 to v3, for backends that publish only v2 (upstream: kube-openapi ``pkg/openapiconv``).

As upstream, what v2 cannot express is missing, and references to shared parameters are dangling.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Obj = dict[str, Any]
METHODS = ("get", "put", "post", "delete", "options", "head", "patch")
_OPERATION = ("description", "externalDocs", "tags", "summary", "deprecated", "operationId")
_PARAMETER = ("name", "description", "in", "required", "allowEmptyValue")
_SCHEMAS, _LISTS, _MAPS = ("items", "additionalProperties", "additionalItems", "not"), ("allOf", "anyOf", "oneOf"), ("properties",)


def to_v3(spec: Mapping[str, Any]) -> Obj:
    """Return the document as v3. Raises AttributeError, KeyError or TypeError for what is not a v2 document."""
    out: Obj = {"openapi": "3.0.0", **_some(spec, ("info", "externalDocs"))}
    if spec.get("paths") is not None:
        out["paths"] = {path: _item(item) for path, item in spec["paths"].items()}
    components: Obj = {}
    for name, given, convert in (
        ("schemas", "definitions", schema), ("securitySchemes", "securityDefinitions", _security),
        ("responses", "responses", lambda value: _response(value, spec.get("produces"))),
    ):  # fmt: skip
        if spec.get(given) is not None:
            components[name] = {key: convert(value) for key, value in spec[given].items()}
    out["components"] = components
    return out


def schema(value: Mapping[str, Any]) -> Obj:
    """Convert a schema and the targets of its references; in v3 a reference allows no siblings, so it is wrapped in allOf then."""
    out = dict(value)
    ref = out.pop("$ref", None)
    for key in _SCHEMAS:
        found = out.get(key)
        if isinstance(found, Mapping):
            out[key] = schema(found)
        elif isinstance(found, list):
            out[key] = [schema(one) for one in found]
    for key in _LISTS:
        if key in out:
            out[key] = [schema(one) for one in out[key]]
    for key in _MAPS:
        if key in out:
            out[key] = {name: schema(one) for name, one in out[key].items()}
    if ref is not None:
        led = {"$ref": ref.replace("#/definitions/", "#/components/schemas/", 1)}
        if not out:
            return led
        out["allOf"] = [led]
    return out


def _some(value: Mapping[str, Any], keys: Sequence[str]) -> Obj:
    """Return these members and all extensions, as far as present."""
    return {key: found for key, found in value.items() if key in keys or key.startswith("x-")}


def _listed(value: Any, convert: Callable[[Mapping[str, Any]], Obj]) -> list[Obj]:
    return [convert(one) for one in value or ()]


def _item(item: Mapping[str, Any]) -> Obj:
    out = _some(item, ("$ref",))
    out |= {method: _operation(item[method]) for method in METHODS if item.get(method) is not None}
    if item.get("parameters"):
        out["parameters"] = _listed(item["parameters"], _parameter)
    return out


def _operation(operation: Mapping[str, Any]) -> Obj:
    out, parameters = _some(operation, _OPERATION), list[Obj]()
    for given in operation.get("parameters") or ():
        if given.get("name") == "body" and given.get("schema") is not None:
            out["requestBody"] = _content(given["schema"], operation.get("consumes"))
        else:
            parameters.append(_parameter(given))
    if parameters:
        out["parameters"] = parameters
    produces, responses = operation.get("produces"), operation.get("responses") or {}
    out["responses"] = {
        key: value if key.startswith("x-") else _response(value, produces) for key, value in responses.items()
    }  # fmt: skip
    return out


def _content(of: Mapping[str, Any], types: Sequence[str] | None) -> Obj:
    """Return the schema for every media type; nothing if none is named."""
    return {"content": {kind: {"schema": schema(of)} for kind in types}} if types is not None else {}


def _response(response: Mapping[str, Any], produces: Sequence[str] | None) -> Obj:
    if "$ref" in response:
        return {"$ref": response["$ref"].replace("#/responses/", "#/components/responses/", 1)}
    out = _some(response, ("description",))
    return out | _content(response["schema"], produces) if response.get("schema") is not None else out


def _parameter(parameter: Mapping[str, Any]) -> Obj:
    if "$ref" in parameter:
        return {"$ref": parameter["$ref"].replace("#/parameters/", "#/components/parameters/", 1)}
    out = _some(parameter, _PARAMETER)
    given = parameter.get("schema")
    out["schema"] = schema(given) if given is not None else {k: parameter[k] for k in ("type", "format", "uniqueItems") if parameter.get(k)}
    return out


def _security(scheme: Mapping[str, Any]) -> Obj:
    out = _some(scheme, ("description", "type", "name", "in"))
    if scheme.get("flow"):
        flow = {"authorizationUrl": scheme.get("authorizationUrl"), "tokenUrl": scheme.get("tokenUrl"), "scopes": scheme.get("scopes")}
        out["flows"] = {scheme["flow"]: {key: value for key, value in flow.items() if value}}
    return out
