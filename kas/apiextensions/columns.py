"""Tables of custom resources: the name and the printer columns of their definition.

Source of the behaviour: apiextensions-apiserver ``pkg/registry/customresource/tableconvertor``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from kas.apiextensions.jsonpath import Path, PathError, Walk
from kas.meta.age import UNKNOWN, human_duration
from kas.meta.field import go_float
from kas.meta.scalars import ZERO_TIME, parse_time
from kas.observe.caches import remembered
from kas.types.scheme import DecodeError, write_json

Column = dict[str, Any]
MAX_INT64 = (1 << 63) - 1
MAX_FLOAT = 1 << 53  # larger integers are not exact in a float64
# The columns of a version that declares none, after the name.
DEFAULT_COLUMNS: tuple[Column, ...] = ({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},)

# A row is expensive with more columns, or with more path steps that can yield several values, than these.
MANY, MANY_FANS = 64, 8
PATHS = 64 << 10  # limit of the characters in all paths: the parsed paths are kept and are ten times as large
# Characters of text in an object's cells, because thousands of columns can each show the whole object: TEXT plus TIMES the object's size.
TEXT, TIMES = 16 << 10, 4


class Printer:
    """The printer columns of a version (``additionalPrinterColumns``); made once and used for all its tables."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._given = columns or DEFAULT_COLUMNS
        self._definitions: list[Column] = []

    def definitions(self, name: Column, age_text: str) -> list[Column]:
        """Return the column definitions. The list is shared: do not change it.

        ``name`` is the definition of the name column, ``age_text`` the description of a default age column.
        """
        if not self._definitions:
            self._definitions = [name, *(self._definition(column, age_text) for column in self._columns)]
        return self._definitions

    def _definition(self, column: Column, age_text: str) -> Column:
        text = column.get("description") or f"Custom resource definition column (in JSONPath format): {column['jsonPath']}"
        return {
            "name": column["name"], "type": column["type"], "format": column.get("format", ""),
            "description": age_text if column is DEFAULT_COLUMNS[0] else text, "priority": column.get("priority", 0),
        }  # fmt: skip

    @cached_property
    def _columns(self) -> Sequence[Column]:
        """The columns before the first one whose path cannot be parsed; upstream stops there."""
        return self._given[: len(self._prepared)]

    @cached_property
    def _prepared(self) -> list[tuple[str, Path | None]]:
        out, left = list[tuple[str, Path | None]](), PATHS
        for column in self._given:
            left -= len(column["jsonPath"])
            try:
                out.append((column["type"], Path(column["jsonPath"]) if left >= 0 else None))
            except PathError:
                break
        return out

    @cached_property
    def costly(self) -> bool:
        """Whether the row of even a small object may be expensive."""
        paths = [path for _, path in self._prepared if path is not None]
        return len(self._columns) > MANY or any(path.deep for path in paths) or sum(path.fans for path in paths) > MANY_FANS

    def cells(self, obj: dict[str, Any], now: float) -> list[Any]:
        """Return the cells of a row.

        A cell is null if its path cannot be applied, exceeds the limit of path characters, or would make the row too long or too expensive.
        """
        walk, text = Walk(obj), _Text(obj)
        out: list[Any] = [(obj.get("metadata") or {}).get("name", "")]
        for kind, path in self._prepared:
            try:
                found = path(obj, walk) if path is not None else ()
            except PathError:
                found = ()
            cell = _cell(kind, found[0], now) if found else None
            out.append(cell if not isinstance(cell, str) or text.fits(cell) else None)
        return out


class _Text:
    """The remaining room for text in the cells of an object."""

    __slots__ = ("_left", "_obj")

    def __init__(self, obj: dict[str, Any]) -> None:
        self._left, self._obj = TEXT, obj

    def fits(self, cell: str) -> bool:
        """Whether there is room for the cell; if so, the room is used."""
        if self._left < len(cell) and self._obj:
            self._left += TIMES * len(write_json(self._obj))
            self._obj = {}
        if self._left < len(cell):
            return False
        self._left -= len(cell)
        return True


def _cell(kind: str, value: Any, now: float) -> Any:
    if kind == "string":
        return _text(value)
    match kind, value:
        case ("integer" | "number"), bool():
            return None
        case "integer", int() | float():
            # The result of Go's int64() for larger values on amd64.
            return int(value) if -MAX_INT64 - 1 <= value <= MAX_INT64 else -MAX_INT64 - 1
        case "number", int() | float():
            return value if -MAX_FLOAT <= value <= MAX_FLOAT else float(value)
        case "boolean", bool():
            return value
        case "date", str():
            return _age(value, now)
    return None


def _age(text: str, now: float) -> str:
    """Return the age of a time, which must be strict RFC 3339 as in a query; UNKNOWN if it is empty or null."""
    if text in ("", "null"):
        return UNKNOWN
    try:
        when = _seconds(text)
    except DecodeError:
        return "<invalid>"
    return UNKNOWN if when == ZERO_TIME else human_duration(now - when)


# Objects created together share their times.
@remembered("column_times", "times in columns of custom resources", 4096, 64)
def _seconds(text: str) -> float:
    seconds, nanos = parse_time(text)
    return seconds + nanos / 1e9


def _text(value: Any) -> str:
    """Format a value as Go prints it: lists and maps as JSON, others plainly."""
    if isinstance(value, str):
        return value
    if value is None:
        return "<no value>"
    if isinstance(value, dict | list):
        return write_json(value).decode()
    if isinstance(value, float):
        return go_float(value)
    return str(value).lower() if isinstance(value, bool) else str(value)
