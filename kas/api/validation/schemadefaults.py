"""Defaults in a CustomResourceDefinition's schema: each must be pruned and valid for its place.

Upstream: ``apiextensions-apiserver/pkg/apiserver/schema/defaulting`` (ValidateDefaults). Values are checked with the
messages of kube-openapi's validator.
"""

from __future__ import annotations

from typing import Any

from kas.api import field
from kas.api.field import FieldError
from kas.api.validation.crdschema import EMBEDDED, INT_OR_STRING, PRESERVE, Schema
from kas.api.validation.schemavalues import value_errors

_IMPLIED = ("apiVersion", "kind", "metadata")


def prune(value: Any, schema: Schema | None, is_resource: bool = False) -> Any:
    """``value`` without the fields its schema does not know."""
    if schema is None or schema.get(PRESERVE):
        if isinstance(value, dict) and schema is not None:
            properties = schema.get("properties") or {}
            return {k: prune(v, properties[k]) if k in properties else v for k, v in value.items()}
        return value
    if isinstance(value, list):
        items = schema.get("items")
        return [prune(v, items if isinstance(items, dict) else {}) for v in value]
    if not isinstance(value, dict):
        return value
    properties, additional = schema.get("properties") or {}, schema.get("additionalProperties")
    kept = {}
    for name, inner in value.items():
        if (is_resource or schema.get(EMBEDDED)) and name in _IMPLIED:
            kept[name] = inner
        elif name in properties:
            kept[name] = prune(inner, properties[name])
        elif isinstance(additional, dict):
            kept[name] = prune(inner, additional)
        elif additional is True:
            kept[name] = inner
    return kept


def unpruned(schema: Schema) -> bool:
    """Whether some default in the schema holds fields that pruning would drop."""
    return any(prune(inner["default"], inner) != inner["default"] for _, inner in _with_defaults(schema, ""))


def _with_defaults(schema: Schema, path: str) -> list[tuple[str, Schema]]:
    """Every schema with a default, by path; additionalProperties cannot have one."""
    found = [(path, schema)] if schema.get("default") is not None else []
    items = schema.get("items")
    if isinstance(items, dict):
        found += _with_defaults(items, f"{path}.items")
    for name, inner in (schema.get("properties") or {}).items():
        found += _with_defaults(inner, field.key(f"{path}.properties", name))
    return found


def default_values(schema: Schema, path: str, must_be_pruned: bool) -> list[FieldError]:
    errs: list[FieldError] = []
    for at, inner in _with_defaults(schema, path):
        value = inner["default"]
        if must_be_pruned and prune(value, inner) != value:
            errs.append(field.invalid(f"{at}.default", value, "must not have unknown fields"))
            continue
        if not inner.get(INT_OR_STRING) or isinstance(value, (int, str)):
            errs += value_errors(value, inner, f"{at}.default")
        else:
            errs.append(field.invalid(f"{at}.default", value, " in body must be of type integer,string"))
    return errs
