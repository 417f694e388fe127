"""The interpreter: plans a checked expression as nested functions of a frame, which count their cost as they run.

Costs are those of cel-go's ``interpreter/runtimecost.go`` as Kubernetes configures it: names and selections cost 1 each, new lists 10, maps
30 and messages 40, constants nothing; the cost of a call is defined by its function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from kas.cel import messages
from kas.cel.environment import Function
from kas.cel.macros import ACCUMULATOR
from kas.cel.problems import CostLimitError, EvaluationError
from kas.cel.refusals import NO_OVERLOAD, go_type, not_iterable, refused
from kas.cel.syntax import SEARCHES, Call, Const, Fold, Ident, ListOf, MapOf, Node, Select
from kas.cel.values import NONE, Message, Optional, TypeValue, Uint, Unreadable, as_key, equal, is_number, key_value
from kas.meta.field import go_float
from kas.meta.offload import abandoned
from kas.meta.regex import MOST_INSTRUCTIONS, TOO_LARGE, RegexError, compiled

LIST_COST, MAP_COST, STRUCT_COST = 10, 30, 40
# Kubernetes' bound for one evaluation (apiserver ``apis/cel/config.go``: PerCallLimit).
MAX_INDEX = 2**63 - 1
PER_CALL_LIMIT = 1_000_000
# Limit of list elements in a sum; of pattern instructions; of characters for which upstream counts one unit whatever their number.
FREE = 100

LOOKS_EVERY = 5_000  # cost units, some milliseconds: interval at which a thread lets others run

CONVERSIONS = frozenset(("bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"))


class ProgramError(Exception):
    """A constant part of the expression has no value."""


class Frame:
    """One evaluation: the values of its variables, its limit and its cost so far."""

    __slots__ = ("_looks", "cost", "limit", "variables")

    def __init__(self, variables: dict[str, Any], limit: int) -> None:
        self.variables, self.cost, self.limit = variables, 0, limit
        self._looks = min(limit, LOOKS_EVERY)

    def spend(self, n: int) -> None:
        """Count ``n`` units of cost. Raises CostLimitError above the limit, or if no client waits for the result any more."""
        self.cost += n
        if self.cost > self._looks:
            self._look()

    def _look(self) -> None:
        if self.cost > self.limit or abandoned():
            raise CostLimitError
        self._looks = min(self.limit, self.cost + LOOKS_EVERY)

    def reserve(self, n: int) -> None:
        """Raise CostLimitError if ``n`` units exceed what is left; they are counted later."""
        if self.cost + n > self.limit:
            self.spend(n)


Step = Callable[[Frame], Any]


class Constant:
    """A step with a fixed value that costs nothing."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self, frame: Frame) -> Any:
        return self.value


