"""A value against a structural schema, with the messages of kube-openapi's validator.

Upstream: ``k8s.io/kube-openapi/pkg/validation/validate`` as ``ValidateCustomResource`` reports it: every finding is a
field error at the value's path whose text names the place as "in body".
"""

from __future__ import annotations

import json
import re
from typing import Any

from kas.api import field
from kas.api.field import FieldError
from kas.api.validation.crdschema import INT_OR_STRING, Schema


def type_name(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "integer" if value.is_integer() else "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def _matches(value: Any, kind: str) -> bool:
    have = type_name(value)
    return have == kind or (kind == "number" and have == "integer")


def value_errors(value: Any, schema: Schema, path: str, name: str = "") -> list[FieldError]:
    """``name`` is the place inside the body as the messages show it: empty for the value itself."""
    if value is None and schema.get("nullable"):
        return []
    kind = schema.get("type") or ""
    if kind and not _matches(value, kind):
        text = f"{name} in body must be of type {kind}: {field.go_quote(type_name(value))}"
        return [FieldError(field.TYPE_INVALID, path, type_name(value), text)]
    if schema.get(INT_OR_STRING) and not isinstance(value, (int, str)):
        text = f"{name} in body must be of type integer,string: {field.go_quote(type_name(value))}"
        return [FieldError(field.TYPE_INVALID, path, type_name(value), text)]
    errs: list[FieldError] = []
    options = schema.get("enum")
    if options is not None and value not in options:
        shown = ", ".join(json.dumps(o, separators=(",", ":"), ensure_ascii=False) for o in options)
        errs.append(FieldError(field.NOT_SUPPORTED, path, value, f"supported values: {shown}"))
    if isinstance(value, str):
        errs += _string(value, schema, path, name)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        errs += _number(value, schema, path, name)
    elif isinstance(value, list):
        errs += _array(value, schema, path, name)
    elif isinstance(value, dict):
        errs += _object(value, schema, path, name)
    return errs + _junctors(value, schema, path, name)


def _string(value: str, schema: Schema, path: str, name: str) -> list[FieldError]:
    errs: list[FieldError] = []
    most, least, pattern = schema.get("maxLength"), schema.get("minLength"), schema.get("pattern")
    if most is not None and len(value) > most:
        errs.append(field.too_long(path, most))
    if least is not None and len(value) < least:
        errs.append(field.invalid(path, value, f"{name} in body should be at least {least} chars long"))
    if pattern and not re.search(pattern, value):
        errs.append(field.invalid(path, value, f"{name} in body should match '{pattern}'"))
    return errs


def _number(value: float, schema: Schema, path: str, name: str) -> list[FieldError]:
    errs: list[FieldError] = []
    most, least, step = schema.get("maximum"), schema.get("minimum"), schema.get("multipleOf")
    if most is not None and (value >= most if schema.get("exclusiveMaximum") else value > most):
        text = "less than" if schema.get("exclusiveMaximum") else "less than or equal to"
        errs.append(field.invalid(path, value, f"{name} in body should be {text} {_plain(most)}"))
    if least is not None and (value <= least if schema.get("exclusiveMinimum") else value < least):
        text = "greater than" if schema.get("exclusiveMinimum") else "greater than or equal to"
        errs.append(field.invalid(path, value, f"{name} in body should be {text} {_plain(least)}"))
    if step and value % step:
        errs.append(field.invalid(path, value, f"{name} in body should be a multiple of {_plain(step)}"))
    return errs


def _plain(number: float) -> str:
    return str(int(number)) if float(number).is_integer() else repr(float(number))


def _array(value: list[Any], schema: Schema, path: str, name: str) -> list[FieldError]:
    errs: list[FieldError] = []
    most, least, items = schema.get("maxItems"), schema.get("minItems"), schema.get("items")
    if most is not None and len(value) > most:
        errs.append(field.too_many(path, len(value), most))
    if least is not None and len(value) < least:
        errs.append(field.invalid(path, len(value), f"{name} in body should have at least {least} items"))
    if isinstance(items, dict):
        for i, item in enumerate(value):
            errs += value_errors(item, items, field.index(path, i), field.index(name, i))
    return errs


def _object(value: dict[str, Any], schema: Schema, path: str, name: str) -> list[FieldError]:
    errs: list[FieldError] = []
    most, least = schema.get("maxProperties"), schema.get("minProperties")
    if most is not None and len(value) > most:
        errs.append(field.too_many(path, len(value), most))
    if least is not None and len(value) < least:
        errs.append(field.invalid(path, len(value), f"{name} in body should have at least {least} properties"))
    errs += [field.required(field.child(path, key)) for key in schema.get("required") or () if key not in value]
    properties, additional = schema.get("properties") or {}, schema.get("additionalProperties")
    for key in sorted(value):
        inner = properties.get(key) or (additional if isinstance(additional, dict) else None)
        if inner is not None:
            errs += value_errors(value[key], inner, field.child(path, key), field.child(name, key))
    return errs


def _junctors(value: Any, schema: Schema, path: str, name: str) -> list[FieldError]:
    errs: list[FieldError] = []

    def holds(inner: Schema) -> bool:
        return not value_errors(value, inner, path, name)

    for inner in schema.get("allOf") or ():
        errs += value_errors(value, inner, path, name)
    if schema.get("anyOf") and not any(map(holds, schema["anyOf"])):
        errs.append(field.invalid(path, value, f"{name} in body must validate at least one schema (anyOf)"))
    if schema.get("oneOf"):
        count = sum(map(holds, schema["oneOf"]))
        if count != 1:
            found = "none valid" if not count else f"found {count} valid alternatives"
            text = f"{name} in body must validate one and only one schema (oneOf). {found[0].upper() + found[1:]}"
            errs.append(field.invalid(path, value, text))
    if schema.get("not") is not None and holds(schema["not"]):
        errs.append(field.invalid(path, value, f"{name} in body must not validate the schema (not)"))
    return errs
