"""Durations as Go's package ``time`` reads and prints them: flags, ``?timeout=``, ``metav1.Duration``, CEL."""

from __future__ import annotations

import re

_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_MAX = (1 << 63) - 1
# Digits before the point, digits after it, unit.
_PART = re.compile(r"([0-9]*+)(?:\.([0-9]*+))?([^.0-9]*+)")
_ESCAPED = re.compile(r'[^ !#-\[\]-\x7f]')
_BYTES = ["\\" + chr(b) if b in b'"\\' else chr(b) if 0x20 <= b < 0x80 else f"\\x{b:02x}" for b in range(256)]


def parse(text: str) -> int:
    """``time.ParseDuration`` ("1h30m", "-1.5s", "0"): returns nanoseconds in the range of an int64. Raises ValueError with Go's text.
    Linear in the text.
    """
    at = 1 if text[:1] in ("-", "+") else 0
    negative = text[:1] == "-"
    if len(text) == at + 1 and text[at] == "0":
        return 0
    if len(text) == at:
        raise _invalid(text)
    total = 0
    while at < len(text):
        found = _PART.match(text, at)
        assert found is not None  # it matches the empty text as well
        whole, fraction, unit = found[1], found[2] or "", found[3]
        at = found.end()
        if not whole and not fraction:
            raise _invalid(text)
        whole = whole.lstrip("0")
        if len(whole) > 19 or int(whole or 0) > 1 << 63:
            raise _invalid(text)
        if not unit:
            raise ValueError(f"time: missing unit in duration {quote(text)}")
        if unit not in _UNITS:
            raise ValueError(f"time: unknown unit {quote(unit)} in duration {quote(text)}")
        part = int(whole or 0) * _UNITS[unit] + _fraction(fraction, _UNITS[unit])
        total += part
        if part > 1 << 63 or total > 1 << 63:
            raise _invalid(text)
    if negative:
        return -total
    if total > _MAX:
        raise _invalid(text)
    return total


def _invalid(text: str) -> ValueError:
    return ValueError(f"time: invalid duration {quote(text)}")


def _fraction(digits: str, unit: int) -> int:
    """A fraction in units. Digits beyond the range of an int64 are ignored and the product is a float64, as in Go."""
    f, scale = 0, 1.0
    for digit in digits:
        if f > (_MAX - int(digit)) // 10:
            break
        f, scale = f * 10 + int(digit), scale * 10
    return int(float(f) * (float(unit) / scale))


def seconds(text: str) -> float:
    """Like ``parse``, in seconds."""
    return parse(text) / 1e9


def format_ns(nanoseconds: int) -> str:
    """Go's ``Duration.String``: ``1h2m3.5s``; values below a second in ms, µs or ns."""
    if nanoseconds == 0:
        return "0s"
    sign, n = ("-", -nanoseconds) if nanoseconds < 0 else ("", nanoseconds)
    if n < 10**9:
        unit, width = next((u, w) for limit, u, w in ((10**3, "ns", 0), (10**6, "µs", 3), (10**9, "ms", 6)) if n < limit)
        return f"{sign}{_decimal(n, width)}{unit}"
    minutes, rest = divmod(n, 60 * 10**9)
    shown = _decimal(rest, 9) + "s"
    if minutes == 0:
        return sign + shown
    hours, minutes = divmod(minutes, 60)
    return f"{sign}{hours}h{minutes}m{shown}" if hours else f"{sign}{minutes}m{shown}"


def _decimal(n: int, width: int) -> str:
    whole, fraction = divmod(n, 10**width)
    return f"{whole}.{fraction:0{width}d}".rstrip("0") if fraction else str(whole)


def quote(text: str) -> str:
    """Quotes like Go's package ``time``: bytes outside printable ASCII become \\x escapes."""
    if _ESCAPED.search(text) is not None:  # by table lookup: a function call for each of 240,000 characters of a URL took half a second
        text = "".join(map(_BYTES.__getitem__, text.encode("utf-8", "surrogatepass")))
    return f'"{text}"'
