"""Which function prints a kind's row.

A row function takes the object (external form, defaulted) and ``now`` (seconds since the epoch) and returns the cells of
its columns, in the order of the kind's column definitions. It reads the object and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Object = dict[str, Any]
Row = Callable[[Object, float], list[Any]]

ROWS: dict[tuple[str, str], Row] = {}
# What a row of the kind says about its object beside the cells (``TableRowCondition``); None for nothing.
CONDITIONS: dict[tuple[str, str], Callable[[Object], list[Object] | None]] = {}


def printer(group: str, kind: str) -> Callable[[Row], Row]:
    """Register the decorated function for ``group`` and ``kind``; one function may serve several kinds."""

    def register(row: Row) -> Row:
        if (group, kind) in ROWS:
            raise ValueError(f"two printers for {group}/{kind}")
        ROWS[group, kind] = row
        return row

    return register
