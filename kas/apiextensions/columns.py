"""Tables of custom resources: the name and the columns their definition asks for.

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
MAX_FLOAT = 1 << 53  # integers up to here are floats, too
# What a version without columns of its own shows beside the name.
DEFAULT_COLUMNS: tuple[Column, ...] = ({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},)

# Columns, and steps of their paths that find more than one value, from which on a row may be long work.
MANY, MANY_FANS = 64, 8
PATHS = 64 << 10  # characters of all paths: what is parsed of them is kept, and ten times as large
# Characters of an object's cells: whole objects can be shown in each of thousands of columns.
TEXT, TIMES = 16 << 10, 4


class Printer:
    """The columns of a version, an ``additionalPrinterColumns`` each; made once for all that is printed."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._given = columns or DEFAULT_COLUMNS
        self._definitions: list[Column] = []

    def definitions(self, name: Column, age_text: str) -> list[Column]:
        """Column definitions. ``name`` is the definition of the name column, ``age_text`` the description of a default age column. The list
        is shared: do not change it."""
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
        """Those before the first whose path cannot be parsed; upstream goes no further."""
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
        """Whether a row of a small object may be long work."""
        paths = [path for _, path in self._prepared if path is not None]
        return len(self._columns) > MANY or any(path.deep for path in paths) or sum(path.fans for path in paths) > MANY_FANS

    def cells(self, obj: dict[str, Any], now: float) -> list[Any]:
        """The cells of a row. A path that cannot be applied gives null; so does one that is too long, or would make the row
        too long or too long work."""
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
    """How much text the cells of an object may have."""

    __slots__ = ("_left", "_obj")

    def __init__(self, obj: dict[str, Any]) -> None:
        self._left, self._obj = TEXT, obj

    def fits(self, cell: str) -> bool:
        """Whether there is room for one more, which is taken."""
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
            # What Go's int64() makes of a larger one on amd64.
            return int(value) if -MAX_INT64 - 1 <= value <= MAX_INT64 else -MAX_INT64 - 1
        case "number", int() | float():
            return value if -MAX_FLOAT <= value <= MAX_FLOAT else float(value)
        case "boolean", bool():
            return value
        case "date", str():
            return _age(value, now)
    return None


def _age(text: str, now: float) -> str:
    """The age of a time as the API reads it in a query: RFC 3339 to the letter, none when empty or null."""
    if text in ("", "null"):
        return UNKNOWN
    try:
        when = _seconds(text)
    except DecodeError:
        return "<invalid>"
    return UNKNOWN if when == ZERO_TIME else human_duration(now - when)


# Objects made together share their times.
@remembered("column_times", "times in columns of custom resources", 4096, 64)
def _seconds(text: str) -> float:
    seconds, nanos = parse_time(text)
    return seconds + nanos / 1e9


def _text(value: Any) -> str:
    """A value as Go prints it: lists and maps as JSON, others plainly."""
    if isinstance(value, str):
        return value
    if value is None:
        return "<no value>"
    if isinstance(value, dict | list):
        return write_json(value).decode()
    if isinstance(value, float):
        return go_float(value)
    return str(value).lower() if isinstance(value, bool) else str(value)
