"""Large JSON a piece at a time: to parse it, and to let go of what was parsed, is one step of the interpreter's otherwise, in which no
other thread has its lock; of three megabytes 60 to 150 ms, and 20 to 50."""

from __future__ import annotations

from sys import getrefcount
from typing import Any

import orjson

from kas._codecs import NotCutError, parse_in_pieces

OWN = 2  # references to what nobody else has: here, and of who counts them
WHOLE = 128 << 10  # bytes that are parsed, or let go of, in one step: some milliseconds


def parse(data: bytes) -> Any:
    """``orjson.loads``."""
    if len(data) <= WHOLE:
        return orjson.loads(data)
    try:
        return parse_in_pieces(data, orjson.loads)
    except (NotCutError, orjson.JSONDecodeError):
        return orjson.loads(data)  # which says what is wrong, and where


def let_go(values: list[Any]) -> None:
    """Drops all of ``values``, and what only these still refer to, each once. For a thread: nothing is changed that somebody else refers
    to."""
    while values:
        value = values.pop()
        # What others refer to as well, as to one rule each of its thousands of resources, is gone into from the last of them.
        if getrefcount(value) <= OWN:
            if isinstance(value, dict):
                values.extend(value.values())
            elif isinstance(value, (list, tuple)):
                values.extend(value)