class Attribute:
    """A variable, a value or a choice of two attributes, and a path from there.

    Each element of the path is (key or the step that computes it, whether it is computed, whether it is optional).
    """

    __slots__ = ("choice", "operand", "path", "text_keys", "variable")

    def __init__(self, variable: str = "", operand: Step | None = None, choice: tuple[Step, Attribute, Attribute] | None = None) -> None:
        self.variable, self.operand, self.choice = variable, operand, choice
        self.text_keys = False
        self.path: list[tuple[Any, bool, bool]] = []

    def __call__(self, frame: Frame) -> Any:
        try:
            return self.resolve(frame)
        finally:
            if self.choice is None:
                frame.spend(1)

    def resolve(self, frame: Frame) -> Any:
        """Return the value that the whole chain of selections denotes in this frame."""
        if self.choice is not None:
            condition, yes, no = self.choice
            chosen = condition(frame)
            if chosen is not True and chosen is not False:
                raise EvaluationError("no such overload")
            value = (yes if chosen else no).resolve(frame)
        elif self.operand is not None:
            value = self.operand(frame)
        else:
            try:
                value = frame.variables[self.variable]
            except KeyError:
                raise EvaluationError(f"no such attribute(s): {self.variable}") from None
            if type(value) in _NONE:
                raise value.error.again() if type(value) is _Failed else EvaluationError(value.why)
        return self.follow(frame, value) if self.path else value

    def follow(self, frame: Frame, value: Any) -> Any:
        """Apply the chain's path to ``value``; optional elements end in ``optional.none()`` where a member is missing."""
        maybe = False
        for key, computed, optional in self.path:
            if isinstance(value, Optional):
                if not value.present:
                    return NONE
                value, maybe = value.value, True
            if computed:
                place = key
                key = place.resolve(frame) if isinstance(place, Attribute) else place(frame)
                if type(key) not in _KEYS:
                    if not (maybe or optional):
                        frame.spend(1)
                    raise EvaluationError(_no_key(key, isinstance(place, Attribute) and bool(place.variable)))
            maybe = maybe or optional
            if maybe:
                found, held = lookup(value, key)
                if not found:
                    if self.text_keys and type(key) is not str and isinstance(value, dict):
                        raise EvaluationError(NO_OVERLOAD)
                    return NONE
                value = held
                frame.spend(1)
            else:
                frame.spend(1)
                value = qualify(value, key, self.text_keys)
        return Optional(value) if maybe and not isinstance(value, Optional) else value


_KEYS = frozenset((str, int, Uint, float, bool))  # the allowed types of keys in brackets


def _no_key(key: Any, read: bool = False) -> str:
    return f"invalid qualifier type: {go_type(key, read)}"


def lookup(value: Any, key: Any) -> tuple[bool, Any]:
    """Return whether there is a value at ``key``, and the value. Raises EvaluationError if it cannot be read."""
    if isinstance(value, dict):
        if isinstance(key, (list, dict)):
            return False, None
        key = as_key(_number(key))
        return (True, _read(value[key])) if key in value else (False, None)
    if isinstance(value, list):
        i = _index(key)
        return (True, _read(value[i])) if 0 <= i < len(value) else (False, None)
    return False, None


def _read(value: Any) -> Any:
    if type(value) is Unreadable:
        raise EvaluationError(value.why)
    return value


def _number(key: Any) -> Any:
    return int(key) if isinstance(key, float) and key.is_integer() else key


def _index(key: Any) -> int:
    if isinstance(key, float) and key.is_integer() and abs(key) < MAX_INDEX:
        return int(key)
    if isinstance(key, int) and not isinstance(key, bool) and key <= MAX_INDEX:
        return int(key)
    from kas.cel.values import type_of_value

    if type_of_value(key).kind in ("double", "uint"):
        raise EvaluationError(f"unsupported index value {_shown(key)} in list")
    raise EvaluationError(f"unsupported index type '{type_of_value(key)}' in list")


def _shown(number: float) -> str:
    """Format a number as Go's ``%v``."""
    if not isinstance(number, float):
        return str(int(number))
    if math.isfinite(number):
        return go_float(number)
    return "NaN" if math.isnan(number) else f"{'+' if number > 0 else '-'}Inf"


def qualify(value: Any, key: Any, text_keys: bool = False) -> Any:
    """Return the member, item or field ``key`` of a value. Raises EvaluationError in cel-go's words if there is none."""
    found, out = lookup(value, key)
    if found:
        return out
    if text_keys and type(key) is not str and isinstance(value, dict):
        raise EvaluationError(NO_OVERLOAD)
    if isinstance(value, list):
        raise EvaluationError(f"index out of bounds: {_index(key)}")
    if isinstance(key, bool):
        raise EvaluationError(f"no such key: {str(key).lower()}")
    raise EvaluationError(f"no such key: {_shown(key) if isinstance(key, float) else key}")


def plan(node: Node, functions: Mapping[str, Function], text_keys: bool = False) -> Step:
    """Return the tree as a function; ``text_keys`` as in Environment. Raises ProgramError."""
    return _Planner(functions, text_keys).plan(node)


