"""The JSON paths of a custom resource's printer columns (client-go's ``jsonpath``, with missing keys allowed).

Supported are ``.field`` (a backslash escapes a dot in it), ``['field']``, ``[n]``, ``[from:to:step]``, ``[*]``, ``.*``, ``..field``,
unions and filters ``[?(@.type=="Ready")]``. A path is parsed once and then applied to many objects.

Each ``..`` may yield, for every value found before, all values below it: five in a row yield millions in an object of 500 bytes. So the
cost of evaluating a value's paths is bounded in proportion to its size (``Walk``).
"""

from __future__ import annotations

import contextlib
import operator
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from kas.meta.scalars import decimal

STEPS, STEPS_A_NODE = 10_000, 16  # limits for all paths of one value; paths are applied to many values
MAX_DEPTH = 50  # of nested filters

_FIELD = re.compile(r"(?:\\.|[^.,\[\]\\\s$@{}])+")
_FIELD_OF_FILTER = re.compile(r"(?:\\.|[^.,\[\]\\\s$@{}()=<>!])+")
_WORD = re.compile(r"\w+")
_INDEX = re.compile(r"-?[0-9]+")
_SLICE = re.compile(r"(-?[0-9]+)?:(-?[0-9]+)?(?::(-?[0-9]+))?")
_COMPARISON = re.compile(r"\s*(==|!=|<=|>=|<|>)\s*")
_COMPARE = {"==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_QUOTED = re.compile(r"""'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)\"""")
_NAME = re.compile(r"'([^']*)'")
_BLANKS = re.compile(" +")
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")


class PathError(ValueError):
    """The path cannot be parsed, or cannot be applied to a value."""


class _NoMoreError(Exception):
    """A slice selects no elements: upstream then ignores the remaining values of the step."""


class Walk:
    """The remaining budget of steps for all paths of ``value`` together."""

    __slots__ = ("_left", "_value")

    def __init__(self, value: Any) -> None:
        self._left, self._value = STEPS, value

    def spend(self, steps: int) -> None:
        """Use up some steps. Raises PathError if the budget is exceeded."""
        self._left -= steps
        if self._left < 0:
            if self._value is not None:
                self._left += STEPS_A_NODE * sum(1 for _ in _nodes(self._value))
                self._value = None
            if self._left < 0:
                raise PathError("it takes too many steps")


Step = Callable[[Any, Walk], Iterable[Any]]


def _field(name: str) -> Step:
    def step(value: Any, walk: Walk) -> Iterable[Any]:
        return (value[name],) if isinstance(value, dict) and name in value else ()

    return step


def _inside(value: Any) -> Collection[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _nodes(value: Any) -> Iterator[Any]:
    """Yield the value and everything below it, in document order."""
    ahead = [iter((value,))]
    while ahead:
        for one in ahead[-1]:
            yield one
            ahead.append(iter(_inside(one)))
            break
        else:
            ahead.pop()


def _children(value: Any, walk: Walk) -> Iterable[Any]:
    found = _inside(value)
    walk.spend(len(found))
    return found


def _recursive(value: Any, walk: Walk) -> Iterator[Any]:
    for one in _nodes(value):
        walk.spend(1)
        yield one


def _slice(start: int | None, stop: int | None, step: int | None) -> Step:
    """Return a slice step. Unlike in Python, a slice beyond the end of the list fails."""

    def take(value: Any, walk: Walk) -> Iterable[Any]:
        if value is None:
            return ()
        if not isinstance(value, list):
            raise PathError(f"{type(value).__name__} is not a list")
        count = len(value)
        first = (start or 0) + (count if (start or 0) < 0 else 0)
        last = count if stop is None else stop + (count if stop < 0 else 0)
        if first == last:
            raise _NoMoreError
        if not 0 <= first < count or not first < last <= count or (step is not None and step <= 0):
            raise PathError(f"no elements {first} to {last} of {count}")
        walk.spend(last - first)
        return value[first:last:step]

    return take


def _index(at: int) -> Step:
    def take(value: Any, walk: Walk) -> Iterable[Any]:
        if value is None:
            return ()
        if not isinstance(value, list) or not -len(value) <= at < len(value):
            raise PathError(f"no element {at}")
        return (value[at],)

    return take


def _union(steps: list[Step]) -> Step:
    def step(value: Any, walk: Walk) -> Iterable[Any]:
        walk.spend(len(steps))
        return [found for step in steps for found in _each((value,), step, walk)]

    return step


def _each(values: Iterable[Any], step: Step, walk: Walk) -> list[Any]:
    out: list[Any] = []
    with contextlib.suppress(_NoMoreError):
        for value in values:
            out.extend(step(value, walk))
    return out


def _apply(steps: Iterable[Step], value: Any, walk: Walk) -> list[Any]:
    found = [value]
    for step in steps:
        walk.spend(len(found))
        found = _each(found, step, walk)
    return found


class _Parser:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.fans = 0  # number of steps that can yield several values
        self.deep = False  # whether steps can yield more values than their input contains
        self._depth = 0

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self.text, self.at)
        if found:
            self.at = found.end()
        return found

    def take(self, text: str) -> bool:
        if self.text.startswith(text, self.at):
            self.at += len(text)
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.take(text):
            raise PathError(f"{text!r} expected at {self.at} of {self.text!r}")

    def steps(self, stop: str = "") -> list[Step]:
        """Parse steps up to the end of the text or, with a stop text, up to where no step follows."""
        out: list[Step] = []
        while self.at < len(self.text):
            if self.take(".."):
                if out and out[-1] is _recursive:
                    raise PathError(f"two descents at {self.at} of {self.text!r}")
                self.deep = True
                out.append(_recursive)
                if self.text[self.at : self.at + 1].isalnum() or self.text.startswith("_", self.at):
                    out.append(self.named(stop))
            elif self.take("."):
                out.append(self.named(stop))
            elif self.take("["):
                out.append(self.bracket())
            elif self.text[self.at] in "@$":
                self.at += 1  # stands for the current value: no step
            elif stop:
                break
            elif self.text[self.at] == " ":
                self.at += 1
            elif found := self.match(_WORD):
                out.append(_unknown(found[0]))
            else:
                raise PathError(f"unexpected {self.text[self.at]!r} at {self.at} of {self.text!r}")
        return out

    def named(self, stop: str) -> Step:
        """Parse a field name. An empty name is the field "", which hardly any map has."""
        found = self.match(_FIELD_OF_FILTER if stop else _FIELD)
        if found is None:
            return _field("")
        if found[0] == "*":
            self.fans += 1
            return _children
        return _field(re.sub(r"\\(.)", r"\1", found[0]))

    def bracket(self) -> Step:
        if self.take("?("):
            self._depth += 1
            if self._depth > MAX_DEPTH:
                raise PathError(f"filters stand more than {MAX_DEPTH} deep")
            step = self.filter()
            self._depth -= 1
            self.fans += 1
            self.expect(")")
        else:
            spaced, steps = self.match(_BLANKS), [self.element()]
            spaced = self.match(_BLANKS) or spaced
            while self.take(","):
                self.match(_BLANKS)
                steps.append(self.element())
                self.match(_BLANKS)
            if spaced and len(steps) == 1:  # only the parts of a union may have blanks around them
                raise PathError(f"blank before {self.at} of {self.text!r}")
            self.deep = self.deep or len(steps) > 1
            step = steps[0] if len(steps) == 1 else _union(steps)
        self.expect("]")
        return step

    def element(self) -> Step:
        if self.take("*"):
            self.fans += 1
            return _slice(None, None, None)
        if self.text.startswith("]", self.at):
            return _index(0)
        if found := self.match(_NAME):
            # Parsed as a separate path: a dot in it needs a backslash, too.
            inner = _Parser(f".{found[1]}")
            steps = inner.steps()
            self.fans, self.deep = self.fans + inner.fans, self.deep or inner.deep
            return steps[0] if len(steps) == 1 else lambda value, walk: _apply(steps, value, walk)
        if found := self.match(_SLICE):
            self.fans += 1
            return _slice(*(decimal(n) if n else None for n in found.groups()))
        if found := self.match(_INDEX):
            return _index(decimal(found[0]))
        raise PathError(f"index or name expected at {self.at} of {self.text!r}")

    def operand(self) -> Callable[[Any, Walk], list[Any]]:
        if self.take("@"):
            steps = self.steps(stop=")")
            return lambda value, walk: _apply(steps, value, walk)
        if found := self.match(_QUOTED):
            return _constant(re.sub(r"\\(.)", r"\1", found[1] if found[1] is not None else found[2]))
        if found := self.match(_NUMBER):
            return _constant(float(found[0]) if "." in found[0] else decimal(found[0]))
        for word, constant in (("true", True), ("false", False)):
            if self.take(word):
                return _constant(constant)
        if found := self.match(_WORD):
            return _unknown(found[0])
        raise PathError(f"operand expected at {self.at} of {self.text!r}")

    def filter(self) -> Step:
        left = self.operand()
        comparison = self.match(_COMPARISON)
        right = self.operand() if comparison else None

        def keep(item: Any, walk: Walk) -> bool:
            mine = left(item, walk)
            if right is None:
                return bool(mine)
            other = right(item, walk)
            if not mine or not other:
                return False
            if type(mine[0]) is not type(other[0]) and not (_is_number(mine[0]) and _is_number(other[0])):
                return False
            return _COMPARE[comparison[1]](mine[0], other[0])  # type: ignore[index]

        def step(value: Any, walk: Walk) -> Iterable[Any]:
            if not isinstance(value, list):
                raise PathError(f"{type(value).__name__} is not a list")
            walk.spend(len(value))
            return [item for item in value if keep(item, walk)]

        return step


def _constant(value: Any) -> Callable[[Any, Walk], list[Any]]:
    return lambda _, walk: [value]


def _unknown(word: str) -> Callable[[Any, Walk], list[Any]]:
    def fail(value: Any, walk: Walk) -> list[Any]:
        raise PathError(f"unrecognized identifier {word}")

    return fail


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class Path:
    """A parsed path. ``fans`` is its number of steps that can yield several values; ``deep``: it can yield more than its input contains."""

    __slots__ = ("_steps", "deep", "fans")

    def __init__(self, text: str) -> None:
        """Parse ``text``. Raises PathError."""
        parser = _Parser(text.strip())
        self._steps = parser.steps()
        self.fans, self.deep = parser.fans, parser.deep

    def __call__(self, value: Any, walk: Walk | None = None) -> list[Any]:
        """Return all results in a value; ``walk`` is shared by all paths of the value. Raises PathError."""
        return _apply(self._steps, value, walk or Walk(value))
