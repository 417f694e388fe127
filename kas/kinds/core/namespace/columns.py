"""Rows of Tables of namespaces."""

from __future__ import annotations

from typing import Any

from kas.meta.age import age
from kas.registry.printing.cells import part
from kas.registry.printing.rows import printer

Obj = dict[str, Any]


@printer("", "Namespace")
def namespace_row(obj: Obj, now: float) -> list[Any]:
    """The cells of a Table row: name, phase, age."""
    return [obj["metadata"].get("name", ""), part(obj, "status").get("phase", ""), age(obj, now)]
