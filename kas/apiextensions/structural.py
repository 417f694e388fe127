"""Structural schemas: ``apiextensions-apiserver/pkg/apiserver/schema`` (ValidateStructural).

A schema is structural if every field has its type stated once, outside of the logical junctors (allOf, anyOf, oneOf, not), which may only
constrain values. Errors are sorted by their text, as upstream.
"""

from __future__ import annotations

from typing import Any

from kas.apiextensions.schema import EMBEDDED, INT_OR_STRING, KEYS, LIST_TYPE, MAP_TYPE, PRESERVE, RULES, Schema, is_zero, walk
from kas.meta import field
from kas.meta.field import FieldError
from kas.meta.regex import MOST_INSTRUCTIONS, RegexError, compiled

MOST_PATTERNS = 200_000  # of regular expressions

ROOT, ITEM, FIELD = "at the root", "for specified array items", "for specified object fields"
_JUNCTORS = ("allOf", "anyOf", "oneOf")
_INT_OR_STRING_ANY_OF = [{"type": "integer"}, {"type": "string"}]

_FORBIDDEN_NESTED: tuple[tuple[str, str], ...] = (
    ("type", "must be empty to be structural"),
    ("default", "must be undefined to be structural"),
    ("title", "must be empty to be structural"),
    ("description", "must be empty to be structural"),
    ("nullable", "must be false to be structural"),
    (PRESERVE, "must be false to be structural"),
    (EMBEDDED, "must be false to be structural"),
    (INT_OR_STRING, "must be false to be structural"),
    (KEYS, "must be empty to be structural"),
    (LIST_TYPE, "must be undefined to be structural"),
    (MAP_TYPE, "must be undefined to be structural"),
    (RULES, "must be empty to be structural"),
)


def costly_patterns(schema: Schema, path: str) -> list[FieldError]:
    """Return an error if the schema's patterns together take too long to compile, which every worker has to do: a tenth of a second.

    This limit is ours; the largest real definitions need a hundredth of it.
    """
    left, known = MOST_PATTERNS, set()
    for inner in walk(schema):
        pattern = inner.get("pattern")
        if pattern and pattern not in known:
            known.add(pattern)
            try:
                left -= compiled(pattern).instructions
            except RegexError:  # the attempt may have taken as long
                left -= MOST_INSTRUCTIONS // 10
            if left < 0:
                return [field.forbidden(path, f"the patterns of a schema must compile to {MOST_PATTERNS} instructions at most together")]
    return []


def structural(schema: Schema, path: str) -> list[FieldError]:
    """Return the reasons why the schema is not structural, sorted by text."""
    errs = _invariants(schema, ROOT, path) + _value_completeness(schema, schema, path, path)
    return sorted(errs, key=str)


def _single(schema: Schema, key: str) -> Schema | None:
    value = schema.get(key)
    return value if isinstance(value, dict) else None


def _invariants(schema: Schema | None, level: str, path: str) -> list[FieldError]:
    if schema is None:
        return []
    errs: list[FieldError] = []
    kind, properties, embedded = schema.get("type") or "", schema.get("properties") or {}, bool(schema.get(EMBEDDED))
    at_type = f"{path}.type"
    if kind == "array" and schema.get("items") is None:
        errs.append(field.required(f"{path}.items", "must be specified"))
    errs += _invariants(_single(schema, "items"), ITEM, f"{path}.items")
    for name, inner in properties.items():
        errs += _invariants(inner, FIELD, field.key(f"{path}.properties", name))
    additional = schema.get("additionalProperties")
    if additional is not None:
        if level == ROOT:
            errs.append(field.forbidden(f"{path}.additionalProperties", "must not be used at the root"))
        errs += _invariants(_single(schema, "additionalProperties"), FIELD, f"{path}.additionalProperties")
    errs += _extensions(schema, path)
    skip_any_of, skip_first = _int_or_string_patterns(schema)
    errs += _values(schema, skip_any_of, skip_first, path)
    if embedded and kind != "object":
        text = f"must be object if {EMBEDDED} is true"
        errs.append(field.invalid(at_type, kind, text) if kind else field.required(at_type, text))
    elif not kind and not schema.get(INT_OR_STRING) and not schema.get(PRESERVE):
        errs.append(field.required(at_type, f"must not be empty {level}"))
    if embedded and additional is not None:
        errs.append(field.forbidden(f"{path}.additionalProperties", f"must not be used if {EMBEDDED} is set"))
    if level == ROOT and kind and kind != "object":
        errs.append(field.invalid(at_type, kind, "must be object at the root"))
    is_resource = level == ROOT or embedded
    for name in ("kind", "apiVersion"):
        if is_resource and name in properties and properties[name].get("type") != "string":
            at = field.key(f"{path}.properties", name) + ".type"
            errs.append(field.invalid(at, properties[name].get("type") or "", "must be string"))
    if "metadata" in properties:
        errs += _metadata(properties["metadata"], is_resource, level, field.key(f"{path}.properties", "metadata"))
    if embedded and not schema.get(PRESERVE) and not properties:
        errs.append(field.required(f"{path}.properties", f"must not be empty if {EMBEDDED} is true without {PRESERVE}"))
    return errs


