"""The syntax tree of an expression. The checker sets ``type`` and what names and calls refer to."""

from __future__ import annotations

from typing import Any

SEARCHES = frozenset(("find", "findAll", "matches"))  # functions with a pattern argument


class Node:
    """A node of the tree. ``at`` is the position of its errors: its operator, bracket or first character.

    A ``shared`` node has two parents. Traversals must visit it once, as shared nodes may contain shared nodes, and so on.
    """

    __slots__ = ("at", "shared", "type")

    def __init__(self, at: int) -> None:
        self.at, self.shared = at, False
        self.type: Any = None


class Const(Node):
    """A literal."""

    __slots__ = ("value",)

    def __init__(self, at: int, value: Any) -> None:
        super().__init__(at)
        self.value = value


class Ident(Node):
    """A name; ``variable`` is the declaration it refers to."""

    __slots__ = ("name", "variable")

    def __init__(self, at: int, name: str) -> None:
        super().__init__(at)
        self.name = name
        self.variable: Any = None


class Select(Node):
    """``operand.field``, or ``has(operand.field)`` if ``test``; ``variable`` is set if the whole is a declared name with dots."""

    __slots__ = ("field", "operand", "test", "variable")

    def __init__(self, at: int, operand: Node, field: str, test: bool = False) -> None:
        super().__init__(at)
        self.operand, self.field, self.test = operand, field, test
        self.variable: Any = None


class Call(Node):
    """``function(args)`` or ``target.function(args)``; ``overloads`` are the possible ones.

    If the function's name has dots, the target has become part of the name.
    """

    __slots__ = ("args", "function", "overloads", "target")

    def __init__(self, at: int, function: str, args: list[Node], target: Node | None = None) -> None:
        super().__init__(at)
        self.function, self.args, self.target = function, args, target
        self.overloads: list[Any] = []


class ListOf(Node):
    """A list; ``optional`` are the positions of elements written ``?x``."""

    __slots__ = ("items", "optional")

    def __init__(self, at: int, items: list[Node], optional: frozenset[int] = frozenset()) -> None:
        super().__init__(at)
        self.items, self.optional = items, optional


class MapOf(Node):
    """A map or, if ``name`` is not empty, a message of that type with field names as keys. Entries: (key, value, optional)."""

    __slots__ = ("entries", "name")

    def __init__(self, at: int, entries: list[tuple[Any, Node, bool]], name: str = "") -> None:
        super().__init__(at)
        self.entries, self.name = entries, name


class Fold(Node):
    """The expansion of macros: ``accumulator = init; for variable in range: if not condition: break; accumulator = step; result``."""

    __slots__ = ("accumulator", "condition", "init", "range", "result", "second", "step", "variable")

    def __init__(
        self, at: int, range_: Node, variable: str, accumulator: str, init: Node, condition: Node, step: Node, result: Node,
        second: str = "",
    ) -> None:  # fmt: skip
        super().__init__(at)
        self.range, self.variable, self.second, self.accumulator = range_, variable, second, accumulator
        self.init, self.condition, self.step, self.result = init, condition, step, result


def qualified_name(node: Node) -> str:
    """Return the name spelled by identifiers and selections, "" for other nodes."""
    if isinstance(node, Ident):
        return node.name
    if isinstance(node, Select) and not node.test:
        before = qualified_name(node.operand)
        return f"{before}.{node.field}" if before else ""
    return ""
