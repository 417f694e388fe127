"""What the patterns in all expressions of one object may take to compile together."""

from __future__ import annotations

from kas.meta import field
from kas.meta.field import FieldError
from kas.meta.offload import abandoned

UNWANTED = "nobody waits for this any more"  # said to nobody
MOST_PATTERNS = 1_000_000  # instructions: less than a second


class CompileBudget:
    """What is left of it, in instructions."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = MOST_PATTERNS

    def spent(self, path: str) -> list[FieldError]:
        """What is said of an expression that is not compiled any more: others are too large already, or nobody waits for it. Clients that
        have no thread go before it."""
        if abandoned():
            return [field.forbidden(path, UNWANTED)]
        text = f"the patterns of all expressions must compile to {MOST_PATTERNS} instructions at most together"
        return [field.forbidden(path, text)] if self.left < 0 else []
