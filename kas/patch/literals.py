"""JSON values compared by their text.

Go compares some values by their text, and one value has several: ``1`` and ``1.0``, ``"<"`` and ``"\\u003c"``.
"""

from __future__ import annotations

import json
from typing import Any

from kas._codecs import parse_in_pieces, write_json
from kas.meta import utf8
from kas.patch.longlist import LongList

# Longer texts are read without the text of their numbers: keeping it takes ten times as long.
MOST_EXACT = 65_536


class Number(str):
    """The original text of a number."""

    __slots__ = ()


# Stand-ins for the two escapes that must survive while all others are neutralized; JSON text never contains these characters.
_BACKSLASH, _QUOTE = b"\x00", b"\x01"


def read(text: bytes) -> Any:
    """Decode a well-formed JSON text, keeping strings and names as they are written between their quotes.

    Numbers with more than digits become Number, unless the text is longer than MOST_EXACT.
    """
    if b"\\" in text:
        text = text.replace(rb"\\", _BACKSLASH).replace(rb"\"", _QUOTE).replace(b"\\", rb"\\")
        text = text.replace(_BACKSLASH, rb"\\\\").replace(_QUOTE, rb"\\\"")
    if len(text) <= MOST_EXACT:
        return json.loads(utf8.text(text), parse_int=Number if b"-0" in text else None, parse_float=Number)
    return parse_in_pieces(text, lambda piece: json.loads(utf8.text(piece)))


def says(literal: Any, value: Any) -> bool:
    """Whether a value from ``read`` is the text that Go writes for ``value``, apart from the order of members and whitespace."""
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