class _Planner:
    def __init__(self, functions: Mapping[str, Function], text_keys: bool) -> None:
        self.functions, self.text_keys = functions, text_keys
        self.shared: dict[int, Step] = {}

    def plan(self, node: Node) -> Step:
        if not node.shared:
            return self._plan(node)
        step = self.shared.get(id(node))
        if step is None:
            step = self.shared[id(node)] = self._plan(node)
        return step

    def _plan(self, node: Node) -> Step:
        if isinstance(node, Const):
            return Constant(node.value)
        if isinstance(node, Ident):
            return self.named(node.variable)
        if isinstance(node, Select):
            return self.select(node)
        if isinstance(node, Call):
            return self.call(node)
        if isinstance(node, ListOf):
            return self.list_of(node)
        if isinstance(node, MapOf):
            return self.message(node) if node.name else self.map_of(node)
        assert isinstance(node, Fold)
        return self.fold(node)

    def named(self, variable: Any) -> Step:
        return Constant(variable.constant) if variable.constant is not None else Attribute(variable.name)

    # --- places

    def place(self, node: Node) -> Attribute:
        """Return the node as the start of a path: a new Attribute, which may be extended."""
        step = self.plan(node)
        if not isinstance(step, Attribute) or node.shared:
            return Attribute(operand=step)
        return step

    def select(self, node: Select) -> Step:
        if node.variable is not None and not node.test:
            return self.named(node.variable)
        at = self.place(node.operand)
        if not node.test:
            at.path.append((node.field, False, False))
            return at
        field = node.field

        def has(frame: Frame) -> bool:
            value = at.resolve(frame)
            frame.spend(1)  # for the test itself; not counted if the path ends before it
            if isinstance(value, Optional):
                value = value.value if value.present else None
            return lookup(value, field)[0] if isinstance(value, (dict, list)) else False

        return has

    def index(self, operand: Node, key: Node, optional: bool) -> Step:
        at = self.place(operand)
        step = self.plan(key)
        at.text_keys = self.text_keys and not _is_written(operand)
        if not isinstance(step, Constant):
            at.path.append((step, True, optional))
            return at
        if type(step.value) not in _KEYS:
            raise ProgramError(_no_key(step.value))
        at.path.append((step.value, False, optional))
        return at

    # --- calls

    def call(self, node: Call) -> Step:
        name, args = node.function.removeprefix("."), node.args
        if name in ("_[_]", "_[?_]", "_?._"):
            return self.index(args[0], args[1], name != "_[_]")
        if name == "_?_:_":
            return Attribute(choice=(self.plan(args[0]), self.place(args[1]), self.place(args[2])))
        if name in ("_&&_", "_||_"):
            return _logic(self.plan(args[0]), self.plan(args[1]), name == "_||_")
        steps = [self.plan(a) for a in ([node.target, *args] if node.target is not None else args)]
        if node.target is not None and name in ("or", "orValue") and len(steps) == 2:
            return _fallback(steps[0], steps[1], name == "orValue")
        if name == "@not_strictly_false":
            return _not_strictly_false(steps[0])
        function = self.functions[name]
        if name in CONVERSIONS and len(steps) == 1 and isinstance(steps[0], Constant):
            try:
                return Constant(function.run(steps[0].value))
            except EvaluationError as e:
                raise ProgramError(str(refused(name, [steps[0].value]) if str(e) == NO_OVERLOAD else e)) from None
        if name in SEARCHES and len(steps) > 1 and isinstance(steps[1], Constant) and isinstance(steps[1].value, str):
            try:
                compiled(steps[1].value)
            except RegexError as e:
                raise ProgramError(str(e)) from None
        if name in SEARCHES and len(steps) > 1 and not isinstance(steps[1], Constant):
            function = _compiling(function)
        overload = node.overloads[0].id if len(node.overloads) == 1 else ""
        if name == "@in" and overload == "in_list" and isinstance(steps[1], Constant) and not steps[1].value:
            return Constant(False)  # the searched value is not even evaluated
        if name == "@in" and overload == "in_list" and isinstance(steps[1], Constant) and _plain(steps[1].value):
            return _membership(steps[0], steps[1].value)
        if name == "@in" and self.text_keys and not _is_written(args[1]):
            return _invoke(text_in(function), overload, steps)
        if name == "_+_":
            if not isinstance(args[-1], ListOf):
                return _sum(function, overload, steps)
            if isinstance(args[0], Ident) and args[0].name == ACCUMULATOR:
                return _grown(function, steps)
        if name == "cel.@mapInsert" and isinstance(args[0], Ident) and args[0].name == ACCUMULATOR:
            return _invoke(Function(name, function.overloads, insert), overload, steps)
        return _invoke(function, overload, steps)

    # --- containers

    def list_of(self, node: ListOf) -> Step:
        steps = [self.plan(x) for x in node.items]
        if not node.optional and all(isinstance(s, Constant) for s in steps):
            return Constant([s.value for s in steps if isinstance(s, Constant)])
        optional = node.optional

        def make(frame: Frame) -> list[Any]:
            out = []
            for i, step in enumerate(steps):
                value = step(frame)
                if i in optional:
                    if not isinstance(value, Optional):
                        raise EvaluationError("cannot initialize optional list element from non-optional value")
                    if not value.present:
                        continue
                    value = value.value
                out.append(value)
            frame.spend(LIST_COST)
            return out

        return make

    def map_of(self, node: MapOf) -> Step:
        entries = [(self.plan(k), self.plan(v), optional) for k, v, optional in node.entries]
        if all(isinstance(k, Constant) and isinstance(v, Constant) and not o for k, v, o in entries) and not any(
            isinstance(k, Constant) and isinstance(k.value, (list, dict)) for k, _, _ in entries
        ):
            return Constant({as_key(k.value): v.value for k, v, _ in entries if isinstance(k, Constant) and isinstance(v, Constant)})

        def make(frame: Frame) -> dict[Any, Any]:
            out: dict[Any, Any] = {}
            for key, step, optional in entries:
                k, v = hashable(key(frame)), step(frame)
                if optional:
                    v = _entry(k, v)
                if v is _ABSENT:
                    out.pop(k, None)
                else:
                    out[k] = v
            frame.spend(MAP_COST)
            return out

        return make

    def message(self, node: MapOf) -> Step:
        entries, name = [(field, self.plan(value), optional) for (field, _), value, optional in node.entries], node.name.removeprefix(".")

        known = messages.fields_of(name) is not None

        def make(frame: Frame) -> Any:
            out = Message(name)
            for field, step, optional in entries:
                value = _entry(field, step(frame)) if optional else step(frame)
                if value is not _ABSENT:
                    out[field] = value
            frame.spend(STRUCT_COST)
            return messages.make(name, out) if known else out

        return make

    def fold(self, node: Fold) -> Step:
        ranged, init, condition = self.plan(node.range), self.plan(node.init), self.plan(node.condition)
        step, result = self.plan(node.step), self.plan(node.result)
        first, second, accumulator = node.variable, node.second, node.accumulator
        names = [n for n in (first, second, accumulator) if n]

        def run(frame: Frame) -> Any:
            items = ranged(frame)
            if not isinstance(items, (list, dict)):
                raise not_iterable(items, bool(second))
            outer = frame.variables
            frame.variables = inner = outer.copy()
            try:
                begun = _value(init, frame)
                inner[accumulator] = begun.copy() if type(begun) in (list, dict) and accumulator == ACCUMULATOR else begun
                pairs = items.items() if isinstance(items, dict) else enumerate(items)
                for k, v in pairs:
                    if second:
                        inner[first], inner[second] = key_value(k), v
                    else:
                        inner[first] = key_value(k) if isinstance(items, dict) else v
                    if condition(frame) is not True:
                        break
                    inner[accumulator] = _value(step, frame)
                for name in names[:-1]:
                    inner.pop(name, None)
                return result(frame)
            finally:
                frame.variables = outer

        return run


