"""Match conditions of authorization webhooks: CEL expressions over the review that would be sent.

Upstream: apiserver ``pkg/authorization/cel``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kas.auth.attributes import aggregate
from kas.cel import CompileError, EvaluationError, Program, ProgramError
from kas.cel import compile as compile_cel
from kas.cel.authorization import ENVIRONMENT
from kas.cel.types import BOOL
from kas.meta.field import GO_SPACE, FieldError, child, duplicate, index, invalid, required, too_many
from kas.meta.records import NamedTuple

MAX_CONDITIONS = 64


class Verdict(NamedTuple):
    """``matches`` says whether to call the webhook; it is undecided if there is an ``error``."""

    matches: bool
    error: str = ""


class MatchConditions:
    """Compiled conditions, all of which must be true."""

    def __init__(self, programs: Sequence[tuple[str, Program]]) -> None:
        self._programs = tuple(programs)

    def __bool__(self) -> bool:
        return bool(self._programs)

    def match(self, spec: dict[str, Any]) -> Verdict:
        """Evaluate the conditions for a review with this spec. A false condition decides, even if others before it failed.

        Raises BudgetSpentError if the cost budget of the loop iteration does not suffice.
        """
        variables = {"request": _shown(spec)}
        errors = []
        for text, program in self._programs:
            value, _ = program.run_in_turn(variables)
            if isinstance(value, EvaluationError):
                errors.append(f"cel evaluation error: expression '{text}' resulted in error: {value}")
            elif value is not True:
                return Verdict(False)
        return Verdict(not errors, aggregate(errors))


def compiled(expressions: Sequence[str], path: str) -> tuple[MatchConditions, list[FieldError]]:
    """Compile the conditions of one webhook and return the errors; ``path`` is the field path of its authorizer."""
    at = child(path, "matchConditions")
    if len(expressions) > MAX_CONDITIONS:
        return MatchConditions(()), [too_many(at, len(expressions), MAX_CONDITIONS)]
    found: list[FieldError] = []
    programs: list[tuple[str, Program]] = []
    seen: set[str] = set()
    for i, text in enumerate(expressions):
        where = child(index(at, i), "expression")
        if not text.strip(GO_SPACE):
            found.append(required(where))
        elif text in seen:
            found.append(duplicate(where, text))
        else:
            seen.add(text)
            program = _program(text)
            if isinstance(program, str):
                found.append(invalid(where, text, program))
            else:
                programs.append((text, program))
    return MatchConditions(programs), found


def _program(text: str) -> Program | str:
    """Return the program, or the reason why it is not valid."""
    try:
        program = compile_cel(text, ENVIRONMENT)
    except CompileError as e:
        return f"compilation failed: {e}"
    except ProgramError as e:
        return f"instantiation failed: {e}"
    return program if program.type == BOOL else f"must evaluate to bool but got {program.type}"


_RESOURCE = dict.fromkeys(("namespace", "verb", "group", "version", "resource", "subresource", "name"), "")
_SUBJECT: dict[str, Any] = {"user": "", "groups": [], "extra": {}, "uid": ""}


def _shown(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the spec with defaults for every field, so that expressions need not test for presence."""
    resource, other = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    out = {**_SUBJECT, **spec}
    if resource is not None:
        out["resourceAttributes"] = shown = {**_RESOURCE, **resource}
        for name in ("fieldSelector", "labelSelector"):
            if name in resource:
                shown[name] = {"requirements": [{"values": [], **r} for r in resource[name]["requirements"]]}
    if other is not None:
        out["nonResourceAttributes"] = {"path": "", "verb": "", **other}
    return out
