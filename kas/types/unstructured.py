"""The words in which Go's ``FromUnstructured`` refuses a value that does not fit its type.

A strategic merge patch is applied to maps and turned into an object from there, not through JSON; what the decoder found is the same,
its text is another (apimachinery's ``runtime/converter.go``).
"""

from __future__ import annotations

import re
from typing import Any

from kas.types.scheme import Field, TypeDesc

_MISMATCH = re.compile(r"json: cannot unmarshal (\w+)(?: (\S+))? into Go (?:struct field [^.]+\.(\S+)|value) of type (.+)")
_SOURCES = {"string": "string", "bool": "bool", "array": "slice", "object": "map", "number": "int64"}
_BITS = {"int32": 32, "int64": 64}
_SCALARS = {"string": "string", "bool": "bool", "int32": "int32", "int64": "int64", "double": "float64"}


def conversion_error(type: TypeDesc, text: str) -> str:
    """``text`` of a DecodeError of an object of ``type`` as FromUnstructured would have said it."""
    found = _MISMATCH.fullmatch(text)
    if found is None:
        return text
    kind, number, path, go_type = found.groups()
    source = "float64" if number and not number.lstrip("-").isdigit() else _SOURCES[kind]
    if go_type.startswith("[]"):
        return f"cannot restore slice from {source}"
    if go_type.startswith("map["):
        return f"cannot restore map from {source}"
    field = _field(type, path)
    if field is not None and field.message is not None:
        if field.message.custom_json:  # reads its own JSON, which knows of no fields
            return f"json: cannot unmarshal {kind}{' ' + number if number else ''} into Go value of type {go_type}"
        return f"cannot restore struct from: {source}"
    target = _SCALARS.get(field.type, go_type) if field is not None else go_type
    if (source == "int64" and target == "string") or (source == "float64" and target in ("int32", "int64")):
        return f"cannot convert {source} to {go_type}"
    return f"unrecognized type: {target}"


def go_numbers(type: TypeDesc, value: dict[str, Any]) -> dict[str, Any]:
    """``value``, an object of ``type``, with its numbers as FromUnstructured puts them into integers: whole floats are taken, and what is
    too large loses its upper bits. Shares what has none."""
    out = value
    for name, given in value.items():
        field = type.by_name.get(name)
        if field is None:
            continue
        taken = _taken(field, given)
        if taken is not given:
            out = {**out, name: taken}
    return out


def _taken(field: Field, value: Any) -> Any:
    if field.card == "list" and isinstance(value, list):
        return [_element(field, v) for v in value]
    if field.card == "map" and isinstance(value, dict):
        return {k: _element(field, v) for k, v in value.items()}
    return _element(field, value)


def _element(field: Field, value: Any) -> Any:
    message = field.message
    if message is not None and not message.custom_json:
        return go_numbers(message, value) if isinstance(value, dict) else value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    if message is not None or field.type not in _BITS:
        # Types that read JSON are given the number's text, which has no fraction then.
        return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1e21 else value
    if not -(2**63) <= value < 2**63:
        value = -(2**63)  # the conversion of a float that does not fit, on amd64
    elif value != int(value):
        return value
    half = 1 << (_BITS[field.type] - 1)
    return (int(value) + half) % (2 * half) - half


def _field(type: TypeDesc, path: str | None) -> Field | None:
    """The field that a path without indices and keys leads to."""
    place: TypeDesc | None = type
    field = None
    for name in (path or "").split("."):
        field = place.by_name.get(name) if place is not None else None
        place = field.message if field is not None else None
    return field
