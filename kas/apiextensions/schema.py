"""Traversal and printing of JSONSchemaProps, and the rules that hold at every level of a CustomResourceDefinition's schema.

Upstream: ``apiextensions-apiserver/pkg/apis/apiextensions/validation`` (ValidateCustomResourceDefinitionOpenAPISchema).
A schema is the plain dict of its JSON; ``items`` may be a schema or a list, ``additionalProperties`` a schema or a boolean. rules.py
compiles the CEL rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from kas.meta import field
from kas.meta.checks import repeats, unsupported
from kas.meta.field import FieldError
from kas.meta.records import NamedTuple

Schema = dict[str, Any]

TYPES = ("array", "boolean", "integer", "number", "object", "string")
# Nested objects and arrays in a schema: everything that uses a definition walks it in functions that call themselves.
MAX_LEVELS = 150
META_FIELDS = ("metadata", "kind", "apiVersion")
REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
RULES = "x-kubernetes-validations"
KEYS = "x-kubernetes-list-map-keys"
LIST_TYPE, MAP_TYPE = "x-kubernetes-list-type", "x-kubernetes-map-type"
PRESERVE, EMBEDDED, INT_OR_STRING = (
    "x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource", "x-kubernetes-int-or-string",
)  # fmt: skip

# (Go field, JSON key, zero value) of the internal struct, in its order.
FIELDS: tuple[tuple[str, str, Any], ...] = (
    ("ID", "id", ""), ("Schema", "$schema", ""), ("Ref", "$ref", None), ("Description", "description", ""), ("Type", "type", ""),
    ("Nullable", "nullable", False), ("Format", "format", ""), ("Title", "title", ""), ("Default", "default", None),
    ("Maximum", "maximum", None), ("ExclusiveMaximum", "exclusiveMaximum", False), ("Minimum", "minimum", None),
    ("ExclusiveMinimum", "exclusiveMinimum", False), ("MaxLength", "maxLength", None), ("MinLength", "minLength", None),
    ("Pattern", "pattern", ""), ("MaxItems", "maxItems", None), ("MinItems", "minItems", None), ("UniqueItems", "uniqueItems", False),
    ("MultipleOf", "multipleOf", None), ("Enum", "enum", None), ("MaxProperties", "maxProperties", None),
    ("MinProperties", "minProperties", None), ("Required", "required", None), ("Items", "items", None), ("AllOf", "allOf", None),
    ("OneOf", "oneOf", None), ("AnyOf", "anyOf", None), ("Not", "not", None), ("Properties", "properties", None),
    ("AdditionalProperties", "additionalProperties", None), ("PatternProperties", "patternProperties", None),
    ("Dependencies", "dependencies", None), ("AdditionalItems", "additionalItems", None), ("Definitions", "definitions", None),
    ("ExternalDocs", "externalDocs", None), ("Example", "example", None), ("XPreserveUnknownFields", PRESERVE, None),
    ("XEmbeddedResource", EMBEDDED, False), ("XIntOrString", INT_OR_STRING, False), ("XListMapKeys", KEYS, None),
    ("XListType", LIST_TYPE, None), ("XMapType", MAP_TYPE, None), ("XValidations", RULES, None),
)  # fmt: skip
_ZEROS = {key: zero for _, key, zero in FIELDS}

_ROOT_ALLOWED = (
    "Description", "Type", "Format", "Title", "Maximum", "ExclusiveMaximum", "Minimum", "ExclusiveMinimum", "MaxLength", "MinLength",
    "Pattern", "MaxItems", "MinItems", "UniqueItems", "MultipleOf", "Required", "Items", "Properties", "ExternalDocs", "Example",
    "XPreserveUnknownFields", "XValidations",
)  # fmt: skip
_SCHEMA_LISTS = ("allOf", "oneOf", "anyOf")
_SCHEMA_MAPS = ("properties", "patternProperties", "definitions")


def shown(schema: Schema | None) -> dict[str, Any] | None:
    """Return the internal struct of a schema as it prints in an error."""
    if schema is None:
        return None
    return {name: _shown_value(key, schema[key]) if schema.get(key) is not None else zero for name, key, zero in FIELDS}


def _shown_value(key: str, value: Any) -> Any:
    if key in _SCHEMA_LISTS:
        return [shown(item) for item in value]
    if key in _SCHEMA_MAPS:
        return {name: shown(value[name]) for name in sorted(value)}
    if key == "not":
        return shown(value)
    if key == "items":
        many = isinstance(value, list)
        return {"Schema": None if many else shown(value), "JSONSchemas": [shown(item) for item in value] if many else None}
    if key in ("additionalProperties", "additionalItems"):
        is_schema = isinstance(value, dict)
        return {"Allows": True if is_schema else value, "Schema": shown(value) if is_schema else None}
    if key == "externalDocs":
        return {"Description": value.get("description") or "", "URL": value.get("url") or ""}
    if key == RULES:
        return [shown_rule(rule) for rule in value]
    if key == "dependencies":
        return {name: _shown_dependency(value[name]) for name in sorted(value)}
    return field.in_go_order(value) if key in ("default", "example", "enum") else value


def _shown_dependency(value: Any) -> dict[str, Any]:
    is_schema = isinstance(value, dict)
    return {"Schema": shown(value) if is_schema else None, "Property": None if is_schema else value or []}


def shown_rule(rule: dict[str, Any]) -> dict[str, Any]:
    """Return the rule with Go's field names, for messages that print it."""
    return {
        "Rule": rule.get("rule") or "",
        "Message": rule.get("message") or "",
        "MessageExpression": rule.get("messageExpression") or "",
        "Reason": rule.get("reason"),
        "FieldPath": rule.get("fieldPath") or "",
        "OptionalOldSelf": rule.get("optionalOldSelf"),
    }