def hashable(key: Any) -> Any:
    """Return a map key in the form in which maps store it.

    Raises EvaluationError for lists and maps, which CEL does not allow as keys; a dyn value may be one.
    """
    if isinstance(key, (list, dict)):
        raise EvaluationError(f"unsupported key type: {_go_type(key)}")
    return as_key(key)


_ABSENT = object()


def _entry(key: Any, value: Any) -> Any:
    """Return the value of an entry written ``?key: value``, or _ABSENT."""
    if not isinstance(value, Optional):
        raise EvaluationError(f"cannot initialize optional entry '{key}' from non-optional value")
    return value.value if value.present else _ABSENT


def _go_type(v: Any) -> str:
    from kas.cel.values import type_of_value

    return str(type_of_value(v))


class _Failed:
    """An error as the value of an accumulator: it is only raised if it is still there at the end."""

    __slots__ = ("error",)

    def __init__(self, error: EvaluationError) -> None:
        self.error = error


_NONE = frozenset((_Failed, Unreadable))  # stand-ins for values that expressions cannot have


def _value(step: Step, frame: Frame) -> Any:
    try:
        return step(frame)
    except CostLimitError:
        raise
    except EvaluationError as e:
        return _Failed(e.bare())


def _logic(left: Step, right: Step, deciding: bool) -> Step:
    """Return ``||`` if ``deciding`` is true, else ``&&``: a deciding operand overrides an error in the other."""

    def run(frame: Frame) -> bool:
        failed: EvaluationError | None = None
        a: Any = None
        try:
            a = left(frame)
            if a is deciding:
                return deciding
        except CostLimitError:
            raise
        except EvaluationError as e:
            failed = e.bare()
        b: Any = None
        try:
            b = right(frame)
        except CostLimitError:
            raise
        except EvaluationError:
            if failed is None:  # else the first error is reported
                raise
        if b is deciding:
            return deciding
        if failed is not None:
            raise failed.again()
        if not isinstance(a, bool) or not isinstance(b, bool):
            raise EvaluationError("no such overload")
        return not deciding

    return run


