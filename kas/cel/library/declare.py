"""Declaration of library functions, and cost functions that several libraries use."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from kas.cel.environment import Ahead, Cost, Function, Overload
from kas.cel.types import Type
from kas.cel.values import size

Functions = dict[str, Function]
TRAVERSAL, REGEX = 0.1, 0.25  # cost of a character


def on(id: str, args: list[Type], result: Type) -> Overload:
    """Return an overload that is called on its first argument."""
    return Overload(id, tuple(args), result, True)


def plain(id: str, args: list[Type], result: Type) -> Overload:
    """Return an overload without a receiver."""
    return Overload(id, tuple(args), result)


class Library:
    """A collection of functions by name."""

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
    """Return the cost of traversing ``n`` characters or items."""
    return math.ceil(n * TRAVERSAL)


def of_first(factor: float = 1) -> Cost:
    """Return the cost function of a traversal of the first argument."""
    return lambda overload, args, result: traversal(size(args[0]) * factor)


def one(overload: str, args: list[Any], result: Any) -> int:
    """The cost function of overloads that always cost one unit."""
    return 1


def regex_cost(text: int, pattern: int) -> int:
    """Return the cost of a match: a traversal of the text times the length of the pattern."""
    return math.ceil((1.0 + text) * TRAVERSAL) * math.ceil(pattern * REGEX)
