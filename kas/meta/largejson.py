"""Parses and frees large JSON in pieces, and writes deeply nested JSON.

Parsing a document, or freeing a parsed one, is otherwise a single step of the interpreter that holds the GIL throughout: for three
megabytes, 60 to 150 ms to parse and 20 to 50 ms to free.
"""

from __future__ import annotations

from sys import getrefcount
from typing import Any

import orjson

from kas._codecs import NotCutError, parse_in_pieces, write_json

OWN = 2  # reference count of an otherwise unreferenced value: the local variable and getrefcount's argument
WHOLE = 128 << 10  # bytes that are parsed or freed in one step: some milliseconds


def parse(data: bytes) -> Any:
    """``orjson.loads``, in pieces for documents above ``WHOLE``. Raises ``orjson.JSONDecodeError`` for the whole document."""
    if len(data) <= WHOLE:
        return orjson.loads(data)
    try:
        return parse_in_pieces(data, orjson.loads)
    except (NotCutError, orjson.JSONDecodeError):
        return orjson.loads(data)  # raises the error with its position in the whole document


def write_nested(value: Any) -> bytes:
    """``orjson.dumps``, also for more than the 254 levels that it supports. Raises EncodeError for more than 1,000."""
    try:
        return orjson.dumps(value)
    except TypeError:
        return write_json(value, sort_keys=False, as_it_is=True)


def let_go(values: list[Any]) -> None:
    """Frees ``values`` and everything reachable only from them, each object once. Meant for a thread; values that are referenced elsewhere
    are not changed.
    """
    while values:
        value = values.pop()
        # A value that is shared, such as one rule by thousands of resources, is descended into from its last reference.
        if getrefcount(value) <= OWN:
            if isinstance(value, dict):
                values.extend(value.values())
            elif isinstance(value, (list, tuple)):
                values.extend(value)
