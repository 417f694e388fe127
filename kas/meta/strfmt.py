"""String formats of schemas: kube-openapi ``pkg/validation/strfmt``, as supported by structural schemas.

``FORMATS`` maps a format name without dashes to a predicate.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from kas._codecs import DecodeError
from kas.meta import mailaddress
from kas.meta.gourl import parse_request_uri
from kas.meta.ip import parse_cidr, parse_ip
from kas.meta.scalars import days_in, decimal, parse_duration

if TYPE_CHECKING:
    from kas.meta.regex import Pattern

FLAGS = re.ASCII | re.IGNORECASE


def _matches(pattern: str, flags: int = re.ASCII) -> Callable[[str], bool]:
    """A predicate for one of this module's own patterns, which do not backtrack excessively."""
    whole = re.compile(pattern, flags)
    return lambda text: whole.fullmatch(text) is not None


_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_TIME = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|[+-][0-9]{2}:[0-9]{2})")


def is_date(text: str) -> bool:
    """Whether a text is a full-date of RFC 3339."""
    found = _DATE.fullmatch(text)
    if found is None:
        return False
    year, month, day = map(int, found.groups())
    return 1 <= month <= 12 and 1 <= day <= days_in(year, month)


def is_datetime(text: str) -> bool:
    """Whether a text is nearly a date-time of RFC 3339: like upstream, any character may precede the fraction, and the offset is not
    checked.
    """
    date, mark, rest = text.lower().partition("t")
    if not mark or not is_date(date):
        return False
    found = _TIME.fullmatch(rest.partition("t")[0])
    return found is not None and found[1] <= "23" and found[2] <= "59" and found[3] <= "59"


# Matches a number from its first digit only: otherwise each digit of a million without a unit would be tried.
_PIECE = re.compile(r"((?<![0-9])[0-9]++)[\t\n\f\r ]*+([A-Za-zµ]+)")
_MICRO, _MILLI, _SECOND = 1_000, 1_000_000, 1_000_000_000
_UNITS = {
    "ns": 1, "us": _MICRO, "µs": _MICRO, "ms": _MILLI, "s": _SECOND, "m": 60 * _SECOND, "h": 3600 * _SECOND, "hr": 3600 * _SECOND,
    "d": 86_400 * _SECOND, "w": 604_800 * _SECOND, "wk": 604_800 * _SECOND,
}  # fmt: skip
# Prefixes of longer names: "seconds", "secs".
_LONG_UNITS = {
    "nano": 1, "micro": _MICRO, "milli": _MILLI, "sec": _SECOND, "min": 60 * _SECOND, "hour": 3600 * _SECOND, "day": 86_400 * _SECOND,
    "week": 604_800 * _SECOND,
}  # fmt: skip


def _unit(name: str) -> int:
    # Go's case folding covers non-ASCII letters: Greek mu equals the micro sign.
    known = _UNITS.get(name.lower().replace("μ", "µ"))
    return known if known is not None else next((ns for long, ns in _LONG_UNITS.items() if name.lower().startswith(long)), 0)


def duration_ns(text: str) -> int | None:
    """Nanoseconds of a Go duration, or of numbers with units in Scala's style ("3 hours 2 min") anywhere in the text; None for any other
    text.

    Text before a number is ignored ("-1 day" is one day). The sum wraps like Go's int64.
    """
    try:
        return parse_duration(text)
    except DecodeError:
        pass
    total, known = 0, False
    for number, name in _PIECE.findall(text):
        count = decimal(number)
        if count >= 1 << 63:
            return None
        unit = _unit(name)
        known = known or unit > 0
        total += count * unit
    return (total + (1 << 63)) % (1 << 64) - (1 << 63) if known else None


def is_duration(text: str) -> bool:
    """Whether ``duration_ns`` accepts the text."""
    return duration_ns(text) is not None


# Letters and symbols of any script. RE2 supports these classes, so the pattern runs there. Lengths are checked by the caller: in the
# pattern, they would make it take 100 ms to compile.
_NAME = r"[a-zA-Z0-9\p{S}\p{L}]"
_HOSTNAME = rf"^({_NAME}(-?{_NAME}*)?|({_NAME}([a-zA-Z0-9\-\p{{S}}\p{{L}}]*{_NAME})?\.)+[a-zA-Z\p{{L}}]{{2,}})$"


def is_hostname(text: str) -> bool:
    """Whether a text is a host name of up to 255 bytes with labels of up to 63."""
    if not text or len(text.encode()) > 255 or any(len(label.encode()) > 63 for label in text.split(".")):
        return False
    return _hostname().search(text) is not None


@cache
def _hostname() -> Pattern:
    from kas.meta.regex import compiled

    return compiled(_HOSTNAME)


def is_uri(text: str) -> bool:
    """Whether ``url.ParseRequestURI`` accepts the text."""
    try:
        parse_request_uri(text)
    except ValueError:
        return False
    return True


def is_ipv4(text: str) -> bool:
    """Whether a text is an IPv4 address; leading zeros are accepted, as before Go 1.17."""
    return "." in text and parse_ip(text) is not None