def _not_strictly_false(step: Step) -> Step:
    def run(frame: Frame) -> bool:
        value: Any = True
        try:
            value = step(frame)
        except CostLimitError:
            raise
        except EvaluationError:
            pass
        frame.spend(1)
        return value if isinstance(value, bool) else True

    return run


def _fallback(first: Step, second: Step, unwrap: bool) -> Step:
    def run(frame: Frame) -> Any:
        value = first(frame)
        if not isinstance(value, Optional):
            raise EvaluationError("no such overload")
        if value.present:
            return value.value if unwrap else value
        return second(frame)

    return run


def _is_written(node: Node) -> bool:
    """Whether the node is a map literal."""
    while isinstance(node, Call) and node.function == "dyn" and node.args:
        node = node.args[0]
    return isinstance(node, MapOf)


def text_in(function: Function) -> Function:
    """Return ``in`` for maps that only have string keys."""
    run = function.run

    def found(a: Any, b: Any) -> bool:
        if not isinstance(b, dict):
            return run(a, b)
        if type(a) is not str:
            raise EvaluationError(NO_OVERLOAD)
        return lookup(b, a)[0]

    return Function(function.name, function.overloads, found, function.cost, function.ahead)


def _plain(values: list[Any]) -> bool:
    return all(isinstance(v, (str, bytes, bool, int, float)) and not isinstance(v, TypeValue) for v in values) and bool(values)