def is_zero(key: str, value: Any) -> bool:
    """Whether Go sees the zero value of that field; a pointer that is present is never zero."""
    return value is None or (type(value) is type(zero := _ZEROS.get(key)) and value == zero)


def sub_schemas(schema: Schema) -> Iterator[Schema]:
    """Yield every schema directly inside, at any position."""
    items = schema.get("items")
    if isinstance(items, list):
        yield from items
    elif items is not None:
        yield items
    for key in _SCHEMA_LISTS:
        yield from schema.get(key) or ()
    if schema.get("not") is not None:
        yield schema["not"]
    for key in _SCHEMA_MAPS:
        yield from (schema.get(key) or {}).values()
    for key in ("additionalProperties", "additionalItems"):
        if isinstance(schema.get(key), dict):
            yield schema[key]
    yield from (value for value in (schema.get("dependencies") or {}).values() if isinstance(value, dict))


def walk(schema: Schema | None) -> Iterator[Schema]:
    """Yield ``schema`` and every schema below it."""
    if schema is not None:
        yield schema
        for inner in sub_schemas(schema):
            yield from walk(inner)


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules that apply to this part of the schema; an update applies only rules that the stored schema fulfils."""

    allow_defaults: bool = True
    no_defaults_reason: str = ""
    valid_types: bool = True
    atomic_sets: bool = True
    map_keys: bool = True
    inside_meta: bool = False


def root(schema: Schema, path: str, status_enabled: bool) -> list[FieldError]:
    """Check the rules of the root. With a status subresource the rest must not constrain the status from outside."""
    errs: list[FieldError] = []
    if status_enabled:
        for name, key, _ in FIELDS:
            value = schema.get(key)
            if is_zero(key, value):
                continue
            if name == "Type":
                if value != "object":
                    text = 'only "object" is allowed as the type at the root of the schema if the status subresource is enabled'
                    errs.append(field.invalid(f"{path}.type", value, text))
                    break
            elif name not in _ROOT_ALLOWED:
                allowed = " ".join(_ROOT_ALLOWED)
                text = f"only [{allowed}] fields are allowed at the root of the schema if the status subresource is enabled"
                errs.append(field.invalid(path, shown(schema), text))
                break
    if schema.get("nullable"):
        errs.append(field.forbidden(f"{path}.nullable", "nullable cannot be true at the root"))
    return errs


def every_level(schema: Schema | None, path: str, rules: Rules, faulty: set[str], is_root: bool = False) -> list[FieldError]:
    """Check the rules of OpenAPI v3 for CRDs in ``schema`` and all schemas below.

    Adds to ``faulty`` the paths of the schemas that break a rule, or contain one that does.
    """
    if schema is None:
        return []
    errs = _standard(schema, path, rules)
    if schema.get("uniqueItems"):
        text = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        errs.append(field.forbidden(f"{path}.uniqueItems", text))
    additional = schema.get("additionalProperties")
    if additional is not None:
        if schema.get("properties") and additional is not True:
            text = "additionalProperties and properties are mutual exclusive"
            errs.append(field.forbidden(f"{path}.additionalProperties", text))
        inner = rules
        if rules.inside_meta:  # inside metadata, pruning depends on the value
            inner = replace(rules, allow_defaults=False, no_defaults_reason="inside additionalProperties applying to object metadata")
        if isinstance(additional, dict):
            errs += every_level(additional, f"{path}.additionalProperties", inner, faulty)
    for name, inner_schema in (schema.get("properties") or {}).items():
        inner = rules
        if (is_root or schema.get(EMBEDDED)) and name in META_FIELDS:
            inner = replace(inner, inside_meta=True)
            if is_root:
                inner = replace(inner, allow_defaults=False, no_defaults_reason=f"in top-level {name}")
        errs += every_level(inner_schema, field.key(f"{path}.properties", name), inner, faulty)
    errs += every_level(schema.get("not"), f"{path}.not", rules, faulty)
    for key in _SCHEMA_LISTS:
        for i, inner_schema in enumerate(schema.get(key) or ()):
            errs += every_level(inner_schema, field.index(f"{path}.{key}", i), rules, faulty)
    for name, inner_schema in (schema.get("definitions") or {}).items():
        errs += every_level(inner_schema, field.key(f"{path}.definitions", name), rules, faulty)
    items = schema.get("items")
    if isinstance(items, list):
        for i, inner_schema in enumerate(items):
            errs += every_level(inner_schema, field.index(f"{path}.items", i), rules, faulty)
    else:
        errs += every_level(items, f"{path}.items", rules, faulty)
    for name, inner_schema in (schema.get("dependencies") or {}).items():
        if isinstance(inner_schema, dict):
            errs += every_level(inner_schema, field.key(f"{path}.dependencies", name), rules, faulty)
    errs += _extensions(schema, path, rules) + _expressions(schema, path)
    if errs:
        faulty.add(path)
    return errs


def _standard(schema: Schema, path: str, rules: Rules) -> list[FieldError]:
    errs: list[FieldError] = []
    kind = schema.get("type") or ""
    if rules.valid_types and kind and kind not in TYPES:
        errs.append(unsupported(f"{path}.type", kind, TYPES))
    if "default" in schema and not rules.allow_defaults:
        detail = "must not be set" + (f" {rules.no_defaults_reason}" if rules.no_defaults_reason else "")
        errs.append(field.forbidden(f"{path}.default", detail))
    for key in _UNSUPPORTED:
        value = schema.get(key)
        if value is not None and (value or key in ("dependencies", "$ref", "additionalItems")):
            errs.append(field.forbidden(f"{path}.{key}", f"{key} is not supported"))
    if kind == "null":
        errs.append(field.forbidden(f"{path}.type", "type cannot be set to null, use nullable as an alternative"))
    if isinstance(schema.get("items"), list) and schema["items"]:
        errs.append(field.forbidden(f"{path}.items", "items must be a schema object and not an array"))
    if rules.inside_meta and schema.get(EMBEDDED):
        errs.append(field.forbidden(f"{path}.{EMBEDDED}", "must not be used inside of resource meta"))
    return errs


def deeper(value: Any, levels: int) -> bool:
    """Return whether a JSON value has more than so many nested objects and arrays."""
    found = [value]
    for _ in range(levels):
        found = [inner for one in found for inner in (one.values() if isinstance(one, dict) else one) if isinstance(inner, (dict, list))]
        if not found:
            return False
    return True


def unstructurable(schema: Schema) -> str:
    """Return why no structural schema can be made of ``schema``, in the words of ``schema.NewStructural``; "" if one can.

    This is then the only error reported for the schema.
    """
    for key in ("id", "$schema", "$ref", "patternProperties", "dependencies", "additionalItems", "definitions"):
        value = schema.get(key)
        if value or (key == "additionalItems" and value is not None):
            return f"OpenAPIV3Schema '{'schema' if key == '$schema' else key}' is not supported"
    nested = [schema.get("not"), *(inner for key in ("allOf", "anyOf", "oneOf") for inner in schema.get(key) or ())]
    if found := _first_unstructurable(nested):
        return found
    if schema.get(PRESERVE) is False:
        return f"internal error: '{PRESERVE}' must be true or undefined"
    items, additional = schema.get("items"), schema.get("additionalProperties")
    if isinstance(items, list) and items:
        return "OpenAPIV3Schema 'items' must be a schema, but is an array"
    below = [items, *(schema.get("properties") or {}).values(), additional]
    return _first_unstructurable([inner for inner in below if isinstance(inner, dict)])


def _first_unstructurable(schemas: list[Schema | None]) -> str:
    return next((found for schema in schemas if schema is not None and (found := unstructurable(schema))), "")


_UNSUPPORTED = ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref")


def _type_for(schema: Schema, path: str, wanted: str, extension: str) -> list[FieldError]:
    kind, text = schema.get("type") or "", f"must be {wanted} if {extension} is specified"
    if kind == wanted:
        return []
    return [field.invalid(f"{path}.type", kind, text) if kind else field.required(f"{path}.type", text)]


def _extensions(schema: Schema, path: str, rules: Rules) -> list[FieldError]:
    errs: list[FieldError] = []
    if schema.get(PRESERVE) is False:
        errs.append(field.invalid(f"{path}.{PRESERVE}", False, "must be true or undefined"))
    map_type, list_type, keys = schema.get(MAP_TYPE), schema.get(LIST_TYPE), schema.get(KEYS) or []
    if map_type is not None:
        errs += _type_for(schema, path, "object", MAP_TYPE)
        if map_type not in ("atomic", "granular"):
            errs.append(unsupported(f"{path}.{MAP_TYPE}", map_type, ("atomic", "granular")))
    items = schema.get("items")
    single = items if isinstance(items, dict) else None
    if list_type is not None:
        found = _type_for(schema, path, "array", LIST_TYPE)
        errs += found
        if not found and rules.atomic_sets and list_type == "set" and single is not None:
            errs += atomic_items(single, f"{path}.items")
        if list_type not in ("atomic", "set", "map"):
            errs.append(unsupported(f"{path}.{LIST_TYPE}", list_type, ("atomic", "set", "map")))
    if keys:
        text = f"must be map if {KEYS} is non-empty"
        if list_type is None:
            errs.append(field.required(f"{path}.{LIST_TYPE}", text))
        elif list_type != "map":
            errs.append(field.invalid(f"{path}.{LIST_TYPE}", list_type, text))
    if list_type == "map":
        errs += _map_list(schema, items, keys, path)
    if rules.map_keys:
        errs += map_keys(schema, path)
    return errs


def atomic_items(items: Schema, path: str) -> list[FieldError]:
    """Check that items of a set, which are compared as a whole, cannot be merged."""
    text = f"must be atomic as item of a list with {LIST_TYPE}=set"
    if items.get("type") == "array" and items.get(LIST_TYPE) not in (None, "atomic"):
        return [field.invalid(f"{path}.{LIST_TYPE}", items.get(LIST_TYPE), text)]
    if items.get("type") == "object" and items.get(MAP_TYPE) != "atomic":
        return [field.invalid(f"{path}.{MAP_TYPE}", items.get(LIST_TYPE), text)]
    return []


def _map_list(schema: Schema, items: Any, keys: list[str], path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    if not keys:
        errs.append(field.required(f"{path}.{KEYS}", f"must not be empty if {LIST_TYPE} is map"))
    if items is None:
        return [*errs, field.required(f"{path}.items", f"must have a schema if {LIST_TYPE} is map")]
    if isinstance(items, list):
        text = f"must only have a single schema if {LIST_TYPE} is map"
        return [*errs, field.invalid(f"{path}.items", _shown_value("items", items), text)]
    if items.get("type") != "object":
        text = f"must be object if parent array's {LIST_TYPE} is map"
        return [*errs, field.invalid(f"{path}.items.type", items.get("type") or "", text)]
    properties = items.get("properties") or {}
    again = set(repeats(keys))
    for i, key in enumerate(keys):
        if key not in properties:
            errs.append(field.invalid(f"{path}.{KEYS}", keys, "entries must all be names of item properties"))
        elif properties[key].get("type") in ("array", "object"):
            text = f"must be a scalar type if parent array's {LIST_TYPE} is map"
            errs.append(field.invalid(field.key(f"{path}.items.properties", key) + ".type", items.get("type"), text))
        if i in again:
            errs.append(field.invalid(f"{path}.{KEYS}", keys, "must not contain duplicate entries"))
    return errs


def map_keys(schema: Schema, path: str) -> list[FieldError]:
    """Check that items of sets and maps are never null, and that a map's keys are always present."""
    items, list_type = schema.get("items"), schema.get(LIST_TYPE)
    if not isinstance(items, dict) or list_type not in ("set", "map"):
        return []
    errs: list[FieldError] = []
    if items.get("nullable"):
        errs.append(field.forbidden(f"{path}.items.nullable", f"cannot be nullable when {LIST_TYPE} is {list_type}"))
    required = frozenset(x for x in items.get("required") or () if isinstance(x, str))
    for key in schema.get(KEYS) or () if list_type == "map" else ():
        prop = (items.get("properties") or {}).get(key)
        if prop is None:
            continue
        at = field.key(f"{path}.items.properties", key)
        if key not in required and "default" not in prop:
            text = f"this property is in {KEYS}, so it must have a default or be a required property"
            errs.append(field.required(f"{at}.default", text))
        if prop.get("nullable"):
            errs.append(field.forbidden(f"{at}.nullable", f"this property is in {KEYS}, so it cannot be nullable"))
    return errs


