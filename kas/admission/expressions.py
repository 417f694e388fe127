"""The variables of expressions about a request, their evaluation, and match conditions.

Upstream: ``pkg/admission/plugin/cel`` and ``pkg/admission/plugin/webhook/matchconditions``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any

from kas import cel
from kas.admission import Attributes
from kas.admission.celauthorizer import AuthorizerValue, Pending, off_loop
from kas.admission.conditionmetrics import ConditionMetrics
from kas.admission.description import operation_options, request_fields
from kas.admission.matching import Invocation
from kas.admission.versioned import Versioned
from kas.auth.attributes import Authorizer, Outcome
from kas.cel.admission import environment
from kas.cel.expressions import unfit
from kas.cel.types import BOOL, Type
from kas.meta.offload import LOOP_BUDGET, POOL, BudgetSpentError
from kas.meta.waiting import TimeSlice

Obj = dict[str, Any]
# apiserver ``apis/cel/config.go``: RuntimeCELCostBudgetMatchConditions and RuntimeCELCostBudget.
MATCH_CONDITIONS_BUDGET, BUDGET = 2_500_000, 10_000_000
# Cost that may be spent in one loop iteration.
UNITS_PER_TURN = 5_000
# Longer expressions (characters) are not compiled on the event loop; this many take about 5 ms.
LONG = 2_000
OUT_OF_BUDGET = "validation failed due to running out of cost budget, no further validation rules will be run"


class _Request:
    """Computes the variables about one request on first access."""

    __slots__ = ("_a", "_authorizer", "_known", "_objects", "_shown", "made")

    def __init__(self, a: Attributes, shown: Invocation, objects: Versioned, authorizer: Authorizer, known: dict[Any, Outcome]) -> None:
        self._a, self._shown, self._objects, self._authorizer, self._known = a, shown, objects, authorizer, known
        self.made: dict[str, Any] = {}

    def make(self, name: str) -> Any:
        """Return the value of a variable. Raises KeyError for an unknown name."""
        if name == "object":
            return self._objects.values()[0]
        if name == "oldObject":
            return self._objects.values()[1]
        a = self._a
        if name == "request":
            return {**request_fields(a, self._shown), "dryRun": a.dry_run, "options": operation_options(a)}
        if name == "authorizer":
            return AuthorizerValue(self._authorizer, a.user, self._known)
        if name == "authorizer.requestResource":
            return AuthorizerValue(self._authorizer, a.user, self._known).request_resource(a)
        raise KeyError(name)


class Activation(dict[str, Any]):
    """The variables of an expression about a request. Copies share the values of the request's own variables."""

    __slots__ = ("_authorized", "_request")

    def __init__(self, values: Mapping[str, Any], request: _Request, authorized: bool = True) -> None:
        super().__init__(values)
        self._request, self._authorized = request, authorized

    def __missing__(self, name: str) -> Any:
        if not self._authorized and name in ("authorizer", "authorizer.requestResource"):
            raise KeyError(name)
        made = self._request.made
        if name not in made:
            made[name] = self._request.make(name)
        return made[name]

    def copy(self) -> Activation:
        """Return a copy that may be given more variables."""
        return Activation(self, self._request, self._authorized)

    def unauthorized(self) -> Activation:
        """Return a copy without the authorizer."""
        return Activation(self, self._request, False)


def activation(
    a: Attributes, shown: Invocation, objects: Versioned, authorizer: Authorizer, namespace: Obj | None = None,
    known: dict[Any, Outcome] | None = None,
) -> Activation:  # fmt: skip
    """Return the variables of an expression about a request.

    ``objects`` are in the version ``shown``; ``namespace`` is the Namespace object. ``known`` caches the authorizer's answers and may be
    shared.
    """
    return Activation({"namespaceObject": namespace}, _Request(a, shown, objects, authorizer, {} if known is None else known))


class Failed(Exception):
    """The evaluation of an expression failed, or it does not compile. ``str`` is upstream's message."""


class OutOfBudgetError(Failed):
    """The expressions together exceed the cost budget."""

    def __init__(self) -> None:
        super().__init__(OUT_OF_BUDGET)


