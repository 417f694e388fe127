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


def sizes_below(root: Declared, entry: Declared | None = None) -> Sizes:
    """What bounds the sizes of what is below ``root``, whatever a path begins with: a name that leads nowhere, as ``int`` or the items of
    a list that was computed, has the size of the root itself. A map that holds ``entry`` has its entries like fields, too."""

    def sizes(path: Path, t: Type) -> Span | None:
        at = root
        for step in path[1:]:
            below = at.at(step)
            if below is None and entry is not None and at.item is entry:
                below = entry
            if below is None:
                return None
            at = below
        return Span(0, at.most)

    return sizes
