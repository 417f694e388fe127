"""What an expression may name: variables, functions with their overloads, object types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from kas.api.cel.types import Type, variables_of


class Variable(NamedTuple):
    """A declared name; ``constant`` is what it always is (types are named so), else None."""

    name: str
    type: Type
    constant: Any = None


class Overload:
    """One signature of a function; ``member`` ones are called on their first argument."""

    __slots__ = ("args", "generic", "id", "member", "result")

    def __init__(self, id: str, args: tuple[Type, ...], result: Type, member: bool = False) -> None:
        self.id, self.args, self.result, self.member = id, args, result, member
        self.generic = any(True for t in (*args, result) for _ in variables_of(t))


# (overload or "" when several are meant, arguments, result) -> cost.
Cost = Callable[[str, list[Any], Any], int]


class Function:
    """``run(*arguments)`` looks at the values themselves, as what is dyn to the checker may be anything. It raises EvaluationError."""

    __slots__ = ("cost", "name", "overloads", "run")

    def __init__(self, name: str, overloads: Iterable[Overload], run: Callable[..., Any], cost: Cost | None = None) -> None:
        self.name, self.overloads, self.run, self.cost = name, tuple(overloads), run, cost


class Environment:
    """Immutable; ``extended`` gives one that knows more."""

    __slots__ = ("functions", "structs", "variables")

    def __init__(
        self, variables: Mapping[str, Variable], functions: Mapping[str, Function], structs: Mapping[str, Mapping[str, Type]] | None = None
    ) -> None:
        self.variables, self.functions, self.structs = dict(variables), dict(functions), dict(structs or {})

    def extended(self, variables: Mapping[str, Type], structs: Mapping[str, Mapping[str, Type]] | None = None) -> Environment:
        own = {name: Variable(name, t) for name, t in variables.items()}
        return Environment({**self.variables, **own}, self.functions, {**self.structs, **(structs or {})})

    def fields_of(self, name: str) -> Mapping[str, Type] | None:
        """The fields of an object type, None when there is no such type."""
        return self.structs.get(name)
