"""Values of a schema as expressions see them: apiserver ``pkg/cel/common/values.go``."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import Any

from kas.apiextensions.schema import PRESERVE
from kas.cel.schemas import escape
from kas.cel.values import NS, Duration, MapList, SetList, Struct, Timestamp, Unreadable
from kas.cel.words import RESERVED
from kas.meta.scalars import days_from_civil, parse_zoned_time
from kas.meta.strfmt import duration_ns
from kas.types.scheme import DecodeError, Field, TypeDesc

_BARE = Unreadable("invalid object type, expected either Properties or AdditionalProperties with Allows=true and non-empty Schema")
_NO_INT = Unreadable("invalid data, expected int, got float64")
_ROOT_META = ("name", "generateName")


def struct_value(type: TypeDesc, obj: dict[str, Any], wanted: Iterable[str] | None = None) -> dict[str, Any] | Unreadable:
    """An object with the fields that its type knows, by their names in expressions; with ``wanted`` of those alone. Of metadata there are
    the names only. Of an object nothing is said about expressions see that it is there at most."""
    fields = _fields(type)
    if not fields and not type.fields and not type.schema.get(PRESERVE):
        return _BARE
    out: dict[str, Any] = {}
    for name in fields if wanted is None else wanted:
        found = fields.get(name)
        inner = obj.get(found[0]) if found is not None else None
        if found is None or inner is None:  # what is null is not there
            continue
        key, f = found
        if f is not None:
            out[name] = field_value(f, inner)
        elif key == "metadata" and isinstance(inner, dict):
            out[name] = Struct({k: inner[k] for k in _ROOT_META if inner.get(k) is not None}, inner, _ROOT_META)
        else:
            out[name] = inner
    return out if wanted is not None or len(out) == len(obj) else Struct(out, obj, type.derived["expressed"])


def _fields(type: TypeDesc) -> dict[str, tuple[str, Field | None]]:
    """The fields of a type by their names in expressions, with their names in objects; None for what every object has."""
    found: dict[str, tuple[str, Field | None]] | None = type.derived.get("expressions")
    if found is None:
        found = {}
        for f in type.fields:
            if name := escape(f.name):
                found[name] = f.name, f
                if f.name in RESERVED:
                    found[f.name] = f.name, f
        if type.embedded:
            found |= {name: (name, None) for name in ("apiVersion", "kind", "metadata")}
        type.derived["expressed"] = frozenset(key for key, _ in found.values())
        type.derived["expressions"] = found
    return found


def field_value(f: Field, value: Any, wanted: Iterable[str] | None = None) -> Any:
    """A value that ``f`` describes; of an object what is ``wanted``. What does not fit its type, or has not its format, stays what it
    is."""
    if isinstance(value, dict):
        if f.card == "map":
            return {key: field_value(f.element, inner) for key, inner in value.items()}
        return struct_value(f.message, value, wanted) if f.card == "single" and f.message is not None else value
    if isinstance(value, list):
        if f.card != "list":
            return value
        items = [field_value(f.element, item) for item in value]
        if f.list_type == "map":
            return MapList(items, tuple(map(escape, f.list_map_keys)))
        return SetList(items) if f.list_type == "set" else items
    if f.type == "double" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if f.type == "int64" and isinstance(value, float):
        return _NO_INT
    if f.type == "string" and isinstance(value, str) and f.format in _TEXTS:
        try:
            return _TEXTS[f.format](value)
        except (DecodeError, ValueError):
            return value
    return value


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as e:
        raise ValueError(str(e)) from None


def _date(text: str) -> Timestamp:
    year, month, day = map(int, text.split("-"))
    return Timestamp.read(days_from_civil(year, month, day) * 86400 * NS)


def _time(text: str) -> Timestamp:
    seconds, nanos, ahead = parse_zoned_time(text)
    return Timestamp.read(seconds * NS + nanos, ahead)


def _duration(text: str) -> Duration:
    ns = duration_ns(text)
    if ns is None:
        raise ValueError(text)
    return Duration(ns)


_TEXTS = {"byte": _bytes, "date": _date, "date-time": _time, "duration": _duration}
