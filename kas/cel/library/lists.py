"""Lists: Kubernetes' ``library/lists.go``, cel-go's ``ext/lists.go`` (version 3) and ``ext/sets.go``."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

from kas.cel.environment import Ahead
from kas.cel.interpreter import PER_CALL_LIMIT
from kas.cel.library.declare import Library, on, plain
from kas.cel.library.standard import LIB as STANDARD
from kas.cel.library.texts import by_traversal, index_of, last_index_of, need, to_walk
from kas.cel.problems import CostLimitError, EvaluationError
from kas.cel.types import BOOL, BYTES, DOUBLE, DURATION, DYN, INT, STRING, TIMESTAMP, UINT, list_of, param
from kas.cel.values import MAX_INT, Duration, Uint, equal, order, size, type_of_value, units

LIB = Library()
T = param("T")
LIST_T = list_of(T)
NO_OVERLOAD = "no such overload"
LIST_COST = 10
MAX_RANGE = 10_000_000
ORDERED = {
    "int": INT, "uint": UINT, "double": DOUBLE, "bool": BOOL, "duration": DURATION, "timestamp": TIMESTAMP, "string": STRING,
    "bytes": BYTES,
}  # fmt: skip
_ADD = STANDARD.functions["_+_"].run


def _listed(v: Any) -> list[Any]:
    if not isinstance(v, list):
        raise EvaluationError(NO_OVERLOAD)
    return v


def _comparable(v: Any) -> list[Any]:
    """Return the list if all its items have types with an order. Raises EvaluationError otherwise."""
    items = _listed(v)
    if any(type_of_value(x).kind not in ORDERED for x in items):
        raise EvaluationError(NO_OVERLOAD)
    return items


def _order(a: Any, b: Any) -> int | None:
    """Compare two values; None if they cannot be compared: upstream's loops continue then."""
    try:
        return order(a, b)
    except EvaluationError:
        return None


@LIB("isSorted", *(on(f"list_{n}_is_sorted_bool", [list_of(t)], BOOL) for n, t in ORDERED.items()), cost=by_traversal, ahead=to_walk)
def _is_sorted(v: Any) -> bool:
    items = _listed(v)
    if items and type_of_value(items[0]).kind not in ORDERED:
        raise EvaluationError(NO_OVERLOAD)
    for a, b in itertools.pairwise(items):
        if type_of_value(b).kind not in ORDERED:
            raise EvaluationError(NO_OVERLOAD)
        if _order(a, b) == 1:
            return False
    return True


_ZERO: dict[str, Any] = {"int": 0, "uint": Uint(0), "double": 0.0, "duration": Duration(0)}


def _sum_of(kind: str) -> Callable[[Any], Any]:
    """Return a function that adds up a list of ``kind``; with "" of the first item's type, where the sum of an empty list is an int."""

    def run(v: Any) -> Any:
        items = _listed(v)
        found = kind or (type_of_value(items[0]).kind if items else "int")
        if found not in _ZERO:
            raise EvaluationError(NO_OVERLOAD)
        return functools.reduce(_ADD, items, _ZERO[found])

    return run


_SUMS = {f"list_{n}_sum_{n}": _sum_of(n) for n in _ZERO}
LIB(
    "sum", *(on(f"list_{n}_sum_{n}", [list_of(ORDERED[n])], ORDERED[n]) for n in _ZERO), cost=by_traversal,
    ahead=to_walk, settled=_SUMS,
)(_sum_of(""))  # fmt: skip


def _extreme(name: str, wanted: int) -> None:
    @LIB(name, *(on(f"list_{n}_{name}_{n}", [list_of(t)], t) for n, t in ORDERED.items()), cost=by_traversal, ahead=to_walk)
    def run(v: Any) -> Any:
        items = _comparable(v)
        if not items:
            raise EvaluationError(f"{name} called on empty list")
        best = items[0]
        for x in items[1:]:
            if _order(x, best) == wanted:
                best = x
        return best


_extreme("min", -1)
_extreme("max", 1)


@LIB(
    "indexOf", on("list_a_index_of_int", [LIST_T, T], INT), on("string_index_of_string", [STRING, STRING], INT),
    on("string_index_of_string_int", [STRING, STRING, INT], INT), cost=by_traversal, ahead=to_walk,
)  # fmt: skip
def _index_of(v: Any, x: Any, *offset: Any) -> int:
    if isinstance(v, str) and isinstance(x, str):
        return index_of(v, x, *offset)
    if offset:
        raise EvaluationError(NO_OVERLOAD)  # lists have no such overload
    return next((i for i, y in enumerate(_listed(v)) if equal(x, y)), -1)


@LIB(
    "lastIndexOf", on("list_a_last_index_of_int", [LIST_T, T], INT), on("string_last_index_of_string", [STRING, STRING], INT),
    on("string_last_index_of_string_int", [STRING, STRING, INT], INT), cost=by_traversal, ahead=to_walk,
)  # fmt: skip
def _last_index_of(v: Any, x: Any, *offset: Any) -> int:
    if isinstance(v, str) and isinstance(x, str):
        return last_index_of(v, x, *offset)
    if offset:
        raise EvaluationError(NO_OVERLOAD)
    items = _listed(v)
    return next((i for i in range(len(items) - 1, -1, -1) if equal(x, items[i])), -1)


# --- cel-go's lists


def _allocated(n: float) -> int:
    return int(n) + 1 + LIST_COST


def _by_result(overload: str, args: list[Any], result: Any) -> int:
    return _allocated(size(result))


def _square_of(at: int) -> Ahead:
    return lambda args, room: size(args[at]) * units(args[at], room)


