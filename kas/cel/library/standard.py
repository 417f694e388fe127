"""CEL's standard library (cel-go ``common/stdlib``) and optional values (``cel/library.go``)."""

from __future__ import annotations

import math
import re
from typing import Any

from kas.cel.library.declare import Library, of_first, on, plain, regex_cost, traversal
from kas.cel.problems import EvaluationError
from kas.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    LIST,
    MAP,
    NULL,
    STRING,
    TIMESTAMP,
    UINT,
    Type,
    list_of,
    map_of,
    optional_of,
    param,
    type_of,
)
from kas.cel.values import (
    MAX_INT,
    MAX_UINT,
    MIN_INT,
    MIN_TIME,
    NONE,
    NS,
    Duration,
    MapList,
    Opaque,
    Optional,
    SetList,
    Timestamp,
    TypeValue,
    Uint,
    Unreadable,
    equal,
    incomparable,
    is_number,
    nodes,
    order,
    size,
    type_of_value,
    units,
)
from kas.meta import duration
from kas.meta.field import go_float
from kas.meta.scalars import DecodeError, decimal, parse_zoned_time

LIB = Library()
A, B, V = param("A"), param("B"), param("V")
LIST_A, MAP_AB, OPTIONAL_V = list_of(A), map_of(A, B), optional_of(V)
NO_OVERLOAD = "no such overload"

# Names of types are values.
TYPES: dict[str, Type] = {
    "bool": BOOL, "bytes": BYTES, "double": DOUBLE, "int": INT, "uint": UINT, "string": STRING, "null_type": NULL, "list": LIST, "map": MAP,
    "type": Type("type"), "google.protobuf.Duration": DURATION, "google.protobuf.Timestamp": TIMESTAMP,
    "optional_type": Type("opaque", "optional_type"), "dyn": DYN,
}  # fmt: skip
_DECLARED = {"list": list_of(DYN), "map": map_of(DYN, DYN), "optional_type": optional_of(DYN)}


def type_declared(name: str) -> Type:
    """Return the value of a name that denotes a type, such as ``int`` or ``string``."""
    return type_of(_DECLARED.get(name, TYPES[name]))


# --- operators


def _int(v: int) -> int:
    if not MIN_INT <= v <= MAX_INT:
        raise EvaluationError("integer overflow")
    return v


def _uint(v: int) -> Uint:
    if not 0 <= v <= MAX_UINT:
        raise EvaluationError("unsigned integer overflow")
    return Uint(v)


def _kind(v: Any) -> str:
    return type_of_value(v).kind


def _arithmetic(symbol: str):
    def run(a: Any, b: Any) -> Any:
        ka, kb = _kind(a), _kind(b)
        if ka == kb and ka in ("int", "uint"):
            if symbol in "/%" and b == 0:
                raise EvaluationError("division by zero" if symbol == "/" else "modulus by zero")
            out = _whole(symbol, int(a), int(b))
            return _int(out) if ka == "int" else _uint(out)
        if ka == kb == "double" and symbol != "%":
            return _real(symbol, a, b)
        if symbol == "+":
            return _plus(a, b, ka, kb)
        if symbol == "-":
            return _minus(a, b, ka, kb)
        raise EvaluationError(NO_OVERLOAD)

    return run


def _whole(symbol: str, a: int, b: int) -> int:
    if symbol == "+":
        return a + b
    if symbol == "-":
        return a - b
    if symbol == "*":
        return a * b
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    if a == -(1 << 63) and b == -1:
        return quotient  # an int overflow, for the remainder as well
    return quotient if symbol == "/" else a - quotient * b


def _real(symbol: str, a: float, b: float) -> float:
    if symbol == "+":
        return a + b
    if symbol == "-":
        return a - b
    if symbol == "*":
        return a * b
    if b == 0:
        return math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a) * math.copysign(1, b)
    return a / b


