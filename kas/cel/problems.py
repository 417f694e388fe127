"""What is wrong with an expression, and where: cel-go's ``common.Errors`` as it prints them."""

from __future__ import annotations

import bisect
from typing import Self

from kas.meta.records import NamedTuple

MAX_SHOWN = 100
MAX_LINE = 16_384  # bytes of a line that is shown
NOWHERE = -1  # where problems are that have no place
BEFORE = -2  # and those of what was not written


class Problem(NamedTuple):
    """``at`` is an offset in code points."""

    at: int
    message: str


class CompileError(Exception):
    """An expression that does not compile; ``str`` is what cel-go prints of it."""

    def __init__(self, text: str, problems: list[Problem]) -> None:
        super().__init__(render(text, problems))
        self.problems = problems


class EvaluationError(Exception):
    """What an expression came to instead of a value. Who keeps one keeps it ``bare``, and raises it ``again``: the frames it went through
    hold it, and all that is evaluated, until somebody looks for cycles, which megabytes of plain texts give no reason to."""

    def bare(self) -> Self:
        """Itself, without where it came from."""
        self.__traceback__ = self.__context__ = None
        return self

    def again(self) -> EvaluationError:
        """One that says the same."""
        return EvaluationError(*self.args)


class CostLimitError(EvaluationError):
    """An evaluation used up the cost it was given."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")

    def again(self) -> CostLimitError:
        """Another one."""
        return CostLimitError()


def render(text: str, problems: list[Problem]) -> str:
    """The first problems in the order of their places, each with its line and a pointer below it."""
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
    # Wide characters are pointed at with wide dots.
    dots = "".join("．" if len(c.encode()) > 1 else "." for c in line[: max(column, 0)])
    pointer = "＾" if 0 <= column < len(line) and len(line[column].encode()) > 1 else "^"
    return f"{head}\n | {line.replace(chr(9), ' ')}\n | {dots}{pointer}"
