"""Strings: cel-go ``ext/strings.go`` up to version 2, and Kubernetes' ``find`` and ``findAll``."""

from __future__ import annotations

import json
import math
from typing import Any

from kas.api.cel.library.declare import TRAVERSAL, Library, of_first, on, plain, regex_cost
from kas.api.cel.problems import EvaluationError
from kas.api.cel.regex import RegexError, compiled
from kas.api.cel.types import DYN, INT, STRING, list_of
from kas.api.cel.values import Duration, Timestamp, TypeValue, Uint, size, type_of_value

LIB = Library()
TEXTS = list_of(STRING)
NO_OVERLOAD = "no such overload"
MAX_PRECISION, MAX_DIGITS = 1000, 9  # of numbers in format(); bounds what one clause can write


def walked(v: Any) -> int:
    """Kubernetes' traversalCost: every scalar in the value, texts by their bytes."""
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
    return walked(args[0])


def _need(*pairs: tuple[Any, type]) -> None:
    for value, kind in pairs:
        if not isinstance(value, kind) or isinstance(value, bool):
            raise EvaluationError(NO_OVERLOAD)


def _out_of_range(i: int) -> EvaluationError:
    return EvaluationError(f"index out of range: {i}")


@LIB("charAt", on("string_char_at_int", [STRING, INT], STRING))
def _char_at(s: Any, i: Any) -> str:
    _need((s, str), (i, int))
    if not 0 <= i <= len(s):
        raise _out_of_range(i)
    return s[i : i + 1]


def index_of(s: str, sub: str, offset: int = 0) -> int:
    if not 0 <= offset <= len(s):
        raise _out_of_range(offset)
    return s.find(sub, offset)


def last_index_of(s: str, sub: str, offset: int | None = None) -> int:
    if offset is None:
        return s.rfind(sub)
    if not 0 <= offset <= len(s):
        raise _out_of_range(offset)
    return s.rfind(sub, 0, offset + len(sub))


@LIB("lowerAscii", on("string_lower_ascii", [STRING], STRING), cost=of_first())
def _lower(s: Any) -> str:
    _need((s, str))
    return "".join(c.lower() if "A" <= c <= "Z" else c for c in s)


@LIB("upperAscii", on("string_upper_ascii", [STRING], STRING), cost=of_first())
def _upper(s: Any) -> str:
    _need((s, str))
    return "".join(c.upper() if "a" <= c <= "z" else c for c in s)


@LIB(
    "replace", on("string_replace_string_string", [STRING, STRING, STRING], STRING),
    on("string_replace_string_string_int", [STRING, STRING, STRING, INT], STRING), cost=of_first(2),
)  # fmt: skip
def _replace(s: Any, old: Any, new: Any, n: Any = -1) -> str:
    _need((s, str), (old, str), (new, str), (n, int))
    return s.replace(old, new, n)


@LIB(
    "split", on("string_split_string", [STRING, STRING], TEXTS), on("string_split_string_int", [STRING, STRING, INT], TEXTS),
    cost=of_first(2),
)  # fmt: skip
def _split(s: Any, by: Any, n: Any = -1) -> list[str]:
    _need((s, str), (by, str), (n, int))
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
    _need((s, str), (start, int))
    if end is None:
        if not 0 <= start <= len(s):
            raise _out_of_range(start)
        return s[start:]
    _need((end, int))
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
    _need((s, str))
    return s.strip(_SPACE)


def _joined(overload: str, args: list[Any], result: Any) -> int:
    return math.ceil(size(result) * 2 * TRAVERSAL)


@LIB("join", on("list_join", [TEXTS], STRING), on("list_join_string", [TEXTS, STRING], STRING), cost=_joined)
def _join(items: Any, by: Any = "") -> str:
    _need((items, list), (by, str))
    if not all(isinstance(x, str) for x in items):
        raise EvaluationError(NO_OVERLOAD)
    return by.join(items)


_QUOTED = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\", '"': '\\"'}


@LIB("strings.quote", plain("strings_quote", [STRING], STRING))
def quote(s: Any) -> str:
    _need((s, str))
    return '"' + "".join(_QUOTED.get(c, c) for c in s) + '"'


@LIB("jsonpatch.escapeKey", plain("string_jsonpatch_escapeKey_string", [STRING], STRING), cost=of_first())
def _escape_key(s: Any) -> str:
    _need((s, str))
    return s.replace("~", "~0").replace("/", "~1")


# --- find


def _found(overload: str, args: list[Any], result: Any) -> int:
    return regex_cost(size(args[0]), size(args[1]))


def _pattern(p: Any) -> Any:
    try:
        return compiled(p)
    except RegexError as e:
        raise EvaluationError(f"Illegal regex: {e}") from None


@LIB("find", on("string_find_string", [STRING, STRING], STRING), cost=_found)
def _find(s: Any, p: Any) -> str:
    _need((s, str), (p, str))
    m = _pattern(p).search(s)
    return m.group() if m is not None else ""