class Expression:
    """An expression, compiled on first use. One that does not compile or has a type not in ``wanted`` (an older server accepted it) fails
    at every evaluation."""

    __slots__ = ("_before", "_compiled", "_environment", "_wanted", "text")

    def __init__(
        self, text: str, environment: Callable[[], cel.Environment], before: Callable[[], int] = lambda: 0, wanted: Sequence[Type] = ()
    ) -> None:
        """``before`` returns how many characters of other expressions must be compiled first. Empty ``wanted`` allows any type."""
        self.text, self._environment, self._before, self._wanted = text, environment, before, wanted
        self._compiled: cel.Program | str | None = None

    def program(self) -> cel.Program | str:
        """Return the program, or the reason why there is none."""
        if self._compiled is None:
            try:
                program = cel.compile(self.text, self._environment())
                self._compiled = unfit(program.type, self._wanted) if self._wanted and program.type not in self._wanted else program
            except cel.CompileError as e:
                self._compiled = f"compilation failed: {e}"
            except cel.ProgramError as e:
                self._compiled = f"program instantiation failed: {e}"
        return self._compiled

    async def ready(self) -> cel.Program | str:
        """Return ``program()``; a long expression, or one with long patterns, is compiled in the thread pool."""
        if self._compiled is not None:
            return self._compiled
        if len(self.text) + self._before() <= LONG:
            with contextlib.suppress(BudgetSpentError):
                return LOOP_BUDGET.within(self.program)
        return await POOL.run(self.program)


class Evaluator:
    """Evaluates the expressions about one request within one cost budget."""

    def __init__(self, variables: Obj, budget: int = BUDGET) -> None:
        self.variables, self.left = variables, budget
        self._last, self._time_slice = budget, TimeSlice()
        self.limit = UNITS_PER_TURN  # of each composited variable

    async def value(self, expression: Expression) -> Any:
        """Return the value of an expression. Raises Failed, and OutOfBudgetError if the budget is exhausted."""
        program = await expression.ready()
        if isinstance(program, str):
            raise Failed(f"compilation error: {program}")
        while True:
            try:
                value, cost = await self._run(program)
            except Pending as e:
                await e.wait()
            except RecursionError:  # variables that refer to variables
                value, cost = cel.EvaluationError("expression recursion limit exceeded"), 0
                break
            else:
                break
        self.left -= cost
        if self._last - self.left > UNITS_PER_TURN or self._time_slice.over:
            self._last = self.left
            await self._time_slice.pause()  # yield to other tasks
        if self.left < 0:
            raise OutOfBudgetError
        if isinstance(value, cel.EvaluationError):
            raise Failed(f"expression '{expression.text}' resulted in error: {value}")
        return value

    async def _run(self, program: cel.Program) -> tuple[Any, int]:
        """Run the program on the event loop; if it exceeds one turn, run it again in the thread pool, up to the first call of an
        authorizer, which belongs to the event loop."""
        value, cost = program.run(self.variables, UNITS_PER_TURN)
        if not isinstance(value, cel.CostLimitError):
            return value, cost
        self.limit = cel.PER_CALL_LIMIT
        try:
            return await POOL.run(off_loop, lambda: program.run(self.variables))
        finally:
            self.limit = UNITS_PER_TURN


class MatchConditions:
    """The match conditions of a webhook or policy."""

    def __init__(self, conditions: Sequence[Mapping[str, Any]], params: bool = False) -> None:
        self._conditions = [Expression(c.get("expression") or "", lambda: environment(params), wanted=(BOOL,)) for c in conditions]

    def __bool__(self) -> bool:
        return bool(self._conditions)

    async def match(self, evaluator: Evaluator, counts: ConditionMetrics, name: str, operation: str) -> bool:
        """Return whether all conditions are true.

        A false condition decides, even if others fail; otherwise a failure raises Failed. Both are counted under ``name``, the owner of
        the conditions.
        """
        began, holds = monotonic(), False
        try:
            holds = await self._hold(evaluator, lambda: counts.failed(name, operation))
        finally:
            if not holds:
                counts.evaluated(name, operation, monotonic() - began)
        return holds

    async def _hold(self, evaluator: Evaluator, counted: Callable[[], None]) -> bool:
        failed: list[str] = []
        for condition in self._conditions:
            try:
                if await evaluator.value(condition) is False:
                    return False
            except OutOfBudgetError:
                raise
            except Failed as e:
                failed.append(str(e))
                counted()
        if failed:
            texts = list(dict.fromkeys(failed))
            raise Failed(texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]")
        return True
