"""Strings: cel-go ``ext/strings.go`` up to version 2, and Kubernetes' ``find`` and ``findAll``."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import islice
from typing import Any, TypeVar

from kas.cel.library.declare import TRAVERSAL, Library, of_first, on, plain, regex_cost, traversal
from kas.cel.problems import EvaluationError
from kas.cel.types import DYN, INT, STRING, list_of
from kas.cel.values import Duration, Opaque, Optional, Timestamp, TypeValue, Uint, characters, key_value, nodes, size, type_of_value, units
from kas.meta.field import go_quote
from kas.meta.regex import Pattern, RegexError, compiled

T = TypeVar("T")
LIB = Library()
PATCHES = Library()  # only for expressions that make patches
TEXTS = list_of(STRING)
NO_OVERLOAD = "no such overload"
FREE = 100
_AS_IT_IS = "surrogatepass"  # allows lone surrogates, which JSON's \u escapes can produce
MAX_PRECISION, MAX_DIGITS = 1000, 9  # of numbers in format(); bounds the output of one clause


def walked(v: Any) -> int:
    """Return Kubernetes' traversalCost: of every scalar in the value, strings by their bytes."""
    if isinstance(v, str):
        return int(len(v.encode()) * TRAVERSAL)
    if isinstance(v, bytes):
        return int(len(v) * TRAVERSAL)
    if isinstance(v, list):
        return sum(map(walked, v))
    if isinstance(v, dict):
        return sum(walked(k) + walked(x) for k, x in v.items())
    return 1


def by_traversal(overload: str, args: list[Any], result: Any) -> int:
    """Return the cost of traversing the receiver once. It is used with ``to_walk``, as a list may contain the same list twice, and so on.

    Upstream counts nothing for strings of fewer than ten characters; beyond ``FREE`` values ten of them cost at least one unit.
    """
    found = walked(args[0])
    return max(found, traversal(max(0, nodes(args[0]) - FREE))) if isinstance(args[0], list) else found


def to_walk(args: list[Any], room: int) -> int:
    """Return the work of traversing the receiver."""
    return units(args[0], room) if isinstance(args[0], list) else 0


def need(*pairs: tuple[Any, type]) -> None:
    """Raise EvaluationError unless each value has its type; bool and uint do not count as int."""
    for value, kind in pairs:
        if not isinstance(value, kind) or isinstance(value, (bool, Uint)):
            raise EvaluationError(NO_OVERLOAD)


def _out_of_range(i: int) -> EvaluationError:
    return EvaluationError(f"index out of range: {i}")


@LIB("charAt", on("string_char_at_int", [STRING, INT], STRING))
def _char_at(s: Any, i: Any) -> str:
    need((s, str), (i, int))
    if not 0 <= i <= len(s):
        raise _out_of_range(i)
    return s[i : i + 1]


def index_of(s: str, sub: str, offset: Any = 0) -> int:
    """``indexOf``: in code points, -1 if absent. Raises EvaluationError for an offset that is not an int or before the text."""
    need((offset, int))
    if not sub:
        return offset  # upstream does not check the offset then
    if offset < 0:
        raise _out_of_range(offset)
    return s.find(sub, offset)


def last_index_of(s: str, sub: str, *offsets: Any) -> int:
    """``lastIndexOf``: in code points, -1 if absent. Raises EvaluationError for an offset that is not an int or before the text."""
    if not offsets:
        return s.rfind(sub)
    (offset,) = offsets
    need((offset, int))
    if not sub:
        return offset
    if offset < 0:
        raise _out_of_range(offset)
    return s.rfind(sub, 0, offset + len(sub)) if offset < len(s) else -1


@LIB("lowerAscii", on("string_lower_ascii", [STRING], STRING), cost=of_first())
def _lower(s: Any) -> str:
    need((s, str))
    return s.encode(errors=_AS_IT_IS).lower().decode(errors=_AS_IT_IS)  # lower() of bytes only changes ASCII letters


@LIB("upperAscii", on("string_upper_ascii", [STRING], STRING), cost=of_first())
def _upper(s: Any) -> str:
    need((s, str))
    return s.encode(errors=_AS_IT_IS).upper().decode(errors=_AS_IT_IS)


def _replaced(s: Any, old: Any, new: Any, n: Any = -1) -> int:
    """Return the work of replacing: a unit per ten characters of the result, which may be as long as the product of two texts."""
    if not (isinstance(s, str) and isinstance(old, str) and isinstance(new, str)) or len(new) < 2:
        return 0
    return traversal(s.count(old) * len(new))


@LIB(
    "replace", on("string_replace_string_string", [STRING, STRING, STRING], STRING),
    on("string_replace_string_string_int", [STRING, STRING, STRING, INT], STRING), cost=of_first(2),
    ahead=lambda args, room: _replaced(*args),
)  # fmt: skip
def _replace(s: Any, old: Any, new: Any, n: Any = -1) -> str:
    need((s, str), (old, str), (new, str), (n, int))
    return s.replace(old, new, n)


