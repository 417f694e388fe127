"""The error texts of Go's ``FromUnstructured`` for values that do not fit their types.

A strategic merge patch is applied to maps, which are then converted to an object without going through JSON. The decoder finds the same
errors, but with other texts (apimachinery's ``runtime/converter.go``).
"""

from __future__ import annotations

from kas.meta.patterns import later
from kas.types.scheme import DecodeError, Field, TypeDesc

_MISMATCH = later(r"json: cannot unmarshal (\w+)(?: (\S+))? into Go (?:struct field [^.]+\.(\S+)|value) of type (.+)")
_SOURCES = {"string": "string", "bool": "bool", "array": "slice", "object": "map", "number": "int64"}
_SCALARS = {"string": "string", "bool": "bool", "int32": "int32", "int64": "int64", "double": "float64"}


def conversion_error(type: TypeDesc, error: DecodeError) -> str:
    """The text of FromUnstructured for an object of ``type`` for which the decoder raised ``error``."""
    text = str(error)
    found = _MISMATCH.fullmatch(text)
    if found is None:
        return f"error decoding from json: {text}" if text.startswith("illegal base64 data") else text
    kind, number, path, go_type = found.groups()
    source = "float64" if isinstance(error.value, float) else _SOURCES[kind]
    if inner := _in_schema(type, path):
        return f"json: cannot unmarshal {kind}{' ' + number if number else ''} into Go struct field {inner} of type {go_type}"
    if go_type.startswith("[]"):
        return f"cannot restore slice from {source}"
    if go_type.startswith("map[") or go_type == "v1.ResourceList":
        return f"cannot restore map from {source}"
    field = _field(type, path)
    if field is not None and field.message is not None:
        if field.message.custom_json:  # has its own JSON decoder, which does not report fields
            return f"json: cannot unmarshal {kind}{' ' + number if number else ''} into Go value of type {go_type}"
        return f"cannot restore struct from: {source}"
    target = _SCALARS.get(field.type, go_type) if field is not None else go_type
    if (source == "int64" and target == "string") or (source == "float64" and target in ("int32", "int64")):
        return f"cannot convert {source} to {go_type}"
    return f"unrecognized type: {target}"


def _field(type: TypeDesc, path: str | None) -> Field | None:
    """The field at a path without indices and keys; names of embedded structs in the path are skipped."""
    place: TypeDesc | None = type
    field = None
    for name in (path or "").split("."):
        if place is not None and name not in place.by_name and any(f.name is None for f in place.fields):
            continue
        field = place.by_name.get(name) if place is not None else None
        place = field.message if field is not None else None
    return field


def _in_schema(type: TypeDesc, path: str | None) -> str:
    """Struct and fields of a path inside a schema with its own JSON decoder, such as that of ``items``; "" for any other path."""
    place: TypeDesc | None = type
    names = (path or "").split(".")
    for i, name in enumerate(names):
        field = place.by_name.get(name) if place is not None else None
        if field is None or place is None:
            return ""
        if field.message is not None and field.message.kind_name.startswith("JSONSchemaPropsOr"):
            below = names[i + 1 :]
            return f"{place.kind_name}.{'.'.join(below)}" if below else ""
        place = field.message
    return ""
