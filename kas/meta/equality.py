"""Semantic equality of objects by type: apimachinery's ``equality.Semantic.DeepEqual``.

Values are as decoded. What their types say about Go's fields decides what counts as a change:

- an absent list, map or text equals an empty one, an absent number equals 0, an absent message that is not a pointer has only zero values;
- a pointer that is set differs from one that is not, whatever it points to: ``emptyDir: {}`` and ``replicas: 0`` are significant;
- quantities compare by amount (``1Ki`` is ``1024``), times by instant, durations by length; ``1`` and ``"1"`` of an IntOrString differ;
- opaque JSON in API objects, and custom resources, are equal only if the JSON values are equal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from kas._codecs import Field, TypeDesc
from kas.meta import quantity, scalars

_ZEROS = {"string": "", "bytes": "", "bool": False, "int32": 0, "int64": 0, "double": 0}
# Built-in type -> whether Python's == implies equality; it does not if the type contains arbitrary JSON.
_exact: dict[TypeDesc, bool] = {}


def semantic_equal(a: Any, b: Any, of: TypeDesc | Field) -> bool:
    """Whether upstream would see no change between two values of the message ``of`` (None is its zero value), or of the field ``of`` (a
    list or map is passed as a whole; None means absent).
    """
    if isinstance(of, TypeDesc):
        return same_json(a, b) if of.schema is not None else _same_message(of, a, b)
    return same_json(a, b) if of.schema is not None else _same_field(of, a, b)


def _same_field(f: Field, a: Any, b: Any) -> bool:
    if a is b:
        return True
    if f.card != "single":
        if not a or not b:
            return not a and not b
        if len(a) != len(b):
            return False
        if f.card == "list":
            return all(_same_element(f, x, y) for x, y in zip(a, b, strict=True))
        return all(k in b and _same_element(f, v, b[k]) for k, v in a.items())
    if f.ptr and (a is None or b is None):
        return False
    return _same_element(f, a, b)


def _same_element(f: Field, a: Any, b: Any) -> bool:
    if f.message is not None:
        return _same_message(f.message, a, b)
    zero = _ZEROS[f.type]
    return bool((zero if a is None else a) == (zero if b is None else b))


def _same_message(type: TypeDesc, a: Any, b: Any) -> bool:
    if a is b:
        return True
    if type.custom_json is not None:
        return _CUSTOM[type.kind_name](type, a, b)
    if a == b and _is_exact(type):
        return True
    a, b = a or {}, b or {}
    fields = type.by_name
    for key in a.keys() | b.keys():
        f, x, y = fields.get(key), a.get(key), b.get(key)
        if not (same_json(x, y) if f is None else _same_field(f, x, y)):
            return False
    return True


def _is_exact(type: TypeDesc) -> bool:
    """Whether equality by Python's == is sufficient: not for arbitrary JSON, where 1 == True."""
    known = _exact.get(type)
    if known is None:
        seen, left = {type}, [type]
        while left:
            for f in left.pop().fields:
                if f.message is not None and f.message not in seen:
                    seen.add(f.message)
                    left.append(f.message)
        known = _exact[type] = not any(_CUSTOM.get(t.kind_name) is _same_raw for t in seen if t.custom_json is not None)
    return known


# -- messages with a JSON form of their own ------------------------------------------------------------------------------


def same_json(a: Any, b: Any) -> bool:
    """Compare JSON values as Go's ``reflect.DeepEqual``: types matter."""
    pending = [(a, b)]  # values may be nested deeper than functions
    while pending:
        a, b = pending.pop()
        if a.__class__ is not b.__class__:
            return False
        if isinstance(a, dict):
            if a.keys() != b.keys():
                return False
            pending += ((v, b[k]) for k, v in a.items())
        elif isinstance(a, list):
            if len(a) != len(b):
                return False
            pending += zip(a, b, strict=True)
        elif a != b:
            return False
    return True


def _same_raw(type: TypeDesc, a: Any, b: Any) -> bool:
    a, b = (orjson.loads(v) if isinstance(v, bytes) else v for v in (a, b))
    return same_json(a, b)


def _same_quantity(type: TypeDesc, a: Any, b: Any) -> bool:
    a, b = a or "0", b or "0"
    return bool(a == b or quantity.cached(str(a)) == quantity.cached(str(b)))


def _same_int_or_string(type: TypeDesc, a: Any, b: Any) -> bool:
    return same_json(0 if a is None else a, 0 if b is None else b)


def _by(form: Callable[[str], str | None], zero: str | None) -> Callable[[TypeDesc, Any, Any], bool]:
    """Equality of canonical forms; ``zero`` is that of an absent text."""

    def same(type: TypeDesc, a: Any, b: Any) -> bool:
        return (form(a) if a else zero) == (form(b) if b else zero)

    return same


def _same_texts(type: TypeDesc, a: Any, b: Any) -> bool:
    return (a or []) == (b or [])


def _same_schemas(type: TypeDesc, a: Any, b: Any) -> bool:
    """A schema or one of its alternatives: a list of schemas or texts, or a bool."""
    schema = next(f.message for f in type.fields if f.message is not None)
    if isinstance(a, dict) and isinstance(b, dict):
        return _same_message(schema, a, b)
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return all(_same_schemas(type, x, y) for x, y in zip(a, b, strict=True))
    return same_json(a, b)


_CUSTOM: dict[str, Callable[[TypeDesc, Any, Any], bool]] = {
    "Quantity": _same_quantity, "QuantityValue": _same_quantity, "IntOrString": _same_int_or_string,
    "Time": _by(scalars.canonical_time, None), "MicroTime": _by(scalars.canonical_micro_time, None),
    "Duration": _by(scalars.canonical_duration, scalars.canonical_duration("0s")),
    "RawExtension": _same_raw, "FieldsV1": _same_raw, "JSON": _same_raw, "Unknown": _same_raw,
    "Verbs": _same_texts, "ExtraValue": _same_texts,
    "JSONSchemaPropsOrArray": _same_schemas, "JSONSchemaPropsOrBool": _same_schemas, "JSONSchemaPropsOrStringArray": _same_schemas,
}  # fmt: skip
