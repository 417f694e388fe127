"""Values of apply configurations in Go's types: some CEL values have no type in a schema (upstream ``cel/mutation/dynamic``)."""

from __future__ import annotations

import datetime
from typing import Any

from kas.cel.stackdepth import with_deep_stack
from kas.cel.values import NS, Duration, Optional, Timestamp, Uint

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class GoValue:
    """A value that JSON cannot represent; its text is its Go source."""

    __slots__ = ("_source", "go_type")

    def __init__(self, go_type: str, source: str) -> None:
        self.go_type, self._source = go_type, source

    def __str__(self) -> str:
        return self._source


def go_values(value: Any) -> Any:
    """Convert a value of an expression, with ``GoValue`` for null, timestamps, durations, bytes and unsigned numbers."""
    return with_deep_stack(lambda: _go_values(value))


def _go_values(value: Any) -> Any:
    if value is None:
        return GoValue("structpb.NullValue", "0")
    if isinstance(value, dict):
        return {str(key).lower() if isinstance(key, bool) else str(key): _go_values(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_go_values(inner) for inner in value]
    if isinstance(value, Optional):
        return _go_values(value.value) if value.present else GoValue("structpb.NullValue", "0")
    if isinstance(value, bytes):
        return GoValue("[]uint8", f"[]uint8{{{', '.join(map(hex, value))}}}")
    if isinstance(value, Timestamp):
        return GoValue("time.Time", _date(value))
    if isinstance(value, Duration):
        return GoValue("time.Duration", str(value.ns))
    if isinstance(value, Uint):
        return GoValue("uint64", hex(value))
    return value if isinstance(value, (str, bool, int, float)) else GoValue(type(value).__name__, str(value))


def _date(value: Timestamp) -> str:
    seconds, ns = divmod(value.ns, NS)
    at = _EPOCH + datetime.timedelta(seconds=seconds)
    return f"time.Date({at.year}, time.{at:%B}, {at.day}, {at.hour}, {at.minute}, {at.second}, {ns}, time.UTC)"