def _membership(step: Step, values: list[Any]) -> Step:
    """Return ``in`` for a constant list: as upstream a hash lookup without cost, as the list may be as long as an expression allows."""
    doubles = {v for v in values if isinstance(v, float)}
    exact = {as_key(v) for v in values if not isinstance(v, float)}
    rounded = {float(v) for v in values if is_number(v)}

    def run(frame: Frame) -> bool:
        value = step(frame)
        if isinstance(value, float):
            return value == value and value in rounded
        if is_number(value):
            return value in exact or float(value) in doubles
        return as_key(value) in exact if isinstance(value, (str, bytes, bool)) else equal(value, values[0])

    return run


def _invoke(function: Function, overload: str, steps: list[Step]) -> Step:
    run, cost, ahead = function.settled.get(overload, function.run), function.cost, function.ahead
    patient = len(steps) <= 2
    searches = function.name in SEARCHES and len(steps) > 1 and isinstance(steps[1], Constant)

    def call(frame: Frame) -> Any:
        failed: EvaluationError | None = None
        values: list[Any] = []
        for step in steps:
            try:
                values.append(step(frame))
            except CostLimitError:
                raise
            except EvaluationError as e:
                # With one or two arguments, all are evaluated even if one fails.
                if not patient:
                    raise
                failed = failed or e.bare()
                values.append(e.bare())
        result: Any = None
        try:
            if failed is not None:
                raise failed.again()
            if ahead is not None:
                frame.reserve(ahead(values, frame.limit - frame.cost))
            result = run(*values)
        except CostLimitError:
            raise
        except EvaluationError as e:
            frame.spend(1 if cost is None else cost(overload, values, e))
            if failed is None and str(e) == NO_OVERLOAD:
                raise refused(function.name, values, searches) from None
            raise
        if cost is not None:
            frame.spend(cost(overload, values, result))
        else:
            frame.spend(1 if type(result) is not str or len(result) < FREE else len(result) // 10)
        return result

    return call


def insert(into: dict[Any, Any], *more: Any) -> dict[Any, Any]:
    """Add entries to a macro's map in place: no one else has a reference to it, so it is not copied each time."""
    added = more[0] if len(more) == 1 else {hashable(more[0]): more[1]}
    for k in added:
        if k in into:
            raise EvaluationError(f"insert failed: key {k} already exists")
    into.update(added)
    return into


def _compiling(function: Function) -> Function:
    """Wrap a function whose pattern is computed at run time: compiling a large pattern takes more than upstream's cost covers."""
    def cost(called: str, values: list[Any], result: Any) -> int:
        found = 1 if function.cost is None else function.cost(called, values, result)
        try:
            made = compiled(values[1]).instructions if isinstance(values[1], str) else 0
        except RegexError as e:
            made = MOST_INSTRUCTIONS if TOO_LARGE in str(e) else 0
        return found + max(0, made - FREE) // 10

    return Function(function.name, function.overloads, function.run, cost, function.ahead)


def _grown(function: Function, steps: list[Step]) -> Step:
    """Return the step that appends to a macro's list in place: no one else has a reference to it, so it is not copied each time."""
    add, (accumulated, more) = function.run, steps

    def call(frame: Frame) -> Any:
        result, found = accumulated(frame), more(frame)
        if type(result) is list:
            result += found
        else:
            result = add(result, found)
        frame.spend(1)
        return result

    return call


def _sum(function: Function, overload: str, steps: list[Step]) -> Step:
    """Return the sum of lists, charging for long results.

    Upstream's sums refer to their parts; ours are copies. Thirty sums, each of the previous one with itself, would exhaust the memory, so
    the length beyond FREE costs.
    """
    def cost(called: str, values: list[Any], result: Any) -> int:
        found = 1 if function.cost is None else function.cost(called, values, result)
        return found + max(0, len(result) - FREE) if type(result) is list else found

    def ahead(values: list[Any], room: int) -> int:
        a, b = values
        if not (isinstance(a, list) and isinstance(b, list)):
            return 0
        return max(len(a) + len(b) - FREE, 0 if function.ahead is None else function.ahead(values, room))

    return _invoke(Function(function.name, function.overloads, function.run, cost, ahead), overload, steps)
