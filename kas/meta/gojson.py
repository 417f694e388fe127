"""JSON as Go's ``encoding/json`` reads it: the inputs it accepts, and its error texts.

``loads`` is orjson with Go's leniency (invalid UTF-8 and lone surrogates become U+FFFD, numbers of any size) and Go's error texts, which
the API passes to clients. ``syntax_error`` determines that text; it runs only after a failure.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import orjson

from kas._codecs import NotCutError, parse_in_pieces, syntax_fault
from kas.meta import utf8
from kas.meta.largejson import WHOLE
from kas.meta.patterns import later

Parser = Callable[[bytes], Any]


class JSONError(ValueError):
    """Invalid JSON. ``str()`` is Go's message."""


class NumberError(JSONError):
    """Well-formed JSON with a number that no float64 holds. Go finds this only when it converts the value, after it has read the kind.
    ``value`` is the value of the text with infinities in place of such numbers.
    """

    value: Any = None


# The type into which Go decodes kind and apiVersion of any object.
TYPE_META = 'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
_SURROGATE = later("[\ud800-\udfff]")


def loads(data: bytes | str) -> Any:
    """Parses a JSON text. Raises JSONError, and NumberError for a number that no float64 holds."""
    large = data if isinstance(data, bytes) and len(data) > WHOLE else None
    try:
        return orjson.loads(data) if large is None else parse_in_pieces(large, orjson.loads)
    except (orjson.JSONDecodeError, NotCutError):
        raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else bytes(data)
        message = syntax_error(raw)
        if message is not None:
            raise JSONError(message) from None
    read: Callable[[bytes, Parser], Any] = _whole if large is None else parse_in_pieces
    try:
        # Since Python 3.12 the parser handles deeper nesting than the code after it.
        try:
            return read(raw, partial(_lenient, parse_int=_parse_int, parse_float=_parse_float))
        except NumberError as e:
            e.value = read(raw, partial(_lenient, parse_int=_unbounded))
            raise
    except (RecursionError, NotCutError):
        raise JSONError("exceeded max depth") from None


def _whole(raw: bytes, parse: Parser) -> Any:
    return parse(raw)


def _lenient(raw: bytes, **numbers: Any) -> Any:
    return _without_surrogates(json.loads(utf8.text(raw), **numbers))


def _parse_int(text: str) -> int | float:
    value = _unbounded(text)
    return value if isinstance(value, int) else _parse_float(text)


def _unbounded(text: str) -> int | float:
    # An integer beyond 64 bits is a float64 in Go. The length is checked first because int() is slow for a long text, or refuses it.
    if len(text) <= 20:
        value = int(text)
        if -(2**63) <= value < 2**64:
            return value
    return float(text)


def _parse_float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise NumberError(f"json: cannot unmarshal number {text} into Go value of type float64")
    return value


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_without_surrogates(v) for v in value]
    if isinstance(value, dict):
        return {_without_surrogates(k): _without_surrogates(v) for k, v in value.items()}
    return value


def go_type(value: Any) -> str:
    """The name of a value's JSON type in an UnmarshalTypeError."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, (int, float)):
        return "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def cannot_unmarshal(value: Any, into: str) -> str:
    """The text of ``json.UnmarshalTypeError`` for a value that does not fit the Go type ``into``."""
    return f"json: cannot unmarshal {go_type(value)} into Go value of type {into}"


def members(value: Any, into: str) -> dict[str, Any]:
    """The members of a JSON object under lower-case names, since Go matches names case-insensitively; null has none. Raises JSONError with
    Go's type ``into`` for any other value.
    """
    if value is not None and not isinstance(value, dict):
        raise JSONError(cannot_unmarshal(value, into))
    return {name.lower(): member for name, member in (value or {}).items()}


def structs(text: str, into: str, fields: Mapping[str, str]) -> list[dict[str, Any]]:
    """Parses a JSON list of structs of the Go type ``into``, which has no tags: ``fields`` maps its field names to their types (string or
    int64). Returns the structs under the API's field names. Raises JSONError.
    """
    items = loads(text)
    if items is not None and not isinstance(items, list):
        raise JSONError(cannot_unmarshal(items, f"[]{into}"))
    out = []
    for item in items or ():
        known, given = {}, members(item, into)
        for name, kind in fields.items():
            value = given.get(name.lower())
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int if kind == "int64" else str):
                # For a number that does not fit its type, Go includes the digits.
                shown = f"number {orjson.dumps(value).decode()}" if kind == "int64" and isinstance(value, float) else go_type(value)
                raise JSONError(f"json: cannot unmarshal {shown} into Go struct field {into.partition('.')[2]}.{name} of type {kind}")
            known[name[0].lower() + name[1:]] = value
        out.append(known)
    return out


def _unexpected(byte: int, context: str) -> str:
    if byte == 0x27:
        quoted = "'\\''"
    elif byte == 0x22:
        quoted = "'\"'"
    elif byte == 0x5C:
        quoted = "'\\\\'"
    elif byte in _NAMED:
        quoted = f"'{_NAMED[byte]}'"
    elif byte < 0x20 or byte == 0x7F:
        quoted = f"'\\x{byte:02x}'"
    elif 0x80 <= byte < 0xA0 or byte in (0xA0, 0xAD):
        quoted = f"'\\u{byte:04x}'"
    else:
        # Go treats the single byte as a rune, so an incomplete multi-byte character shows as Latin-1.
        quoted = f"'{chr(byte)}'"
    return f"invalid character {quoted} {context}"


_NAMED = {7: "\\a", 8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r"}


def syntax_error(data: bytes) -> str | None:
    """Go's message for the first syntax error in ``data``; None for well-formed JSON."""
    fault = syntax_fault(data)
    if fault is None:
        return None
    byte, context = fault
    return context if byte < 0 else _unexpected(byte, context)
