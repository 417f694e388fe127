"""Evaluation of one ValidatingAdmissionPolicy for one request (upstream ``policy/validating/validator.go``)."""

from __future__ import annotations

from time import monotonic
from typing import Any

from kas.admission import Attributes
from kas.admission.conditionmetrics import ConditionMetrics
from kas.admission.expressions import BUDGET, MATCH_CONDITIONS_BUDGET, Activation, Evaluator, Failed, OutOfBudgetError
from kas.admission.policy.compiled import Policy, Validation, evaluator_of
from kas.meta.records import NamedTuple

Obj = dict[str, Any]
MAX_MESSAGE_B = 5 * 1024
MAX_ANNOTATION_B = 10 * 1024


class Decision(NamedTuple):
    """The result of one validation, which took ``seconds``. ``denied`` is "" if it holds, else the message; ``reason`` is the reason of
    the refusal; ``failed`` says that the evaluation failed."""

    denied: str
    reason: str = ""
    failed: bool = False
    seconds: float = 0.0


_HOLDS = Decision("")


class Outcome(NamedTuple):
    """The result of a policy: a decision per validation, and audit annotations. ``failed`` are annotations whose evaluation failed; they
    deny the request, whatever the binding's actions are."""

    decisions: list[Decision]
    annotations: list[tuple[str, str]]
    failed: list[Decision]


async def evaluate(policy: Policy, a: Attributes, about: Activation, param: Obj | None, conditions: ConditionMetrics) -> Outcome:
    """Evaluate a policy. ``about`` are the variables shared by all policies that see the request in this version.

    Does not raise: failures become decisions, or are dropped if the policy's failure policy is Ignore.
    """
    variables = about.copy()
    variables["params"] = param
    try:
        seen = variables.copy()
        seen["namespaceObject"] = None  # not visible to match conditions, as upstream
        if policy.conditions and not await policy.conditions.match(
            Evaluator(seen, MATCH_CONDITIONS_BUDGET), conditions, policy.name, a.operation
        ):
            return Outcome([], [], [])
        decisions = await _decisions(policy, variables)
        annotations, failed = await _annotations(policy, variables) if policy.annotations else ([], [])
    except Failed as e:
        # Raised by the conditions, or because the budget is exhausted.
        return Outcome(_failed(policy, e), [], [])
    return Outcome(decisions, annotations, failed)


def _failed(policy: Policy, e: Failed) -> list[Decision]:
    return [] if policy.ignore else [Decision(str(e), "", True)]


async def _decisions(policy: Policy, variables: Activation) -> list[Decision]:
    """Return the decision of each validation. Raises OutOfBudgetError for the validations themselves."""
    evaluator = evaluator_of(policy, variables, BUDGET)
    decisions = [await _decided(validation, evaluator, policy) for validation in policy.validations]
    if not any(decision.reason for decision in decisions):
        return decisions
    # Messages are evaluated after all validations, from the remaining budget and without the authorizer; so their variables are evaluated
    # again.
    evaluator = evaluator_of(policy, variables.unauthorized(), evaluator.left)
    try:
        return [
            decision._replace(denied=await _message(validation, evaluator)) if decision.reason else decision
            for validation, decision in zip(policy.validations, decisions, strict=True)
        ]
    except OutOfBudgetError as e:
        words = "" if policy.ignore else f"failed messageExpression: {e}"
        return [decision if decision.failed else Decision(words, "", True, decision.seconds) for decision in decisions]


async def _decided(validation: Validation, evaluator: Evaluator, policy: Policy) -> Decision:
    """Evaluate a validation; a denial has a reason, but no message yet."""
    began = monotonic()
    try:
        value = await evaluator.value(validation.expression)
    except OutOfBudgetError:
        raise
    except Failed as e:
        return Decision("" if policy.ignore else str(e), "", True, monotonic() - began)
    return _HOLDS if value is True else Decision("", validation.reason, False, monotonic() - began)


async def _annotations(policy: Policy, variables: Activation) -> tuple[list[tuple[str, str]], list[Decision]]:
    """Return audit annotations, and decisions for those that failed. They have their own budget and no authorizer. Raises
    OutOfBudgetError."""
    annotations: list[tuple[str, str]] = []
    failed: list[Decision] = []
    evaluator = evaluator_of(policy, variables.unauthorized(), BUDGET)
    for key, value in policy.annotations:
        try:
            text = await evaluator.value(value)
        except OutOfBudgetError:
            raise
        except Failed as e:
            failed += _failed(policy, e)
        else:
            text = text.strip() if isinstance(text, str) else ""
            if text:
                annotations.append((key, text.encode()[:MAX_ANNOTATION_B].decode("utf-8", "ignore")))
    return annotations, failed


async def _message(validation: Validation, evaluator: Evaluator) -> str:
    """Return the message of a denial: the messageExpression's value, else the policy's message, else the expression. Raises
    OutOfBudgetError."""
    message = ""
    if validation.message_expression is not None:
        try:
            value = await evaluator.value(validation.message_expression)
        except OutOfBudgetError:
            raise
        except Failed:
            value = ""
        message = value.strip() if isinstance(value, str) else ""
        if len(message.encode()) > MAX_MESSAGE_B or "\n" in message:
            message = ""
    return message or validation.message or f"failed expression: {validation.expression.text.strip()}"