def _product_of(args: list[Any], room: int) -> int:
    return size(args[0]) * units(args[1], room)


def _by_square(at: int):
    def cost(overload: str, args: list[Any], result: Any) -> int:
        if not overload:
            return 1  # upstream's cost depends on the overload: calls on dyn values cost nothing
        items = args[at]
        n = size(items)
        texts = isinstance(items, list) and bool(items) and isinstance(items[0], (str, bytes))
        return _allocated(n * n * (2.1 if texts else 2.0))

    return cost


@LIB("slice", on("list_slice", [LIST_T, INT, INT], LIST_T), cost=_by_result)
def _slice(items: Any, start: Any, end: Any) -> list[Any]:
    need((start, int), (end, int))
    n, error = len(_listed(items)), f"cannot slice({start}, {end}),"
    if start < 0 or end < 0:
        raise EvaluationError(f"{error} negative indexes not supported")
    if start > end:
        raise EvaluationError(f"{error} start index must be less than or equal to end index")
    if n < end:
        raise EvaluationError(f"{error} list is length {n}")
    return items[start:end]


def _flat(items: list[Any], depth: int) -> list[Any]:
    """Flatten lists. Raises CostLimitError: a list may contain the same list twice, which contains another twice, and so on."""
    out: list[Any] = []
    left, ahead = PER_CALL_LIMIT, [(iter(items), depth)]
    while ahead:
        rest, deeper = ahead[-1]
        for x in rest:
            left -= 1
            if left < 0:
                raise CostLimitError
            if isinstance(x, list) and deeper:
                ahead.append((iter(x), deeper - 1))
                break
            out.append(x)
        else:
            ahead.pop()
    return out


@LIB(
    "flatten", on("list_flatten", [list_of(LIST_T)], LIST_T), on("list_flatten_int", [list_of(DYN), INT], list_of(DYN)),
    cost=lambda o, args, r: _allocated(min(size(args[0]) * (args[1] if len(args) == 2 and isinstance(args[1], int) else 1), MAX_INT >> 1)),
)  # fmt: skip
def _flatten(items: Any, depth: Any = 1) -> list[Any]:
    if type_of_value(depth) is not INT:
        raise EvaluationError(NO_OVERLOAD)
    if depth < 0:
        raise EvaluationError("level must be non-negative")
    return _flat(_listed(items), depth)


def _sorted_by(items: list[Any], keys: list[Any]) -> list[Any]:
    if len(items) != len(keys):
        raise EvaluationError(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, "
            f"but got {len(items)} and {len(keys)} elements respectively"
        )
    if not items:
        return items
    kind = type_of_value(keys[0]).kind
    if kind not in ORDERED:
        raise EvaluationError("list elements must be comparable")
    if any(type_of_value(k).kind != kind for k in keys):
        raise EvaluationError("list elements must have the same type")
    by = functools.cmp_to_key(order)
    return [items[i] for i in sorted(range(len(items)), key=lambda i: by(keys[i]))]


LIB("sort", *(on(f"list_{n}_sort", [list_of(t)], list_of(t)) for n, t in ORDERED.items()), cost=_by_square(0), ahead=_square_of(0))(
    lambda items: _sorted_by(_listed(items), items)
)
LIB(
    "@sortByAssociatedKeys", *(on(f"list_{n}_sortByAssociatedKeys", [LIST_T, list_of(t)], LIST_T) for n, t in ORDERED.items()),
    cost=_by_square(1), ahead=_square_of(1),
)(lambda items, keys: _sorted_by(_listed(items), _listed(keys)))  # fmt: skip


@LIB(
    "lists.range", plain("lists_range", [INT], list_of(INT)), cost=_by_result,
    ahead=lambda args, room: args[0] if isinstance(args[0], int) else 0,
)  # fmt: skip
def _range(n: Any) -> list[int]:
    if type_of_value(n) is not INT:
        raise EvaluationError(NO_OVERLOAD)
    if n < 0:
        raise EvaluationError(f"lists.range: size must be non-negative, got {n}")
    if n > MAX_RANGE:
        raise EvaluationError(f"lists.range: size {n} exceeds maximum allowed ({MAX_RANGE})")
    return list(range(n))


LIB("reverse", on("list_reverse", [LIST_T], LIST_T), cost=_by_result)(lambda items: _listed(items)[::-1])


@LIB("distinct", on("list_distinct", [LIST_T], LIST_T), cost=_by_square(0), ahead=_square_of(0))
def _distinct(items: Any) -> list[Any]:
    out: list[Any] = []
    for x in _listed(items):
        if not any(equal(x, y) for y in out):
            out.append(x)
    return out


# --- sets


def _product(factor: int):
    def cost(overload: str, args: list[Any], result: Any) -> int:
        return size(args[0]) * size(args[1]) * factor + 1

    return cost


def _within(items: list[Any], of: list[Any]) -> bool:
    return all(any(equal(x, y) for y in of) for x in items)


LIB("sets.contains", plain("list_sets_contains_list", [LIST_T, LIST_T], BOOL), cost=_product(1), ahead=_product_of)(
    lambda a, b: _within(_listed(b), _listed(a))
)
LIB("sets.equivalent", plain("list_sets_equivalent_list", [LIST_T, LIST_T], BOOL), cost=_product(2), ahead=_product_of)(
    lambda a, b: _within(_listed(a), _listed(b)) and _within(b, a)
)
LIB("sets.intersects", plain("list_sets_intersects_list", [LIST_T, LIST_T], BOOL), cost=_product(1), ahead=_product_of)(
    lambda a, b: any(equal(x, y) for x, y in itertools.product(_listed(a), _listed(b)))
)

