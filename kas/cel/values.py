"""Runtime values. Booleans, strings, bytes, lists, maps, null, int and double are Python's own; this module defines the others."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Mapping
from typing import Any

from kas.cel.problems import CostLimitError, EvaluationError
from kas.cel.types import BOOL, BYTES, DOUBLE, DURATION, DYN, INT, LIST, MAP, NULL, STRING, TIMESTAMP, TYPE, UINT, Type, struct
from kas.meta.scalars import DecodeError, civil_from_days, days_from_civil, int64

MIN_INT, MAX_INT, MAX_UINT = -(1 << 63), (1 << 63) - 1, (1 << 64) - 1
NS = 1_000_000_000
# 0001-01-01T00:00:00Z and 9999-12-31T23:59:59.999999999Z.
MIN_TIME, MAX_TIME = -62135596800 * NS, 253402300800 * NS - 1


class Uint(int):
    """An unsigned 64-bit number."""

    __slots__ = ()


class Duration:
    """A duration; ``ns`` is in nanoseconds, as Go's time.Duration."""

    __slots__ = ("ns",)

    def __init__(self, ns: int) -> None:
        if not MIN_INT <= ns <= MAX_INT:
            raise EvaluationError("integer overflow")
        self.ns = ns


class Timestamp:
    """A time; ``ns`` is nanoseconds since the Unix epoch, ``ahead`` the UTC offset, in seconds, of the text it was read from."""

    __slots__ = ("ahead", "ns")

    def __init__(self, ns: int, ahead: int = 0) -> None:
        if not MIN_TIME <= ns <= MAX_TIME:
            raise EvaluationError("timestamp overflow")
        self.ns, self.ahead = ns, ahead

    @classmethod
    def read(cls, ns: int, ahead: int = 0) -> Timestamp:
        """Return the value of a field, which may also be in the years 0 or 10000: only times made by expressions are bounded."""
        self = cls.__new__(cls)
        self.ns, self.ahead = ns, ahead
        return self

    def local(self, zone: str | None) -> Clock:
        """Return the wall clock in a zone; "" is UTC, None the time's own offset. Raises EvaluationError for unknown zones."""
        seconds = self.ns // NS
        return Clock(seconds + (self.ahead if zone is None else _offset(zone, seconds)))

    def text(self) -> str:
        """Format as RFC 3339 with the time's own offset and as many fractional digits as needed."""
        at = self.local(None)
        fraction = f".{self.ns % NS:09d}".rstrip("0") if self.ns % NS else ""
        hours, minutes = divmod(abs(self.ahead) // 60, 60)
        zone = f"{'-' if self.ahead < 0 else '+'}{hours:02d}:{minutes:02d}" if self.ahead else "Z"
        return f"{at.year:04d}-{at.month:02d}-{at.day:02d}T{at.hour:02d}:{at.minute:02d}:{at.second:02d}{fraction}{zone}"


class Clock:
    """The wall clock ``seconds`` after 1970; also supports years outside the range of Python's dates."""

    __slots__ = ("day", "day_of_year", "hour", "minute", "month", "second", "weekday", "year")

    def __init__(self, seconds: int) -> None:
        days, rest = divmod(seconds, 86400)
        self.year, self.month, self.day = civil_from_days(days)
        self.day_of_year = days - days_from_civil(self.year, 1, 1) + 1
        self.weekday = (days + 4) % 7  # Sunday is 0
        self.hour, self.minute, self.second = rest // 3600, rest // 60 % 60, rest % 60


# Within a day of the limits of Python's dates zones cannot be computed.
_FIRST, _LAST = MIN_TIME // NS + 172800, MAX_TIME // NS - 172800


def _offset(zone: str, seconds: int) -> int:
    """Return the UTC offset in seconds of a zone, or of an offset such as "-05:30", at that time (cel-go ``common/types/timestamp.go``)."""
    if not zone or zone == "UTC":
        return 0
    if ":" in zone:
        hours, _, minutes = zone.partition(":")
        try:
            h, m = int64(hours, "Atoi"), int64(minutes, "Atoi")
        except DecodeError as e:
            raise EvaluationError(str(e)) from None
        # An offset that exceeds Go's durations wraps around, as there.
        ns = (h * 60 + (-m if zone.startswith("-") else m)) * 60 * NS
        return int(((ns - MIN_INT) % (1 << 64) + MIN_INT) / NS)
    if ".." in zone or zone[0] in "/\\":
        raise EvaluationError("time: invalid location name")
    from zoneinfo import ZoneInfo  # imports the interpreter's build settings, and few expressions name a zone

    at = datetime.datetime.fromtimestamp(min(max(seconds, _FIRST), _LAST), datetime.UTC)
    try:
        there = at.astimezone(None if zone == "Local" else ZoneInfo(zone))
    except (KeyError, ValueError, OSError):
        raise EvaluationError(f"unknown time zone {zone}") from None
    return int((there.utcoffset() or datetime.timedelta()).total_seconds())


class TypeValue:
    """A type as a value: ``type(x)``, ``int``."""

    __slots__ = ("type",)

    def __init__(self, type: Type) -> None:
        self.type = type


class BoolKey:
    """A boolean as a map key. In Python True and 1 are the same key, in CEL they are two."""

    __slots__ = ("value",)

    def __init__(self, value: bool) -> None:
        self.value = value

    def __str__(self) -> str:
        return "true" if self.value else "false"


TRUE_KEY, FALSE_KEY = BoolKey(True), BoolKey(False)  # the only instances, so comparing by identity suffices


def as_key(value: Any) -> Any:
    """Return a value in the form of a map key."""
    if isinstance(value, bool):
        return TRUE_KEY if value else FALSE_KEY
    return value


def key_value(key: Any) -> Any:
    """Return the value of a map key."""
    return key.value if isinstance(key, BoolKey) else key


class Optional:
    """An optional value: present or none."""

    __slots__ = ("present", "value")

    def __init__(self, value: Any = None, present: bool = True) -> None:
        self.value, self.present = value, present


NONE = Optional(None, False)


class Opaque:
    """A value of a library type: its CEL type, and the key that defines equality."""

    __slots__ = ()
    cel_type: Type = DYN

    def key(self) -> Any:
        """The key by which values of the type are compared."""
        raise NotImplementedError


class SetList(list[Any]):
    """A list of type set: the order is irrelevant, and adding a member again has no effect (apiserver ``pkg/cel/common/values.go``).

    Upstream looks up members in the unconverted values, ``raw``: dates as text, and 1.0 in numbers written as 1.
    """

    __slots__ = ("raw",)

    def __init__(self, items: Iterable[Any], raw: list[Any]) -> None:
        super().__init__(items)
        self.raw = raw

    def same(self, other: list[Any], left: list[int]) -> bool:
        """Compare with a list of equal length whose members are all in this list, in any order."""
        if len(self) != len(other):
            return False
        _look(left, nodes([self, other]))
        mine = set(map(_raw, self.raw))
        return all(type(x) is not Unreadable and _raw(x) in mine for x in other)

    def __add__(self, other: list[Any]) -> SetList:
        out, known = SetList(self, self.raw.copy()), set(map(_raw, self.raw))
        for x in other:
            key = _raw(x)
            if key not in known or type(x) is Unreadable:
                known.add(key)
                out.append(x)
                out.raw.append(x)
        return out


def _raw(value: Any) -> Any:
    """As ``_member``, for Go, where 1 is not 1.0."""
    return (float, value) if type(value) is float else _member(value)


def _member(value: Any) -> Any:
    """Return a hashable key that is the same for equal values, to avoid comparing all pairs."""
    if type(value) is str:
        return value
    if isinstance(value, bool):
        return as_key(value)
    if isinstance(value, (Duration, Timestamp)):
        return type(value), value.ns
    if type(value) is Unreadable and isinstance(value.raw, (str, int, float)):
        return type(value.raw), value.raw
    if isinstance(value, list):
        return tuple(map(_member, value))
    if isinstance(value, dict):
        return frozenset((k, _member(v)) for k, v in value.items())
    return value


class MapList(list[Any]):
    """A list of type map: items are identified by their keys; adding an item replaces the one with the same keys."""

    __slots__ = ("keys",)

    def __init__(self, items: Iterable[Any], keys: tuple[str, ...]) -> None:
        super().__init__(items)
        self.keys = keys

    def _key(self, item: Any) -> Any:
        if not isinstance(item, dict):
            return object()  # an item without its keys equals no other
        hidden = item.rest if isinstance(item, Struct) else {}  # a key may be a field that expressions cannot name
        return tuple([_member(item[k] if k in item else hidden.get(k)) for k in self.keys])

    def same(self, other: list[Any], left: list[int]) -> bool:
        """Compare with a list of equal length whose items each equal this list's item with the same keys, in any order."""
        if len(self) != len(other):
            return False
        _look(left, nodes([self, other]))
        mine = {self._key(item): item for item in self}
        return all((key := self._key(x)) in mine and _equal(mine[key], x, left) for x in other)

    def __add__(self, other: list[Any]) -> MapList:
        places = {self._key(item): i for i, item in enumerate(self)}
        out = MapList(self, self.keys)
        for item in other:
            place = places.get(self._key(item))
            if place is None:
                out.append(item)
            else:
                out[place] = item
        return out


class Struct(dict[str, Any]):
    """The fields of ``obj`` that expressions see; ``known`` maps the schema's keys to their names in expressions.

    Entries that the schema does not declare, and null fields, which expressions cannot see, count when objects are compared (apiserver
    ``pkg/cel/common/values.go``).
    """

    __slots__ = ("_more", "known", "obj")

    def __init__(self, fields: dict[str, Any], obj: dict[str, Any], known: Mapping[str, str]) -> None:
        super().__init__(fields)
        self.obj, self.known = obj, known
        self._more: tuple[dict[str, Any], list[str]] | None = None  # lazily, as most are never compared

    @property
    def rest(self) -> dict[str, Any]:
        """The entries that the schema does not declare."""
        return self._hidden()[0]

    @property
    def nulls(self) -> list[str]:
        """The names of the null fields."""
        return self._hidden()[1]

    def _hidden(self) -> tuple[dict[str, Any], list[str]]:
        if self._more is None:
            known = self.known
            self._more = (
                {k: v for k, v in self.obj.items() if k not in known},
                [known[k] for k, v in self.obj.items() if v is None and k in known],
            )
        return self._more

    def __len__(self) -> int:
        rest, nulls = self._hidden()
        return super().__len__() + len(rest) + len(nulls)

    def same(self, other: dict[str, Any], left: list[int]) -> bool:
        """Compare with an object of the same schema and the same number of entries.

        A field that is null here must be absent there; undeclared entries are compared if the other object has them, too.
        """
        if len(self) != len(other):
            return False
        if any(name in other for name in self.nulls):
            return False
        if not all(k in other and _equal(v, other[k], left) for k, v in self.items()):
            return False
        others = other.rest if isinstance(other, Struct) else {}
        return all(k not in others or _same_json(v, others[k], left) for k, v in self.rest.items())


class Unreadable:
    """Stands for a value that does not fit its schema: using it fails. The ``raw`` value may still be the key of an item."""

    __slots__ = ("raw", "why")

    def __init__(self, why: str, raw: Any = None) -> None:
        self.why, self.raw = why, raw


class Message(dict[str, Any]):
    """An object of a message type made by an expression: its fields."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


def type_of_value(v: Any) -> Type:
    """Return the runtime type; containers without their parameters."""
    if v is None:
        return NULL
    kind = _TYPES.get(type(v))
    if kind is not None:
        return kind
    if isinstance(v, list):
        return LIST
    if isinstance(v, Optional):
        return Type("opaque", "optional_type")
    if isinstance(v, Message):
        return struct(v.name)
    if isinstance(v, dict):
        return MAP
    return v.cel_type if isinstance(v, Opaque) else DYN


_TYPES: dict[type, Type] = {
    bool: BOOL, int: INT, Uint: UINT, float: DOUBLE, str: STRING, bytes: BYTES, list: LIST, dict: MAP, Duration: DURATION,
    Timestamp: TIMESTAMP, TypeValue: TYPE,
}  # fmt: skip


def is_number(v: Any) -> bool:
    """Whether the value is an int, uint or double, but not a bool."""
    return isinstance(v, (int, float)) and not isinstance(v, bool)


def _alike(a: Any, b: Any) -> tuple[Any, Any]:
    """Convert two numbers for comparison: if one is a double, so becomes the other, which rounds integers beyond 2^53 (cel-go
    ``common/types/compare.go``). Python would compare the exact values.
    """
    return (float(a), float(b)) if isinstance(a, float) is not isinstance(b, float) else (a, b)


MOST_COMPARED = 1_000_000  # values visited by one comparison: a list may contain one list twice, which contains another twice, and so on


def equal(a: Any, b: Any) -> bool:
    """Compare heterogeneously: numbers by value, other values only equal values of their own type. Raises CostLimitError."""
    return _equal(a, b, [MOST_COMPARED] if isinstance(a, (list, dict, Optional)) else _SMALL)


_SMALL = [0]


def _equal(a: Any, b: Any, left: list[int]) -> bool:
    if is_number(a) and is_number(b):
        a, b = _alike(a, b)
        return a == b
    if isinstance(a, (SetList, MapList)) and isinstance(b, list):
        return a.same(b, left)
    if type(a) is Unreadable:
        raise EvaluationError(a.why)
    if type(a) is not type(b) and not (isinstance(a, list) and isinstance(b, list)) and not (type_of_value(a) is type_of_value(b) is MAP):
        return False
    if isinstance(a, list):
        _look(left, len(a))
        return len(a) == len(b) and all(_equal(x, y, left) or _unasked(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, Message) and a.name != b.name:
        return False
    if isinstance(a, dict):
        _look(left, len(a))
        if isinstance(a, Struct):
            return a.same(b, left)
        return len(a) == len(b) and all(k in b and (_equal(v, b[k], left) or _unasked(v, b[k])) for k, v in a.items())
    if isinstance(a, (Duration, Timestamp)):
        return a.ns == b.ns
    if isinstance(a, TypeValue):
        return a.type.name == b.type.name
    if isinstance(a, Optional):
        return a.present == b.present and (not a.present or _equal(a.value, b.value, left))
    if isinstance(a, Opaque):
        return a.cel_type == b.cel_type and a.key() == b.key()
    return a == b


def incomparable(a: Any, b: Any) -> bool:
    """Whether ``a`` has one of Kubernetes' own types and ``b`` another type."""
    return isinstance(a, Opaque) and not (isinstance(b, Opaque) and a.cel_type == b.cel_type)


def _unasked(a: Any, b: Any) -> bool:
    """Whether upstream cannot compare two members. Lists and maps with such members count as equal until others differ."""
    return b is not None and incomparable(a, b)


def _same_json(a: Any, b: Any, left: list[int]) -> bool:
    """Compare values that no schema describes: 1 is not 1.0."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, dict)):
        _look(left, len(a))
        if len(a) != len(b):
            return False
        if isinstance(a, list):
            return all(_same_json(x, y, left) for x, y in zip(a, b, strict=True))
        return all(k in b and _same_json(v, b[k], left) for k, v in a.items())
    return bool(a == b)


def _look(left: list[int], n: int) -> None:
    left[0] -= n
    if left[0] < 0:
        raise CostLimitError


def nodes(value: Any, most: int = MOST_COMPARED) -> int:
    """Return the number of values in ``value``, counting repetitions; at most ``most``."""
    found, ahead = 0, [value]
    while ahead and found < most:
        one = ahead.pop()
        found += 1
        if isinstance(one, (list, dict)):
            if len(ahead) + len(one) > most:
                return most
            ahead.extend(one.values() if isinstance(one, dict) else one)
            if isinstance(one, Struct):
                ahead.append(one.rest)
        elif isinstance(one, Optional) and one.present:
            ahead.append(one.value)
    return min(found, most)


def characters(value: Any, most: int) -> int:
    """Return the total length of the strings and bytes in ``value``, counting repetitions; more than ``most`` if it exceeds that.

    Use it only if ``nodes`` has returned a small number.
    """
    found, ahead = 0, [value]
    while ahead and found <= most:
        one = ahead.pop()
        if isinstance(one, (str, bytes)):
            found += len(one)
        elif isinstance(one, (list, dict)):
            ahead.extend(one)
            if isinstance(one, dict):
                ahead.extend(one.values())
        elif isinstance(one, Optional):
            ahead.append(one.value)
    return found


def units(value: Any, room: int) -> int:
    """Return the cost of visiting all of the value, a unit per ten values; more than ``room`` if above that or the comparison limit."""
    found = nodes(value, min(MOST_COMPARED, 10 * room + 20))
    return room + 1 if found >= MOST_COMPARED else found // 10


def order(a: Any, b: Any) -> int:
    """Return -1, 0 or 1. Raises EvaluationError for values without an order."""
    if is_number(a) and is_number(b):
        if (isinstance(a, float) and math.isnan(a)) or (isinstance(b, float) and math.isnan(b)):
            raise EvaluationError("NaN values cannot be ordered")
        a, b = _alike(a, b)
        return (a > b) - (a < b)
    if type(a) is type(b):
        if isinstance(a, (str, bytes, bool)):
            return (a > b) - (a < b)
        if isinstance(a, (Duration, Timestamp)):
            return (a.ns > b.ns) - (a.ns < b.ns)
    raise EvaluationError("no such overload")


def size(v: Any) -> int:
    """Return the size that costs are based on: elements, code points or bytes; 1 for other values."""
    if isinstance(v, (str, bytes, list, dict)):
        return len(v)
    return getattr(v, "cost_size", 1)
