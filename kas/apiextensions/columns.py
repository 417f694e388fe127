"""Tables of custom resources: the name and the columns their definition asks for.

Source of the behaviour: apiextensions-apiserver ``pkg/registry/customresource/tableconvertor``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from kas.apiextensions import jsonpath
from kas.meta.age import UNKNOWN, human_duration
from kas.meta.scalars import ZERO_TIME, parse_time
from kas.observe.caches import remembered
from kas.types.scheme import DecodeError, write_json

Column = dict[str, Any]
MAX_INT64 = (1 << 63) - 1
# What a version without columns of its own shows beside the name.
DEFAULT_COLUMNS: tuple[Column, ...] = ({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},)


def definitions(columns: Sequence[Column], name: dict[str, Any], age_text: str) -> list[dict[str, Any]]:
    """Column definitions for ``additionalPrinterColumns``. ``name`` is the definition of the name column, ``age_text``
    the description of a default age column.
    """
    out = [name]
    for column in columns or DEFAULT_COLUMNS:
        text = column.get("description") or f"Custom resource definition column (in JSONPath format): {column['jsonPath']}"
        out.append({
            "name": column["name"], "type": column["type"], "format": column.get("format", ""),
            "description": text if columns else age_text, "priority": column.get("priority", 0),
        })  # fmt: skip
    return out


def row(columns: Sequence[Column]) -> Callable[[dict[str, Any], float], list[Any]]:
    """A row function for these columns. A path that cannot be parsed or applied gives null."""
    prepared = [(column["type"], _finder(column["jsonPath"])) for column in columns or DEFAULT_COLUMNS]

    def cells(obj: dict[str, Any], now: float) -> list[Any]:
        out: list[Any] = [(obj.get("metadata") or {}).get("name", "")]
        for kind, find in prepared:
            try:
                found = find(obj)
            except jsonpath.PathError:
                found = []
            out.append(_cell(kind, found[0], now) if found else None)
        return out

    return cells


def _finder(path: str) -> Callable[[Any], list[Any]]:
    try:
        return jsonpath.parse(path)
    except jsonpath.PathError:
        return lambda obj: []


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
            return value
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
        return _float(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _float(value: float) -> str:
    """Go's ``%v``: the shortest digits, in exponent form below 1e-4 and from 1e21."""
    if value and not 1e-4 <= abs(value) < 1e21:
        digits, exponent = f"{Decimal(repr(value)):e}".split("e")
        return f"{digits}e{exponent[0]}{int(exponent[1:]):02}"
    text = f"{Decimal(repr(value)):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
