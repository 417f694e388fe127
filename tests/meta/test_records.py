"""Records behave as ``typing.NamedTuple`` does for the same class."""

from __future__ import annotations

import copy
import pickle
import typing
from typing import Any, Generic, TypeVar

import pytest

from kas.meta import records

T = TypeVar("T")


def made(base: Any) -> Any:
    class Point(base):
        """A place."""

        x: int
        y: int = 2
        note: str = "none"

        @property
        def far(self) -> int:
            return abs(self.x) + abs(self.y)

        def __str__(self) -> str:
            return f"{self.x}|{self.y}"

    return Point


BOTH = pytest.mark.parametrize("point", [made(typing.NamedTuple), made(records.NamedTuple)], ids=["typing", "records"])


@BOTH
def test_records_behave_as_named_tuples(point):
    one = point(1)
    assert (one, one.y, one[2], len(one), one.far, str(one)) == ((1, 2, "none"), 2, "none", 3, 3, "1|2")
    assert one == point(x=1, y=2, note="none") == point(1, note="none") and hash(one) == hash((1, 2, "none"))
    assert repr(one) == "Point(x=1, y=2, note='none')" and repr(point((1, 2), None)) == "Point(x=(1, 2), y=None, note='none')"
    assert (point._fields, point.__match_args__, point._field_defaults) == (("x", "y", "note"),) * 2 + ({"y": 2, "note": "none"},)
    assert (type(point), point.__doc__, point.__module__, hasattr(one, "__dict__")) == (type, "A place.", __name__, False)
    assert (one._asdict(), list(one._asdict())) == ({"x": 1, "y": 2, "note": "none"}, ["x", "y", "note"])
    assert (one._replace(y=3, x=4), type(one._replace(x=1))) == ((4, 3, "none"), point)
    assert (point._make(iter("abc")), type(point._make("abc"))) == (("a", "b", "c"), point)
    assert copy.copy(one) == one == copy.deepcopy(one) and type(copy.copy(one)) is point
    assert one.__getnewargs__() == (1, 2, "none") and type(one.__getnewargs__()) is tuple
    match one:
        case point(1, far):
            assert far == 2
        case _:
            pytest.fail("no match")


@BOTH
def test_errors_of_records(point):
    for wrong in (lambda: point(), lambda: point(1, 2, 3, 4), lambda: point(1, z=2), lambda: point(1, x=2), lambda: point._make("ab")):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        point(y=1)
    with pytest.raises((ValueError, TypeError)):  # the latter since Python 3.13
        point(1)._replace(z=1)
    with pytest.raises(AttributeError):
        point(1).x = 2
    with pytest.raises(AttributeError):
        point(1).z = 2


class Pair(records.NamedTuple):
    left: int
    right: int


class Held(records.NamedTuple, Generic[T]):
    value: T


class More(Pair):
    @property
    def sum(self) -> int:
        return self.left + self.right


def test_records_that_are_pickled_generic_or_have_subclasses():
    assert pickle.loads(pickle.dumps(Pair(1, 2))) == Pair(1, 2)
    assert (Held[int](3).value, Held(value="x"), Held.__mro__[-3:]) == (3, ("x",), (tuple, Generic, object))
    assert (More(1, 2).sum, More(1, 2)._replace(left=5).sum, type(More(1, 2)._replace(left=5))) == (3, 7, More)


def test_classes_that_cannot_be_records():
    with pytest.raises(TypeError, match="behind one that has one"):

        class Behind(records.NamedTuple):
            a: int = 1
            b: int

    for fields in ({}, {"_a": int}, {f"a{i}": int for i in range(33)}):
        with pytest.raises(TypeError, match="between one and 32 fields"):
            type(records.NamedTuple)("Bad", (records.NamedTuple,), {"__annotations__": fields})
    with pytest.raises(TypeError, match="no base beside"):

        class Both(records.NamedTuple, Pair):
            a: int
