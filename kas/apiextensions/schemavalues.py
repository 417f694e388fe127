"""Validation of values against a schema, with the messages of kube-openapi's validator.

Upstream: ``k8s.io/kube-openapi/pkg/validation/validate``, and apiextensions-apiserver's ``pkg/apiserver/validation``, which turns its
results into field errors and on an update ignores those of unchanged parts (ratcheting).
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from typing import Any

from kas.apiextensions.schema import INT_OR_STRING, KEYS, LIST_TYPE, Schema
from kas.apiextensions.schemachecks import in_range, schema_check
from kas.checks import Check
from kas.meta import field
from kas.meta.equality import same_json
from kas.meta.field import FieldError
from kas.meta.offload import LOOP_BUDGET, abandoned
from kas.meta.regex import RegexError, compiled
from kas.meta.strfmt import FORMATS, is_known
from kas.types.scheme import TypeDesc

# The path of the root, as Go prints it.
NIL_PATH = "<nil>"
# In place of an old value: there was none, or it cannot be correlated.
ABSENT: Any = object()
_MAX_EXACT = float((1 << 53) - 1)
# Steps to validate one value. A value of 3 MB has 1.5 million parts; a step takes up to two microseconds.
MAX_STEPS = 2_000_000
LOOK_STEPS = 20_000  # interval of checks whether a client still waits: hundredths of a second
STEP_UNITS = 4  # microseconds of one step, roughly
# Errors collected for a value, of which a thousand are reported: a list may have millions of items, and an item may lack thousands of
# required members.
MAX_ERRORS = 2_000
# After QUICK_FROM steps compiled checks, which first have to be made, are used to skip valid parts of a value, within QUICK_S seconds of
# processor time.
QUICK_FROM, QUICK_S = 5_000, 1.0
# At the root these have the request's version in both objects: a change is invisible, so their errors always count.
_TYPE_META = frozenset(("apiVersion", "kind"))


class Result:
    """The errors of a validation, ``MAX_ERRORS`` at most. ``matches`` counts what was valid: if all alternatives fail, the errors of the
    one with the most matches are reported."""

    __slots__ = ("errors", "matches", "texts")

    def __init__(self, matches: int = 0) -> None:
        self.errors: list[FieldError] = []
        self.texts: set[tuple[str, str]] = set()
        self.matches = matches

    def add(self, error: FieldError) -> None:
        """Add an error once."""
        key = (error.field, error.detail or error.type)
        if key not in self.texts and len(self.errors) < MAX_ERRORS:
            self.texts.add(key)
            self.errors.append(error)

    def merge(self, other: Result) -> None:
        """Add the matches and the errors of ``other``."""
        self.matches += other.matches
        if len(self.errors) < MAX_ERRORS:
            for error in other.errors:
                self.add(error)


class TooCostlyError(Exception):
    """Validating the value takes more steps than allowed."""


class Run:
    """The validation of one value at ``path``. ``left`` is the remaining number of steps.

    Alternatives multiply the cost of a schema and a value, so it is bounded neither by their sizes nor by the sum of them. ``missing``
    counts missing required members so far, ``tried`` is the nesting depth of alternatives.
    """

    __slots__ = ("_look", "_quick", "_quick_from", "left", "missing", "path", "tried")

    def __init__(self, path: str, left: int) -> None:
        self.path, self.left, self._look, self.missing, self.tried = path, left, left, 0, 0
        self._quick, self._quick_from = QUICK_S, left - QUICK_FROM

    def take(self, steps: int) -> None:
        """Use up some steps.

        Raises TooCostlyError if fewer are left or if no client waits for the result any more, BudgetSpentError if the event loop's budget
        is spent.
        """
        self.left -= steps
        LOOP_BUDGET.spend(STEP_UNITS * steps)
        if self.left < self._look:
            if self.left < 0 or abandoned():
                raise TooCostlyError
            self._look = max(0, self.left - LOOK_STEPS)

    def enough(self, out: Result) -> bool:
        """Whether no further error would be reported. Inside alternatives all are counted."""
        return not self.tried and len(out.errors) >= MAX_ERRORS

    def passes(self, check: Callable[[], Check], value: Any) -> bool:
        """Whether the validation is expensive and a compiled check accepts the value. False once the time for such checks is used up."""
        if self.left > self._quick_from or self._quick <= 0:
            return False
        began = time.thread_time()
        found = check().passes(value)
        self._quick -= time.thread_time() - began
        return found


def too_costly(run: Run) -> FieldError:
    """Return the error for a value that was not validated completely."""
    return field.forbidden(run.path, "takes too many steps to be checked against its schema")


class SchemaValidator:
    """A compiled schema; immutable and safe to share. Properties and items are compiled on first use.

    ``as_written`` is for validating defaults: for them upstream neither adds the two types of int-or-string nor drops unknown formats.
    """

    __slots__ = (
        "_additional", "_items", "_properties", "_quick", "_schema",
        "additional", "all_of", "any_of", "as_written", "enum", "format", "format_check", "items", "junctors", "limits", "list_keys",
        "negated", "nullable", "number_format", "one_of", "pattern", "pattern_text", "properties", "required", "size", "types",
    )  # fmt: skip

    def __init__(self, schema: Schema, as_written: bool = False) -> None:
        get = schema.get
        self._schema = schema
        self._quick: Check | None = None
        kind = get("type") or ""
        self.as_written = as_written
        either = bool(get(INT_OR_STRING)) and not as_written
        self.types: tuple[str, ...] = ("integer", "string") if either else (kind,) if kind else ()
        name = get("format") or ""
        known = bool(name) and is_known("" if either else kind, name)
        self.format = name if known or as_written else ""
        self.number_format = name if known else ""
        self.format_check: Callable[[str], bool] | None = FORMATS.get(self.format.replace("-", ""))
        self.nullable = bool(get("nullable"))
        self.enum = _Enum(get("enum") or [])
        self.pattern_text: str = get("pattern") or ""
        self.pattern: Any = None
        if self.pattern_text:
            try:
                self.pattern = compiled(self.pattern_text)
            except RegexError as e:  # only in a definition that is rejected for it
                self.pattern_text += f", but pattern is invalid: {e}"
        self.limits = _Limits(schema) if any(get(k) is not None for k in ("maximum", "minimum", "multipleOf")) else None
        self.size = tuple(get(k) for k in ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"))
        self.required: tuple[str, ...] = tuple(get("required") or ())
        self.properties: dict[str, Schema] = get("properties") or {}
        self.additional = get("additionalProperties")
        items = get("items")
        self.items: Schema | None = items if isinstance(items, dict) else None
        self.list_keys: tuple[str, ...] = tuple(get(KEYS) or ()) if get(LIST_TYPE) == "map" else ()
        self.all_of, self.any_of, self.one_of = ([self._of(s) for s in get(k) or ()] for k in ("allOf", "anyOf", "oneOf"))
        negated: Schema | None = get("not")
        self.negated = self._of(negated) if negated is not None else None
        self.junctors = bool(self.all_of or self.any_of or self.one_of or self.negated)
        self._properties: dict[str, SchemaValidator] = {}
        self._items: SchemaValidator | None = None
        self._additional: SchemaValidator | None = None

    def _of(self, schema: Schema) -> SchemaValidator:
        return SchemaValidator(schema, self.as_written)

    def errors(self, value: Any, old: Any = ABSENT, path: str = NIL_PATH) -> list[FieldError]:
        """Return the errors of ``value`` at ``path``; ``old`` is the value that it replaces."""
        return self.errors_within(Run(path, MAX_STEPS), value, old)

    def errors_within(self, run: Run, value: Any, old: Any = ABSENT) -> list[FieldError]:
        """As ``errors``, with the remaining steps of ``run``: if they are exceeded, that is the only error."""
        try:
            return self.check(value, "", old, run).errors
        except TooCostlyError:
            return [too_costly(run)]

    def check(self, value: Any, name: str, old: Any, base: Run) -> Result:
        """Validate ``value`` at ``name``, its path relative to the root. Errors of unchanged values are dropped."""
        if self.junctors and not self.as_written and not base.tried and base.passes(self._compiled, value):
            return Result(1)  # matches only count in alternatives
        out = self._check(value, name, old, base)
        return Result(out.matches) if out.errors and old is not ABSENT and self.unchanged(value, old) else out

    def _compiled(self) -> Check:
        """Return the compiled check of this schema, which quickly accepts most valid values whatever the number of alternatives.

        Among thousands of items only the invalid ones then need the slow validation that words the errors.
        """
        if self._quick is None:
            self._quick = schema_check(self._schema)
        return self._quick

    def unchanged(self, value: Any, old: Any) -> bool:
        """Whether a value is unchanged as far as the schema can correlate it (upstream's ``CorrelatedObject.CachedDeepEqual``).

        Items of lists of type map may be reordered; values with members that the schema does not describe cannot be compared.
        """
        if value is None or old is None or type(value) is not type(old) or not isinstance(value, (dict, list)):
            return same_json(value, old)
        if len(value) != len(old):
            return False
        if isinstance(value, dict):
            for key, one in value.items():
                inner = self.below(key)
                if inner is None or key not in old or not inner.unchanged(one, old[key]):
                    return False
            return True
        if not self.list_keys or self.items is None:
            return same_json(value, old)
        inner, before = self.item(), Correlated(self.list_keys, old)
        return all((was := before.of(one)) is not ABSENT and inner.unchanged(one, was) for one in value)

    def _check(self, value: Any, name: str, old: Any, base: Run) -> Result:
        base.take(1)
        out = Result(1)
        if value is None:
            out.matches = 1
            self._null(name, base, out)
            return out
        if self.types or self.format:
            out.matches += 1
            error = self._type(value, name, base)
            if error is None:
                out.matches += 1
            else:
                out.add(error)
        out.matches += 2
        if self.junctors:
            self._junctors(value, name, base, out)
        if isinstance(value, str):
            self._text(value, name, base, out)
        elif _is_number(value):
            out.matches += 2
            self._number(value, name, base, out)
        elif isinstance(value, list):
            out.matches += 2
            self._list(value, name, old, base, out)
        out.matches += 1
        if self.enum.options and not self.enum.has(value):
            out.add(self.enum.error(value, name, base))
        if isinstance(value, dict):
            out.matches += 1
            self._object(value, name, old, base, out)
        return out

    def _null(self, name: str, base: Run, out: Result) -> None:
        if self.types and not self.nullable:
            out.matches = 0
            out.add(_type_error(name, base, ",".join(self.types), "null"))
        if self.enum.options:
            out.add(self.enum.error(None, name, base))

    def _type(self, value: Any, name: str, base: Run) -> FieldError | None:
        kind, form = _kind_of(value)
        types, wanted = self.types, self.format
        lenient = (isinstance(value, float) and "integer" in types and is_integral(value)) or (kind == "integer" and "number" in types)
        texts = isinstance(value, (str, list))
        if not texts and wanted and not (kind in types or form == wanted or lenient):
            return _type_error(name, base, wanted, form)
        if texts and wanted and "number" not in types and "integer" not in types:
            return None
        if kind in types or lenient:
            return None
        return _type_error(name, base, ",".join(types), kind)

    def _text(self, value: str, name: str, base: Run, out: Result) -> None:
        out.matches += 1
        least, most = self.size[0], self.size[1]
        if most is not None and len(value) > most:
            out.add(field.too_long(_path(base, name), most))
        elif least is not None and len(value) < least:
            out.add(_invalid(name, base, value, f"should be at least {least} chars long"))
        elif self.pattern_text and not self._matches(value):
            out.add(_invalid(name, base, value, f"should match '{self.pattern_text}'"))
        if self.format_check is not None:
            out.matches += 1
            if not self.format_check(value):
                out.add(_type_error(name, base, self.format, value))

    def _matches(self, value: str) -> bool:
        try:
            return self.pattern is not None and self.pattern.search(value) is not None
        except RegexError:  # too long for it
            return False

    def _number(self, value: float, name: str, base: Run, out: Result) -> None:
        kind = self.types[0] if self.types in (("integer",), ("number",)) else ""
        if not in_range(value, kind, self.number_format):
            out.add(_out_of_range("Checked", kind, self.number_format, name, base))
        if self.limits is not None:
            self.limits.check(value, kind, self.number_format, name, base, out)

    def _list(self, value: list[Any], name: str, old: Any, base: Run, out: Result) -> None:
        if self.items is not None:
            inner, before = self.item(), Correlated(self.list_keys, old)
            for i, item in enumerate(value):
                if base.enough(out):
                    break
                out.merge(inner.check(item, f"{name}[{i}]", before.of(item), base))
        least, most = self.size[2], self.size[3]
        if least is not None and len(value) < least:
            out.add(_invalid(name, base, len(value), f"should have at least {least} items"))
        if most is not None and len(value) > most:
            out.add(field.too_many(_path(base, name), len(value), most))

    def _object(self, value: dict[str, Any], name: str, old: Any, base: Run, out: Result) -> None:
        least, most = self.size[4], self.size[5]
        if least is not None and len(value) < least:
            out.add(_invalid(name, base, len(value), f"should have at least {least} properties"))
        if most is not None and len(value) > most:
            out.add(field.too_many(_path(base, name), len(value), most))
        before = old if isinstance(old, dict) else {}
        for key in self._checked_members(value):
            if base.enough(out):
                break
            inner = self.below(key)
            if inner is not None:
                at = _below(name, key) if name or key not in self.properties else key
                was = ABSENT if not name and key in _TYPE_META else before.get(key, ABSENT)
                out.merge(inner.check(value[key], at, was, base))
            elif self.additional is False and key not in self.properties:
                out.add(FieldError(field.INVALID, _path(base, name), key, f"{name}.{key} in body is a forbidden property"))
        base.take(len(self.required))
        for key in self.required:
            if key not in value:
                out.add(field.required(_path(base, f"{name}.{key}")))
                base.missing += 1
                if base.missing > MAX_ERRORS:
                    break

    def _checked_members(self, value: dict[str, Any]) -> list[str]:
        """Return the members that the schema may restrict, sorted. One of thousands of alternatives names few of a value's thousands."""
        if self.additional is not False and not isinstance(self.additional, dict) and len(self.properties) < len(value):
            return sorted(key for key in self.properties if key in value)
        return sorted(value)

    def item(self) -> SchemaValidator:
        """Return the validator of items; the schema must have ``items``."""
        found = self._items
        if found is None:
            assert self.items is not None
            found = self._items = self._of(self.items)
        return found

    def below(self, key: str) -> SchemaValidator | None:
        """Return the validator of the named member, None if the schema does not describe it."""
        found = self._properties.get(key)
        if found is None and key in self.properties:
            found = self._properties[key] = self._of(self.properties[key])
        if found is None and isinstance(self.additional, dict):
            if self._additional is None:
                self._additional = self._of(self.additional)
            return self._additional
        return found

    def _junctors(self, value: Any, name: str, base: Run, out: Result) -> None:
        """Validate the alternatives. They ignore old values: only the value as a whole can be unchanged."""
        base.tried += 1
        try:
            self._try(value, name, base, out)
        finally:
            base.tried -= 1

    def _try(self, value: Any, name: str, base: Run, out: Result) -> None:
        shown = field.go_quote(name)
        if self.any_of:
            failed: list[Result] = []
            for alternative in self.any_of:  # the errors and matches of the first valid one count
                found = alternative._check(value, name, ABSENT, base)
                if not found.errors:
                    out.merge(found)
                    break
                failed.append(found)
            else:
                out.add(_whole(base, f"{shown} must validate at least one schema (anyOf)"))
                out.merge(max(failed, key=_matches))
        if self.one_of:
            results = [s._check(value, name, ABSENT, base) for s in self.one_of]
            valid = [r for r in results if not r.errors]
            if len(valid) != 1:
                what = f"Found {len(valid)} valid alternatives" if valid else "Found none valid"
                out.add(_whole(base, f"{shown} must validate one and only one schema (oneOf). {what}"))
            if len(valid) < 2:
                out.merge(valid[0] if valid else max(results, key=_matches))
        if self.all_of:
            results = [s._check(value, name, ABSENT, base) for s in self.all_of]
            for result in results:
                out.merge(result)
            held = sum(not r.errors for r in results)
            if held != len(results):
                out.add(_whole(base, f"{shown} must validate all the schemas (allOf){'' if held else '. None validated'}"))
        if self.negated is not None and not self.negated._check(value, name, ABSENT, base).errors:
            out.add(_whole(base, f"{shown} must not validate the schema (not)"))


class _Enum:
    """The allowed values of a schema. Every item of a list is looked up, so they are kept in a set."""

    __slots__ = ("_known", "_shown", "options")

    def __init__(self, options: list[Any]) -> None:
        self.options = options
        self._known: frozenset[Any] | None = None
        self._shown = ""

    def has(self, value: Any) -> bool:
        """Whether the value equals an option, after Go's conversion to the option's type."""
        if self._known is None:
            self._known = frozenset(map(_option_key, self.options))
        if _is_number(value):
            whole = ("integer", int(value)) in self._known if math.isfinite(value) else ("integer", float(value)) in self._known
            return whole or ("number", float(value)) in self._known
        try:
            return _option_key(value) in self._known
        except RecursionError:  # nested deeper than a schema may be, and so than an option
            return False

    def error(self, value: Any, name: str, base: Run) -> FieldError:
        """Return the error for a value that is not allowed, listing all options."""
        if not self._shown:
            shown = (option if isinstance(option, str) else field.write_json(option).decode() for option in self.options)
            self._shown = "supported values: " + ", ".join(map(field.go_quote, shown))
        return FieldError(field.NOT_SUPPORTED, _path(base, name), value, self._shown)


def _option_key(value: Any) -> tuple[str, Any]:
    """Return a key that is equal exactly for JSON values that are the same (``same_json``)."""
    if isinstance(value, (dict, list)):
        return "json", json.dumps(value, sort_keys=True)
    if isinstance(value, bool) or value is None:
        return "word", value
    return ("text" if isinstance(value, str) else "integer" if isinstance(value, int) else "number"), value


class _Limits:
    """The bounds of numbers. A bound that does not fit the type of its schema is an error for every value."""

    __slots__ = ("exclusive_maximum", "exclusive_minimum", "maximum", "minimum", "step")

    def __init__(self, schema: Schema) -> None:
        self.maximum, self.minimum, self.step = schema.get("maximum"), schema.get("minimum"), schema.get("multipleOf")
        self.exclusive_maximum, self.exclusive_minimum = bool(schema.get("exclusiveMaximum")), bool(schema.get("exclusiveMinimum"))

    def check(self, value: float, kind: str, form: str, name: str, base: Run, out: Result) -> None:
        if self.step is not None:
            step = self._bound(self.step, value, "MultipleOf", kind, form, name, base, out)
            whole = isinstance(step, int)
            if step <= 0:
                why = f"factor MultipleOf declared for {name} must be positive: {field.go_value(step)}"
                out.add(FieldError(field.INVALID, _path(base, name), step, why))
            elif not (int(value) % step == 0 if whole else is_integral(1 / step * value if step < 1 else value / step)):
                out.add(_invalid(name, base, value, f"should be a multiple of {field.go_value(step)}"))
        if self.minimum is not None:
            bound = self._bound(self.minimum, value, "Minimum boundary", kind, form, name, base, out)
            if value <= bound if self.exclusive_minimum else value < bound:
                words = "greater than" if self.exclusive_minimum else "greater than or equal to"
                out.add(_invalid(name, base, value, f"should be {words} {field.go_value(bound)}"))
        if self.maximum is not None:
            bound = self._bound(self.maximum, value, "Maximum boundary", kind, form, name, base, out)
            if value >= bound if self.exclusive_maximum else value > bound:
                words = "less than" if self.exclusive_maximum else "less than or equal to"
                out.add(_invalid(name, base, value, f"should be {words} {field.go_value(bound)}"))

    @staticmethod
    def _bound(bound: float, value: float, which: str, kind: str, form: str, name: str, base: Run, out: Result) -> float:
        """Return the bound in the form in which it is compared with this value: for integers, as a whole number."""
        if not in_range(float(bound), kind, form):
            out.add(_out_of_range(which, kind, form, name, base))
            return float(bound)
        return int(bound) if isinstance(value, int) and not math.isinf(bound) else float(bound)


def validator(type: TypeDesc) -> SchemaValidator:
    """Return the validator of the type's schema, made once per type."""
    found: SchemaValidator | None = type.derived.get("validator")
    if found is None:
        found = type.derived["validator"] = SchemaValidator(type.schema)
    return found


class Correlated:
    """Correlation of new list items with old ones, which only lists of type map allow."""

    __slots__ = ("found", "keys")

    def __init__(self, keys: tuple[str, ...], old: Any) -> None:
        self.keys = keys
        self.found: dict[str, Any] = {}
        if keys and isinstance(old, list):
            for item in old:
                key = self._key(item)
                if key:
                    self.found.setdefault(key, item)

    def _key(self, item: Any) -> str:
        """Return the key text of an item; "" if it has none, because a part is missing or is not a scalar."""
        parts = [item.get(key) for key in self.keys] if isinstance(item, dict) else [None]
        return "" if any(part is None or isinstance(part, (dict, list)) for part in parts) else json.dumps(parts)

    def of(self, item: Any, otherwise: Any = ABSENT) -> Any:
        """Return the old item with the same key, ``otherwise`` if there is none."""
        return self.found.get(self._key(item), otherwise) if self.found else otherwise


# -- values ---------------------------------------------------------------------------------------------------------------


def is_integral(value: float) -> bool:
    """Whether a number is whole, as swag's ``IsFloat64AJSONInteger`` decides with float precision."""
    if not math.isfinite(value) or abs(value) > _MAX_EXACT:
        return False
    whole = float(int(value))
    if value == whole:
        return True
    if whole == 0:
        return False
    return abs(value - whole) / (abs(value) + abs(whole)) < 1e-9


def _kind_of(value: Any) -> tuple[str, str]:
    """Return JSON type and format of a value."""
    if isinstance(value, bool):
        return "boolean", ""
    if isinstance(value, int):
        return ("integer", "int64") if -(1 << 63) <= value < 1 << 63 else ("number", "float64")
    if isinstance(value, float):
        return "number", "float64"
    return ("string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"), ""


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _matches(found: Result) -> int:
    return found.matches


# -- errors ---------------------------------------------------------------------------------------------------------------


def _below(name: str, key: str) -> str:
    return f"{name}.{key}" if len(name) <= field.MAX_PATH else name


def _path(base: Run, name: str) -> str:
    name = name.removeprefix(".")
    if not name:
        return base.path
    return name if base.path == NIL_PATH else f"{base.path}.{name}"


def _invalid(name: str, base: Run, value: Any, text: str) -> FieldError:
    return FieldError(field.INVALID, _path(base, name), value, f"{name} in body {text}")


def _type_error(name: str, base: Run, wanted: str, found: str) -> FieldError:
    return FieldError(field.TYPE_INVALID, _path(base, name), found, f"{name} in body must be of type {wanted}: {field.go_quote(found)}")


def _out_of_range(which: str, kind: str, form: str, name: str, base: Run) -> FieldError:
    shown = f"with format {form}" if form else "(default format)"
    return _whole(base, f"{which} value must be of type {kind} {shown} in {name}")


def _whole(base: Run, text: str) -> FieldError:
    """Return an error that names its path only in its text."""
    return FieldError(field.INVALID, base.path, "", text)
