"""Validation of literals before evaluation (cel-go ``cel/validator.go``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kas.cel.library.standard import to_duration, to_timestamp
from kas.cel.library.texts import CLAUSES, misfit, render
from kas.cel.problems import CompileError, EvaluationError, Problem
from kas.cel.syntax import SEARCHES, Call, Const, Fold, ListOf, MapOf, Node, Select
from kas.cel.types import Type, type_text
from kas.meta.regex import MOST_INSTRUCTIONS, RegexError, compiled

MOST_PATTERNS = 2 * MOST_INSTRUCTIONS  # in one expression: some 0.1 s


def check_literals(text: str, root: Node) -> int:
    """Check the constant durations, timestamps, patterns and formats of an expression, and that lists and maps are not of mixed types.

    Arguments of ``format`` may be of mixed types. Returns the number of instructions of all patterns. Raises CompileError, also if that
    number exceeds ``MOST_PATTERNS``.
    """
    problems, patterns = list[Problem](), 0
    for node in walk(root):
        if isinstance(node, Call):
            problem = _problem(node)
            if problem is not None:
                problems.append(problem)
            elif node.function in SEARCHES:
                patterns += _instructions(node.args[-1 if node.function == "matches" else 0])
                if patterns > MOST_PATTERNS:
                    raise CompileError(text, [*problems, Problem(node.at, f"patterns compile to more than {MOST_PATTERNS} instructions")])
    _mixed(root, problems, set())
    if problems:
        raise CompileError(text, problems)
    return patterns


def _instructions(pattern: Node) -> int:
    if not isinstance(pattern, Const) or not isinstance(pattern.value, str):
        return 0
    try:
        return compiled(pattern.value).instructions
    except RegexError:
        return 0  # the planner reports it


def _mixed(node: Node, problems: list[Problem], seen: set[int]) -> None:
    if (isinstance(node, Call) and node.function == "format") or not _first(node, seen):
        return
    if isinstance(node, ListOf):
        items = [(x, _inner(x.type) if i in node.optional else x.type) for i, x in enumerate(node.items)]
        problems += _unlike(items)[:1]  # only the first problem of a list is reported
    elif isinstance(node, MapOf) and not node.name:
        pairs = [(k, v, _inner(v.type) if optional else v.type) for k, v, optional in node.entries]
        problems += _unlike([(k, k.type) for k, _, _ in pairs]) + _unlike([(v, t) for _, v, t in pairs])
    for child in below(node):
        _mixed(child, problems, seen)


def _inner(t: Type) -> Type:
    return t.params[0] if t.params else t


def _unlike(items: list[tuple[Node, Type]]) -> list[Problem]:
    """Return a problem for each item whose type differs from the first item's."""
    if not items:
        return []
    first = items[0][1]
    return [Problem(node.at, f"expected type '{type_text(first)}' but found '{type_text(t)}'") for node, t in items[1:] if t != first]


def _problem(node: Call) -> Problem | None:
    if node.function == "format" and node.target is not None and len(node.args) == 1:
        return _format(node, node.target, node.args[0])
    if node.function == "duration" and len(node.args) == 1:
        return _literal(node.args[0], "duration", to_duration)
    if node.function == "timestamp" and len(node.args) == 1:
        return _literal(node.args[0], "timestamp", to_timestamp)
    if node.function == "matches":
        return _literal(node.args[0], "matches", compiled)  # the pattern: the first argument, also of two
    return None


def _format(node: Call, text: Node, args: Node) -> Problem | None:
    """Check a constant format with its arguments: each must fit its clause."""
    if not isinstance(text, Const) or not isinstance(text.value, str) or not isinstance(args, ListOf):
        return None
    items = args.items
    blamed: Node = node

    def show(i: int, letter: str, precision: int | None) -> str:
        nonlocal blamed
        bad = _unfit(items[i], letter)
        if bad is not None:
            blamed = bad
            raise misfit(letter, bad.type)
        return ""

    try:
        used = render(text.value, len(items), show)[1]
    except EvaluationError as e:
        return Problem(blamed.at, str(e))
    if used < len(items):
        return Problem(node.at, f"too many arguments supplied to string.format (expected {used}, got {len(items)})")
    return None


def _unfit(node: Node, letter: str) -> Node | None:
    """Return the argument, or the part of it, that the clause does not accept."""
    if node.type.kind != "dyn" and node.type.kind not in CLAUSES[letter][0]:
        return node
    if letter == "s" and isinstance(node, (ListOf, MapOf)):
        return next((bad for child in below(node) if (bad := _unfit(child, letter)) is not None), None)
    return None


def _literal(arg: Node, function: str, parse: Callable[[Any], object]) -> Problem | None:
    if not isinstance(arg, Const):
        return None
    try:
        parse(arg.value)
    except (EvaluationError, RegexError):
        return Problem(arg.at, f"invalid {function} argument")
    return None


def walk(root: Node) -> Iterator[Node]:
    """Yield the node and all nodes below it, each once, parents first."""
    seen = set[int]()
    left = [root]
    while left:
        node = left.pop()
        if _first(node, seen):
            yield node
            left += reversed(below(node))


def _first(node: Node, seen: set[int]) -> bool:
    """Whether this is the first visit of a node; ``shared`` nodes are met twice."""
    if not node.shared:
        return True
    known = id(node) in seen
    seen.add(id(node))
    return not known


def below(node: Node) -> list[Node]:
    """Return the direct child nodes."""
    if isinstance(node, Select):
        return [node.operand]
    if isinstance(node, Call):
        return [*([node.target] if node.target is not None else []), *node.args]
    if isinstance(node, ListOf):
        return node.items
    if isinstance(node, MapOf):
        return [x for k, v, _ in node.entries for x in ((v,) if node.name else (k, v))]
    if isinstance(node, Fold):
        return [node.range, node.init, node.condition, node.step, node.result]
    return []
