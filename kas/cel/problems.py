"""Problems of expressions and their positions: cel-go's ``common.Errors``, printed as it prints them."""

from __future__ import annotations

import bisect
from typing import Self

from kas.meta.records import NamedTuple

MAX_SHOWN = 100
MAX_LINE = 16_384  # bytes of a source line to show
NOWHERE = -1  # of problems without a position
BEFORE = -2  # of problems with nodes that are not in the text


class Problem(NamedTuple):
    """A problem; ``at`` is its offset in code points."""

    at: int
    message: str


class CompileError(Exception):
    """The expression does not compile; ``str`` is what cel-go prints."""

    def __init__(self, text: str, problems: list[Problem]) -> None:
        super().__init__(render(text, problems))
        self.problems = problems


class EvaluationError(Exception):
    """The error that an expression evaluates to.

    Keep a ``bare`` one and raise it ``again``: a traceback refers to its frames and so to all evaluated values until the garbage collector
    breaks the cycle, and megabytes of plain strings do not trigger a collection.
    """

    def bare(self) -> Self:
        """Return itself, without traceback and context."""
        self.__traceback__ = self.__context__ = None
        return self

    def again(self) -> EvaluationError:
        """Return a new error with the same arguments."""
        return EvaluationError(*self.args)


class CostLimitError(EvaluationError):
    """An evaluation exceeded its cost limit."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")

    def again(self) -> CostLimitError:
        """Another one."""
        return CostLimitError()


def render(text: str, problems: list[Problem]) -> str:
    """Return the first problems in the order of their positions, each with its line and a pointer below it."""
    lines = text.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    placed = []
    for p in problems[:MAX_SHOWN]:
        if p.at == NOWHERE:
            placed.append((-2, -1, p.message))
        elif p.at == BEFORE:
            placed.append((0, -1, p.message))
        else:
            row = bisect.bisect_right(starts, p.at, 0, len(lines)) - 1
            placed.append((row, p.at - starts[row], p.message))
    placed.sort(key=lambda x: (x[0], x[1]))
    shown = [_shown(lines, row, column, message) for row, column, message in placed]
    if len(problems) > MAX_SHOWN:
        shown.append(f"{len(problems) - MAX_SHOWN} more errors were truncated")
    return "\n".join(shown)


def _shown(lines: list[str], row: int, column: int, message: str) -> str:
    head = f"ERROR: <input>:{row + 1}:{column + 1}: {message}"
    if row < 0:
        return head
    line = lines[row]
    if (not line and len(lines) == 1) or len(line.encode()) > MAX_LINE:
        return head
    # Wide characters get wide dots.
    dots = "".join("．" if len(c.encode()) > 1 else "." for c in line[: max(column, 0)])
    pointer = "＾" if 0 <= column < len(line) and len(line[column].encode()) > 1 else "^"
    return f"{head}\n | {line.replace(chr(9), ' ')}\n | {dots}{pointer}"
