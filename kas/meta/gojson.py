"""JSON as Go's ``encoding/json`` reads it: what it accepts, and its words for what it does not.

``loads`` is orjson with Go's leniency (broken UTF-8 and lone surrogates become U+FFFD, numbers of any size) and Go's
error text, which the API hands to clients. ``syntax_error`` finds that text; it runs only when something is wrong.
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
    """``str()`` is Go's message."""


class NumberError(JSONError):
    """Of JSON that is well-formed and has a number that no float64 holds. Go finds it when it comes to the value, and has read the
    kind by then: ``value`` is that of the text, with infinities where the numbers are."""

    value: Any = None


# What Go reads kind and apiVersion of any object into.
TYPE_META = 'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
_SURROGATE = later("[\ud800-\udfff]")


def loads(data: bytes | str) -> Any:
    """The value of a JSON text. Raises JSONError, of a number that no float64 holds NumberError."""
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
        # Since Python 3.12 parsing takes more depth than what follows it.
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
    # An integer beyond 64 bits is a float64 in Go; the length is looked at first because int() of a long text is slow, or refuses it.
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
    """What an UnmarshalTypeError calls ``value``."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, (int, float)):
        return "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def cannot_unmarshal(value: Any, into: str) -> str:
    """``json.UnmarshalTypeError``: the text Go has for a value that does not fit the type ``into``."""
    return f"json: cannot unmarshal {go_type(value)} into Go value of type {into}"


def members(value: Any, into: str) -> dict[str, Any]:
    """The members of a JSON object under lower-case names, as Go matches them whatever their case; null has none. ``into``: Go's type."""
    if value is not None and not isinstance(value, dict):
        raise JSONError(cannot_unmarshal(value, into))
    return {name.lower(): member for name, member in (value or {}).items()}


def structs(text: str, into: str, fields: Mapping[str, str]) -> list[dict[str, Any]]:
    """A JSON list of structs ``into`` (a Go type without tags: ``fields`` are its names and their types, strings but for int64), each
    under the names that the API has for its fields. Raises JSONError."""
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
                # Of a number that does not fit its type Go tells the digits.
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
        # Go takes the single byte for a rune, so a broken two-byte letter shows as its Latin-1 reading.
        quoted = f"'{chr(byte)}'"
    return f"invalid character {quoted} {context}"


_NAMED = {7: "\\a", 8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r"}


def syntax_error(data: bytes) -> str | None:
    """The message of Go's first complaint about ``data``, None when it is well-formed JSON."""
    fault = syntax_fault(data)
    if fault is None:
        return None
    byte, context = fault
    return context if byte < 0 else _unexpected(byte, context)
