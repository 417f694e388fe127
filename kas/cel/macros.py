"""Macros: calls that the parser expands (cel-go ``parser/macro.go``, ``cel/library.go`` and ``ext/comprehensions.go``)."""

from __future__ import annotations

from collections.abc import Callable

from kas.cel.problems import Problem
from kas.cel.syntax import Call, Const, Fold, Ident, ListOf, MapOf, Node, Select

ACCUMULATOR = "@result"


class MacroError(Exception):
    """A macro was called with invalid arguments; ``problem`` is the position and the reason."""

    def __init__(self, at: int, message: str) -> None:
        self.problem = Problem(at, message)


Macro = Callable[[int, Node | None, list[Node]], Node]


def _name(node: Node, message: str = "argument must be a simple name") -> str:
    if not isinstance(node, Ident):
        raise MacroError(node.at, message)
    if node.name in (ACCUMULATOR, "__result__"):  # its current and its former name
        raise MacroError(node.at, "iteration variable overwrites accumulator variable")
    return node.name


def _names(nodes: list[Node]) -> list[str]:
    """Return the names of a macro's variables, one or two."""
    names = [_name(n) for n in nodes]
    if len(names) == 2 and names[0] == names[1]:
        raise MacroError(nodes[1].at, f"duplicate variable name: {names[1]}")
    return names


def _call(at: int, function: str, *args: Node) -> Call:
    return Call(at, function, list(args))


def _accumulated(at: int) -> Ident:
    return Ident(at, ACCUMULATOR)


def has(at: int, target: Node | None, args: list[Node]) -> Node:
    """``has(a.b)``: whether the field is set."""
    selected = args[0]
    if not isinstance(selected, Select):
        raise MacroError(selected.at, "invalid argument to has() macro")
    return Select(at, selected.operand, selected.field, True)


def _quantifier(kind: str) -> Macro:
    def expand(at: int, target: Node | None, args: list[Node]) -> Node:
        assert target is not None
        names = _names(args[:-1])
        predicate, accumulated = args[-1], _accumulated(at)
        second = names[1] if len(names) == 2 else ""
        init: Node
        condition: Node
        step: Node
        result: Node
        if kind == "all":
            init, condition = Const(at, True), _call(at, "@not_strictly_false", accumulated)
            step, result = _call(at, "_&&_", _accumulated(at), predicate), _accumulated(at)
        elif kind == "exists":
            init = Const(at, False)
            condition = _call(at, "@not_strictly_false", _call(at, "!_", accumulated))
            step, result = _call(at, "_||_", _accumulated(at), predicate), _accumulated(at)
        else:
            init, condition = Const(at, 0), Const(at, True)
            counted = _call(at, "_+_", accumulated, Const(at, 1))
            step = _call(at, "_?_:_", predicate, counted, _accumulated(at))
            result = _call(at, "_==_", _accumulated(at), Const(at, 1))
        return Fold(at, target, names[0], ACCUMULATOR, init, condition, step, result, second)

    return expand


def _listing(at: int, target: Node, names: list[str], keep: Node | None, item: Node) -> Node:
    step: Node = _call(at, "_+_", _accumulated(at), ListOf(at, [item]))
    if keep is not None:
        step = _call(at, "_?_:_", keep, step, _accumulated(at))
    second = names[1] if len(names) == 2 else ""
    return Fold(at, target, names[0], ACCUMULATOR, ListOf(at, []), Const(at, True), step, _accumulated(at), second)


def map_(at: int, target: Node | None, args: list[Node]) -> Node:
    """``list.map(x, f)`` and ``list.map(x, condition, f)``."""
    assert target is not None
    name = _name(args[0], "argument is not an identifier")
    return _listing(at, target, [name], args[1] if len(args) == 3 else None, args[-1])


def filter_(at: int, target: Node | None, args: list[Node]) -> Node:
    """``list.filter(x, condition)``."""
    assert target is not None
    name = _name(args[0], "argument is not an identifier")
    return _listing(at, target, [name], args[1], Ident(args[0].at, name))


def transform_list(at: int, target: Node | None, args: list[Node]) -> Node:
    """``transformList(i, v, f)``, optionally with a condition: a two-variable comprehension."""
    assert target is not None
    return _listing(at, target, _names(args[:2]), args[2] if len(args) == 4 else None, args[-1])


def _mapping(entry: bool) -> Macro:
    def expand(at: int, target: Node | None, args: list[Node]) -> Node:
        assert target is not None
        names = _names(args[:2])
        own = [] if entry else [Ident(at, names[0])]
        step: Node = _call(at, "cel.@mapInsert", _accumulated(at), *own, args[-1])
        if len(args) == 4:
            step = _call(at, "_?_:_", args[2], step, _accumulated(at))
        return Fold(at, target, names[0], ACCUMULATOR, MapOf(at, []), Const(at, True), step, _accumulated(at), names[1])

    return expand


def _optional(flat: bool) -> Macro:
    def expand(at: int, target: Node | None, args: list[Node]) -> Node:
        assert target is not None
        what = "optFlatMap()" if flat else "optMap()"
        name = _name(args[0], f"{what} variable name must be a simple identifier")
        target.shared = True
        bound = Fold(
            at, ListOf(at, []), "#unused", name, Call(at, "value", [], target), Const(at, False), Ident(at, name), args[1]
        )
        some: Node = bound if flat else _call(at, "optional.of", bound)
        return _call(at, "_?_:_", Call(at, "hasValue", [], target), some, _call(at, "optional.none"))

    return expand


def sort_by(at: int, target: Node | None, args: list[Node]) -> Node:
    """``list.sortBy(x, key)``."""
    assert target is not None
    if isinstance(target, (Const, MapOf)):
        raise MacroError(target.at, "sortBy can only be applied to a list, identifier, comprehension, call or select expression")
    name = "@__sortBy_input__"
    keys = map_(at, Ident(at, name), args)
    result = Call(at, "@sortByAssociatedKeys", [keys], Ident(at, name))
    return Fold(at, ListOf(at, []), "#unused", name, target, Const(at, False), Ident(at, name), result)


def bind(at: int, target: Node | None, args: list[Node]) -> Node:
    """``cel.bind(name, value, expression)``, in environments that have it."""
    name = _name(args[0], "cel.bind() variable names must be simple identifiers")
    return Fold(at, ListOf(at, []), "#unused", name, args[1], Const(at, False), Ident(at, name), args[2])


# (name, number of arguments, has a receiver) -> expansion.
MACROS: dict[tuple[str, int, bool], Macro] = {
    ("has", 1, False): has,
    ("all", 2, True): _quantifier("all"),
    ("all", 3, True): _quantifier("all"),
    ("exists", 2, True): _quantifier("exists"),
    ("exists", 3, True): _quantifier("exists"),
    ("exists_one", 2, True): _quantifier("exists_one"),
    ("exists_one", 3, True): _quantifier("exists_one"),
    ("existsOne", 3, True): _quantifier("exists_one"),
    ("map", 2, True): map_,
    ("map", 3, True): map_,
    ("filter", 2, True): filter_,
    ("transformList", 3, True): transform_list,
    ("transformList", 4, True): transform_list,
    ("transformMap", 3, True): _mapping(False),
    ("transformMap", 4, True): _mapping(False),
    ("transformMapEntry", 3, True): _mapping(True),
    ("transformMapEntry", 4, True): _mapping(True),
    ("optMap", 2, True): _optional(False),
    ("optFlatMap", 2, True): _optional(True),
    ("sortBy", 2, True): sort_by,
}
