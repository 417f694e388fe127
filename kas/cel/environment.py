"""The environment of an expression: its variables, functions with their overloads, and object types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from kas.cel.types import DYN, Type, variables_of
from kas.meta.records import NamedTuple


class Variable(NamedTuple):
    """A declared name; ``constant`` is its fixed value (names of types have one), else None."""

    name: str
    type: Type
    constant: Any = None


class Overload:
    """One signature of a function; a ``member`` overload is called on its first argument."""

    __slots__ = ("args", "generic", "id", "member", "result")

    def __init__(self, id: str, args: tuple[Type, ...], result: Type, member: bool = False) -> None:
        self.id, self.args, self.result, self.member = id, args, result, member
        self.generic = any(True for t in (*args, result) for _ in variables_of(t))


# (overload, "" if several are possible; arguments; result) -> cost.
Cost = Callable[[str, list[Any], Any], int]
Ahead = Callable[[list[Any], int], int]


class Function:
    """A function with its overloads.

    ``run(*arguments)`` checks the types of its arguments itself, as dyn values may be anything. It raises EvaluationError.

    ``ahead(arguments, room)`` returns a lower bound of the call's work in units of cost, for functions whose work may exceed the available
    time or memory. It is called before the function, as costs are counted afterwards, and stops counting once ``room`` is exceeded.

    ``settled`` maps the id of an overload to a function that runs instead if the checker has resolved the call to that overload.
    """

    __slots__ = ("ahead", "cost", "name", "overloads", "run", "settled")

    def __init__(
        self, name: str, overloads: Iterable[Overload], run: Callable[..., Any], cost: Cost | None = None, ahead: Ahead | None = None,
        settled: Mapping[str, Callable[..., Any]] | None = None,
    ) -> None:  # fmt: skip
        self.name, self.overloads, self.run, self.cost, self.ahead = name, tuple(overloads), run, cost, ahead
        self.settled = settled or {}


class Fields(Mapping[str, Type]):
    """The fields of an object that accepts any name: unlisted fields have type ``others``."""

    def __init__(self, listed: Mapping[str, Type], others: Type) -> None:
        self._listed, self._others = listed, others

    def __getitem__(self, name: str) -> Type:
        return self._listed.get(name, self._others)

    def __iter__(self) -> Iterator[str]:
        return iter(self._listed)

    def __len__(self) -> int:
        return len(self._listed)


ANY_FIELD = Fields({}, DYN)


class Environment:
    """The names that an expression may use. Immutable; ``extended`` returns a larger one.

    ``open``: a type name that may have any fields, as may its parts ("Object.spec"). ``bindings``: whether ``cel.bind`` is available.
    ``text_keys``: maps in variables have only string keys, so other keys need not be looked up. Functions and object types are looked up in
    the given mappings, which are not copied: a schema has as many rules as types.
    """

    __slots__ = ("bindings", "functions", "open", "structs", "text_keys", "variables")

    def __init__(
        self, variables: Mapping[str, Variable], functions: Mapping[str, Function], structs: Mapping[str, Mapping[str, Type]] | None = None,
        open: str = "", bindings: bool = False, text_keys: bool = False,
    ) -> None:  # fmt: skip
        self.variables, self.functions, self.structs = dict(variables), functions, structs or {}
        self.open, self.bindings, self.text_keys = open, bindings, text_keys

    def extended(
        self, variables: Mapping[str, Type], structs: Mapping[str, Mapping[str, Type]] | None = None, open: str = "",
        bindings: bool = False, functions: Mapping[str, Function] | None = None, text_keys: bool = False,
    ) -> Environment:  # fmt: skip
        """Return this environment extended by variables, object types and functions; ``open`` is a type whose fields are unknown."""
        own = {name: Variable(name, t) for name, t in variables.items()}
        known = {**self.structs, **structs} if self.structs and structs else structs or self.structs
        all_ = {**self.functions, **functions} if functions else self.functions
        return Environment(
            {**self.variables, **own}, all_, known, open or self.open, bindings or self.bindings, text_keys or self.text_keys
        )

    def fields_of(self, name: str) -> Mapping[str, Type] | None:
        """Return the fields of an object type, None if there is no such type."""
        if self.open and (name == self.open or name.startswith(f"{self.open}.")):
            return ANY_FIELD
        return self.structs.get(name)
