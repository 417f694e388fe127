"""The types of CEL and their compatibility (cel-go ``common/types`` and ``checker/types.go``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence


class Type:
    """A type: its kind, name and parameters. Kinds are those of cel-go.

    ``param`` is a type variable, ``struct`` a message or object whose fields the environment knows, ``opaque`` a type with no visible
    structure.
    """

    __slots__ = ("kind", "name", "params")

    def __init__(self, kind: str, name: str = "", params: tuple[Type, ...] = ()) -> None:
        self.kind, self.name, self.params = kind, name or kind, params

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Type) and self.kind == other.kind and self.name == other.name and self.params == other.params

    def __hash__(self) -> int:
        return hash((self.kind, self.name, self.params))

    def __str__(self) -> str:
        return _spelled(self, lambda t: "type" if t.kind == "type" else t.name)

    def __repr__(self) -> str:
        return f"<{self}>"


class Nullable(Type):
    """A primitive type that also accepts null: a wrapper's. It equals the primitive type."""

    __slots__ = ()


DYN, ERROR, NULL = Type("dyn"), Type("error", "!error!"), Type("null_type")
# The type of a message's ``google.protobuf.Any``: like dyn, but not converted.
ANY = Type("dyn", "any")
BOOL, INT, UINT, DOUBLE, STRING, BYTES = (Type(k) for k in ("bool", "int", "uint", "double", "string", "bytes"))
DURATION, TIMESTAMP = Type("duration", "google.protobuf.Duration"), Type("timestamp", "google.protobuf.Timestamp")
TYPE = Type("type")
# Upstream's type where it recorded none: nothing is assignable to it, and it has no name.
UNSPECIFIED = Type("unspecified")
UNSPECIFIED.name = ""
LIST, MAP = Type("list"), Type("map")  # without parameters, the form in which values name their types


# Type names of the checker that differ from the types' own names.
_SAID = {"null_type": "null", "duration": "duration", "timestamp": "timestamp"}


def type_text(t: Type) -> str:
    """Format a type for the checker's errors (cel-go's ``FormatCELType``)."""
    return _spelled(t, lambda t: f"wrapper({t.name})" if isinstance(t, Nullable) else _SAID.get(t.kind, t.name))


def _spelled(t: Type, name: Callable[[Type], str]) -> str:
    """Format a type and its parameters; without recursion, as lists may be nested deeply."""
    if not t.params:
        return name(t)
    out, left = list[str](), list[Type | str]((t,))
    while left:
        part = left.pop()
        if isinstance(part, str):
            out.append(part)
            continue
        out.append(name(part))
        if part.params:
            out.append("(")
            left.append(")")
            for i, p in enumerate(reversed(part.params)):
                left += (", ", p) if i else (p,)
    return "".join(out)


def list_of(item: Type) -> Type:
    """``list(item)``."""
    return Type("list", "list", (item,))


def map_of(key: Type, value: Type) -> Type:
    """``map(key, value)``."""
    return Type("map", "map", (key, value))


def nullable(target: Type) -> Type:
    """Return the type of the primitive value or null."""
    return Nullable(target.kind, target.name)


def type_of(target: Type) -> Type:
    """``type(target)``, the type of a name that denotes a type."""
    return Type("type", "type", (target,))


def optional_of(target: Type) -> Type:
    """``optional_type(target)``."""
    return Type("opaque", "optional_type", (target,))


def param(name: str) -> Type:
    """Return a type parameter of an overload, bound anew for each call."""
    return Type("param", name)


def struct(name: str) -> Type:
    """Return the object type of that name; the environment knows its fields."""
    return Type("struct", name)


def opaque(name: str) -> Type:
    """Return the library type of that name; only the library's functions see inside."""
    return Type("opaque", name)


def is_dyn(t: Type) -> bool:
    """Whether nothing is known about the type before the expression runs."""
    return t.kind == "dyn"


def is_open(t: Type) -> bool:
    """Whether anything is accepted: dyn, or the type of a node with errors."""
    return t.kind in ("dyn", "error")


# Kinds to whose types the checker lets null be assigned.
_NULLABLE = frozenset(("opaque", "duration", "struct", "timestamp", "null_type"))
_PLAIN = frozenset(("bool", "bytes", "double", "duration", "int", "string", "timestamp", "uint", "struct"))

Bindings = dict[str, Type]