@LIB(
    "findAll", on("string_find_all_string", [STRING, STRING], TEXTS), on("string_find_all_string_int", [STRING, STRING, INT], TEXTS),
    cost=_found,
)  # fmt: skip
def _find_all(s: Any, p: Any, n: Any = -1) -> list[str]:
    _need((s, str), (p, str), (n, int))
    out: list[str] = []
    for m in _pattern(p).finditer(s):
        if 0 <= n <= len(out):
            break
        out.append(m.group())
    return out


# --- format


def _shown(v: Any) -> str:
    """A value in ``%s``."""
    from kas.api.cel.library.standard import double_text

    if v is None:
        return "null"
    if isinstance(v, bool):
        return "true" if v else "false"
    if isinstance(v, int):
        return str(int(v))
    if isinstance(v, float):
        return double_text(v) if math.isfinite(v) else ("NaN" if math.isnan(v) else "+Inf" if v > 0 else "-Inf")
    if isinstance(v, str):
        return v
    if isinstance(v, bytes):
        return v.decode("utf-8", "replace")
    if isinstance(v, Timestamp):
        return v.text()
    if isinstance(v, Duration):
        from kas.api.cel.library.standard import to_string

        return to_string(v)
    if isinstance(v, TypeValue):
        return str(v.type)
    if isinstance(v, list):
        return "[" + ", ".join(map(_inner, v)) + "]"
    if isinstance(v, dict):
        return "{" + ", ".join(f"{k}: {x}" for k, x in sorted((_inner(k), _inner(x)) for k, x in v.items())) + "}"
    said = "strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
    raise EvaluationError(f"error during formatting: string clause can only be used on {said}, was given {type_of_value(v)}")


def _inner(v: Any) -> str:
    if isinstance(v, str):
        return json.dumps(v, ensure_ascii=False)
    if isinstance(v, (Timestamp, Duration)):
        kind = "timestamp" if isinstance(v, Timestamp) else "duration"
        return f'{kind}("{_shown(v)}")'
    return _shown(v)


def _number_only(clause: str, v: Any, kinds: tuple[type, ...], said: str) -> Any:
    if not isinstance(v, kinds) or isinstance(v, bool):
        raise EvaluationError(f"error during formatting: {clause} clause can only be used on {said}, was given {type_of_value(v)}")
    return v


def _clause(letter: str, v: Any, precision: int | None) -> str:
    if letter == "s":
        return _shown(v)
    if letter == "d":
        if isinstance(v, float) and not math.isfinite(v):
            return _shown(v)
        return str(int(_number_only("decimal", v, (int, Uint), "integers")))
    if letter in "fe":
        said = "fixed-point" if letter == "f" else "scientific"
        if isinstance(v, float) and not math.isfinite(v):
            return _shown(v)
        number = float(_number_only(said, v, (int, float), "doubles"))
        digits = 6 if precision is None else precision
        return f"{number:.{digits}f}" if letter == "f" else f"{number:.{digits}e}"
    if letter == "b":
        if isinstance(v, bool):
            return str(int(v))
        return format(int(_number_only("binary", v, (int, Uint), "integers and bools")), "b")
    if letter in "xX":
        if isinstance(v, str):
            out = v.encode().hex()
        elif isinstance(v, bytes):
            out = v.hex()
        else:
            out = format(int(_number_only("hex", v, (int, Uint), "integers, byte buffers, and strings")), "x")
        return out.upper() if letter == "X" else out
    if letter == "o":
        return format(int(_number_only("octal", v, (int, Uint), "integers")), "o")
    raise EvaluationError(f'unrecognized formatting clause "{letter}"')


@LIB("format", on("string_format", [STRING, list_of(DYN)], STRING))
def format_(s: Any, args: Any) -> str:
    _need((s, str), (args, list))
    out: list[str] = []
    i = used = 0
    while i < len(s):
        c = s[i]
        i += 1
        if c != "%":
            out.append(c)
            continue
        if i < len(s) and s[i] == "%":
            out.append("%")
            i += 1
            continue
        if used >= len(args):
            raise EvaluationError(f"index {used} out of range")
        precision: int | None = None
        if i < len(s) and s[i] == ".":
            end = i + 1
            while end < len(s) and s[end].isascii() and s[end].isdigit():
                end += 1
            precision, i = int(s[i + 1 : end][:MAX_DIGITS] or "0"), end
            if precision > MAX_PRECISION:
                raise EvaluationError(f"precision {precision} is too large")
        if i >= len(s):
            raise EvaluationError("could not parse formatting clause: unexpected end of string")
        out.append(_clause(s[i], args[used], precision))
        used += 1
        i += 1
    if used < len(args):
        raise EvaluationError(f"too many arguments supplied to string.format (expected {used}, got {len(args)})")
    return "".join(out)


