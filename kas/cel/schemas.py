"""Structural schemas of custom resources as the types of expressions (apiserver ``pkg/cel/common/schemas.go``)."""

from __future__ import annotations

from typing import Any

from kas.cel.declared import Declared
from kas.cel.types import BOOL, BYTES, DOUBLE, DURATION, DYN, INT, STRING, TIMESTAMP, Type, list_of, map_of, struct
from kas.cel.words import LITERALS, RESERVED

Schema = dict[str, Any]
Structs = dict[str, dict[str, Type]]

MAX_REQUEST_BYTES = 3 << 20
# The least a value takes in JSON, and the most a time does.
_MIN_TEXT, _MIN_BOOL, _MIN_NUMBER, _MIN_CONTAINER = 2, 4, 1, 2
_TIMES = {"duration": (DURATION, 3, 32), "date": (TIMESTAMP, 12, 12), "date-time": (TIMESTAMP, 21, 32)}
_MAX_CHARACTER = 4  # bytes
_TEXT_SCHEMA: Schema = {"type": "string"}
_ESCAPES = {".": "__dot__", "-": "__dash__", "/": "__slash__"}


def escape(name: str) -> str:
    """A property's name in expressions; "" for those that have none."""
    if not name or "0" <= name[0] <= "9":
        return ""
    if name in RESERVED or name in LITERALS:
        return f"__{name}__"
    out, i = [], 0
    while i < len(name):
        c = name[i]
        if name.startswith("__", i):
            out.append("__underscores__")
            i += 2
            continue
        if c in _ESCAPES:
            out.append(_ESCAPES[c])
        elif c == "_" or (c.isascii() and c.isalnum()):
            out.append(c)
        else:
            return ""
        i += 1
    return "".join(out)


def declare(schema: Schema | None, name: str, structs: Structs, is_root: bool = False) -> tuple[Declared, int] | None:
    """The shape that expressions see, and its least size in JSON; None for what they may not see. ``structs`` gathers the fields of
    objects by the names of their types, which begin with ``name``."""
    if schema is None:
        return None
    if schema.get("x-kubernetes-int-or-string"):
        return Declared(DYN, _text_length(schema)), 1
    kind = schema.get("type") or ""
    if kind == "array":
        return _array(schema, name, structs)
    if kind == "object":
        return _object(schema, name, structs, is_root)
    if kind == "string":
        return _text(schema)
    plain = {"boolean": (BOOL, _MIN_BOOL), "number": (DOUBLE, _MIN_NUMBER), "integer": (INT, _MIN_NUMBER)}.get(kind)
    return None if plain is None else (Declared(plain[0]), plain[1])


def _below(schema: Schema | None, name: str, structs: Structs) -> tuple[Declared, int] | None:
    return declare(schema, name, structs, bool((schema or {}).get("x-kubernetes-embedded-resource")))


def _array(schema: Schema, name: str, structs: Structs) -> tuple[Declared, int] | None:
    items = _below(schema.get("items"), f"{name}.@items", structs)
    if items is None:
        return None
    most = schema.get("maxItems")
    most = (MAX_REQUEST_BYTES - 2) // (items[1] + 1) if most is None else max(most, 0)
    return Declared(list_of(items[0].type), most, item=items[0]), _MIN_CONTAINER


def _object(schema: Schema, name: str, structs: Structs, is_root: bool) -> tuple[Declared, int] | None:
    additional = schema.get("additionalProperties")
    if isinstance(additional, dict):
        values = _below(additional, f"{name}.@values", structs)
        if values is None:
            return None
        most = schema.get("maxProperties")
        most = (MAX_REQUEST_BYTES - 2) // (values[1] + 6) if most is None else max(most, 0)
        return Declared(map_of(STRING, values[0].type), most, item=values[0], key=Declared(STRING)), _MIN_CONTAINER
    properties = dict(schema.get("properties") or {})
    if is_root:
        meta = {"type": "object", "properties": {"name": _TEXT_SCHEMA, "generateName": _TEXT_SCHEMA}}
        properties |= {"kind": _TEXT_SCHEMA, "apiVersion": _TEXT_SCHEMA, "metadata": meta}
    required, least = frozenset(schema.get("required") or ()), _MIN_CONTAINER
    fields: dict[str, Declared] = {}
    for key, value in properties.items():
        found = _below(value, f"{name}.{key}", structs)
        if found is None:
            continue
        escaped = escape(key)
        if escaped:
            fields[escaped] = found[0]
            if key in RESERVED:  # behind a dot a keyword is a name, too
                fields[key] = found[0]
        if key in required and value.get("default") is None:
            least += len(key.encode()) + found[1] + 4
    structs[name] = {key: declared.type for key, declared in fields.items()}
    return Declared(struct(name), 0, fields), least


def _text(schema: Schema) -> tuple[Declared, int]:
    form = schema.get("format") or ""
    if form in _TIMES:
        t, least, longest = _TIMES[form]
        return Declared(t, longest), least
    most = schema.get("maxLength")
    if form == "byte":
        return Declared(BYTES, MAX_REQUEST_BYTES - 2 if most is None else max(most, 0)), _MIN_TEXT
    return Declared(STRING, _text_length(schema)), _MIN_TEXT


def _text_length(schema: Schema) -> int:
    """The most bytes a text may have."""
    most = schema.get("maxLength")
    if most is not None:
        return max(most, 0) * _MAX_CHARACTER
    enum = schema.get("enum")
    if enum and not schema.get("x-kubernetes-int-or-string"):
        return max(len(v.encode()) if isinstance(v, str) else 0 for v in enum)
    return MAX_REQUEST_BYTES - 2


def most_often(least: int) -> int:
    """How often values of that least size fit into a request."""
    return MAX_REQUEST_BYTES // (least + 1)