def _expressions(schema: Schema, path: str) -> list[FieldError]:
    errs: list[FieldError] = []
    has_paths: bool | None = None  # None: not known yet
    for i, rule in enumerate(schema.get(RULES) or ()):
        at = field.index(f"{path}.{RULES}", i)
        text, message, expression, target = (rule.get(k) or "" for k in ("rule", "message", "messageExpression", "fieldPath"))
        if not text.strip():
            errs.append(field.required(f"{at}.rule", "rule is not specified"))
        elif message and not message.strip():
            errs.append(field.invalid(f"{at}.message", message, "must be non-empty if specified"))
        elif _has_newline(message.strip()):
            errs.append(field.invalid(f"{at}.message", message, "must not contain line breaks"))
        elif _has_newline(text.strip()) and not message.strip():
            errs.append(field.required(f"{at}.message", "message must be specified if rule contains line breaks"))
        if expression and not expression.strip():
            errs.append(field.required(f"{at}.messageExpression", "messageExpression must be non-empty if specified"))
        if rule.get("reason") is not None and rule["reason"] not in REASONS:
            errs.append(unsupported(f"{at}.reason", rule["reason"], REASONS))
        if target and not target.strip():
            errs.append(field.invalid(f"{at}.fieldPath", target, "must be non-empty if specified"))
        if _has_newline(target):
            errs.append(field.invalid(f"{at}.fieldPath", target, "must not contain line breaks"))
        if target and not is_path(schema, target):
            has_paths = not unstructurable(schema) if has_paths is None else has_paths
            if has_paths:
                errs.append(field.invalid(f"{at}.fieldPath", target, "must be a valid path"))
    return errs


