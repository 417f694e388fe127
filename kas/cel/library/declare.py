"""How the libraries declare functions, and the costs many of them share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from kas.cel.environment import Ahead, Cost, Function, Overload
from kas.cel.types import Type
from kas.cel.values import size

Functions = dict[str, Function]
TRAVERSAL, REGEX = 0.1, 0.25  # of a character


def on(id: str, args: list[Type], result: Type) -> Overload:
    """An overload called on its first argument."""
    return Overload(id, tuple(args), result, True)


def plain(id: str, args: list[Type], result: Type) -> Overload:
    """An overload without a receiver of its own cost."""
    return Overload(id, tuple(args), result)


class Library:
    """Collects functions by name."""

    def __init__(self) -> None:
        self.functions: Functions = {}

    def __call__(
        self, name: str, *overloads: Overload, cost: Cost | None = None, ahead: Ahead | None = None,
        settled: Mapping[str, Callable[..., Any]] | None = None,
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:  # fmt: skip
        def declared(run: Callable[..., Any]) -> Callable[..., Any]:
            self.functions[name] = Function(name, overloads, run, cost, ahead, settled)
            return run

        return declared


def traversal(n: float) -> int:
    """What walking ``n`` characters or items costs."""
    return math.ceil(n * TRAVERSAL)


def of_first(factor: float = 1) -> Cost:
    """A walk over the first argument."""
    return lambda overload, args, result: traversal(size(args[0]) * factor)


def one(overload: str, args: list[Any], result: Any) -> int:
    """The cost of an overload that costs one unit whatever its arguments."""
    return 1


def regex_cost(text: int, pattern: int) -> int:
    """What matching costs: the text once, times the length of the pattern."""
    return math.ceil((1.0 + text) * TRAVERSAL) * math.ceil(pattern * REGEX)
