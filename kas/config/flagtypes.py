"""Types of flag values, with the syntax and error texts of pflag and component-base.

A type parses each occurrence of its flag given the value of earlier ones, so that lists and maps accumulate, and prints a value as
``--help`` and ``/flagz`` show it. Durations are in seconds, sizes in bytes.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Callable
from typing import Any

from kas import KUBERNETES_VERSION
from kas.meta import duration
from kas.meta.records import NamedTuple

_TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_FALSE = frozenset(("0", "f", "F", "FALSE", "false", "False"))
_INT = re.compile(r"[+-]?(0[xX](_?[0-9a-fA-F])+|0[bB](_?[01])+|0[oO]?(_?[0-7])+|0|[1-9](_?[0-9])*)", re.ASCII)
_FLOAT = re.compile(r"[+-]?([0-9]++\.?[0-9]*+|\.[0-9]++)([eE][+-]?[0-9]+)?", re.ASCII)
# Versions of apimachinery's util/version: the numbers and the rest, and the parts of the rest.
_VERSION = re.compile(r"v([0-9]+(?:\.[0-9]+)*)(.*)", re.ASCII)
_PRE_RELEASE = re.compile(r"(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?\s*", re.ASCII)
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40}


class FlagType(NamedTuple):
    """A type. ``read(text, before)`` returns the new value, where ``before`` is that of an earlier occurrence or None; it raises ValueError
    with Go's text. ``show`` prints a value. ``bare`` is the value of a flag without one; None if a value is required.
    """

    name: str
    read: Callable[[str, Any], Any]
    show: Callable[[Any], str] = str
    bare: str | None = None


def quote(text: str) -> str:
    """Quote a command line text as Go's ``%q`` does for printable texts."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def parse_bool(text: str) -> bool:
    """``strconv.ParseBool``."""
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError(f"strconv.ParseBool: parsing {quote(text)}: invalid syntax")


def parse_int(text: str, bits: int = 64) -> int:
    """``strconv.ParseInt(text, 0, bits)``."""
    if not _INT.fullmatch(text):
        raise ValueError(f"strconv.ParseInt: parsing {quote(text)}: invalid syntax")
    digits = text.lstrip("+-").lower()
    octal = len(digits) > 1 and digits[0] == "0" and digits[1] not in "xbo"
    n = int(digits.replace("_", ""), 8) if octal else int(digits, 0)
    n = -n if text[0] == "-" else n
    if not -(1 << bits - 1) <= n < 1 << bits - 1:
        raise ValueError(f"strconv.ParseInt: parsing {quote(text)}: value out of range")
    return n


def _float(text: str, _: Any) -> float:
    """Parse as ``strconv.ParseFloat``, refusing infinity and NaN, which would disable what the number limits."""
    if not _FLOAT.fullmatch(text):
        raise ValueError(f"strconv.ParseFloat: parsing {quote(text)}: invalid syntax")
    if math.isinf(value := float(text)):
        raise ValueError(f"strconv.ParseFloat: parsing {quote(text)}: value out of range")
    return value


def _ip(text: str, before: Any) -> str:
    """Parse an address; an empty text keeps the previous value, as in pflag."""
    if not text:
        return before or ""
    try:
        if "%" in text:  # a zone, which net.ParseIP does not accept
            raise ValueError
        found = ipaddress.ip_address(text.strip())
    except ValueError:
        raise ValueError(f"failed to parse IP: {quote(text)}") from None
    return str((found.version == 6 and found.ipv4_mapped) or found)


def _csv(text: str) -> list[str]:
    """Return the first record as Go's encoding/csv reads it; an empty list for an empty text."""
    if not text:
        return []
    lines = text.replace("\r\n", "\n").split("\n")
    number = next((i for i, line in enumerate(lines) if line), -1)
    if number < 0:
        raise ValueError("EOF")
    fields, rest, more = list[str](), lines[number], True

    def wrong(what: str, left: str) -> ValueError:
        column = len(lines[number].encode()) - len(left.encode()) + 1
        return ValueError(f"parse error on line {number + 1}, column {column}: {what}")

    while more:
        if not rest.startswith('"'):
            field, comma, after = rest.partition(",")
            if '"' in field:
                raise wrong('bare " in non-quoted field', rest[field.index('"') :])
        else:
            field, rest = "", rest[1:]
            while True:
                piece, end, after = rest.partition('"')
                field += piece
                if not end and number + 1 == len(lines):
                    raise wrong('extraneous or missing " in quoted-field', "")
                if not end:
                    number, field = number + 1, field + "\n"
                    rest = lines[number]
                elif after.startswith('"'):
                    field, rest = field + '"', after[1:]
                elif after and after[0] != ",":
                    raise wrong('extraneous or missing " in quoted-field', '"' + after)
                else:
                    comma, after = after[:1], after[1:]
                    break
        fields.append(field)
        rest, more = after, bool(comma)
    return fields


