"""Cost estimation before a checked expression runs: cel-go ``checker/cost.go`` with Kubernetes' estimates (apiserver
``pkg/cel/library/cost.go``). It bounds the costs that ``interpreter.py`` counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from kas.cel.interpreter import LIST_COST, MAP_COST, STRUCT_COST
from kas.cel.library.declare import REGEX, TRAVERSAL
from kas.cel.library.objects import CIDR_TYPE, IP_TYPE
from kas.cel.macros import ACCUMULATOR
from kas.cel.syntax import Call, Const, Fold, Ident, ListOf, MapOf, Node, Select
from kas.cel.types import Type
from kas.meta.records import NamedTuple

MAX = (1 << 64) - 1


class Span(NamedTuple):
    """A range from ``low`` to ``high``; both saturate at 2**64 - 1. Sizes are in elements, code points or bytes."""

    low: int
    high: int

    def plus(self, other: Span) -> Span:
        """Return the cost of both."""
        return Span(min(self.low + other.low, MAX), min(self.high + other.high, MAX))

    def times(self, other: Span) -> Span:
        """Return the cost of repeating this ``other`` times."""
        return Span(min(self.low * other.low, MAX), min(self.high * other.high, MAX))

    def by(self, factor: float) -> Span:
        """Return the range scaled by a factor, rounded up."""
        return Span(_by(self.low, factor), _by(self.high, factor))

    def union(self, other: Span) -> Span:
        """Return the range that covers both."""
        return Span(min(self.low, other.low), max(self.high, other.high))


def _by(n: int, factor: float) -> int:
    out = float(n) * factor
    return MAX if out >= 2.0**64 else math.ceil(out)


def fixed(n: int) -> Span:
    """Return the range of a known cost."""
    return Span(n, n)


NOTHING, ONE, UNKNOWN = fixed(0), fixed(1), Span(0, MAX)
Path = tuple[str, ...]
# (path from a variable, through field names and @items, @keys, @values; type) -> the size, None if unbounded.
Sizes = Callable[[Path, Type], Span | None]


class _Entries(NamedTuple):
    """Sizes of the elements of a list or map."""

    kind: str
    key: Span
    value: Span

    def union(self, other: _Entries) -> _Entries:
        return _Entries(self.kind, self.key.union(other.key), self.value.union(other.value))


class _Local(NamedTuple):
    path: Path
    size: Span | None
    entries: _Entries | None


class _Operand(NamedTuple):
    """What is known about a target or argument."""

    node: Node
    path: Path
    type: Type
    size: Span | None


def estimate(root: Node, sizes: Sizes) -> Span:
    """Return the least and the most the checked expression may cost, given the known sizes of its variables."""
    return _Coster(sizes).cost(root)


_SCALARS = frozenset(("bool", "double", "duration", "int", "timestamp", "uint"))


def _is_scalar(t: Type) -> bool:
    return t.kind in _SCALARS or (t.kind == "opaque" and t.name == "optional_type" and bool(t.params) and _is_scalar(t.params[0]))


def _written(node: Node) -> Span | None:
    """Return the size of a literal."""
    if isinstance(node, Const):
        return fixed(len(node.value)) if isinstance(node.value, (str, bytes)) else ONE
    if isinstance(node, ListOf):
        return fixed(len(node.items))
    if isinstance(node, MapOf) and not node.name:
        return fixed(len(node.entries))
    return None


class _Coster:
    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.paths: dict[int, Path] = {}
        self.known: dict[int, Span] = {}
        self.shared: dict[int, Span] = {}
        self.entries: dict[int, _Entries] = {}
        self.locals: dict[str, list[_Local]] = {}

    def cost(self, node: Node) -> Span:
        if not node.shared:
            return self._cost(node)
        found = self.shared.get(id(node))
        if found is None:
            found = self.shared[id(node)] = self._cost(node)
        return found

    def _cost(self, node: Node) -> Span:
        if isinstance(node, Ident):
            local = self.local(node.name)
            self.paths[id(node)] = local.path if local is not None else (node.name,)
            return ONE
        if isinstance(node, Select):
            return self.select(node)
        if isinstance(node, Call):
            return self.call(node)
        if isinstance(node, ListOf):
            return self.list_of(node)
        if isinstance(node, MapOf):
            return self.map_of(node)
        if isinstance(node, Fold):
            return self.bound(node) if _is_bind(node) else self.fold(node)
        return NOTHING

    def select(self, node: Select) -> Span:
        if node.variable is not None and not node.test:
            self.paths[id(node)] = (node.variable.name,)
            return ONE
        total = self.cost(node.operand)
        if node.test:
            return total
        if node.operand.type.kind in ("map", "struct", "param"):
            total = total.plus(ONE)
        self.paths[id(node)] = (*self.path(node.operand), node.field)
        return total

    # --- what is known of nodes

    def local(self, name: str) -> _Local | None:
        stack = self.locals.get(name)
        return stack[-1] if stack else None

    def path(self, node: Node) -> Path:
        if isinstance(node, Ident):
            local = self.local(node.name)
            if local is not None:
                return local.path
        return self.paths.get(id(node), ())

    def size(self, node: Node) -> Span | None:
        found = self.known.get(id(node)) or _written(node)
        if found is not None:
            return found
        path = self.path(node)
        found = self.sizes(path, node.type) if path and path[0] != ACCUMULATOR else None
        if found is not None:
            self.known[id(node)] = found
            return found
        if _is_scalar(node.type):
            return ONE
        if isinstance(node, Ident):
            local = self.local(node.name)
            if local is not None:
                return local.size
        return None

    def size_or_unknown(self, node: Node) -> Span:
        found = self.size(node)
        return found if found is not None else UNKNOWN

    def entries_of(self, node: Node) -> _Entries | None:
        found = self.entries.get(id(node))
        if found is None and isinstance(node, Ident):
            local = self.local(node.name)
            if local is not None:
                return local.entries
        return found

    def operand(self, node: Node) -> _Operand:
        path = self.path(node)
        return _Operand(node, () if path and path[0] == ACCUMULATOR else path, node.type, self.size(node))

    # --- containers and loops

    def list_of(self, node: ListOf) -> Span:
        total, items = NOTHING, Span(MAX, 0) if node.items else NOTHING
        for x in node.items:
            total = total.plus(self.cost(x))
            items = items.union(self.size_or_unknown(x))
        self.entries[id(node)] = _Entries("list", ONE, items)
        return total.plus(fixed(LIST_COST))

    def map_of(self, node: MapOf) -> Span:
        total = NOTHING
        if node.name:
            for _, value, _ in node.entries:
                total = total.plus(self.cost(value))
            return total.plus(fixed(STRUCT_COST))
        keys = values = Span(MAX, 0) if node.entries else NOTHING
        for key, value, _ in node.entries:
            total = total.plus(self.cost(key)).plus(self.cost(value))
            keys, values = keys.union(self.size_or_unknown(key)), values.union(self.size_or_unknown(value))
        self.entries[id(node)] = _Entries("map", keys, values)
        return total.plus(fixed(MAP_COST))

    def push(self, name: str, local: _Local) -> None:
        self.locals.setdefault(name, []).append(local)

    def push_variables(self, node: Fold) -> list[str]:
        entries, path = self.entries_of(node.range), self.path(node.range)
        is_list = (entries.kind if entries is not None else node.range.type.kind) == "list"
        key, value = (entries.key, entries.value) if entries is not None else (None, None)
        if not node.second:
            self.push(node.variable, _Local((*path, "@items" if is_list else "@keys"), value if is_list else key, None))
            return [node.variable]
        self.push(node.variable, _Local((*path, "@indices" if is_list else "@keys"), key, None))
        self.push(node.second, _Local((*path, "@items" if is_list else "@values"), value, None))
        return [node.variable, node.second]

    def fold(self, node: Fold) -> Span:
        total = self.cost(node.range).plus(self.cost(node.init))
        self.push(node.accumulator, _Local(self.path(node.init), self.size(node.init), self.entries_of(node.init)))
        names = self.push_variables(node)
        turn = self.cost(node.condition)
        turn = turn.plus(self.cost(node.step))
        for name in names:
            self.locals[name].pop()
        total = total.plus(self.cost(node.result))
        self.locals[node.accumulator].pop()
        count = self.size_or_unknown(node.range)
        total = total.plus(count.times(turn))
        if isinstance(node.init, Const):
            size = self.size(node.init)
            if size is not None:
                self.known[id(node)] = size
        elif isinstance(node.init, (ListOf, MapOf)):
            self.known[id(node)] = count
            entries = self.entries_of(node.step)
            if entries is not None:
                self.entries[id(node)] = entries
        return total

    def bound(self, node: Fold) -> Span:
        """Return the cost of ``cel.bind`` and macros based on it: a name for a value that is computed once."""
        total = self.cost(node.range).plus(self.cost(node.init))
        self.push(node.accumulator, _Local(self.path(node.init), self.size(node.init), self.entries_of(node.init)))
        total = total.plus(self.cost(node.result))
        size, entries = self.size(node.result), self.entries_of(node.result)
        self.locals[node.accumulator].pop()
        self.remember(node, size, entries)
        return total

    def remember(self, node: Node, size: Span | None, entries: _Entries | None) -> None:
        if size is not None:
            self.known[id(node)] = size
        if entries is not None:
            self.entries[id(node)] = entries

    # --- calls

    def call(self, node: Call) -> Span:
        if node.function == "dyn":
            total = ONE.plus(self.cost(node.args[0]))
            self.remember(node, self.size(node.args[0]), self.entries_of(node.args[0]))
            return total
        costs = [self.cost(a) for a in node.args]
        args = [self.operand(a) for a in node.args]
        if node.function == "_?._":
            return costs[0].plus(ONE)
        total, target = NOTHING, None
        if node.target is not None:
            total = self.cost(node.target)
            target = self.operand(node.target)
        span, result = Span(MAX, 0), None
        for overload in node.overloads:
            own, size = self.function(node, overload.id, target, args, costs)
            span = span.union(own)
            if size is not None:
                result = size if result is None else result.union(size)
            if overload.id in ("index_list", "index_map"):
                entries = self.entries_of(node.args[0])
                result = entries.value if entries is not None else None
                self.paths[id(node)] = (*self.path(node.args[0]), "@items" if overload.id == "index_list" else "@values")
            if result is None:
                result = self.size(node)
        self.remember(node, result, None)
        return total.plus(span)

    def function(
        self, node: Call, overload: str, target: _Operand | None, args: list[_Operand], costs: list[Span]
    ) -> tuple[Span, Span | None]:
        """Return the cost of a call by one overload, including its arguments, and the size of its result."""
        total = NOTHING
        for c in costs:
            total = total.plus(c)
        known = _of_library(node.function, overload, target, args, self.sizes)
        if known is not None:
            return known[0].plus(total), known[1]

        def size(x: _Operand) -> Span:
            return x.size if x.size is not None else UNKNOWN

        if overload in ("string_to_bytes", "bytes_to_string") and len(args) == 1:
            n = size(args[0])
            out = Span(n.low, (n.high * 4) & MAX) if overload == "string_to_bytes" else Span(n.low // 4, n.high)
            return n.by(TRAVERSAL).plus(total), out
        if overload == "strings_quote":
            n = size(args[0])
            return n.by(TRAVERSAL).plus(total), Span(n.low + 2, (n.high * 2 + 2) & MAX)
        if overload == "string_format" and target is not None:
            return size(target).by(TRAVERSAL).plus(total), None
        if overload in ("starts_with_string", "ends_with_string"):
            return size(args[0]).by(TRAVERSAL).plus(total), None
        if overload == "in_list":
            return size(args[1]).by(1).plus(total), None
        if overload == "matches_string" and target is not None:
            return size(target).plus(ONE).by(TRAVERSAL).times(size(args[0]).by(REGEX)).plus(total), None
        if overload == "contains_string" and target is not None:
            return size(target).by(TRAVERSAL).times(size(args[0]).by(TRAVERSAL)).plus(total), None
        if overload in ("logical_or", "logical_and"):
            return Span(costs[0].low, costs[0].plus(costs[1]).high), None
        if overload == "conditional":
            a, b = self.entries_of(args[1].node), self.entries_of(args[2].node)
            if a is not None and b is not None:
                self.entries[id(node)] = a.union(b)
            return costs[0].plus(costs[1].union(costs[2])), size(args[1]).union(size(args[2]))
        if overload in ("add_string", "add_bytes", "add_list"):
            both = size(args[0]).plus(size(args[1]))
            a, b = self.entries_of(args[0].node), self.entries_of(args[1].node)
            if a is not None and b is not None:
                self.entries[id(node)] = a.union(b)
            return (ONE if overload == "add_list" else both.by(TRAVERSAL)).plus(total), both
        if overload in ("equals", "not_equals") or _compares_texts(overload):
            smallest = min(size(args[0]).high, size(args[1]).high)
            return Span(1 if smallest else 0, smallest).by(TRAVERSAL).plus(total), None
        return ONE.plus(total), None


def _compares_texts(overload: str) -> bool:
    return overload.startswith(("less_", "greater_")) and overload.endswith(("_string", "_bytes"))


def _is_bind(node: Fold) -> bool:
    empty = isinstance(node.range, ListOf) and not node.range.items
    return empty and isinstance(node.condition, Const) and node.condition.value is False and node.accumulator != ACCUMULATOR


# --- Kubernetes' estimates

_AUTHORIZER = frozenset(
    ("serviceAccount", "path", "group", "resource", "subresource", "namespace", "name", "allowed", "reason", "error", "errored")
)
_ACCESSORS = frozenset((
    "masked", "prefixLength", "family", "isUnspecified", "isLoopback", "isLinkLocalMulticast", "isLinkLocalUnicast", "isGlobalUnicast",
    "format.named", "sign", "asInteger", "isInteger", "asApproximateFloat", "isGreaterThan", "isLessThan", "compareTo", "add", "sub",
    "major", "minor", "patch", "getScheme", "getHostname", "getHost", "getPort", "getEscapedPath", "getQuery",
))  # fmt: skip
_PARSERS = frozenset(("cidr", "ip", "ip.isCanonical", "isCIDR", "isIP", "isQuantity", "isSemver", "quantity", "semver"))
_SELECTOR_COST = LIST_COST + STRUCT_COST
_MAX_FORMAT_SIZE, _MAX_NAME_REGEX = 64, 128
Estimate = tuple[Span, Span | None]


def _of_library(function: str, overload: str, target: _Operand | None, args: list[_Operand], sizes: Sizes) -> Estimate | None:
    def size(x: _Operand) -> Span:
        found = x.size if x.size is not None else sizes(x.path, x.type) if x.path else None
        return found if found is not None else UNKNOWN

    if function == "check":
        return fixed(350_000), None
    if function in _AUTHORIZER or function in _ACCESSORS:
        return ONE, None
    if function in ("fieldSelector", "labelSelector") and len(args) == 1:
        n = size(args[0])
        return fixed(LIST_COST).plus(n.by(TRAVERSAL)).plus(n.by(0.5).by(_SELECTOR_COST)), None
    if function in ("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf") and target is not None:
        return _walk(target, size, sizes), None
    if function in ("url", "jsonpatch.escapeKey") and len(args) == 1:
        return size(args[0]).by(TRAVERSAL), size(args[0])
    if function in ("lowerAscii", "upperAscii", "substring", "trim") and target is not None:
        return size(target).by(TRAVERSAL), size(target)
    if function == "replace" and target is not None and len(args) >= 2:
        return size(target).by(2 * TRAVERSAL), _replaced(size(target), size(args[0]), size(args[1]))
    if function == "split" and target is not None:
        most, limit = size(target).high, args[1].node if len(args) > 1 else None
        if isinstance(limit, Const) and isinstance(limit.value, int):
            most = limit.value % (MAX + 1)
        return size(target).by(2 * TRAVERSAL), Span(0, most)
    if function == "join" and target is not None:
        return _joined(target, args, size, sizes)
    if function in ("find", "findAll") and target is not None and args:
        cost = size(target).plus(ONE).by(TRAVERSAL).times(size(args[0]).by(REGEX))
        return cost, Span(0, size(target).high)
    if function == "ip" and target is not None:
        return ONE, None
    if function in _PARSERS and args:
        return size(args[0]).by((2 if function == "ip.isCanonical" else 1) * TRAVERSAL), None
    if function in ("containsIP", "containsCIDR") and target is not None and args:
        width = Span(4, 16)
        cost = width.plus(width).by(TRAVERSAL)
        if function == "containsCIDR":
            cost = cost.plus(width.by(TRAVERSAL)).plus(ONE)
        return cost.plus(size(args[0]).by(TRAVERSAL)) if overload.endswith("_string") else cost, None
    if function == "validate" and target is not None:
        return size(args[0]).by(TRAVERSAL).by(_MAX_NAME_REGEX * REGEX), None
    if function == "_==_" and len(args) == 2 and args[0].type == args[1].type:
        return _opaque_equality(args[0].type, args[1].size)
    return _of_lists(function, overload, target, args, size)


def _opaque_equality(t: Type, size: Span | None) -> Estimate | None:
    if t in (IP_TYPE, CIDR_TYPE):
        return ONE, None
    if t.kind == "struct" and t.name.startswith("kubernetes."):
        if t.name == "kubernetes.NamedFormat":
            return Span(1, _MAX_FORMAT_SIZE).by(TRAVERSAL), None
        if t.name == "kubernetes.URL":
            return Span(1, size.high if size is not None else 1).by(TRAVERSAL), None
        if t.name in ("kubernetes.Quantity", "kubernetes.Semver") or t.name.startswith("kubernetes.authorization."):
            return ONE, None
    return None


def _element(target: _Operand) -> tuple[Path, Type] | None:
    """Return path and type of a list's elements."""
    if not target.type.params:
        return None
    return ((*target.path, "@items") if target.path else ()), target.type.params[0]