@LIB(
    "split", on("string_split_string", [STRING, STRING], TEXTS), on("string_split_string_int", [STRING, STRING, INT], TEXTS),
    cost=of_first(2),
)  # fmt: skip
def _split(s: Any, by: Any, n: Any = -1) -> list[str]:
    need((s, str), (by, str), (n, int))
    if n == 0:
        return []
    if by == "":
        if n < 0 or n >= len(s):
            return list(s)
        return [*s[: n - 1], s[n - 1 :]]
    return s.split(by, n - 1 if n > 0 else -1)


@LIB(
    "substring", on("string_substring_int", [STRING, INT], STRING), on("string_substring_int_int", [STRING, INT, INT], STRING),
    cost=of_first(),
)  # fmt: skip
def _substring(s: Any, start: Any, end: Any = None) -> str:
    need((s, str), (start, int))
    if end is None:
        if not 0 <= start <= len(s):
            raise _out_of_range(start)
        return s[start:]
    need((end, int))
    if start > end:
        raise EvaluationError(f"invalid substring range. start: {start}, end: {end}")
    if not 0 <= start <= len(s):
        raise _out_of_range(start)
    if not 0 <= end <= len(s):
        raise _out_of_range(end)
    return s[start:end]


_SPACE = "\t\n\v\f\r \u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"


@LIB("trim", on("string_trim", [STRING], STRING), cost=of_first())
def _trim(s: Any) -> str:
    need((s, str))
    return s.strip(_SPACE)


def _joined(overload: str, args: list[Any], result: Any) -> int:
    return math.ceil(size(result) * 2 * TRAVERSAL)


def _to_join(args: list[Any], room: int) -> int:
    between = size(args[1]) * size(args[0]) if len(args) > 1 else 0
    return traversal(between + sum(map(size, args[0]))) if isinstance(args[0], list) else 0


@LIB("join", on("list_join", [TEXTS], STRING), on("list_join_string", [TEXTS, STRING], STRING), cost=_joined, ahead=_to_join)
def _join(items: Any, by: Any = "") -> str:
    need((items, list), (by, str))
    if not all(isinstance(x, str) for x in items):
        raise EvaluationError(NO_OVERLOAD)
    return by.join(items)


# The backslash comes first, as the other replacements add some.
_QUOTED = {"\\": "\\\\", "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", '"': '\\"'}


@LIB("strings.quote", plain("strings_quote", [STRING], STRING), cost=of_first())
def quote(s: Any) -> str:
    """``strings.quote``: the text as a CEL literal."""
    need((s, str))
    for given, quoted in _QUOTED.items():
        s = s.replace(given, quoted)
    return f'"{s}"'


@PATCHES("jsonpatch.escapeKey", plain("string_jsonpatch_escapeKey_string", [STRING], STRING), cost=of_first())
def _escape_key(s: Any) -> str:
    need((s, str))
    return s.replace("~", "~0").replace("/", "~1")


# --- find


def _found(overload: str, args: list[Any], result: Any) -> int:
    return regex_cost(size(args[0]), size(args[1]))


def _pattern(p: Any) -> Pattern:
    try:
        return compiled(p)
    except RegexError as e:
        raise EvaluationError(f"Illegal regex: {e}") from None


def _searched(how: Callable[[str], T], s: str) -> T:
    try:
        return how(s)
    except RegexError as e:
        raise EvaluationError(str(e)) from None


@LIB("find", on("string_find_string", [STRING, STRING], STRING), cost=_found)
def _find(s: Any, p: Any) -> str:
    need((s, str), (p, str))
    m = _searched(_pattern(p).search, s)
    return m.group() if m is not None else ""


@LIB(
    "findAll", on("string_find_all_string", [STRING, STRING], TEXTS), on("string_find_all_string_int", [STRING, STRING, INT], TEXTS),
    cost=_found,
)  # fmt: skip
def _find_all(s: Any, p: Any, n: Any = -1) -> list[str]:
    need((s, str), (p, str), (n, int))
    return _searched(lambda text: list(islice(_pattern(p).found_in(text), n if n >= 0 else None)), s)


# --- format, with the numbers of en-US as upstream's default locale has them


class FormatError(EvaluationError):
    """A formatting clause does not fit its argument."""


STRINGS = "strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
# The kinds of types that each clause accepts, and the message for others.
CLAUSES: dict[str, tuple[frozenset[str], str]] = {
    "s": (
        frozenset(("list", "map", "int", "uint", "double", "bool", "string", "timestamp", "bytes", "duration", "type", "null_type")),
        f"string clause can only be used on {STRINGS}",
    ),
    "d": (frozenset(("int", "uint")), "decimal clause can only be used on integers"),
    "f": (frozenset(("double", "string")), "fixed-point clause can only be used on doubles"),
    "e": (frozenset(("double", "string")), "scientific clause can only be used on doubles"),
    "b": (frozenset(("int", "uint", "bool")), "only integers and bools can be formatted as binary"),
    "x": (frozenset(("int", "uint", "string", "bytes")), "only integers, byte buffers, and strings can be formatted as hex"),
    "o": (frozenset(("int", "uint")), "octal clause can only be used on integers"),
}
CLAUSES["X"] = CLAUSES["x"]
_NAMED = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_RAISED = str.maketrans("-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079")