def _strings(text: str, before: Any) -> list[str]:
    return [*(before or ()), *_csv(text)]


def _string_array(text: str, before: Any) -> list[str]:
    return [*(before or ()), text]


def _string_map(text: str, before: Any) -> dict[str, str]:
    """component-base's MapStringString without splitting: one pair per occurrence, whose value may contain commas."""
    key, sep, value = text.partition("=")
    if not sep:
        raise ValueError("malformed pair, expect string=string")
    return {**(before or {}), key.strip(): value.strip()}


def _configuration_map(text: str, before: Any) -> dict[str, str]:
    """component-base's ConfigurationMap: ``a=b,c``; the last occurrence of a key wins, and a key alone has the empty value."""
    out = dict(before or {})
    for pair in filter(None, text.split(",")):
        key, _, value = pair.partition("=")
        out[key.strip()] = value.strip()
    return out


def _string_to_string(text: str, before: Any) -> dict[str, str]:
    """pflag's StringToString: a text with one equals sign is one pair, even with commas."""
    out = dict(before or {})
    for pair in [text.strip('"')] if text.count("=") == 1 else _csv(text):
        key, sep, value = pair.partition("=")
        if not sep:
            raise ValueError(f"{pair} must be formatted as key=value")
        out[key] = value
    return out


def _multimap(text: str, before: Any) -> dict[str, list[str]]:
    """component-base's ColonSeparatedMultimapStringString; a value without a key has the empty key."""
    out = {key: list(values) for key, values in (before or {}).items()}
    for pair in text.split(",") if text.strip() else ():
        pair = pair.strip()
        if not pair:
            continue
        key, sep, value = pair.partition(":")
        if not sep:
            key, value = "", pair
        out.setdefault(key.strip(), []).append(value.strip())
    return out


def _int32s(text: str, before: Any) -> list[int]:
    return [*(before or ()), *(parse_int(part, 32) for part in text.split(","))]


def _level(text: str, _: Any = None) -> int:
    if not re.fullmatch(r"[0-9]+", text, re.ASCII):
        raise ValueError(f"strconv.ParseUint: parsing {quote(text)}: invalid syntax")
    if int(text) >= 1 << 31:
        raise ValueError(f"strconv.ParseUint: parsing {quote(text)}: value out of range")
    return int(text)


def _vmodule(text: str, _: Any) -> str:
    for pair in filter(None, text.split(",")):
        parts = pair.split("=")
        if len(parts) != 2 or not all(parts):
            raise ValueError(f"{quote(pair)} does not have the pattern=N format")
        try:
            _level(parts[1])
        except ValueError as e:
            raise ValueError(f"parsing verbosity in {quote(pair)}: {e}") from None
    return text


def _cert_key(text: str, before: Any) -> list[str]:
    """``cert,key`` or ``cert,key:name,name``; blanks around each part are dropped."""
    pair, sep, rest = text.partition(":")
    if not text or (sep and not rest.strip()):
        raise ValueError("empty names list is not allowed" if sep else "unexpected empty value")
    files, names = ([part.strip() for part in parts.split(",")] for parts in (pair, rest))
    if len(files) != 2 or not all(files):
        raise ValueError("expected comma separated certificate and key file paths")
    return [*(before or ()), ",".join(files) + sep + ",".join(names)]


def _atoi(text: str) -> int:
    if not re.fullmatch(r"[+-]?[0-9]+", text, re.ASCII):
        raise ValueError(f"strconv.Atoi: parsing {quote(text)}: invalid syntax")
    return int(text)


def _port_range(text: str, _: Any) -> tuple[int, int]:
    """``low-high``, ``low+count`` or one port, as (low, high) (apimachinery's ``util/net.PortRange``)."""
    text = text.strip()
    if "-" in text and "+" in text:
        raise ValueError(f"unable to parse port range: {text}")
    if "+" in text:
        first, _, count = text.partition("+")
        low = _atoi(first)
        high = low + _atoi(count)
    else:
        first, sep, last = text.partition("-")
        low = _atoi(first)
        high = _atoi(last) if sep else low
    if low > 65535 or high > 65535:
        raise ValueError(f"the port range cannot be greater than 65535: {text}")
    if high < low:
        raise ValueError(f"end port cannot be less than start port: {text}")
    return low, high