def _walk(target: _Operand, size: Callable[[_Operand], Span], sizes: Sizes) -> Span:
    element = _element(target)
    if element is None:
        return size(target).by(TRAVERSAL)
    each = ONE
    if element[1].kind in ("string", "bytes"):
        each = each.plus(((sizes(*element) if element[0] else None) or UNKNOWN).by(TRAVERSAL))
    return size(target).times(each)


def _replaced(text: Span, old: Span, new: Span) -> Span:
    """Return the possible length of a text after replacing, from the least and the largest number of matches."""
    kept_high = kept_low = 0
    if old.low == 0:
        count_high, kept_high = min(text.high + 1, MAX), text.high
    elif new.high <= old.low:
        count_high, kept_high = 0, text.high
    else:
        count_high = math.ceil(float(text.high) / old.low)
    if old.high == 0:
        count_low, kept_low = min(text.low + 1, MAX), text.low
    elif old.high <= new.low:
        count_low, kept_low = 0, text.low
    else:
        count_low = math.ceil(text.low / old.high)
    return Span(count_low, min(count_high, MAX)).times(new).plus(Span(kept_low, kept_high))


def _joined(target: _Operand, args: list[_Operand], size: Callable[[_Operand], Span], sizes: Sizes) -> Estimate:
    total, items, element = NOTHING, size(target), _element(target)
    if element is not None:
        total = items.times((sizes(*element) if element[0] else None) or UNKNOWN)
    if args:
        between = Span(max(items.low - 1, 0), max(items.high - 1, 0))
        total = total.plus(size(args[0]).times(between))
    return total.by(TRAVERSAL), total


