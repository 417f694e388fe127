"""The limit on the total compiled size of the regular expressions in one object's CEL expressions."""

from __future__ import annotations

from kas.meta import field
from kas.meta.field import FieldError
from kas.meta.offload import abandoned

UNWANTED = "nobody waits for this any more"  # never reaches a client: the request was abandoned
MOST_PATTERNS = 1_000_000  # instructions: less than a second


class CompileBudget:
    """The remaining budget, in instructions of compiled patterns."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = MOST_PATTERNS

    def spent(self, path: str) -> list[FieldError]:
        """Errors for an expression that must not be compiled: the budget is used up, or the request was abandoned. May suspend the job in
        favour of clients that have no thread (``offload.abandoned``).
        """
        if abandoned():
            return [field.forbidden(path, UNWANTED)]
        text = f"the patterns of all expressions must compile to {MOST_PATTERNS} instructions at most together"
        return [field.forbidden(path, text)] if self.left < 0 else []
