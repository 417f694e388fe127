"""Compiled policies and bindings: matchers, and expressions that are compiled when they are first evaluated."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from kas.admission.expressions import Evaluator, Expression, MatchConditions, OutOfBudgetError
from kas.admission.matching import GVK, Matcher
from kas.admission.policy.params import ParamRef
from kas.cel.admission import OBJECT, PATCH, environment, seen, with_variables
from kas.cel.environment import Environment
from kas.cel.interpreter import PER_CALL_LIMIT
from kas.cel.problems import CostLimitError, EvaluationError
from kas.cel.types import BOOL, DYN, NULL, STRING, Type, list_of
from kas.meta.records import NamedTuple

Obj = dict[str, Any]


class Validation(NamedTuple):
    """``validations[]``."""

    expression: Expression
    message_expression: Expression | None
    message: str
    reason: str


class Annotation(NamedTuple):
    """``auditAnnotations[]``."""

    key: str
    value: Expression


class Mutation(NamedTuple):
    """``mutations[]``: the expression of a JSON patch, or of an object to apply."""

    json_patch: bool
    expression: Expression


class Policy:
    """A policy of either kind. ``param_kind`` is None for a policy without parameters."""

    def __init__(self, obj: Obj) -> None:
        spec = obj.get("spec") or {}
        self.name: str = obj["metadata"]["name"]
        self.ignore = spec.get("failurePolicy") == "Ignore"
        constraints = spec.get("matchConstraints") or {}
        self.matcher = Matcher(constraints, constraints.get("resourceRules") or ())
        self.param_kind = _kind_of(spec.get("paramKind"))
        self.conditions = MatchConditions(spec.get("matchConditions") or (), self.param_kind is not None)
        # Each variable may refer to those before it: their types are collected as they are compiled, once and in order.
        self.variables = [
            (v.get("name") or "", Expression(v.get("expression") or "", self._variable_environment)) for v in spec.get("variables") or ()
        ]
        self._types: dict[str, Type] = {}
        self._compiled = 0  # number of variables
        self._compiling = threading.Lock()  # expressions are compiled on the event loop, large ones in threads
        self.declared = dict(self.variables)
        self._characters = sum(len(variable.text) for _, variable in self.variables)
        self.validations = [
            Validation(
                self._expression(v.get("expression") or "", self._environment, BOOL),
                self._expression(v["messageExpression"], self._message_environment, STRING) if v.get("messageExpression") else None,
                (v.get("message") or "").strip(), v.get("reason") or "Invalid",
            )
            for v in spec.get("validations") or ()
        ]  # fmt: skip
        self.annotations = [
            Annotation(a.get("key") or "", self._expression(a.get("valueExpression") or "", self._environment, STRING, NULL))
            for a in spec.get("auditAnnotations") or ()
        ]
        self.mutations = [
            Mutation(patch, self._expression(_mutation(m), self._patch_environment, list_of(PATCH) if patch else OBJECT))
            for m in spec.get("mutations") or ()
            for patch in (m.get("patchType") == "JSONPatch",)
        ]
        self.if_needed = spec.get("reinvocationPolicy") == "IfNeeded"

    # --- what an expression may name

    def _expression(self, text: str, known: Callable[[], Environment], *wanted: Type) -> Expression:
        return Expression(text, known, self._pending, wanted)

    def _pending(self) -> int:
        return self._characters if self._compiled < len(self.variables) else 0

    def _typed(self) -> dict[str, Type]:
        """Return the types of all variables, compiling them if necessary."""
        with self._compiling:
            for name, variable in self.variables[self._compiled :]:
                program = variable.program()
                self._types[name] = DYN if isinstance(program, str) else seen(program.type)
                self._compiled += 1
        return self._types

    def _variable_environment(self) -> Environment:
        """Return the environment of the variable that is compiled next."""
        return with_variables(environment(self.param_kind is not None), self._types)

    def _environment(self) -> Environment:
        return with_variables(environment(self.param_kind is not None), self._typed())

    def _message_environment(self) -> Environment:
        return with_variables(environment(self.param_kind is not None, authorizer=False), self._typed())

    def _patch_environment(self) -> Environment:
        return with_variables(environment(self.param_kind is not None, patches=True), self._typed())


class Binding:
    """A binding of either kind. ``actions`` are the validation actions."""

    def __init__(self, obj: Obj) -> None:
        spec = obj.get("spec") or {}
        self.name: str = obj["metadata"]["name"]
        self.policy: str = spec.get("policyName") or ""
        match = spec.get("matchResources") or {}
        self.matcher = Matcher(match, match.get("resourceRules") or (), open=True)
        self.param_ref = ParamRef(spec["paramRef"]) if spec.get("paramRef") is not None else None
        self.actions: list[str] = spec.get("validationActions") or []


def _kind_of(kind: Mapping[str, Any] | None) -> GVK | None:
    if kind is None:
        return None
    group, _, version = (kind.get("apiVersion") or "").rpartition("/")
    return group, version, kind.get("kind") or ""


def _mutation(mutation: Mapping[str, Any]) -> str:
    own = mutation.get("jsonPatch" if mutation.get("patchType") == "JSONPatch" else "applyConfiguration") or {}
    return own.get("expression") or ""


class Variables(dict[str, Any]):
    """``variables`` in the expressions of one policy: each is evaluated on first access, at the expression's cost."""

    def __init__(self, policy: Policy, evaluator: Evaluator) -> None:
        super().__init__()
        self._declared = policy.declared
        # A weak reference, since the evaluator refers to these variables: a cycle would keep the request's object until a garbage
        # collection.
        self._evaluator_of = weakref.ref(evaluator)

    def __contains__(self, name: object) -> bool:
        return name in self._declared

    def __getitem__(self, name: str) -> Any:
        found = self.get(name, self)
        if found is self:
            found = self._evaluated(name)
            self[name] = found
        if isinstance(found, EvaluationError):
            raise found.again()
        return found

    def _evaluated(self, name: str) -> Any:
        program = self._declared[name].program()
        if isinstance(program, str):
            return EvaluationError(f'composited variable "{name}" fails to compile: {program}')
        evaluator = self._evaluator_of()
        assert evaluator is not None  # it is running this evaluation
        limit = evaluator.limit
        value, cost = program.run_within(evaluator.variables, limit)
        if isinstance(value, CostLimitError) and limit < PER_CALL_LIMIT:
            raise value.again()  # this loop iteration is over; the evaluation restarts with the full limit
        evaluator.left -= cost
        if evaluator.left < 0:
            raise OutOfBudgetError
        if isinstance(value, EvaluationError):
            return EvaluationError(f'composited variable "{name}" fails to evaluate: {value}')
        return value


def evaluator_of(policy: Policy, variables: Obj, budget: int) -> Evaluator:
    """Return an evaluator for the expressions of a policy about one request."""
    made = Evaluator(variables.copy(), budget)
    made.variables["variables"] = Variables(policy, made)
    return made