def _constant(x: _Operand, otherwise: int) -> int:
    """Return the value of a constant number, at least 0."""
    value: Any = x.node.value if isinstance(x.node, Const) else None
    return max(value, 0) if type(value) is int else otherwise


def _of_lists(
    function: str, overload: str, target: _Operand | None, args: list[_Operand], size: Callable[[_Operand], Span]
) -> Estimate | None:
    """Return the estimates of cel-go's ``ext/lists.go`` and ``ext/sets.go``: each call allocates its result."""

    def allocated(n: Span, factor: float) -> Estimate:
        return n.by(factor).plus(ONE).plus(fixed(LIST_COST)), n

    if overload == "list_slice" and target is not None:
        # In unsigned arithmetic, as upstream: if the end is before the start, the result is nearly 2**64.
        return allocated(fixed((_constant(args[1], size(target).high) - _constant(args[0], 0)) & MAX), 1)
    if overload in ("list_flatten", "list_flatten_int") and target is not None:
        return allocated(size(target), float(_constant(args[0], MAX)) if args else 1)
    if overload == "lists_range":
        return allocated(fixed(_constant(args[0], MAX)), 1)
    if overload == "list_reverse" and target is not None:
        return allocated(size(target), 1)
    if overload == "list_distinct" and target is not None:
        return allocated(size(target).times(size(target)), 2)
    if function in ("sort", "@sortByAssociatedKeys") and target is not None:
        n = size(target) if function == "sort" else size(args[0])
        return allocated(n.times(n), 2 + (TRAVERSAL if overload.startswith(("list_string", "list_bytes")) else 0))
    if function.startswith("sets.") and len(args) == 2:
        return size(args[0]).times(size(args[1])).by(2 if function == "sets.equivalent" else 1).plus(ONE), None
    return None
