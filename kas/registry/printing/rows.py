"""The registration of the functions that print rows.

A row function takes the object (external form, defaulted) and ``now`` (seconds since the epoch) and returns the cells of its
columns, in the order of the kind's column definitions. It does not change the object.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Object = dict[str, Any]
Row = Callable[[Object, float], list[Any]]

ROWS: dict[tuple[str, str], Row] = {}
# Returns the conditions of a row (``TableRowCondition``); None for no conditions.
CONDITIONS: dict[tuple[str, str], Callable[[Object], list[Object] | None]] = {}


def printer(group: str, kind: str) -> Callable[[Row], Row]:
    """Registers the decorated function for ``group`` and ``kind``; one function may serve several kinds."""

    def register(row: Row) -> Row:
        if (group, kind) in ROWS:
            raise ValueError(f"two printers for {group}/{kind}")
        ROWS[group, kind] = row
        return row

    return register