class _Trial:
    """Bindings that can be discarded. Copying all bindings instead would make each call of a long expression cost as much as all before."""

    __slots__ = ("_bound", "_new")

    def __init__(self, bound: Bindings) -> None:
        self._bound, self._new = bound, Bindings()

    def get(self, name: str) -> Type | None:
        """Return the type bound to the variable, if any."""
        return self._new.get(name) or self._bound.get(name)

    def __setitem__(self, name: str, t: Type) -> None:
        self._new[name] = t

    def keep(self) -> None:
        """Commit the bindings."""
        self._bound.update(self._new)


def assignable(bound: Bindings, t1: Type, t2: Type) -> bool:
    """Whether ``t2`` is assignable to ``t1``; adds the implied bindings to ``bound`` if so, else leaves it unchanged."""
    return assignable_all(bound, (t1,), (t2,))


def assignable_all(bound: Bindings, wanted: Sequence[Type], given: Sequence[Type]) -> bool:
    """Whether every given type is assignable to the wanted one; as ``assignable``."""
    if len(wanted) != len(given):
        return False
    trial = _Trial(bound)
    if not all(_assignable(trial, a, b) for a, b in zip(wanted, given, strict=True)):
        return False
    trial.keep()
    return True


def _assignable(bound: _Trial, t1: Type, t2: Type) -> bool:
    if t2.kind == "param":
        valid, known = _bind(bound, t1, t2)
        if valid or known:
            return valid
    if t1.kind == "param":
        return _bind(bound, t2, t1)[0]
    if is_open(t1) or is_open(t2):
        return True
    if t1.kind == "null_type":
        return t2.kind in _NULLABLE or isinstance(t2, Nullable)
    if t2.kind == "null_type":
        return t1.kind in _NULLABLE or isinstance(t1, Nullable)
    if t1.kind in _PLAIN:
        return t1.kind == t2.kind and t1.name == t2.name
    if t1.kind == "type":
        return t2.kind == "type"
    return (
        t1.kind == t2.kind
        and t1.name == t2.name
        and len(t1.params) == len(t2.params)
        and all(_assignable(bound, a, b) for a, b in zip(t1.params, t2.params, strict=True))
    )


def _bind(bound: _Trial, t1: Type, variable: Type) -> tuple[bool, bool]:
    """Return whether ``t1`` is compatible with the variable's binding, and whether it was bound before."""
    if t1 == variable:
        return True, True
    known = bound.get(variable.name)
    if known is not None:
        if t1 == known:
            return True, True
        if _assignable(bound, t1, known):
            general = most_general(t1, known)
            if not _mentions(bound, variable, general):
                bound[variable.name] = general
            return True, True
        return False, True
    if _mentions(bound, variable, t1):
        return False, False
    bound[variable.name] = t1
    return True, False


def _mentions(bound: _Trial, variable: Type, t: Type) -> bool:
    if t == variable:
        return True
    if t.kind == "param":
        known = bound.get(t.name)
        return known is not None and _mentions(bound, variable, known)
    return any(_mentions(bound, variable, p) for p in t.params)


def most_general(t1: Type, t2: Type) -> Type:
    """Return the more general of two compatible types."""
    return t1 if _less_specific(t1, t2) else t2


def _less_specific(t1: Type, t2: Type) -> bool:
    if t1.kind in ("dyn", "param"):
        return True
    if t2.kind in ("dyn", "param") or t1.kind != t2.kind:
        return False
    if t1.kind in ("opaque", "list", "map"):
        return (
            t1.name == t2.name
            and len(t1.params) == len(t2.params)
            and all(_less_specific(a, b) for a, b in zip(t1.params, t2.params, strict=True))
        )
    return t1.kind == "type" or t1 == t2


def substitute(bound: Bindings, t: Type, to_dyn: bool) -> Type:
    """Return the type with bound variables replaced; with ``to_dyn`` unbound ones become dyn."""
    if t.kind == "param":
        known = bound.get(t.name)
        if known is not None:
            return substitute(bound, known, to_dyn)
        return DYN if to_dyn else t
    if not t.params:
        return t
    return Type(t.kind, t.name, tuple(substitute(bound, p, to_dyn) for p in t.params))


def variables_of(t: Type) -> Iterator[str]:
    """Yield the type parameters inside a type, in order."""
    if t.kind == "param":
        yield t.name
    for p in t.params:
        yield from variables_of(p)
