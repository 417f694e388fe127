"""Scalars with a text form: times, durations and int-or-percent, as Go and apimachinery parse and format them.

Times are seconds since 1970 in UTC in the proleptic Gregorian calendar. Go's zero time (year 1) is None in typed objects.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from kas._codecs import DecodeError
from kas.meta import duration
from kas.meta.duration import quote as _quote
from kas.meta.field import go_quote

RFC3339 = "2006-01-02T15:04:05Z07:00"
RFC3339_MICRO = "2006-01-02T15:04:05.000000Z07:00"
ZERO_TIME = -62135596800
"""Unix seconds of Go's zero time, 0001-01-01T00:00:00Z."""

_LAYOUT = (("", "2006"), ("-", "01"), ("-", "02"), ("T", "15"), (":", "04"), (":", "05"))
_RANGES = {"01": ("month", 1, 12), "15": ("hour", 0, 23), "04": ("minute", 0, 59), "05": ("second", 0, 59)}
_MONTH_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def days_in(year: int, month: int) -> int:
    """The number of days of a month in the Gregorian calendar."""
    leap = month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return 29 if leap else _MONTH_DAYS[month - 1]


def days_from_civil(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01 in the proleptic Gregorian calendar."""
    year -= month <= 2
    era, yoe = divmod(year, 400)
    doy = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146097 + yoe * 365 + yoe // 4 - yoe // 100 + doy - 719468


def civil_from_days(days: int) -> tuple[int, int, int]:
    """(year, month, day) for days since 1970-01-01."""
    era, doe = divmod(days + 719468, 146097)
    yoe = (doe - doe // 1460 + doe // 36524 - doe // 146096) // 365
    doy = doe - (365 * yoe + yoe // 4 - yoe // 100)
    mp = (5 * doy + 2) // 153
    month = mp + 3 if mp < 10 else mp - 9
    return yoe + era * 400 + (month <= 2), month, doy - (153 * mp + 2) // 5 + 1


class _TimeText:
    """Go's ``time.Parse`` for the two layouts of the API, with its exact error texts."""

    def __init__(self, text: str, layout: str) -> None:
        self.text, self.layout, self.rest = text, layout, text

    def bad(self, rest: str, element: str) -> DecodeError:
        return DecodeError(f"parsing time {_quote(self.text)} as {_quote(self.layout)}: cannot parse {_quote(rest)} as {_quote(element)}")

    def out_of_range(self, what: str) -> DecodeError:
        return DecodeError(f"parsing time {_quote(self.text)}: {what} out of range")

    def number(self, element: str) -> int:
        rest, width = self.rest, 4 if element == "2006" else 2
        digits = rest[:width]
        if not (len(digits) == width and digits.isascii() and digits.isdigit()):
            # Only the hour may have a single digit.
            if element != "15" or not ("0" <= rest[:1] <= "9"):
                raise self.bad(rest, element)
            digits = rest[:1]
        self.rest = rest[len(digits) :]
        value = int(digits)
        if element in _RANGES:
            what, low, high = _RANGES[element]
            if not low <= value <= high:
                raise self.out_of_range(what)
        return value

    def fraction(self) -> int:
        rest = self.rest
        if self.layout == RFC3339_MICRO:
            digits = rest[1:7]
            if rest[:1] not in (".", ",") or len(digits) < 6 or not (digits.isascii() and digits.isdigit()):
                raise self.bad(rest, ".000000")
            self.rest = rest[7:]
            return int(digits) * 1000
        if rest[:1] in (".", ",") and "0" <= rest[1:2] <= "9":
            end = 2
            while "0" <= rest[end : end + 1] <= "9":
                end += 1
            self.rest = rest[end:]
            return int(rest[1 : min(end, 10)].ljust(9, "0"))
        return 0

    def offset(self) -> int:
        rest = self.rest
        if rest[:1] == "Z":
            self.rest = rest[1:]
            return 0
        hour, minute = rest[1:3], rest[4:6]
        digits = hour + minute
        if len(rest) < 6 or rest[3] != ":" or not (digits.isascii() and digits.isdigit()):
            raise self.bad(rest, "Z07:00")
        # When both are out of range, Go reports the minute.
        if int(minute) > 60:
            raise self.out_of_range("time zone offset minute")
        if int(hour) > 24:
            raise self.out_of_range("time zone offset hour")
        if rest[0] not in "+-":
            raise self.bad(rest, "Z07:00")
        self.rest = rest[6:]
        seconds = (int(hour) * 60 + int(minute)) * 60
        return -seconds if rest[0] == "-" else seconds

    def parse(self) -> tuple[int, int, int]:
        """Returns (Unix seconds, nanoseconds, seconds of the text's zone ahead of UTC). Raises DecodeError."""
        values = []
        for prefix, element in _LAYOUT:
            if not self.rest.startswith(prefix):
                raise self.bad(self.rest, prefix)
            self.rest = self.rest[len(prefix) :]
            values.append(self.number(element))
        nanos = self.fraction()
        offset = self.offset()
        if self.rest:
            raise DecodeError(f"parsing time {_quote(self.text)}: extra text: {_quote(self.rest)}")
        year, month, day, hour, minute, second = values
        if not 1 <= day <= days_in(year, month):
            raise self.out_of_range("day")
        return days_from_civil(year, month, day) * 86400 + hour * 3600 + minute * 60 + second - offset, nanos, offset


def parse_time(text: str) -> tuple[int, int]:
    """Parses RFC 3339 text to (Unix seconds, nanoseconds). Raises DecodeError with the text of Go's package time."""
    return _TimeText(text, RFC3339).parse()[:2]


def parse_zoned_time(text: str) -> tuple[int, int, int]:
    """Like ``parse_time``, with the seconds that the text's zone is ahead of UTC."""
    return _TimeText(text, RFC3339).parse()


def parse_micro_time(text: str) -> tuple[int, int]:
    """Like ``parse_time``, but requires exactly six fractional digits (``metav1.RFC3339Micro``)."""
    return _TimeText(text, RFC3339_MICRO).parse()[:2]


def format_time(seconds: int) -> str:
    """Formats Unix seconds like metav1.Time: whole seconds, UTC."""
    days, rest = divmod(seconds, 86400)
    year, month, day = civil_from_days(days)
    sign = "-" if year < 0 else ""
    return f"{sign}{abs(year):04d}-{month:02d}-{day:02d}T{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}Z"


def format_micro_time(seconds: int, nanos: int) -> str:
    """Formats a metav1.MicroTime: RFC 3339 in UTC with six fractional digits, truncated."""
    return f"{format_time(seconds)[:-1]}.{nanos // 1000:06d}Z"


def canonical_time(text: str) -> str | None:
    """Normalizes a time to the text that metav1.Time writes; None for the zero time. Raises DecodeError."""
    seconds, nanos = parse_time(text)
    return None if seconds == ZERO_TIME and nanos == 0 else format_time(seconds)


def canonical_micro_time(text: str) -> str | None:
    """Normalizes a MicroTime to the text that Go writes; None for the zero time. Raises DecodeError."""
    seconds, nanos = parse_micro_time(text)
    return None if seconds == ZERO_TIME and nanos == 0 else format_micro_time(seconds, nanos)


def parse_duration(text: str) -> int:
    """``duration.parse`` for client input: raises DecodeError with Go's text."""
    try:
        return duration.parse(text)
    except ValueError as e:
        raise DecodeError(str(e)) from None


format_duration: Callable[[int], str] = duration.format_ns


def canonical_duration(text: str) -> str:
    """Normalizes a duration to Go's text ("90s" to "1m30s"). Raises DecodeError."""
    return format_duration(parse_duration(text))


def decimal(text: str) -> int:
    """Parses decimal digits with an optional sign: exactly if they fit 64 bits; a longer number becomes one that fits no integer type.

    Python's ``int`` is quadratic in the digits, and raises for more than 4,300 of them, including leading zeros.
    """
    digits = text.lstrip("+-").lstrip("0")
    value = int(digits or "0") if len(digits) <= 20 else 1 << 80
    return -value if text.startswith("-") else value


_DIGITS = re.compile(r"[0-9]+")


def _too_large(text: str) -> bool:
    """Whether the text starts with digits that do not fit 64 bits: Go reads no further, whatever follows."""
    digits = _DIGITS.match(text)
    return digits is not None and decimal(digits[0]) >= 1 << 64


def int64(text: str, by: str = "ParseInt") -> int:
    """``strconv.ParseInt(text, 10, 64)``. Raises DecodeError with its text; ``by`` is "Atoi" where upstream calls that."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()) and not _too_large(digits):
        raise DecodeError(f"strconv.{by}: parsing {go_quote(text)}: invalid syntax")
    value = decimal(text) if digits.isdigit() else 1 << 64
    if not -(1 << 63) <= value < 1 << 63:
        raise DecodeError(f"strconv.{by}: parsing {go_quote(text)}: value out of range")
    return value


def parse_uint64(text: str) -> int:
    """``strconv.ParseUint(text, 10, 64)``. Raises ValueError with Go's text."""
    if text.isascii() and text.isdigit() and (n := decimal(text)) < 1 << 64:
        return n
    why = "value out of range" if _too_large(text) else "invalid syntax"
    raise ValueError(f"strconv.ParseUint: parsing {go_quote(text)}: {why}")