def _metadata(schema: Schema, is_resource: bool, level: str, path: str) -> list[FieldError]:
    """Check metadata: only the name may be constrained; its shape is implied."""
    errs: list[FieldError] = []
    if is_resource and schema.get("type") != "object":
        errs.append(field.invalid(f"{path}.type", schema.get("type") or "", "must be object"))
    if level == ROOT:
        names = set(schema.get("properties") or ())
        rest = _stated(schema) - {"type", "default", "properties"}
        if not names <= {"name", "generateName"} or rest:
            text = "must not specify anything other than name and generateName, but metadata is implicitly specified"
            errs.append(field.forbidden(path, text))
    return errs


def _extensions(schema: Schema, path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    if schema.get(INT_OR_STRING):
        for key in (PRESERVE, EMBEDDED):
            if schema.get(key):
                errs.append(field.invalid(f"{path}.{key}", True, f"must be false if {INT_OR_STRING} is true"))
    return errs


def _stated(schema: Schema) -> set[str]:
    """Return the keys that a structural schema keeps."""
    return {key for key, value in schema.items() if not is_zero(key, value) and (value or key not in (*_JUNCTORS, "enum"))}


def _int_or_string_patterns(schema: Schema) -> tuple[bool, bool]:
    """Whether anyOf repeats x-kubernetes-int-or-string in each of the two allowed ways; both are also allowed without it."""
    first = (schema.get("allOf") or [{}])[0]
    return _is_int_or_string(schema.get("anyOf")), _is_int_or_string(first.get("anyOf"))


def _is_int_or_string(options: list[Schema] | None) -> bool:
    return [{key: option[key] for key in _stated(option)} for option in options or ()] == _INT_OR_STRING_ANY_OF


def _values(schema: Schema, skip_any_of: bool, skip_first_all_of: bool, path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    for key in _JUNCTORS:
        if key == "anyOf" and skip_any_of:
            continue
        for i, inner in enumerate(schema.get(key) or ()):
            errs += _nested(inner, key == "allOf" and i == 0 and skip_first_all_of, field.index(f"{path}.{key}", i))
    if schema.get("not") is not None:
        errs += _nested(schema["not"], False, f"{path}.not")
    pattern = schema.get("pattern") or ""
    if pattern:
        try:
            compiled(pattern)
        except RegexError as e:
            errs.append(field.invalid(f"{path}.pattern", pattern, f"must be a valid regular expression, but isn't: {e}"))
    return errs


def _nested(schema: Schema, skip_any_of: bool, path: str) -> list[FieldError]:
    errs = _values(schema, skip_any_of, False, path)
    items = _single(schema, "items")
    if items is not None:
        errs += _nested(items, False, f"{path}.items")
    for name, inner in (schema.get("properties") or {}).items():
        errs += _nested(inner, False, field.key(f"{path}.properties", name))
    if schema.get("additionalProperties") not in (None, False):
        errs.append(field.forbidden(f"{path}.additionalProperties", "must be undefined to be structural"))
    for key, text in _FORBIDDEN_NESTED:
        value = schema.get(key)
        if value or (value is not None and "undefined" in text):
            errs.append(field.forbidden(f"{path}.{key}", text))
    if "metadata" in (schema.get("properties") or {}):
        errs.append(field.forbidden(field.key(f"{path}.properties", "metadata"), "must not be specified in a nested context"))
    return errs


# -- completeness: what a junctor mentions must be specified outside of it ----------------------------------------------


def _value_completeness(values: Schema, schema: Schema | None, path: str, value_path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    if values.get("not") is not None:
        errs += _nested_completeness(values["not"], schema, path, f"{value_path}.not")
    for key in _JUNCTORS:
        for i, inner in enumerate(values.get(key) or ()):
            errs += _nested_completeness(inner, schema, path, field.index(f"{value_path}.{key}", i))
    return errs


def _nested_completeness(values: Schema, schema: Schema | None, path: str, value_path: str) -> list[FieldError]:
    if schema is None:
        return [field.required(path, f"because it is defined in {value_path}")]
    errs = _value_completeness(values, schema, path, value_path)
    items = _single(values, "items")
    if items is not None:
        errs += _nested_completeness(items, _single(schema, "items"), f"{path}.items", f"{value_path}.items")
    properties: dict[str, Any] = schema.get("properties") or {}
    for name, inner in (values.get("properties") or {}).items():
        at, value_at = field.key(f"{path}.properties", name), field.key(f"{value_path}.properties", name)
        errs += _nested_completeness(inner, properties.get(name), at, value_at)
    return errs
