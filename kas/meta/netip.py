"""Addresses and prefixes as parsed by Go's ``net/netip``, with its error texts.

Stricter than ``kas.meta.ip``, which follows Go's older parser: no leading zeros, and zones only where an address may have one.
"""

from __future__ import annotations

import re

from kas.meta.field import go_quote
from kas.meta.ip import IP

_HEX = re.compile("[0-9A-Fa-f]*")
_BITS = re.compile("[0-9]|[1-9][0-9]+")
MAX_INT = 2**63 - 1


class _WrongError(Exception):
    """A parse error: the reason, and the rest of the text from the error on."""

    def __init__(self, why: str, at: str = "") -> None:
        super().__init__(why)
        self.at = at


def parse_addr(text: str) -> tuple[IP, str]:
    """``netip.ParseAddr``: returns the address and its zone ("" for none). Raises ValueError with Go's text."""
    try:
        return _addr(text)
    except _WrongError as e:
        where = f" (at {go_quote(e.at)})" if e.at else ""
        raise ValueError(f"ParseAddr({go_quote(text)}): {e}{where}") from None


def parse_prefix(text: str) -> tuple[IP, int]:
    """``netip.ParsePrefix``: returns the address, including bits after the prefix, and the prefix length. Raises ValueError with Go's text.
    """
    failed = f"netip.ParsePrefix({go_quote(text)}): "
    address, slash, bits = text.rpartition("/")
    if not slash:
        raise ValueError(failed + "no '/'")
    try:
        ip, zone = parse_addr(address)
    except ValueError as e:
        raise ValueError(f"{failed}{e}") from None
    if zone:
        raise ValueError(failed + "IPv6 zones cannot be present in a prefix")
    if not _BITS.fullmatch(bits) or len(bits) > 19 or int(bits) > MAX_INT:
        raise ValueError(f"{failed}bad bits after slash: {go_quote(bits)}")
    if int(bits) > ip.bits:
        raise ValueError(failed + "prefix length out of range")
    return ip, int(bits)


def _addr(text: str) -> tuple[IP, str]:
    found = [at for at in map(text.find, ".:%") if at >= 0]
    if not found:
        raise _WrongError("unable to parse IP")
    first = text[min(found)]
    if first == "%":
        raise _WrongError("missing IPv6 address")
    return _colons(text) if first == ":" else (IP(_dotted(text), 32), "")


def _dotted(text: str) -> int:
    """A dotted IPv4 address as an integer."""
    found: list[int] = []
    value = digits = 0
    for i, c in enumerate(text):
        if "0" <= c <= "9":
            if digits == 1 and value == 0:
                raise _WrongError("IPv4 field has octet with leading zero")
            value, digits = value * 10 + int(c), digits + 1
            if value > 255:
                raise _WrongError("IPv4 field has value >255")
        elif c == ".":
            if not digits or i == len(text) - 1:
                raise _WrongError("IPv4 field must have at least one digit", text[i:])
            if len(found) == 3:
                raise _WrongError("IPv4 address too long")
            found.append(value)
            value = digits = 0
        else:
            raise _WrongError("unexpected character", text[i:])
    if len(found) < 3:
        raise _WrongError("IPv4 address too short")
    return int.from_bytes((*found, value))


def _colons(text: str) -> tuple[IP, str]:
    s, percent, zone = text.partition("%")
    if percent and not zone:
        raise _WrongError("zone must be a non-empty string")
    groups: list[int] = []  # 16 bits each
    gap = -1  # index of the group that "::" precedes
    if s.startswith("::"):
        gap, s = 0, s[2:]
    while s and len(groups) < 8:
        digits = _digits(s)
        if s[len(digits) : len(digits) + 1] == ".":
            groups += _tail(s, groups, gap)
            s = ""
            break
        groups.append(int(digits, 16))
        s = s[len(digits) :]
        if not s:
            break
        s = _after_colon(s)
        if s[0] == ":":
            if gap >= 0:
                raise _WrongError("multiple :: in address", s)
            gap, s = len(groups), s[1:]
    if s:
        raise _WrongError("trailing garbage after address", s)
    if len(groups) < 8:
        if gap < 0:
            raise _WrongError("address string too short")
        groups[gap:gap] = [0] * (8 - len(groups))
    elif gap >= 0:
        raise _WrongError("the :: must expand to at least one field of zeros")
    return IP(int.from_bytes(b"".join(g.to_bytes(2) for g in groups)), 128), zone


def _digits(s: str) -> str:
    found = _HEX.match(s)
    digits = found.group() if found else ""
    if len(digits) > 4:
        raise _WrongError("each group must have 4 or less digits", s)
    if not digits:
        raise _WrongError("each colon-separated field must have at least one digit", s)
    return digits


def _tail(s: str, groups: list[int], gap: int) -> tuple[int, int]:
    """The two groups of an embedded IPv4 address."""
    if gap < 0 and len(groups) != 6:
        raise _WrongError("embedded IPv4 address must replace the final 2 fields of the address", s)
    if len(groups) > 6:
        raise _WrongError("too many hex fields to fit an embedded IPv4 at the end of the address", s)
    number = _dotted(s)
    return number >> 16, number & 0xFFFF


def _after_colon(s: str) -> str:
    if s[0] != ":":
        raise _WrongError("unexpected character, want colon", s)
    if len(s) == 1:
        raise _WrongError("colon must be followed by more characters", s)
    return s[1:]