def misfit(letter: str, t: Any) -> FormatError:
    """Return the error for a formatting clause whose argument has the wrong type."""
    return FormatError(f"error during formatting: {CLAUSES[letter][1]}, was given {t.name}")


def _shown(v: Any) -> str:
    """Format a value for ``%s``."""
    if v is None:
        return "null"
    if isinstance(v, list):
        return "[" + ", ".join(map(_inner, v)) + "]"
    if isinstance(v, dict):
        return "{" + ", ".join(f"{k}:{x}" for k, x in sorted((_inner(key_value(k)), _inner(x)) for k, x in v.items())) + "}"
    if isinstance(v, TypeValue):
        return str(v.type)
    if isinstance(v, (Optional, Opaque)):
        raise misfit("s", type_of_value(v))
    from kas.cel.library.standard import to_string

    return to_string(v)


def _inner(v: Any) -> str:
    """Format a value inside a list or map, as a literal."""
    if isinstance(v, str):
        return go_quote(v)
    if isinstance(v, bytes):
        return "b" + go_quote(v.decode("utf-8", "replace"))
    if isinstance(v, float):
        return f"{v:.6f}" if math.isfinite(v) else f'"{_decimal(v, "f", 6)}"'
    if isinstance(v, (Timestamp, Duration)):
        kind = "timestamp" if isinstance(v, Timestamp) else "duration"
        return f'{kind}("{_shown(v)}")'
    return _shown(v)


def _decimal(v: float, letter: str, digits: int) -> str:
    if not math.isfinite(v):
        return "NaN" if math.isnan(v) else "\u221e" if v > 0 else "-\u221e"
    if letter == "f":
        return f"{v:,.{digits}f}"
    mantissa, _, exponent = f"{v:.{digits}e}".partition("e")
    return f"{mantissa}\u202f\u00d7\u202f10{exponent.lstrip('+').translate(_RAISED)}"


def _clause(letter: str, v: Any, precision: int | None) -> str:
    t = type_of_value(v)
    if t.kind not in CLAUSES[letter][0]:
        raise misfit(letter, t)
    if letter == "s":
        return _shown(v)
    if letter in "fe":
        if isinstance(v, str) and v not in _NAMED:
            raise misfit(letter, t)
        return _decimal(_NAMED[v] if isinstance(v, str) else v, letter, 6 if precision is None else precision)
    if letter in "xX" and isinstance(v, (str, bytes)):
        out = (v.encode() if isinstance(v, str) else v).hex()
    else:
        out = format(int(v), letter.lower())
    return out.upper() if letter == "X" else out


def render(text: str, count: int, show: Callable[[int, str, int | None], str]) -> tuple[str, int]:
    """Replace each clause by ``show(index, clause, precision)``; return the text and the number of clauses. Raises EvaluationError."""
    out, i, used = [], 0, 0
    while i < len(text):
        c = text[i]
        i += 1
        if c != "%" or text.startswith("%", i):
            out.append(c)
            i += c == "%"
            continue
        if used >= count:
            raise EvaluationError(f"index {used} out of range")
        if i >= len(text):
            raise EvaluationError("unexpected end of string")
        precision: int | None = None
        if text[i] == ".":
            end = i + 1
            while end < len(text) and text[end].isascii() and text[end].isdigit():
                end += 1
            if end >= len(text):
                raise EvaluationError(f"{_UNREAD}: error while parsing precision: could not find end of precision specifier")
            if end == i + 1 or end - i > MAX_DIGITS:
                why = f"strconv.Atoi: parsing {go_quote(text[i + 1 : end])}: invalid syntax"
                raise EvaluationError(f"{_UNREAD}: error while parsing precision: error while converting precision to integer: {why}")
            precision, i = int(text[i + 1 : end]), end
            if precision > MAX_PRECISION:
                raise EvaluationError(f"precision {precision} is too large")
        if text[i] not in CLAUSES:
            raise EvaluationError(f'{_UNREAD}: unrecognized formatting clause "{text[i]}"')
        out.append(show(used, text[i], precision))
        used += 1
        i += 1
    return "".join(out), used




def _to_show(args: list[Any], room: int) -> int:
    """Return the work of formatting: beside the cost of the values, a unit per ten characters, as one long text may be repeated."""
    found = units(args[1], room)
    return found if found > room else found + characters(args[1], 10 * room) // 10


_UNREAD = "could not parse formatting clause"


@LIB("format", on("string_format", [STRING, list_of(DYN)], STRING), cost=of_first(), ahead=_to_show)
def format_(s: Any, args: Any) -> str:
    """``format``: fill the clauses ``%s %d %f %e %b %o %x %X`` from a list."""
    need((s, str), (args, list))
    return render(s, len(args), lambda i, letter, precision: _clause(letter, args[i], precision))[0]
