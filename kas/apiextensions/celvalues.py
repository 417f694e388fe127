"""Conversion of values of a schema to CEL values: apiserver ``pkg/cel/common/values.go``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kas._codecs import go_base64
from kas.cel.schemas import escape, unescape
from kas.cel.values import NS, Duration, MapList, SetList, Struct, Timestamp, Unreadable
from kas.cel.words import RESERVED
from kas.meta.scalars import RFC3339, parse_zoned_time
from kas.meta.strfmt import duration_ns
from kas.types.scheme import DecodeError, Field, TypeDesc

_NULL = Unreadable("invalid data, got null for schema with nullable=false")
_NO_MAP = Unreadable("invalid data, expected a map for the provided schema with type=object")
_NO_ARRAY = Unreadable("invalid data, expected an array for the provided schema with type=array")
_NEITHER = Unreadable("invalid data, expected XIntOrString value to be either a string or integer")
_ROOT_META = {"name": "name", "generateName": "generateName"}


def struct_value(type: TypeDesc, obj: dict[str, Any], wanted: Iterable[str] | None = None) -> dict[str, Any]:
    """Return an object's fields that its type declares, by their names in expressions; with ``wanted`` only those.

    Of metadata only the names are included. Undeclared fields are not accessible, but count in comparisons of whole objects.
    """
    fields = _fields(type)
    out: dict[str, Any] = {}
    for name in fields if wanted is None else wanted:
        found = fields.get(name)
        inner = obj.get(found[0]) if found is not None else None
        if found is None or inner is None:  # null counts as absent
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
    """Return {name in expressions: (name in objects, field)} of a type; the field is None for those that every object has."""
    found: dict[str, tuple[str, Field | None]] | None = type.derived.get("expressions")
    if found is None:
        found = {}
        for f in type.fields:
            if name := escape(f.name):
                found[name] = f.name, f
                if f.name in RESERVED:
                    found[f.name] = f.name, f
            elif unescape(f.name) == f.name:  # not accessible by name, but compared and found by macros over keys
                found[f.name] = f.name, f
        if type.embedded:
            found |= {name: (name, None) for name in ("apiVersion", "kind", "metadata")}
        type.derived["expressed"] = {key: name for name, (key, _) in found.items()}
        type.derived["expressions"] = found
    return found


def field_value(f: Field, value: Any, wanted: Iterable[str] | None = None) -> Any:
    """Return the CEL value of a value that ``f`` describes; of an object, the ``wanted`` fields.

    A value of the wrong type or format becomes one that fails when an expression uses it. A change of the schema may leave such values,
    which are tolerated while they do not change.
    """
    if value is None:
        return None if f.accepts_null or f.type == "any" else _NULL
    if f.card == "map":
        return {key: field_value(f.element, inner) for key, inner in value.items()} if isinstance(value, dict) else _NO_MAP
    if f.card == "list":
        return _items(f, value) if isinstance(value, list) else _NO_ARRAY
    kind = f.type
    if kind == "string":
        if type(value) is not str:
            return _misfit("string", value)
        return _formatted(f.format, value) if f.format in _TEXTS else value
    if kind == "message":
        return struct_value(f.message, value, wanted) if isinstance(value, dict) and f.message is not None else _NO_MAP
    if kind == "double":
        return float(value) if type(value) is int else value if type(value) is float else _misfit("float", value)
    if kind == "intOrString":
        return value if type(value) in (str, int) else _NEITHER
    wants = _WANTS.get(kind)
    return value if wants is None or type(value) is wants[0] else _misfit(wants[1], value)


_LIST_TYPES = ("atomic", "map", "set")
_WANTS = {"int64": (int, "int"), "int32": (int, "int"), "bool": (bool, "bool")}
_GO_TYPES = {str: "string", int: "int64", float: "float64", bool: "bool", dict: "map[string]interface {}", list: "[]interface {}"}


def _misfit(wanted: str, value: Any) -> Unreadable:
    return Unreadable(f"invalid data, expected {wanted}, got {_GO_TYPES[type(value)]}", value)


def _items(f: Field, value: list[Any]) -> Any:
    if f.list_type and f.list_type not in _LIST_TYPES:  # only in the default of a CRD that is being rejected
        return Unreadable(f"invalid x-kubernetes-list-type, expected 'map', 'set' or 'atomic' but got {f.list_type}", value)
    items = [field_value(f.element, item) for item in value]
    if f.list_type == "map":
        # Upstream looks up the escaped key names in the objects. So a key that has to be escaped is never found, and one that cannot be
        # escaped is looked up as it is.
        return MapList(items, tuple(key for key in f.list_map_keys if escape(key) in ("", key)))
    return SetList(items, value) if f.list_type == "set" else items


def _formatted(form: str | None, text: str) -> Any:
    name, parse = _TEXTS[form or ""]
    try:
        return parse(text)
    except (DecodeError, ValueError) as e:
        return Unreadable(f"Invalid {name} {text}: {e}", text)


# Upstream decodes with the URL alphabet here, although its validation accepts the standard one: a text with "+" or "/" is unreadable.
_URL_DIGITS = str.maketrans("+/-_", "!!+/")


def _bytes(text: str) -> bytes:
    return go_base64(text.translate(_URL_DIGITS))


def _date(text: str) -> Timestamp:
    return _completed(text, "T00:00:00Z", "2006-01-02")


def _time(text: str) -> Timestamp:
    if not text:
        return Timestamp.read(0)
    try:
        seconds, nanos, ahead = parse_zoned_time(text)
    except DecodeError:
        return _completed(text, "Z", "2006-01-02T15:04:05")  # the last layout that upstream tries
    return Timestamp.read(seconds * NS + nanos, ahead)


def _completed(text: str, missing: str, layout: str) -> Timestamp:
    """Parse a time of a shorter layout by adding the ``missing`` part."""
    try:
        seconds, nanos, _ = parse_zoned_time(text + missing)
    except DecodeError as e:
        raise ValueError(str(e).replace(f'{missing}"', '"').replace(f'"{RFC3339}', f'"{layout}')) from None
    return Timestamp.read(seconds * NS + nanos)


def _duration(text: str) -> Duration:
    ns = duration_ns(text)
    if ns is None:
        raise ValueError(f"unable to parse {text} as duration")
    return Duration(ns)


_TEXTS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "byte": ("byte formatted string", _bytes), "date": ("date formatted string", _date),
    "date-time": ("date-time formatted string", _time), "duration": ("duration", _duration),
}  # fmt: skip
