"""IP addresses and CIDRs as parsed by Go 1.16 (``k8s.io/utils/net``), which accepts ``010.0.0.1`` as ``10.0.0.1``.

``ipchecks.py`` says which of these a field may have. A parsed address is an integer with the family in which it was *written*.
"""

from __future__ import annotations

import ipaddress
import re

from kas.meta.records import NamedTuple

_DECIMAL = re.compile(r"[0-9]+\Z", re.ASCII)
_HEX = re.compile(r"[0-9A-Fa-f]+\Z", re.ASCII)
_OCTET = "(?:[1-9]?[0-9]|1[0-9][0-9]|2[0-4][0-9]|25[0-5])"
_PLAIN = re.compile(rf"(?:{_OCTET}\.){{3}}{_OCTET}", re.ASCII)


class IP(NamedTuple):
    """An address. ``bits`` is 32 or 128, by how it was written; ``number`` is the address as an integer of that width."""

    number: int
    bits: int

    @property
    def is_mapped(self) -> bool:
        """Whether this is an IPv4 address written as IPv6 (``::ffff:0:0/96``, RFC 4291 2.5.5.2)."""
        return self.bits == 128 and self.number >> 32 == 0xFFFF

    @property
    def family(self) -> int:
        """4 or 6: an IPv4-mapped address counts as IPv4, as in Go's ``net.IP``."""
        return 4 if self.bits == 32 or self.is_mapped else 6

    def __str__(self) -> str:
        if self.family == 4:
            return str(ipaddress.IPv4Address(self.number & 0xFFFFFFFF))
        return str(ipaddress.IPv6Address(self.number))


class CIDR(NamedTuple):
    """An address with a prefix length; bits after the prefix may be set."""

    ip: IP
    prefix: int

    @property
    def network(self) -> IP:
        """The first address of the block."""
        shift = self.ip.bits - self.prefix
        return IP(self.ip.number >> shift << shift, self.ip.bits)

    def __str__(self) -> str:
        """The network, as ``net.IPNet`` prints it."""
        network = self.network
        length = max(self.prefix - 96, 0) if self.ip.bits == 128 and network.is_mapped else self.prefix
        return f"{network}/{length}"


def is_plain_ipv4(text: str) -> bool:
    """Whether a text is an IPv4 address in canonical form, which every rule accepts."""
    return _PLAIN.fullmatch(text) is not None


def parse_ip(text: str) -> IP | None:
    """``netutils.ParseIPSloppy``; None for an invalid address."""
    for c in text:
        if c == ".":
            return _parse_ipv4(text)
        if c == ":":
            return _parse_ipv6(text)
    return None


def parse_cidr(text: str) -> CIDR | None:
    """``netutils.ParseCIDRSloppy``; None for an invalid CIDR."""
    address, slash, mask = text.partition("/")
    if not slash:
        return None
    ip = _parse_ipv4(address) or _parse_ipv6(address)
    if ip is None or not _DECIMAL.match(mask):
        return None
    mask = mask.lstrip("0") or "0"
    if len(mask) > 3 or int(mask) > ip.bits:
        return None
    return CIDR(ip, int(mask))


def _parse_ipv4(text: str) -> IP | None:
    parts = text.split(".")
    if len(parts) != 4:
        return None
    number = 0
    for part in parts:
        if not _DECIMAL.match(part):
            return None
        digits = part.lstrip("0") or "0"
        if len(digits) > 3 or int(digits) > 255:
            return None
        number = number << 8 | int(digits)
    return IP(number, 32)


def _parse_ipv6(text: str) -> IP | None:
    head, double, tail = text.partition("::")
    if "::" in tail or text.count(":::"):
        return None
    left = _groups(head, last=not double)
    right = _groups(tail, last=True) if double else []
    if left is None or right is None:
        return None
    missing = 8 - len(left) - len(right)
    if missing < 0 or (missing > 0) != bool(double):
        return None
    number = 0
    for group in (*left, *([0] * missing), *right):
        number = number << 16 | group
    return IP(number, 128)


def _groups(text: str, last: bool) -> list[int] | None:
    """The 16-bit groups on one side of ``::``; a dotted IPv4 tail is allowed only at the end of the address. None when invalid."""
    if not text:
        return []
    out: list[int] = []
    parts = text.split(":")
    for i, part in enumerate(parts):
        if "." in part:
            tail = _parse_ipv4(part) if last and i == len(parts) - 1 else None
            if tail is None:
                return None
            out += (tail.number >> 16, tail.number & 0xFFFF)
            continue
        digits = part.lstrip("0") or ("0" if part else "")
        if not _HEX.match(digits) or len(digits) > 4:
            return None
        out.append(int(digits, 16))
    return out
