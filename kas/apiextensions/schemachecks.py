"""Compiled checks of structural schemas: whether a custom object certainly has no schema errors and no repeated item in a set or map.

A pass means that ``schemavalues`` and ``listtypes`` would find no error; an object that does not pass is given to them, and they word the
errors. A refusal is relied on only inside ``not`` and ``oneOf``; there a check is exact or says that it does not know.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

from kas import checks
from kas.apiextensions.schema import INT_OR_STRING, KEYS, LIST_TYPE, Schema
from kas.checks import Check, Scope
from kas.meta.offload import LOOP_BUDGET
from kas.meta.regex import RegexError, compiled
from kas.meta.strfmt import FORMATS, is_known

# Deeper schemas are left to the validator.
MAX_DEPTH = 64
MAX_NUMBERS = 64
_SCHEMA_UNITS = 20  # cost of making the check of one schema, in units of a turn on the event loop
_INT64 = (-(1 << 63), (1 << 63) - 1)
_INTEGERS = {"int32": (-(1 << 31), (1 << 31) - 1)}
_INT_BITS = {"int32": 32}
_LARGEST_FLOAT32 = 3.4028234663852886e38


_SCALARS = frozenset(("boolean", "integer", "number", "string"))
_TYPE_ONLY = frozenset(("type", "nullable", "default"))
_PLAIN: dict[tuple[str, bool], Check] = {}  # by type and nullable: at most eight
_KINDS = ("text", "integer", "floating", "boolean", "array", "object")


def in_range(value: float, kind: str, form: str) -> bool:
    """Whether a number of that type and format can hold the value."""
    if kind == "integer":
        half = 1 << (_INT_BITS.get(form, 64) - 1)
        if isinstance(value, float) and value == -(2.0**63):
            return False  # Go writes it as -9223372036854776000
        return (isinstance(value, int) or value.is_integer()) and -half <= value < half
    if form == "float" and math.isfinite(value):
        try:
            struct.pack("<f", value)
        except OverflowError:
            return False
    return True


def schema_check(schema: Schema) -> Check:
    """Return the check for defaulted and pruned objects of a structural schema. Its parts are made when the first values reach them."""
    return _schema(schema, 0)


def _schema(schema: Schema, depth: int, structural: bool = True, keys: tuple[str, ...] = (), scope: Scope | None = None) -> Check:
    """Make the check of a schema. ``structural``: outside of allOf, anyOf, oneOf and not; only there lists are sets and maps.

    Objects jointly claim the values of ``keys`` in ``scope``; with a scope but no keys, the value itself is claimed.
    """
    LOOP_BUDGET.spend(_SCHEMA_UNITS)
    if depth > MAX_DEPTH:
        return checks.unknown()
    parts = [_of_type(schema, depth, structural, [(scope, keys)] if scope is not None and keys else [])]
    if schema.get("enum"):
        parts.append(_enum(schema["enum"]))
    junctors = [made(*(_schema(s, depth + 1, False) for s in schema[name])) for name, made in _JUNCTORS if schema.get(name)]
    if schema.get("not") is not None:
        junctors.append(checks.none_of(_schema(schema["not"], depth + 1, False)).exact())
    # Null is only checked for being allowed.
    parts += [checks.by_kind(**dict.fromkeys(_KINDS, junctor)).or_null() for junctor in junctors]
    out = _together(parts)
    if scope is None or keys:
        return out
    return checks.unknown() if out.is_anything else out.claim(scope)


_JUNCTORS: tuple[tuple[str, Callable[..., Check]], ...] = (
    ("allOf", checks.all_of), ("anyOf", lambda *parts: checks.any_of(*parts).exact()),
    ("oneOf", lambda *parts: checks.one_of(*parts).exact()),
)  # fmt: skip


def _together(parts: list[Check]) -> Check:
    parts = [part for part in parts if not part.is_anything]
    if len(parts) < 2:
        return parts[0] if parts else checks.anything()
    return checks.all_of(*parts)


def _below(schema: Schema, depth: int, structural: bool, **more: Any) -> Check:
    """Return the check of a schema below another: made at once only if small, and shared by all schemas that only state a scalar type."""
    if not more and schema.keys() <= _TYPE_ONLY and schema.get("type") in _SCALARS:
        key = schema["type"], bool(schema.get("nullable"))
        if key not in _PLAIN:
            _PLAIN[key] = _schema(schema, depth + 1, structural)
        return _PLAIN[key]
    if schema.get("type") in ("object", "array") or any(name in schema for name in ("allOf", "anyOf", "oneOf", "not")):
        return checks.lazily(lambda: _schema(schema, depth + 1, structural, **more))
    return _schema(schema, depth + 1, structural, **more)


def _of_type(schema: Schema, depth: int, structural: bool, keys: list[tuple[Scope, tuple[str, ...]]]) -> Check:
    kind, either = schema.get("type") or "", bool(schema.get(INT_OR_STRING))
    name = schema.get("format") or ""
    form = name if name and is_known("" if either else kind, name) else ""
    made: dict[str, Check] = {}
    if either or kind in ("", "string"):
        made["text"] = _text(schema, form)
    if either or kind in ("", "integer", "number"):
        made["integer"], made["floating"] = _whole_number(schema, kind, form), _other_number(schema, kind, either, form)
    if kind in ("", "boolean") and not either:
        made["boolean"] = checks.boolean() if kind else checks.anything()
    if kind in ("", "array") and not either:
        made["array"] = _list(schema, depth, structural)
    if kind in ("", "object") and not either:
        made["object"] = _object(schema, depth, structural, keys)
    typed = bool(kind) or either
    if form and not typed:
        # A format without a type implies one.
        made = {
            "text": made["text"],
            "array": made["array"],
            **dict.fromkeys(("integer", "floating", "boolean", "object"), checks.unknown()),
        }
    if not typed and all(check.is_anything for check in made.values()):
        return checks.anything()
    if len(made) == 1:
        (out,) = made.values()
        # A list in place of a formatted string is not a type error.
        out = out if form else out.exact()
    else:
        out = checks.by_kind(**made)
        out = out if form or not typed else out.exact()
    return out.or_null() if schema.get("nullable") or not typed else out


def _matcher(pattern: str) -> Callable[[str], object]:
    """Return a function that tells whether a string certainly matches. Raises RegexError."""
    search = compiled(pattern).search

    def match(text: str) -> object:
        try:
            return search(text)
        except RegexError:  # too long for the matcher: left to the validator
            return None

    return match


def _text(schema: Schema, form: str) -> Check:
    if not any(schema.get(key) is not None for key in ("minLength", "maxLength")) and not schema.get("pattern") and not form:
        return checks.text()
    parts = [checks.text(schema.get("minLength") or 0, schema.get("maxLength")).exact()]
    if schema.get("pattern"):
        try:
            parts.append(checks.matching(_matcher(schema["pattern"])).exact())
        except RegexError:
            return checks.unknown()
    if form and (is_form := FORMATS.get(form.replace("-", ""))) is not None:
        parts.append(checks.matching(is_form).exact())
    return parts[0] if len(parts) == 1 else checks.by_kind(text=checks.all_of(*parts))


def _whole_number(schema: Schema, kind: str, form: str) -> Check:
    """Return the check of ints. Bounds are compared as whole numbers; a bound that does not fit its type is an error for every value."""
    low, high = _INTEGERS.get(form, _INT64) if kind == "integer" else _INT64
    least, most, step = schema.get("minimum"), schema.get("maximum"), schema.get("multipleOf")
    if not all(_fits(bound, kind, form) for bound in (least, most, step)):
        return checks.unknown()
    if least is not None:
        low = max(low, int(least) + bool(schema.get("exclusiveMinimum")))
    if most is not None:
        high = min(high, int(most) - bool(schema.get("exclusiveMaximum")))
    if low > high or (step is not None and int(step) <= 0):  # for integers a step below 1 is truncated to 0, of which nothing is a multiple
        return checks.unknown()
    out = checks.integer(low, high)
    if step is not None:
        return checks.by_kind(integer=checks.all_of(out, checks.multiple(int(step))), floating=checks.unknown())
    return out


def _other_number(schema: Schema, kind: str, either: bool, form: str) -> Check:
    """Return the check of floats; whether a whole one is an integer is left to the validator."""
    least, most = schema.get("minimum"), schema.get("maximum")
    unsure = schema.get("multipleOf") is not None or not all(_fits(bound, kind, form) for bound in (least, most))
    if kind == "integer" or either or unsure:
        return checks.unknown()
    low, high = -math.inf if least is None else float(least), math.inf if most is None else float(most)
    if form == "float":
        low, high = max(low, -_LARGEST_FLOAT32), min(high, _LARGEST_FLOAT32)
    if schema.get("exclusiveMinimum"):
        low = math.nextafter(low, math.inf)
    if schema.get("exclusiveMaximum"):
        high = math.nextafter(high, -math.inf)
    return checks.floating(low, high)


def _fits(bound: Any, kind: str, form: str) -> bool:
    return bound is None or (math.isfinite(bound) and in_range(float(bound), kind, form))


def _list(schema: Schema, depth: int, structural: bool) -> Check:
    items, low, high = schema.get("items"), schema.get("minItems") or 0, schema.get("maxItems")
    listed = schema.get(LIST_TYPE) if structural else None
    if not isinstance(items, dict):
        if listed in ("set", "map"):
            return checks.unknown()
        return checks.listing(checks.anything(), low=low, high=high).exact()
    if listed not in ("set", "map"):
        return checks.listing(_below(items, depth, structural), low=low, high=high).exact()
    scope = Scope(listed)
    keys = tuple(schema.get(KEYS) or ()) if listed == "map" else ()
    if listed == "map" and not keys:
        return checks.unknown()
    item = _schema(items, depth + 1, structural, keys, scope)
    return checks.listing(item, low=low, high=high).exact().distinct(scope)


def _object(schema: Schema, depth: int, structural: bool, keys: list[tuple[Scope, tuple[str, ...]]]) -> Check:
    properties, additional = schema.get("properties") or {}, schema.get("additionalProperties")
    required = tuple(schema.get("required") or ())
    low, high = schema.get("minProperties") or 0, schema.get("maxProperties")
    rest = _below(additional, depth, structural) if isinstance(additional, dict) else checks.anything()
    fields = {name: _below(inner, depth, structural) for name, inner in properties.items()}
    for name in required:
        fields.setdefault(name, checks.unknown() if additional is False else rest)
    if not fields and not keys and additional is not False:
        return checks.mapping(rest, low=low, high=high).exact()
    return checks.record(
        fields, required=required, rest=None if additional is False else rest, low=low, high=high, keys=keys
    ).exact()  # fmt: skip


def _enum(options: list[Any]) -> Check:
    if all(isinstance(option, str) for option in options):
        return checks.option(*options).exact()
    if all(isinstance(option, bool) for option in options):
        return checks.any_of(*(checks.same(option) for option in options))
    if all(type(option) is int and -(1 << 53) < option < 1 << 53 for option in options) and len(options) <= MAX_NUMBERS:
        return checks.any_of(*(checks.integer(option, option) for option in options))
    return checks.unknown()
