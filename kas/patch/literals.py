"""What a JSON text says, letter by letter.

Go compares some values by their text, and one value has many: ``1`` and ``1.0``, ``"<"`` and ``"\\u003c"``.
"""

from __future__ import annotations

import json
from typing import Any

from kas._codecs import parse_in_pieces, write_json
from kas.meta import utf8
from kas.patch.longlist import LongList

# Keeping the text of a number takes ten times as long as reading it.
MOST_EXACT = 65_536


class Number(str):
    """The text of a number."""

    __slots__ = ()


# Stand for the two escapes that a text without its other escapes still needs; no JSON text holds such characters.
_BACKSLASH, _QUOTE = b"\x00", b"\x01"


def read(text: bytes) -> Any:
    """The value of a well-formed JSON text whose strings and names are what stands between their quotes, and whose numbers are Numbers
    where they are more than digits and the text is not long."""
    if b"\\" in text:
        text = text.replace(rb"\\", _BACKSLASH).replace(rb"\"", _QUOTE).replace(b"\\", rb"\\")
        text = text.replace(_BACKSLASH, rb"\\\\").replace(_QUOTE, rb"\\\"")
    if len(text) <= MOST_EXACT:
        return json.loads(utf8.text(text), parse_int=Number if b"-0" in text else None, parse_float=Number)
    return parse_in_pieces(text, lambda piece: json.loads(utf8.text(piece)))


def says(literal: Any, value: Any) -> bool:
    """Whether what ``read`` gave is ``value`` as Go writes it, but for the order of members and blanks between them."""
    if isinstance(literal, dict):
        if not isinstance(value, dict) or len(value) != len(literal):
            return False
        named = {json.loads(f'"{name}"') if "\\" in name else name: member for name, member in literal.items()}
        return named.keys() == value.keys() and all(says(member, value[name]) for name, member in named.items())
    if isinstance(literal, list):
        return isinstance(value, (list, LongList)) and len(value) == len(literal) and all(map(says, literal, value))
    if isinstance(literal, Number):
        return _is_number(value) and write_json(value).decode() == literal
    if _is_number(literal):
        return _is_number(value) and write_json(value) == write_json(literal)
    if isinstance(literal, str):
        return isinstance(value, str) and write_json(value).decode() == f'"{literal}"'
    return value is literal


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