def _plus(a: Any, b: Any, ka: str, kb: str) -> Any:
    if ka == kb and ka in ("string", "bytes", "list"):
        return a + b
    if (ka == "timestamp" and kb == "duration") or (ka == "duration" and kb == "timestamp"):
        return Timestamp(a.ns + b.ns, a.ahead if isinstance(a, Timestamp) else b.ahead)
    if ka == kb == "duration":
        return Duration(a.ns + b.ns)
    raise EvaluationError(NO_OVERLOAD)


def _minus(a: Any, b: Any, ka: str, kb: str) -> Any:
    if ka == kb == "duration":
        return Duration(a.ns - b.ns)
    if ka == kb == "timestamp":
        # The difference in whole seconds must be a duration, too, which matters within a second of the least one.
        return Duration(Duration((a.ns // NS - b.ns // NS) * NS).ns + a.ns % NS - b.ns % NS)
    if ka == "timestamp" and kb == "duration":
        return Timestamp(a.ns + Duration(-b.ns).ns, a.ahead)  # the least duration cannot be negated, whatever it is subtracted from
    raise EvaluationError(NO_OVERLOAD)


def _added(overload: str, args: list[Any], result: Any) -> int:
    return traversal(size(args[0]) + size(args[1])) if overload in ("add_string", "add_bytes") else 1


def _to_add(args: list[Any], room: int) -> int:
    """Return the work of adding lists of type set and map, which examine everything in their members."""
    return units(args, room) if isinstance(args[0], (SetList, MapList)) else 0


# The first overload that accepts an operand of unknown type, such as the items of ``[]``, determines it; so upstream's order is kept.
LIB(
    "_+_",
    plain("add_bytes", [BYTES, BYTES], BYTES), plain("add_double", [DOUBLE, DOUBLE], DOUBLE),
    plain("add_duration_duration", [DURATION, DURATION], DURATION), plain("add_duration_timestamp", [DURATION, TIMESTAMP], TIMESTAMP),
    plain("add_timestamp_duration", [TIMESTAMP, DURATION], TIMESTAMP), plain("add_int64", [INT, INT], INT),
    plain("add_list", [LIST_A, LIST_A], LIST_A), plain("add_string", [STRING, STRING], STRING), plain("add_uint64", [UINT, UINT], UINT),
    cost=_added, ahead=_to_add,
)(_arithmetic("+"))  # fmt: skip
LIB(
    "_-_",
    plain("subtract_double", [DOUBLE, DOUBLE], DOUBLE), plain("subtract_duration_duration", [DURATION, DURATION], DURATION),
    plain("subtract_int64", [INT, INT], INT), plain("subtract_timestamp_duration", [TIMESTAMP, DURATION], TIMESTAMP),
    plain("subtract_timestamp_timestamp", [TIMESTAMP, TIMESTAMP], DURATION), plain("subtract_uint64", [UINT, UINT], UINT),
)(_arithmetic("-"))  # fmt: skip
for _symbol, _verb in (("*", "multiply"), ("/", "divide")):
    LIB(
        f"_{_symbol}_", plain(f"{_verb}_double", [DOUBLE, DOUBLE], DOUBLE), plain(f"{_verb}_int64", [INT, INT], INT),
        plain(f"{_verb}_uint64", [UINT, UINT], UINT),
    )(_arithmetic(_symbol))  # fmt: skip
LIB("_%_", plain("modulo_int64", [INT, INT], INT), plain("modulo_uint64", [UINT, UINT], UINT))(_arithmetic("%"))


@LIB("-_", plain("negate_double", [DOUBLE], DOUBLE), plain("negate_int64", [INT], INT))
def _negate(a: Any) -> Any:
    kind = _kind(a)
    if kind == "int":
        return _int(-a)
    if kind == "double":
        return -a
    if kind == "duration":  # no overload accepts it, but a dyn value may be one
        return Duration(-a.ns)
    raise EvaluationError(NO_OVERLOAD)


@LIB("!_", plain("logical_not", [BOOL], BOOL))
def _not(a: Any) -> bool:
    if not isinstance(a, bool):
        raise EvaluationError(NO_OVERLOAD)
    return not a


def _smaller(overload: str, args: list[Any], result: Any) -> int:
    """Return the cost of a comparison: a traversal of the smaller operand."""
    if isinstance(args[0], Opaque):
        return 1
    return _unequal(overload, args, result)


def _unequal(overload: str, args: list[Any], result: Any) -> int:
    """Return the cost of a comparison. Upstream counts only the outermost members; members beyond a thousand values cost extra."""
    a, b = args
    found = traversal(min(size(a), size(b)))
    return found + traversal(max(0, nodes(a) - DEEP)) if isinstance(a, (list, dict)) and isinstance(b, (list, dict)) else found


def _compared(overload: str, args: list[Any], result: Any) -> int:
    return traversal(min(size(args[0]), size(args[1]))) if overload.endswith(("_string", "_bytes")) else 1


DEEP = 1000



def _ahead(args: list[Any], room: int) -> int:
    a, b = args
    if not (isinstance(a, (list, dict)) and isinstance(b, (list, dict))):
        return 0
    return units(args if isinstance(a, (SetList, MapList)) else a, room)


@LIB("_==_", plain("equals", [A, A], BOOL), cost=_smaller, ahead=_ahead)
def _equals(a: Any, b: Any) -> bool:
    """Compare two values. One of Kubernetes' own types can only be compared with null and its own type; on the right it just differs."""
    x, y = a, b
    while isinstance(x, Optional) and isinstance(y, Optional) and x.present and y.present:
        x, y = x.value, y.value
    if incomparable(x, y) and not (y is None and x is a):
        raise EvaluationError(NO_OVERLOAD)
    return equal(a, b)


LIB("_!=_", plain("not_equals", [A, A], BOOL), cost=_unequal, ahead=_ahead)(lambda a, b: not equal(a, b))
_ORDERED = (
    ("bool", BOOL, BOOL), ("int64", INT, INT), ("int64_double", INT, DOUBLE), ("int64_uint64", INT, UINT), ("uint64", UINT, UINT),
    ("uint64_double", UINT, DOUBLE), ("uint64_int64", UINT, INT), ("double", DOUBLE, DOUBLE), ("double_int64", DOUBLE, INT),
    ("double_uint64", DOUBLE, UINT), ("string", STRING, STRING), ("bytes", BYTES, BYTES), ("timestamp", TIMESTAMP, TIMESTAMP),
    ("duration", DURATION, DURATION),
)  # fmt: skip
for _name, _prefix, _test in (
    ("_<_", "less", lambda c: c < 0), ("_<=_", "less_equals", lambda c: c <= 0), ("_>_", "greater", lambda c: c > 0),
    ("_>=_", "greater_equals", lambda c: c >= 0),
):  # fmt: skip
    LIB(_name, *(plain(f"{_prefix}_{suffix}", [x, y], BOOL) for suffix, x, y in _ORDERED), cost=_compared)(
        lambda a, b, test=_test: test(order(a, b))
    )
LIB("_&&_", plain("logical_and", [BOOL, BOOL], BOOL))(lambda a, b: a and b)
LIB("_||_", plain("logical_or", [BOOL, BOOL], BOOL))(lambda a, b: a or b)
LIB("_?_:_", plain("conditional", [BOOL, A, A], A))(lambda c, a, b: a if c else b)
LIB("@not_strictly_false", plain("not_strictly_false", [BOOL], BOOL))(lambda a: a is not False)
LIB(
    "_[_]", plain("index_list", [LIST_A, INT], A), plain("index_map", [MAP_AB, A], B),
    plain("optional_list_index_int", [optional_of(list_of(V)), INT], OPTIONAL_V),
    plain("optional_map_index_value", [optional_of(map_of(A, V)), A], OPTIONAL_V),
)(lambda a, b: None)  # fmt: skip
LIB(
    "_[?_]", plain("list_optindex_optional_int", [list_of(V), INT], OPTIONAL_V),
    plain("optional_list_optindex_optional_int", [optional_of(list_of(V)), INT], OPTIONAL_V),
    plain("map_optindex_optional_value", [map_of(A, V), A], OPTIONAL_V),
    plain("optional_map_optindex_optional_value", [optional_of(map_of(A, V)), A], OPTIONAL_V),
)(lambda a, b: None)  # fmt: skip


@LIB(
    "@in", plain("in_list", [A, LIST_A], BOOL), plain("in_map", [A, MAP_AB], BOOL),
    cost=lambda overload, args, result: size(args[1]) if overload == "in_list" else 1,
    ahead=lambda args, room: units(args[1], room) if isinstance(args[0], (list, dict)) else 0,
)  # fmt: skip
def _in(a: Any, b: Any) -> bool:
    if isinstance(b, list):
        unread: Unreadable | None = None  # an equal item overrides one that cannot be compared
        for x in b:
            if type(x) is Unreadable:
                unread = unread or x
            elif equal(a, x):
                return True
        if unread is not None:
            raise EvaluationError(unread.why)
        return False
    if isinstance(b, dict):
        from kas.cel.interpreter import lookup

        return lookup(b, a)[0]
    raise EvaluationError(NO_OVERLOAD)


@LIB(
    "size", *(f(f"size_{n}" if f is plain else f"{n}_size", [t], INT) for n, t in
              (("bytes", BYTES), ("list", LIST_A), ("map", MAP_AB), ("string", STRING)) for f in (plain, on)),
)  # fmt: skip
def _size(a: Any) -> int:
    if isinstance(a, (str, bytes, list, dict)):
        return len(a)
    raise EvaluationError(NO_OVERLOAD)


# --- strings


def _two_texts(a: Any, b: Any) -> None:
    if not isinstance(a, str) or not isinstance(b, str):
        raise EvaluationError(NO_OVERLOAD)


@LIB("contains", on("contains_string", [STRING, STRING], BOOL), cost=lambda o, args, r: traversal(size(args[0])) * traversal(size(args[1])))
def _contains(a: Any, b: Any) -> bool:
    _two_texts(a, b)
    return b in a


@LIB("startsWith", on("starts_with_string", [STRING, STRING], BOOL), cost=of_first())
def _starts_with(a: Any, b: Any) -> bool:
    _two_texts(a, b)
    return a.startswith(b)


@LIB("endsWith", on("ends_with_string", [STRING, STRING], BOOL), cost=of_first())
def _ends_with(a: Any, b: Any) -> bool:
    _two_texts(a, b)
    return a.endswith(b)


@LIB(
    "matches", plain("matches", [STRING, STRING], BOOL), on("matches_string", [STRING, STRING], BOOL),
    cost=lambda o, args, r: regex_cost(size(args[0]), size(args[1])),
)  # fmt: skip
def _matches(a: Any, b: Any) -> bool:
    _two_texts(a, b)
    from kas.meta.regex import RegexError, compiled

    try:
        return compiled(b).search(a) is not None
    except RegexError as e:
        raise EvaluationError(str(e)) from None


# --- conversions


def _conversion_error(value: Any, target: Type) -> EvaluationError:
    """Return the error for a text that cannot be converted; for other types there is no overload."""
    if not isinstance(value, str):
        return EvaluationError(NO_OVERLOAD)
    return EvaluationError(f"type conversion error from 'string' to '{target}'")


_INTEGER = re.compile(r"[+-]?[0-9]+\Z")
# Digits, with Go's underscores between them. Possessive, as a long text of digits that is not a number would otherwise be matched again
# from each digit.
_DIGITS = r"[0-9][0-9_]*+(?<!_)"
_NUMBER = re.compile(
    rf"(?!.*__)[+-]?(?:{_DIGITS}\.?(?:{_DIGITS})?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS})?\Z|[+-]?(?i:inf|infinity)\Z|(?i:nan)\Z"
)
_HEX_NUMBER = re.compile(r"(?!.*__)[+-]?0[xX][0-9a-fA-F_]*+(?<!_)\.?(?:[0-9a-fA-F][0-9a-fA-F_]*+(?<!_))?[pP][+-]?[0-9](?:_?[0-9])*\Z")


@LIB("int", *(plain(f"{n}_to_int64", [t], INT) for n, t in
              (("int64", INT), ("double", DOUBLE), ("duration", DURATION), ("string", STRING), ("timestamp", TIMESTAMP), ("uint64", UINT))))
def _to_int(v: Any) -> int:
    kind = _kind(v)
    if kind == "int":
        return v
    if kind == "uint":
        return _int(int(v))
    if kind == "double":
        if math.isnan(v) or not -(2.0**63) < v < 2.0**63:
            raise EvaluationError("integer overflow")
        return int(v)
    if kind == "string" and _INTEGER.match(v) and MIN_INT <= decimal(v) <= MAX_INT:
        return decimal(v)
    if kind == "timestamp":
        return v.ns // NS
    if kind == "duration":
        return v.ns
    raise _conversion_error(v, INT)


@LIB("uint", *(plain(f"{n}_to_uint64", [t], UINT) for n, t in (("uint64", UINT), ("double", DOUBLE), ("int64", INT), ("string", STRING))))
def _to_uint(v: Any) -> Uint:
    kind = _kind(v)
    if kind == "uint":
        return v
    if kind == "int":
        return _uint(v)
    if kind == "double":
        if math.isnan(v) or not 0 <= v < 2.0**64:
            raise EvaluationError("unsigned integer overflow")
        return Uint(int(v))
    if kind == "string" and v.isascii() and v.isdigit() and decimal(v) <= MAX_UINT:
        return Uint(decimal(v))
    raise _conversion_error(v, UINT)


@LIB(
    "double",
    *(plain(f"{n}_to_double", [t], DOUBLE) for n, t in (("double", DOUBLE), ("int64", INT), ("string", STRING), ("uint64", UINT))),
)  # fmt: skip
def _to_double(v: Any) -> float:
    kind = _kind(v)
    if kind == "double":
        return v
    if kind in ("int", "uint"):
        return float(v)
    found = _parse_float(v) if kind == "string" else None
    if found is None:
        raise _conversion_error(v, DOUBLE)
    return found


def _parse_float(text: str) -> float | None:
    """Parse as Go's ``strconv.ParseFloat``; None if it refuses, which includes numbers that are too large."""
    try:
        if _NUMBER.match(text):
            found = float(text)
            return None if math.isinf(found) and "n" not in text.lower() else found
        return float.fromhex(text.replace("_", "")) if _HEX_NUMBER.match(text) else None
    except (OverflowError, ValueError):  # too large, or no digit at all
        return None


_TRUE, _FALSE = frozenset(("1", "t", "T", "true", "TRUE", "True")), frozenset(("0", "f", "F", "false", "FALSE", "False"))


@LIB("bool", plain("bool_to_bool", [BOOL], BOOL), plain("string_to_bool", [STRING], BOOL))
def _to_bool(v: Any) -> bool:
    if isinstance(v, bool):
        return v
    if isinstance(v, str) and (v in _TRUE or v in _FALSE):
        return v in _TRUE
    raise _conversion_error(v, BOOL)


@LIB("bytes", plain("bytes_to_bytes", [BYTES], BYTES), plain("string_to_bytes", [STRING], BYTES),
     cost=lambda o, args, r: traversal(size(args[0])) if o == "string_to_bytes" else 1)
def _to_bytes(v: Any) -> bytes:
    if isinstance(v, bytes):
        return v
    if isinstance(v, str):
        return v.encode()
    raise _conversion_error(v, BYTES)


@LIB(
    "string", plain("string_to_string", [STRING], STRING), plain("bool_to_string", [BOOL], STRING),
    plain("bytes_to_string", [BYTES], STRING), plain("double_to_string", [DOUBLE], STRING), plain("duration_to_string", [DURATION], STRING),
    plain("int64_to_string", [INT], STRING), plain("timestamp_to_string", [TIMESTAMP], STRING), plain("uint64_to_string", [UINT], STRING),
    plain("ip_to_string", [Type("opaque", "net.IP")], STRING), plain("cidr_to_string", [Type("opaque", "net.CIDR")], STRING),
    cost=lambda o, args, r: traversal(size(args[0])) if o == "bytes_to_string" else 1,
)  # fmt: skip
def to_string(v: Any) -> str:
    """``string(v)``. Raises EvaluationError for types that cannot be converted."""
    kind = _kind(v)
    if kind == "string":
        return v
    if kind == "bool":
        return "true" if v else "false"
    if kind in ("int", "uint"):
        return str(int(v))
    if kind == "double":
        return double_text(v)
    if kind == "bytes":
        try:
            return v.decode()
        except UnicodeDecodeError:
            raise EvaluationError("invalid UTF-8 in bytes, cannot convert to string") from None
    if kind == "timestamp":
        return v.text()
    if kind == "duration":
        return f"{shortest(_counted(v.ns, NS))}s"
    if isinstance(v, Opaque) and v.cel_type.name in ("net.IP", "net.CIDR"):
        return str(v)
    raise _conversion_error(v, STRING)


def _counted(ns: int, unit: int) -> float:
    """Return the number of units as Go's ``Duration.Seconds``, which adds fraction and whole: 1.57 s yield 1.5699999999999998."""
    whole = _truncated(ns, unit)
    return whole + (ns - whole * unit) / unit


def shortest(v: float) -> str:
    """Format as Go's ``strconv.FormatFloat(v, 'f', -1, 64)``."""
    if math.isinf(v):
        return "+Inf" if v > 0 else "-Inf"
    if math.isnan(v):
        return "NaN"
    from decimal import Decimal

    text = format(Decimal(repr(v)), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def double_text(v: float) -> str:
    """Format as Go's ``strconv.FormatFloat(v, 'g', -1, 64)``."""
    if math.isinf(v) or math.isnan(v):
        return shortest(v)
    return go_float(v) if v else ("-0" if math.copysign(1, v) < 0 else "0")


def duration_ns(text: str) -> int | None:
    """Parse a duration as Go does, in nanoseconds; None if the text is not one."""
    try:
        return duration.parse(text)
    except ValueError:
        return None


@LIB("duration", plain("duration_to_duration", [DURATION], DURATION), plain("int64_to_duration", [INT], DURATION),
     plain("string_to_duration", [STRING], DURATION))
def to_duration(v: Any) -> Duration:
    """``duration(v)``: of Go's text form, or nanoseconds."""
    kind = _kind(v)
    if kind == "duration":
        return v
    if kind == "int":
        return Duration(v)
    if kind == "string":
        ns = duration_ns(v)
        if ns is not None:
            return Duration(ns)
    raise _conversion_error(v, DURATION)


def timestamp(text: str) -> Timestamp | None:
    """Parse an RFC 3339 time as Go's ``time.Parse``; None if it is not one. Raises EvaluationError if it is out of bounds."""
    try:
        seconds, nanos, ahead = parse_zoned_time(text)
    except DecodeError:
        return None
    return Timestamp(seconds * NS + nanos, ahead)


@LIB("timestamp", plain("timestamp_to_timestamp", [TIMESTAMP], TIMESTAMP), plain("int64_to_timestamp", [INT], TIMESTAMP),
     plain("string_to_timestamp", [STRING], TIMESTAMP))
def to_timestamp(v: Any) -> Timestamp:
    """``timestamp(v)``: of an RFC 3339 text, or seconds since 1970."""
    kind = _kind(v)
    if kind == "timestamp":
        return v
    if kind == "int":
        return Timestamp(v * NS)
    if kind == "string":
        found = timestamp(v)
        if found is not None:
            return found
    raise _conversion_error(v, TIMESTAMP)


LIB("dyn", plain("to_dyn", [A], DYN))(lambda v: v)


@LIB("type", plain("type", [A], type_of(A)))
def _type(v: Any) -> TypeValue:
    t = type_of_value(v)
    return TypeValue(_DECLARED.get(t.name, t))


# --- times


def _when(name: str, timed: Any, spanned: Any = None):
    overloads = [on(f"timestamp_to_{name}", [TIMESTAMP], INT), on(f"timestamp_to_{name}_with_tz", [TIMESTAMP, STRING], INT)]
    if spanned is not None:
        overloads.append(on(f"duration_to_{name}", [DURATION], INT))

    def run(v: Any, zone: Any = "UTC") -> int:
        if isinstance(v, Timestamp) and isinstance(zone, str):
            return timed(v.local(zone), v)
        if isinstance(v, Duration) and spanned is not None:
            return spanned(v.ns)
        raise EvaluationError(NO_OVERLOAD)

    LIB(name, *overloads)(run)


def _truncated(ns: int, unit: int) -> int:
    return ns // unit if ns >= 0 else -(-ns // unit)


_when("getFullYear", lambda t, v: t.year)
_when("getMonth", lambda t, v: t.month - 1)
_when("getDayOfYear", lambda t, v: t.day_of_year - 1)
_when("getDayOfMonth", lambda t, v: t.day - 1)
_when("getDate", lambda t, v: t.day)
_when("getDayOfWeek", lambda t, v: t.weekday)
_when("getHours", lambda t, v: t.hour, lambda ns: int(_counted(ns, 3600 * NS)))
_when("getMinutes", lambda t, v: t.minute, lambda ns: int(_counted(ns, 60 * NS)))
_when("getSeconds", lambda t, v: t.second, lambda ns: int(_counted(ns, NS)))
_when("getMilliseconds", lambda t, v: v.ns // 1_000_000 % 1000, lambda ns: _truncated(ns, 1_000_000))


# --- optional values


LIB("optional.of", plain("optional_of", [V], OPTIONAL_V))(lambda v: Optional(v))
LIB("optional.none", plain("optional_none", [], OPTIONAL_V))(lambda: NONE)


@LIB("optional.ofNonZeroValue", plain("optional_ofNonZeroValue", [V], OPTIONAL_V))
def _of_non_zero(v: Any) -> Optional:
    if v is None or (isinstance(v, (bool, str, bytes, list, dict)) and not v) or (is_number(v) and v == 0):
        return NONE
    if (isinstance(v, Duration) and v.ns == 0) or (isinstance(v, Timestamp) and v.ns == MIN_TIME):
        return NONE
    return Optional(v)


@LIB("hasValue", on("optional_hasValue", [OPTIONAL_V], BOOL))
def _has_value(v: Any) -> bool:
    if not isinstance(v, Optional):
        raise EvaluationError(NO_OVERLOAD)
    return v.present


@LIB("value", on("optional_value", [OPTIONAL_V], V))
def _value(v: Any) -> Any:
    if not isinstance(v, Optional):
        raise EvaluationError(NO_OVERLOAD)
    if not v.present:
        raise EvaluationError("optional.none() dereference")
    return v.value


def _listed(v: Any) -> list[Any]:
    if not isinstance(v, list):
        raise EvaluationError(NO_OVERLOAD)
    return v


LIB("first", on("list_first", [list_of(V)], OPTIONAL_V))(lambda v: Optional(v[0]) if _listed(v) else NONE)
LIB("last", on("list_last", [list_of(V)], OPTIONAL_V))(lambda v: Optional(v[-1]) if _listed(v) else NONE)


def _unwrap(v: Any) -> list[Any]:
    """Return the present values of a list of optional values."""
    if not all(isinstance(x, Optional) for x in _listed(v)):
        raise EvaluationError(NO_OVERLOAD)
    return [x.value for x in v if x.present]


LIB("optional.unwrap", plain("optional_unwrap", [list_of(OPTIONAL_V)], list_of(V)))(_unwrap)
LIB("unwrapOpt", on("optional_unwrapOpt", [list_of(OPTIONAL_V)], list_of(V)))(_unwrap)


# The planner implements these, as it evaluates operands only when needed.
LIB("or", on("optional_or_optional", [OPTIONAL_V, OPTIONAL_V], OPTIONAL_V))(lambda a, b: a)
LIB("orValue", on("optional_orValue_value", [OPTIONAL_V, V], V))(lambda a, b: a)


@LIB(
    "cel.@mapInsert", plain("@mapInsert_map_map", [MAP_AB, MAP_AB], MAP_AB), plain("@mapInsert_map_key_value", [MAP_AB, A, B], MAP_AB),
)  # fmt: skip
def _map_insert(m: Any, *more: Any) -> dict[Any, Any]:
    from kas.cel.interpreter import insert

    return insert(dict(m), *more)