def _has_newline(text: str) -> bool:
    return "\n" in text or "\r" in text


class FieldPathError(ValueError):
    """The path does not lead to a field of its schema; the text is the reason."""


class FieldPath(NamedTuple):
    """The target of a path.

    ``text`` is the path as errors print it, map entries in brackets; ``schema`` is None if the values of a map have no schema.
    """

    text: str
    schema: Schema | None


_TOKEN = re.compile(r"'(?s:.)*?(?<!\\)'|[.\[\]]|'(?s:.)*|[^.\[\]]+")
_ESCAPED = re.compile(r"\\(.)")
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "'": "'", "\\": "\\"}


def _unescaped(match: re.Match[str]) -> str:
    found = _ESCAPES.get(match.group(1))
    if found is None:
        raise FieldPathError(f"invalid string literal: invalid escape char {match.group(0)}")
    return found


def find_path(schema: Schema, text: str, brackets: bool = True) -> FieldPath:
    """Follow a path such as ``.spec.a['b.c']`` through a schema (``ValidFieldPath``).

    ``brackets``: whether names in brackets are allowed. Raises FieldPathError.
    """
    tokens = iter(_TOKEN.findall(text))

    def more() -> str:
        token = next(tokens, None)
        if token is None:
            raise FieldPathError("unexpected end of JSON path")
        return token

    at, found = "", schema
    for token in tokens:
        if token not in ("[", "."):
            raise FieldPathError(f"expected [ or . but got: {token}")
        if token == "[" and not brackets:
            raise FieldPathError("array notation is not allowed")
        name = more()
        if token == "[":
            if len(name) < 2 or name[0] != "'" or name[-1] != "'":
                raise FieldPathError(f"expected single quoted string but got {name}")
            name = _ESCAPED.sub(_unescaped, name[1:-1])
        properties, additional = found.get("properties"), found.get("additionalProperties")
        if not properties and additional is None:
            raise FieldPathError("does not refer to a valid field")
        if not properties:
            at, below = field.key(at, name), additional if isinstance(additional, dict) else None
        elif name in properties:
            at, below = field.child(at, name), properties[name]
        else:
            raise FieldPathError("does not refer to a valid field")
        if token == "[" and (end := more()) != "]":
            raise FieldPathError(f"expected ] but got {end}")
        found = below or {}
    return FieldPath(at, found or None)


def is_path(schema: Schema, text: str) -> bool:
    """Whether a path leads to a field of the schema."""
    try:
        find_path(schema, text)
    except FieldPathError:
        return False
    return True
