"""The Common Expression Language as Kubernetes uses it: cel-spec, with the libraries and costs of apiserver ``pkg/cel``.

    program = compile("object.spec.replicas <= 5", BASE.extended({"object": DYN}))   # CompileError
    program.type                                                                      # bool
    value, cost = program.evaluate({"object": {...}})                                 # EvaluationError

Expressions come from clients: text, depth, time (RE2) and work (the cost limit) are bounded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kas.cel.base import BASE
from kas.cel.checker import check
from kas.cel.cost import Sizes, Span, estimate
from kas.cel.environment import Environment
from kas.cel.interpreter import PER_CALL_LIMIT, Frame, ProgramError, Step, plan
from kas.cel.literals import check_literals
from kas.cel.parser import parse
from kas.cel.problems import CompileError, CostLimitError, EvaluationError
from kas.cel.quick import quick
from kas.cel.room import roomy
from kas.cel.syntax import Node
from kas.cel.types import Type
from kas.meta.offload import TURN, BudgetSpentError

__all__ = [
    "BASE", "PER_CALL_LIMIT", "CompileError", "CostLimitError", "Environment", "EvaluationError", "Program", "ProgramError", "Sizes",
    "compile",
]  # fmt: skip


Quick = Callable[[dict[str, Any], int], tuple[Any, int] | None]


def _no_way(variables: dict[str, Any], limit: int) -> None:
    """The quick way of an expression that has none."""


class Program:
    """A compiled expression; immutable to who uses it, safe to share."""

    __slots__ = ("_quick", "_step", "patterns", "root", "type")

    def __init__(self, step: Step, type: Type, root: Node, patterns: int = 0) -> None:
        """``patterns``: instructions of those that are written out."""
        self._step, self.type, self.root, self.patterns = step, type, root, patterns
        self._quick: Quick | None = None  # made when it first runs: most rules of a definition never do

    def _made(self) -> Quick:
        way = quick(self.root)
        made = self._quick = _no_way if way is None else way.evaluate
        return made

    def estimate(self, sizes: Sizes) -> Span:
        """The least and the most it may cost; ``sizes`` knows how large what its variables hold may be."""
        return roomy(lambda: estimate(self.root, sizes))

    def run(self, variables: dict[str, Any], limit: int = PER_CALL_LIMIT) -> tuple[Any, int]:
        """The value, or the EvaluationError it came to, and the cost. Raises RecursionError where variables that are expressions
        themselves stand on more of one another than there is room for."""
        try:
            return self.run_within(variables, limit)
        except RecursionError:
            return roomy(lambda: self._walked(variables, limit))

    def run_within(self, variables: dict[str, Any], limit: int) -> tuple[Any, int]:
        """``run`` in the middle of another one's, which finds more room for both: each that did would begin all below it again."""
        found = (self._quick or self._made())(variables, limit)
        return found if found is not None else self._walked(variables, limit)

    def _walked(self, variables: dict[str, Any], limit: int) -> tuple[Any, int]:
        frame = Frame(variables, limit)
        try:
            return self._step(frame), frame.cost
        except EvaluationError as e:
            return e.bare(), frame.cost

    def run_in_turn(self, variables: dict[str, Any]) -> tuple[Any, int]:
        """As ``run``. Raises BudgetSpentError where a turn of the loop is bounded and does not do."""
        left = TURN.left
        if left is None:
            return self.run(variables)
        value, cost = self.run(variables, min(left, PER_CALL_LIMIT))
        if isinstance(value, CostLimitError):
            raise BudgetSpentError
        TURN.spend(cost)
        return value, cost

    def evaluate(self, variables: dict[str, Any], limit: int = PER_CALL_LIMIT) -> tuple[Any, int]:
        """(value, cost). Raises EvaluationError."""
        value, cost = self.run(variables, limit)
        if isinstance(value, EvaluationError):
            raise value.again()
        return value, cost


def compile(text: str, env: Environment) -> Program:
    """Raises CompileError for what does not parse or check, ProgramError where a constant has no value."""
    return roomy(lambda: _compile(text, env))


def _compile(text: str, env: Environment) -> Program:
    root = parse(text, env.bindings)
    t = check(env, text, root)
    patterns = check_literals(text, root)
    return Program(plan(root, env.functions, env.text_keys), t, root, patterns)
