"""The JSON paths of a custom resource's printer columns (client-go's ``jsonpath``, with missing keys allowed).

Known are ``.field`` (a backslash escapes a dot in it), ``['field']``, ``[n]``, ``[from:to:step]``, ``[*]``, ``.*``, ``..field``,
unions and filters ``[?(@.type=="Ready")]``. A path is parsed once and then applied to many objects.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kas.meta.scalars import decimal

Step = Callable[[Any], Iterable[Any]]

_FIELD = re.compile(r"(?:\\.|[^.\[\]\\\s()=<>!&|])+")
_INDEX = re.compile(r"-?[0-9]+")
_SLICE = re.compile(r"(-?[0-9]+)?:(-?[0-9]+)?(?::(-?[0-9]+))?")
_COMPARISON = re.compile(r"\s*(==|!=|<=|>=|<|>)\s*")
_COMPARE = {"==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_QUOTED = re.compile(r"""'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)\"""")
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")


class PathError(ValueError):
    """The path cannot be parsed, or cannot be applied to a value."""


def _field(name: str) -> Step:
    def step(value: Any) -> Iterable[Any]:
        return (value[name],) if isinstance(value, dict) and name in value else ()

    return step


def _children(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _recursive(value: Any) -> Iterator[Any]:
    yield value
    for child in _children(value):
        yield from _recursive(child)


def _slice(start: int | None, stop: int | None, step: int | None) -> Step:
    """Unlike Python's, a slice that asks for elements the list does not have fails."""

    def take(value: Any) -> Iterable[Any]:
        if not isinstance(value, list):
            raise PathError(f"{value!r} is not a list")
        count = len(value)
        first = (start or 0) + (count if (start or 0) < 0 else 0)
        last = count if stop is None else stop + (count if stop < 0 else 0)
        if first == last:
            return ()
        if not 0 <= first < count or not first < last <= count or (step is not None and step <= 0):
            raise PathError(f"no elements {first} to {last} of {count}")
        return value[first:last:step]

    return take


def _index(at: int) -> Step:
    def take(value: Any) -> Iterable[Any]:
        if not isinstance(value, list) or not -len(value) <= at < len(value):
            raise PathError(f"no element {at}")
        return (value[at],)

    return take


def _union(steps: list[Step]) -> Step:
    return lambda value: [found for step in steps for found in step(value)]


def _apply(steps: Iterable[Step], value: Any) -> list[Any]:
    found = [value]
    for step in steps:
        found = [result for item in found for result in step(item)]
    return found


class _Parser:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

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
        """Steps up to the end of the text, or to where none follows if there is a stop text."""
        out: list[Step] = []
        while self.at < len(self.text):
            if self.take(".."):
                out.append(_recursive)
                found = self.match(_FIELD)
                if found:
                    out.append(self.named(found))
            elif self.take("."):
                if self.at == len(self.text) and not out:
                    break
                if self.text.startswith("[", self.at):
                    continue
                found = self.match(_FIELD)
                if not found:
                    raise PathError(f"field expected at {self.at} of {self.text!r}")
                out.append(self.named(found))
            elif self.take("["):
                out.append(self.bracket())
            elif stop:
                break
            else:
                raise PathError(f"unexpected {self.text[self.at]!r} at {self.at} of {self.text!r}")
        return out

    def named(self, found: re.Match[str]) -> Step:
        return _children if found[0] == "*" else _field(re.sub(r"\\(.)", r"\1", found[0]))

    def bracket(self) -> Step:
        if self.take("?("):
            step = self.filter()
            self.expect(")")
        else:
            steps = [self.element()]
            while self.take(","):
                steps.append(self.element())
            step = steps[0] if len(steps) == 1 else _union(steps)
        self.expect("]")
        return step

    def element(self) -> Step:
        if self.take("*"):
            return _children
        if found := self.match(_QUOTED):
            return _field(re.sub(r"\\(.)", r"\1", found[1] if found[1] is not None else found[2]))
        if found := self.match(_SLICE):
            return _slice(*(decimal(n) if n else None for n in found.groups()))
        if found := self.match(_INDEX):
            return _index(decimal(found[0]))
        raise PathError(f"index or name expected at {self.at} of {self.text!r}")

    def operand(self) -> Callable[[Any], list[Any]]:
        if self.take("@"):
            steps = self.steps(stop=")")
            return lambda value: _apply(steps, value)
        if found := self.match(_QUOTED):
            text = re.sub(r"\\(.)", r"\1", found[1] if found[1] is not None else found[2])
            return lambda value: [text]
        if found := self.match(_NUMBER):
            number = float(found[0]) if "." in found[0] else decimal(found[0])
            return lambda value: [number]
        for word, constant in (("true", True), ("false", False)):
            if self.take(word):
                return _constant(constant)
        raise PathError(f"operand expected at {self.at} of {self.text!r}")

    def filter(self) -> Step:
        left = self.operand()
        comparison = self.match(_COMPARISON)
        right = self.operand() if comparison else None

        def keep(item: Any) -> bool:
            mine = left(item)
            if right is None:
                return bool(mine)
            other = right(item)
            if not mine or not other:
                return False
            if type(mine[0]) is not type(other[0]) and not (_is_number(mine[0]) and _is_number(other[0])):
                return False
            return _COMPARE[comparison[1]](mine[0], other[0])  # type: ignore[index]

        def step(value: Any) -> Iterable[Any]:
            if not isinstance(value, list):
                raise PathError(f"{value!r} is not a list")
            return [item for item in value if keep(item)]

        return step


def _constant(value: Any) -> Callable[[Any], list[Any]]:
    return lambda _: [value]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def parse(path: str) -> Callable[[Any], list[Any]]:
    """A function that finds all results of ``path`` in a value; both raise PathError."""
    steps = _Parser(path.strip()).steps()
    return lambda value: _apply(steps, value)
