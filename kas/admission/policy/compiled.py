"""Policies and bindings as they are used: matchers, and expressions that are compiled when they are first evaluated."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

from kas.admission.expressions import Evaluator, Expression, MatchConditions, OutOfBudgetError
from kas.admission.matching import GVK, Matcher
from kas.cel.admission import environment, with_variables
from kas.cel.environment import Environment
from kas.cel.interpreter import PER_CALL_LIMIT
from kas.cel.problems import CostLimitError, EvaluationError
from kas.cel.types import DYN, Type

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
    """A policy of either kind. ``param_kind`` is None for one without parameters."""

    def __init__(self, obj: Obj) -> None:
        spec = obj.get("spec") or {}
        self.name: str = obj["metadata"]["name"]
        self.ignore = spec.get("failurePolicy") == "Ignore"
        constraints = spec.get("matchConstraints") or {}
        self.matcher = Matcher(constraints, constraints.get("resourceRules") or ())
        self.param_kind = _kind_of(spec.get("paramKind"))
        self.conditions = MatchConditions(spec.get("matchConditions") or (), self.param_kind is not None)
        self.variables: list[tuple[str, Expression]] = []
        for variable in spec.get("variables") or ():
            known = functools.partial(self._environment, len(self.variables))
            self.variables.append((variable.get("name") or "", Expression(variable.get("expression") or "", known)))
        self.validations = [
            Validation(
                Expression(v.get("expression") or "", self._environment),
                Expression(v["messageExpression"], self._message_environment) if v.get("messageExpression") else None,
                (v.get("message") or "").strip(), v.get("reason") or "Invalid",
            )
            for v in spec.get("validations") or ()
        ]  # fmt: skip
        self.annotations = [
            Annotation(a.get("key") or "", Expression(a.get("valueExpression") or "", self._environment))
            for a in spec.get("auditAnnotations") or ()
        ]
        self.mutations = [
            Mutation(m.get("patchType") == "JSONPatch", Expression(_mutation(m), self._patch_environment))
            for m in spec.get("mutations") or ()
        ]
        self.if_needed = spec.get("reinvocationPolicy") == "IfNeeded"

    # --- what an expression may name

    def _typed(self, count: int | None) -> dict[str, Type]:
        """The types of the variables, or of the first ``count``: each knows those before it."""
        out: dict[str, Type] = {}
        for name, expression in self.variables[:count]:
            program = expression.program()
            out[name] = DYN if isinstance(program, str) else program.type
        return out

    def _environment(self, count: int | None = None) -> Environment:
        return with_variables(environment(self.param_kind is not None), self._typed(count))

    def _message_environment(self) -> Environment:
        return with_variables(environment(self.param_kind is not None, authorizer=False), self._typed(None))

    def _patch_environment(self) -> Environment:
        return with_variables(environment(self.param_kind is not None, patches=True), self._typed(None))


class Binding:
    """A binding of either kind. ``actions`` are those of a failed validation."""

    def __init__(self, obj: Obj) -> None:
        spec = obj.get("spec") or {}
        self.name: str = obj["metadata"]["name"]
        self.policy: str = spec.get("policyName") or ""
        match = spec.get("matchResources") or {}
        self.matcher = Matcher(match, match.get("resourceRules") or (), open=True)
        self.param_ref: Mapping[str, Any] | None = spec.get("paramRef")
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
    """``variables`` in the expressions of one policy: each is evaluated when it is first looked at, and paid for then."""

    def __init__(self, policy: Policy, evaluator: Evaluator) -> None:
        super().__init__()
        self._declared = dict(policy.variables)
        self._evaluator = evaluator

    def __contains__(self, name: object) -> bool:
        return name in self._declared

    def __getitem__(self, name: str) -> Any:
        found = self.get(name, self)
        if found is self:
            found = self._evaluated(name)
            self[name] = found
        if isinstance(found, EvaluationError):
            raise found
        return found

    def _evaluated(self, name: str) -> Any:
        program = self._declared[name].program()
        if isinstance(program, str):
            return EvaluationError(f'composited variable "{name}" fails to compile: {program}')
        limit = self._evaluator.limit
        value, cost = program.run(self._evaluator.variables, limit)
        if isinstance(value, CostLimitError) and limit < PER_CALL_LIMIT:
            raise value  # this turn of the loop is over: it begins again with all it may cost
        self._evaluator.left -= cost
        if self._evaluator.left < 0:
            raise OutOfBudgetError
        if isinstance(value, EvaluationError):
            return EvaluationError(f'composited variable "{name}" fails to evaluate: {value}')
        return value


def evaluator_of(policy: Policy, variables: Obj, budget: int) -> Evaluator:
    """Evaluates the expressions of a policy about one request."""
    made = Evaluator(variables.copy(), budget, [declared.text for _, declared in policy.variables])
    made.variables["variables"] = Variables(policy, made)
    return made