def _quantity(text: str, _: Any) -> int:
    """Parse a quantity as a 64-bit integer, rounded up."""
    from kas.meta import quantity  # loads compiled code, which most command lines do not need

    found = quantity.parse(text)
    if not quantity.parse(str(-(1 << 63))) <= found <= quantity.parse(str((1 << 63) - 1)):
        raise ValueError("value out of range")
    return found.value()


AUTO_PORT = -(1 << 64)  # cannot be given as a number: -1 is an error


def _port(text: str, _: Any) -> int:
    """Parse a port; 'auto' is ``AUTO_PORT``."""
    return AUTO_PORT if text == "auto" else parse_int(text)


def _version(text: str, _: Any) -> str:
    """"true", "false" or "raw" and their synonyms, or a version to report, which begins with "v" (component-base's ``verflag``)."""
    if text.startswith("v"):
        _reportable(text)
        return text
    return text if text == "raw" else _show_bool(parse_bool(text))


def _reportable(text: str) -> None:
    """Raise ValueError unless ``text`` is a semantic version of this release, as component-base's ``SetDynamicVersion``."""
    found = _VERSION.fullmatch(text)
    if found is None:
        raise ValueError(f"could not parse {quote(text)} as version")
    numbers, extra = found[1].split("."), found[2]
    if len(numbers) != 3:
        raise ValueError(f"illegal version string {quote(text)}")
    _no_leading_zeros(numbers, text)
    suffix = _PRE_RELEASE.fullmatch(extra)
    if suffix is None:
        raise ValueError(f"could not parse pre-release/metadata ({extra}) in version {quote(text)}")
    _no_leading_zeros([part for part in (suffix[1] or "").split(".") if part.isdecimal()], text)
    if found[1] != KUBERNETES_VERSION:
        raise ValueError(f"version {quote(text)} must match major/minor/patch of default version {quote(f'v{KUBERNETES_VERSION}')}")


def _no_leading_zeros(components: list[str], version: str) -> None:
    for one in components:
        if one[0] == "0" and one != "0":
            raise ValueError(f"illegal zero-prefixed version component {quote(one)} in {quote(version)}")


def _show_bool(value: Any) -> str:
    return "true" if value else "false"


def _show_list(value: Any) -> str:
    return "[" + ",".join(map(str, value or ())) + "]"


def _show_map(value: Any) -> str:
    return ",".join(f"{k}={v}" for k, v in sorted((value or {}).items()))


def _show_multimap(value: Any) -> str:
    return ",".join(f"{k}:{v}" if k else v for k, values in sorted((value or {}).items()) for v in values)


def _show_size(value: int) -> str:
    for unit, power in reversed(_BINARY.items()):
        if value and value % (1 << power) == 0:
            return f"{value >> power}{unit}"
    return str(value)


def _show_float(value: float) -> str:
    return f"{value:g}"


TYPES = {t.name: t for t in (
    FlagType("bool", lambda text, _: parse_bool(text), _show_bool, "true"),
    FlagType("int", lambda text, _: parse_int(text)),
    FlagType("float", _float, _show_float),
    FlagType("float32", _float, _show_float),
    FlagType("string", lambda text, _: text),
    FlagType("path", lambda text, _: text),
    FlagType("strings", _strings, _show_list),
    FlagType("stringArray", _string_array, _show_list),
    FlagType("duration", lambda text, _: duration.seconds(text), lambda s: duration.format_ns(round(s * 1e9))),
    FlagType("ip", _ip),
    FlagType("port", _port, lambda port: "auto" if port == AUTO_PORT else str(port)),
    FlagType("quantity", _quantity, _show_size),
    FlagType("mapStringString", _string_map, _show_map),
    FlagType("stringToString", _string_to_string, lambda v: "[" + _show_map(v) + "]"),
    FlagType("colonSeparatedMultimapStringString", _multimap, _show_multimap),
    FlagType("int32Slice", _int32s, _show_list),
    FlagType("namedCertKey", _cert_key, lambda v: "[" + ";".join(v or ()) + "]"),
    FlagType("portRange", _port_range, lambda v: f"{v[0]}-{v[1]}"),
    FlagType("Level", _level),
    FlagType("pattern=N,...", _vmodule),
    FlagType("version[=true]", _version, str, "true"),
)}  # fmt: skip
TYPES["configurationMap"] = FlagType("mapStringString", _configuration_map, _show_map)