def is_ipv6(text: str) -> bool:
    """Whether a text is an IPv6 address whose embedded IPv4 part, if any, has no leading zeros."""
    if ":" not in text or parse_ip(text) is None:
        return False
    tail = text.rpartition(":")[2]
    return "." not in tail or not any(len(part) > 1 and part[0] == "0" for part in tail.split("."))


_MACS = tuple(rf"[0-9a-f]{{2}}(?:{by}[0-9a-f]{{2}}){{{n - 1}}}" for n in (6, 8, 20) for by in "-:")
_DOTTED_MACS = tuple(rf"[0-9a-f]{{4}}(?:\.[0-9a-f]{{4}}){{{n // 2 - 1}}}" for n in (6, 8, 20))
_SEPARATORS = re.compile(r"[\t\n\f\r -]+")


def is_isbn10(text: str) -> bool:
    """Whether a text is an ISBN-10 with a valid check digit; blanks and hyphens are ignored."""
    digits = _SEPARATORS.sub("", text)
    if not re.fullmatch(r"[0-9]{9}[0-9X]", digits):
        return False
    return sum((i + 1) * (10 if c == "X" else int(c)) for i, c in enumerate(digits)) % 11 == 0


def is_isbn13(text: str) -> bool:
    """Whether a text is an ISBN-13 with a valid check digit; blanks and hyphens are ignored."""
    digits = _SEPARATORS.sub("", text)
    if not re.fullmatch(r"[0-9]{13}", digits):
        return False
    return sum((1, 3)[i % 2] * int(c) for i, c in enumerate(digits)) % 10 == 0


_ISSUED = _matches(
    r"4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}"
    r"|(?:2131|1800|35[0-9]{3})[0-9]{11}"
)


def is_credit_card(text: str) -> bool:
    """Whether the digits of a text are a card number of a known issuer with a valid Luhn check digit; other characters are ignored."""
    digits = re.sub(r"[^0-9]+", "", text)
    doubled = (int(c) * (1 + i % 2) for i, c in enumerate(reversed(digits)))
    return _ISSUED(digits) and sum(n // 10 + n % 10 for n in doubled) % 10 == 0


def _uuid(third: str = "[0-9a-f]{4}", fourth: str = "[0-9a-f]{4}") -> Callable[[str], bool]:
    return _matches(rf"[0-9a-f]{{8}}-?[0-9a-f]{{4}}-?{third}-?{fourth}-?[0-9a-f]{{12}}", FLAGS)


_BYTE = r"(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])"
_BLANK = r"[\t\n\f\r ]*"
_SHORT_NAME = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_short_name, _long_name = _matches(_SHORT_NAME), _matches(rf"{_SHORT_NAME}(\.{_SHORT_NAME})*")

_SSN = _matches("[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}")

FORMATS: dict[str, Callable[[str], bool]] = {
    "bsonobjectid": _matches("[0-9a-f]{24}", FLAGS),
    "uri": is_uri,
    "email": mailaddress.is_address,
    "hostname": is_hostname,
    "ipv4": is_ipv4,
    "ipv6": is_ipv6,
    "cidr": lambda text: parse_cidr(text) is not None,
    "mac": _matches("|".join(_MACS + _DOTTED_MACS), FLAGS),
    "uuid": _uuid(),
    "uuid3": _uuid("3[0-9a-f]{3}"),
    "uuid4": _uuid("4[0-9a-f]{3}", "[89ab][0-9a-f]{3}"),
    "uuid5": _uuid("5[0-9a-f]{3}", "[89ab][0-9a-f]{3}"),
    "isbn": lambda text: is_isbn10(text) or is_isbn13(text),
    "isbn10": is_isbn10,
    "isbn13": is_isbn13,
    "creditcard": is_credit_card,
    "ssn": lambda text: len(text) == 11 and _SSN(text),
    "hexcolor": _matches("#?([0-9a-f]{3}|[0-9a-f]{6})", FLAGS),
    "rgbcolor": _matches(rf"rgb\({_BLANK}{_BYTE}{_BLANK},{_BLANK}{_BYTE}{_BLANK},{_BLANK}{_BYTE}{_BLANK}\)"),
    "byte": _matches(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})"),
    "password": lambda text: True,
    "date": is_date,
    "duration": is_duration,
    "datetime": is_datetime,
    "k8sshortname": lambda text: len(text) <= 63 and _short_name(text),
    "k8slongname": lambda text: len(text) <= 253 and _long_name(text),
}
# Formats of numbers, which bound their range; other types do not support them.
NUMBER_FORMATS = {"integer": frozenset(("int32", "int64")), "number": frozenset(("float", "double"))}


def is_known(kind: str, name: str) -> bool:
    """Whether a schema of this type ("" if unspecified) supports the format; unsupported formats are ignored with a warning."""
    if kind in ("", "string"):
        return name.replace("-", "") in FORMATS
    return name in NUMBER_FORMATS.get(kind, ())
