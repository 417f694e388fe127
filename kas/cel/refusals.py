"""The errors for values that no overload accepts, in one of cel-go's three forms (``common/decls``, ``interpreter/interpretable.go``).

Most functions name themselves and the types they were given. Functions with one implementation for all overloads, such as the operators,
name themselves if the first value is none of their operands, and otherwise leave the error to the value, which names nothing.
"""

from __future__ import annotations

from typing import Any

from kas.cel.problems import EvaluationError
from kas.cel.values import type_of_value

NO_OVERLOAD = "no such overload"

_CALLED = frozenset(("string", "google.protobuf.Duration", "google.protobuf.Timestamp"))  # these types report errors themselves
_NUMBERS = frozenset(("int", "uint", "double"))
_COMPARED = _CALLED | _NUMBERS | {"bool", "bytes"}
# The operand types of each function, or types that report errors themselves.
_OPERANDS: dict[str, frozenset[str]] = {
    "_+_": _CALLED | _NUMBERS | {"bytes", "list"}, "_-_": _CALLED | _NUMBERS, "_*_": _CALLED | _NUMBERS, "_/_": _CALLED | _NUMBERS,
    "_%_": _CALLED | {"int", "uint"}, "-_": _CALLED | {"int", "double", "bool"}, "_<_": _COMPARED, "_<=_": _COMPARED, "_>_": _COMPARED,
    "_>=_": _COMPARED, "size": _CALLED | {"bytes", "list", "map"}, "matches": _CALLED, "sort": frozenset(("list",)),
    "@sortByAssociatedKeys": frozenset(("list",)),
}  # fmt: skip
# For lists the first item decides: the others are not examined before it.
_ITEMS = dict.fromkeys(("isSorted", "max", "min"), _COMPARED) | {"sum": _NUMBERS | {"google.protobuf.Duration"}}
_SILENT = frozenset(("!_", "_==_", "_!=_", "@in", "contains", "distinct", "endsWith", "flatten", "startsWith"))

# How Go prints the types of values.
_GO_TYPES = {
    "null_type": "types.Null", "bool": "types.Bool", "int": "types.Int", "uint": "types.Uint", "double": "types.Double",
    "string": "types.String", "bytes": "types.Bytes", "google.protobuf.Duration": "types.Duration",
    "google.protobuf.Timestamp": "types.Timestamp", "type": "*types.Type", "optional_type": "*types.Optional",
    "list": "*types.baseList", "map": "*types.baseMap",
}  # fmt: skip
_READ = {"null_type": "<nil>", "list": "[]interface {}", "map": "map[string]interface {}"}
_KUBERNETES = {"kubernetes.NamedFormat": "Format"}


def refused(function: str, values: list[Any], fixed_pattern: bool = False) -> EvaluationError:
    """Return the error that the function does not accept these values. ``fixed_pattern``: it is a search with a precompiled pattern."""
    operands = _OPERANDS.get(function)
    if function in _SILENT or (operands is None and function.startswith(("@", "cel.@"))) or fixed_pattern:
        return EvaluationError(NO_OVERLOAD)
    types = [type_of_value(v).name for v in values]
    if function in _ITEMS and isinstance(values[0], list) and values[0] and type_of_value(values[0][0]).name in _ITEMS[function]:
        return EvaluationError(NO_OVERLOAD)
    if function == "containsIP" and types[1] == "string":
        return EvaluationError(NO_OVERLOAD)  # upstream's only message for a text that is not an address
    if operands is not None:
        return EvaluationError(NO_OVERLOAD if types[0] in operands else f"{NO_OVERLOAD}: {function}")
    return EvaluationError(f"{NO_OVERLOAD}: {function}({', '.join(types)})")


def go_type(value: Any, read: bool = False) -> str:
    """Return how Go prints the type of a value; ``read``: of one that a variable holds."""
    name = type_of_value(value).name
    return (_READ.get(name) if read else None) or _GO_TYPES.get(name, f"cel.{_KUBERNETES.get(name, name.rpartition('.')[2])}")


def not_iterable(value: Any, pairs: bool) -> EvaluationError:
    """Return the error that a macro cannot iterate over a value; ``pairs``: it has two variables."""
    shown = go_type(value)
    return EvaluationError(f"unsupported comprehension range type: {shown}" if pairs else f"got '{shown}', expected iterable type")
