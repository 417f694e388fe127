"""The Common Expression Language as Kubernetes uses it: cel-spec, with the libraries and costs of apiserver ``pkg/cel``.

    program = compile("object.spec.replicas <= 5", BASE.extended({"object": DYN}))   # CompileError
    program.type                                                                      # bool
    value, cost = program.evaluate({"object": {...}})                                 # EvaluationError

Expressions come from clients, so their text, depth, time (RE2) and work (the cost limit) are bounded.
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
from kas.cel.stackdepth import with_deep_stack
from kas.cel.syntax import Node
from kas.cel.types import Type
from kas.meta.offload import LOOP_BUDGET, BudgetSpentError

__all__ = [
    "BASE", "PER_CALL_LIMIT", "CompileError", "CostLimitError", "Environment", "EvaluationError", "Program", "ProgramError", "Sizes",
    "compile",
]  # fmt: skip


Quick = Callable[[dict[str, Any], int], tuple[Any, int] | None]


def _no_way(variables: dict[str, Any], limit: int) -> None:
    """Stand-in for the quick steps of an expression that has none."""


class Program:
    """A compiled expression; effectively immutable and safe to share."""

    __slots__ = ("_quick", "_step", "patterns", "root", "type")

    def __init__(self, step: Step, type: Type, root: Node, patterns: int = 0) -> None:
        """``patterns``: the number of instructions of its constant patterns."""
        self._step, self.type, self.root, self.patterns = step, type, root, patterns
        self._quick: Quick | None = None  # made on the first run: most rules of a definition never run

    def _made(self) -> Quick:
        way = quick(self.root)
        made = self._quick = _no_way if way is None else way.evaluate
        return made

    def estimate(self, sizes: Sizes) -> Span:
        """Return the least and the most the expression may cost; ``sizes`` returns the possible sizes of its variables' contents."""
        return with_deep_stack(lambda: estimate(self.root, sizes))

    def run(self, variables: dict[str, Any], limit: int = PER_CALL_LIMIT) -> tuple[Any, int]:
        """Return (value or EvaluationError, cost).

        Raises RecursionError if variables that are expressions themselves depend on each other too deeply.
        """
        try:
            return self.run_within(variables, limit)
        except RecursionError:
            return with_deep_stack(lambda: self._walked(variables, limit))

    def run_within(self, variables: dict[str, Any], limit: int) -> tuple[Any, int]:
        """As ``run``, inside another run. Only the outermost run starts over with more stack depth: nested ones would multiply the work."""
        found = (self._quick or self._made())(variables, limit)
        return found if found is not None else self._walked(variables, limit)

    def _walked(self, variables: dict[str, Any], limit: int) -> tuple[Any, int]:
        frame = Frame(variables, limit)
        try:
            return self._step(frame), frame.cost
        except EvaluationError as e:
            return e.bare(), frame.cost

    def run_in_turn(self, variables: dict[str, Any]) -> tuple[Any, int]:
        """As ``run``. Raises BudgetSpentError if the loop iteration is bounded and what is left of it does not suffice."""
        left = LOOP_BUDGET.left
        if left is None:
            return self.run(variables)
        value, cost = self.run(variables, min(left, PER_CALL_LIMIT))
        if isinstance(value, CostLimitError):
            raise BudgetSpentError
        LOOP_BUDGET.spend(cost)
        return value, cost

    def evaluate(self, variables: dict[str, Any], limit: int = PER_CALL_LIMIT) -> tuple[Any, int]:
        """Return (value, cost). Raises EvaluationError."""
        value, cost = self.run(variables, limit)
        if isinstance(value, EvaluationError):
            raise value.again()
        return value, cost


def compile(text: str, env: Environment) -> Program:
    """Compile an expression. Raises CompileError if it does not parse or check, ProgramError if a constant part has no value."""
    return with_deep_stack(lambda: _compile(text, env))


def _compile(text: str, env: Environment) -> Program:
    root = parse(text, env.bindings)
    t = check(env, text, root)
    patterns = check_literals(text, root)
    return Program(plan(root, env.functions, env.text_keys), t, root, patterns)
