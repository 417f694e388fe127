"""Planning of quick steps (``_quick.pxd``): like the planner of ``interpreter``, for the nodes that quick steps support."""

from __future__ import annotations

from kas.cel._quick import Called, Chosen, Compared, Computed, Decided, Fixed, Has, Loop, Member, NotFalse, Opposite, Path, Step
from kas.cel.base import BASE
from kas.cel.environment import Variable
from kas.cel.interpreter import CONVERSIONS, text_in
from kas.cel.syntax import SEARCHES, Call, Const, Fold, Ident, ListOf, Node, Select

_COMPARED = frozenset(("_<_", "_<=_", "_>_", "_>=_", "_==_", "_!=_"))
_COMPUTED = frozenset(("_+_", "_-_", "_*_", "_/_", "_%_"))


class _NoneError(Exception):
    """A part of the expression is not supported by quick steps."""


def quick(root: Node) -> Step | None:
    """Return the quick steps of a checked expression; None if it has none."""
    try:
        return _step(root)
    except _NoneError:
        return None


def _step(node: Node) -> Step:
    if node.shared:
        raise _NoneError
    if isinstance(node, Const):
        return Fixed(node.value)
    if isinstance(node, Ident):
        return _named(node.variable)
    if isinstance(node, Select):
        return _selected(node)
    if isinstance(node, Call):
        return _called(node)
    if isinstance(node, Fold):
        return Loop(
            _step(node.range), node.variable, node.second, node.accumulator, _step(node.init), _step(node.condition), _step(node.step),
            _step(node.result),
        )  # fmt: skip
    if isinstance(node, ListOf) and not node.items:
        return Fixed([])  # the range of a binding; quick steps never append to lists
    raise _NoneError


def _named(variable: object) -> Step:
    if not isinstance(variable, Variable) or variable.name.startswith("authorizer"):
        raise _NoneError  # authorizer calls have effects: they may wait, and must run once
    return Fixed(variable.constant) if variable.constant is not None else Path(variable.name, None, ())


def _selected(node: Select) -> Step:
    if node.variable is not None and not node.test:
        return _named(node.variable)
    return Has(_step(node.operand), node.field) if node.test else _longer(node.operand, node.field)


# The interpreter handles lookups of non-strings in maps.
_IN = text_in(BASE.functions["@in"])


def _longer(operand: Node, key: str | int | Step) -> Step:
    at = _step(operand)
    return at.then(key) if isinstance(at, Path) else Path("", at, (key,))


def _called(node: Call) -> Step:
    name = node.function.removeprefix(".")
    given = [node.target, *node.args] if node.target is not None else node.args
    if name == "_[_]":
        key = node.args[1]
        if isinstance(key, Const) and type(key.value) not in (str, int):
            raise _NoneError
        return _longer(node.args[0], key.value if isinstance(key, Const) else _step(key))
    if name == "@in" and isinstance(node.args[1], ListOf):
        return _membership(node)
    function = BASE.functions.get(name)
    if name == "@in":
        function = _IN
    if function is None or name in ("or", "orValue", "_[?_]", "_?._"):
        raise _NoneError
    steps = [_step(a) for a in given]
    if name in SEARCHES and not isinstance(steps[1], Fixed):
        raise _NoneError
    overload = node.overloads[0].id if len(node.overloads) == 1 else ""
    if name in _COMPARED:
        return Compared(name, overload, *steps)
    if name in _COMPUTED:
        return Computed(name, overload, *steps)
    if name in ("_&&_", "_||_"):
        return Decided(name == "_||_", *steps)
    if name == "_?_:_":
        return Chosen(*steps)
    if name == "!_":
        return Opposite(*steps)
    if name == "@not_strictly_false":
        return NotFalse(*steps)
    if name in CONVERSIONS and len(steps) == 1 and isinstance(steps[0], Fixed):
        return Fixed(function.run(steps[0].value))  # cannot fail: the interpreter evaluated it already
    return Called(function, overload, steps)


def _membership(node: Call) -> Step:
    """``x in ['a', 'b']``: costs nothing in the interpreter if the list's type is known."""
    among = node.args[1]
    texts = [x.value for x in among.items if isinstance(x, Const) and type(x.value) is str] if isinstance(among, ListOf) else []
    if len(node.overloads) != 1 or node.overloads[0].id != "in_list" or not texts or not isinstance(among, ListOf):
        raise _NoneError
    if among.optional or len(texts) < len(among.items):
        raise _NoneError
    return Member(_step(node.args[0]), frozenset(texts))
