"""What an expression may name: variables, functions with their overloads, object types."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from kas.cel.types import DYN, Type, variables_of
from kas.meta.records import NamedTuple


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
Ahead = Callable[[list[Any], int], int]


class Function:
    """``run(*arguments)`` looks at the values themselves, as what is dyn to the checker may be anything. It raises EvaluationError.
    ``ahead(arguments, room)`` is what it takes at least, in units of cost, where that may be more than there is time or memory for; it is
    looked for no further than ``room``. Asked before it runs, as costs are counted afterwards. ``settled``: what runs instead where the
    checker has settled on the overload of that id."""

    __slots__ = ("ahead", "cost", "name", "overloads", "run", "settled")

    def __init__(
        self, name: str, overloads: Iterable[Overload], run: Callable[..., Any], cost: Cost | None = None, ahead: Ahead | None = None,
        settled: Mapping[str, Callable[..., Any]] | None = None,
    ) -> None:  # fmt: skip
        self.name, self.overloads, self.run, self.cost, self.ahead = name, tuple(overloads), run, cost, ahead
        self.settled = settled or {}


class Fields(Mapping[str, Type]):
    """The fields of an object, which takes any name: those that are not listed are ``others``."""

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
    """Immutable; ``extended`` gives one that knows more. ``open``: a type name that, and whose parts ("Object.spec"), have any fields.
    ``bindings``: whether there is ``cel.bind``. ``text_keys``: maps that variables hold have texts for keys and look for nothing
    else. Functions and object types are looked up in what was given, which is not copied: a schema
    has as many rules as types."""

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
        """This environment with more variables, object types and functions; ``open`` names a type whose fields are not known. This one
        stays as it is."""
        own = {name: Variable(name, t) for name, t in variables.items()}
        known = {**self.structs, **structs} if self.structs and structs else structs or self.structs
        all_ = {**self.functions, **functions} if functions else self.functions
        return Environment(
            {**self.variables, **own}, all_, known, open or self.open, bindings or self.bindings, text_keys or self.text_keys
        )

    def fields_of(self, name: str) -> Mapping[str, Type] | None:
        """The fields of an object type, None when there is no such type."""
        if self.open and (name == self.open or name.startswith(f"{self.open}.")):
            return ANY_FIELD
        return self.structs.get(name)
