"""Declared shapes with their largest sizes, which bound the cost of an expression before it runs (apiserver ``pkg/cel.DeclType``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kas.cel.cost import Path, Sizes, Span
from kas.cel.types import Type


@dataclass(frozen=True, slots=True)
class Declared:
    """``most``: elements of a list or map, code points of a text. ``item`` is what a list or map holds, ``key`` a map's keys."""

    type: Type
    most: int = 0
    fields: Mapping[str, Declared] = field(default_factory=dict)
    item: Declared | None = None
    key: Declared | None = None

    def at(self, step: str) -> Declared | None:
        """The shape of a field, or of "@items", "@keys" and "@values"; None when nothing is known of it."""
        if step in ("@items", "@values"):
            return self.item
        if step == "@keys":
            return self.key
        return self.fields.get(step)


def sizes_of(variables: Mapping[str, Declared]) -> Sizes:
    """What bounds the sizes of what the variables hold."""

    def sizes(path: Path, t: Type) -> Span | None:
        at = variables.get(path[0])
        for step in path[1:]:
            if at is None:
                return None
            below = at.at(step)
            # A map's entries may be selected like fields; all are of one size.
            at = below if below is not None or at.type.kind != "map" else at.item
        return Span(0, at.most) if at is not None else None

    return sizes
