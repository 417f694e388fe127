"""JSON as Go's ``encoding/json`` reads it: what it accepts, and its words for what it does not.

``loads`` is orjson with Go's leniency (broken UTF-8 and lone surrogates become U+FFFD, numbers of any size) and Go's
error text, which the API hands to clients. ``syntax_error`` finds that text; it runs only when something is wrong.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

import orjson

from kas.meta import utf8


class JSONError(ValueError):
    """``str()`` is Go's message."""


# What Go reads kind and apiVersion of any object into.
TYPE_META = 'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
MAX_DEPTH = 10_000  # encoding/json maxNestingDepth

_SPACE = re.compile(rb"[ \t\r\n]*")
_CHUNK = re.compile(rb'[^\x00-\x1f"\\]*')
_DIGITS = re.compile(rb"[0-9]*")
_SURROGATE = re.compile("[\ud800-\udfff]")
_END = "unexpected end of JSON input"
_LITERALS = {0x74: b"true", 0x66: b"false", 0x6E: b"null"}
# A blank is what Go's scanner is fed at the end of the text, to finish what can be finished.
_EOF = 0x20


def loads(data: bytes | str) -> Any:
    """The value of a JSON text. Raises JSONError."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else bytes(data)
        message = syntax_error(raw)
        if message is not None:
            raise JSONError(message) from None
    try:
        # Since Python 3.12 the first takes more depth than the second.
        return _without_surrogates(json.loads(utf8.text(raw), parse_int=_parse_int, parse_float=_parse_float))
    except RecursionError:
        raise JSONError("exceeded max depth") from None


def _parse_int(text: str) -> int | float:
    # An integer beyond 64 bits is a float64 in Go; the length is looked at first because int() of a long text is slow.
    if len(text) <= 20:
        value = int(text)
        if -(2**63) <= value < 2**64:
            return value
    return _parse_float(text)


def _parse_float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise JSONError(f"json: cannot unmarshal number {text} into Go value of type float64")
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
    scan = _Scanner(data)
    try:
        scan.document()
    except JSONError as e:
        return str(e)
    return None


class _Scanner:
    def __init__(self, data: bytes) -> None:
        self.data, self.at, self.size = data, 0, len(data)

    def space(self) -> int:
        """The next byte that is no white space; _EOF at the end."""
        self.at = _SPACE.match(self.data, self.at).end()  # type: ignore[union-attr]  # matches nothing, too
        return self.data[self.at] if self.at < self.size else _EOF

    def byte(self) -> int:
        return self.data[self.at] if self.at < self.size else _EOF

    def fail(self, context: str) -> JSONError:
        return JSONError(_unexpected(self.byte(), context))

    def fail_or_end(self, context: str) -> JSONError:
        """For places where white space is welcome: the blank fed at the end changes nothing there."""
        return self.fail(context) if self.at < self.size else JSONError(_END)

    def document(self) -> None:
        stack: list[int] = []
        while True:
            # Here a value begins.
            c = self.space()
            if c == 0x7B or c == 0x5B:
                self.at += 1
                stack.append(c)
                if len(stack) > MAX_DEPTH:
                    raise JSONError("exceeded max depth")
                if self.space() == c + 2 and self.at < self.size:
                    self.at += 1
                    stack.pop()
                else:
                    if c == 0x7B:
                        self.key()
                    continue
            else:
                self.scalar(c)
            # Here a value has ended.
            while True:
                c = self.space()
                if not stack:
                    if self.at < self.size:
                        raise self.fail("after top-level value")
                    return
                if c == 0x2C and self.at < self.size:
                    self.at += 1
                    if stack[-1] == 0x7B:
                        self.key()
                    break
                if c != stack[-1] + 2 or self.at >= self.size:
                    raise self.fail_or_end("after object key:value pair" if stack[-1] == 0x7B else "after array element")
                self.at += 1
                stack.pop()

    def key(self) -> None:
        if self.space() != 0x22:
            raise self.fail_or_end("looking for beginning of object key string")
        self.string()
        if self.space() != 0x3A:
            raise self.fail_or_end("after object key")
        self.at += 1

    def scalar(self, c: int) -> None:
        if c == 0x22:
            self.string()
        elif c == 0x2D or 0x30 <= c <= 0x39:
            self.number()
        elif c in _LITERALS:
            word = _LITERALS[c]
            for want in word[1:]:
                self.at += 1
                if self.byte() != want:
                    raise self.fail(f"in literal {word.decode()} (expecting '{chr(want)}')")
            self.at += 1
        else:
            raise self.fail_or_end("looking for beginning of value")

    def string(self) -> None:
        self.at += 1
        while True:
            self.at = _CHUNK.match(self.data, self.at).end()  # type: ignore[union-attr]  # matches nothing, too
            if self.at >= self.size:
                raise JSONError(_END)
            c = self.data[self.at]
            if c == 0x22:
                self.at += 1
                return
            if c != 0x5C:
                raise self.fail("in string literal")
            self.at += 1
            c = self.byte()
            if c == 0x75:
                for _ in range(4):
                    self.at += 1
                    if self.byte() not in b"0123456789abcdefABCDEF":
                        raise self.fail("in \\u hexadecimal character escape")
            elif c not in b'"\\/bfnrt':
                raise self.fail("in string escape code")
            self.at += 1

    def number(self) -> None:
        if self.byte() == 0x2D:
            self.at += 1
            if not 0x30 <= self.byte() <= 0x39:
                raise self.fail("in numeric literal")
        if self.byte() == 0x30:
            self.at += 1
        else:
            self.digits()
        if self.byte() == 0x2E:
            self.at += 1
            if not self.digits():
                raise self.fail("after decimal point in numeric literal")
        if self.byte() in b"eE":
            self.at += 1
            if self.byte() in b"+-":
                self.at += 1
            if not self.digits():
                raise self.fail("in exponent of numeric literal")

    def digits(self) -> bool:
        start, self.at = self.at, _DIGITS.match(self.data, self.at).end()  # type: ignore[union-attr]  # matches nothing, too
        return self.at > start
