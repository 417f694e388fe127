"""IP addresses and CIDRs as the API accepts them: apimachinery's ``util/validation/ip.go`` on ``k8s.io/utils/net``.

Two parsers meet here. The sloppy one is Go's of 1.16, which takes ``010.0.0.1`` for ``10.0.0.1``; old fields must keep
accepting what it accepted. The strict rules refuse leading zeros and IPv4-mapped IPv6 and, for new fields, any spelling
but the canonical one. A parsed address is the integer with the family it was *written* in.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from typing import NamedTuple

from kas.meta import field
from kas.meta.field import FieldError, go_quote

_DECIMAL = re.compile(r"[0-9]+\Z", re.ASCII)
_HEX = re.compile(r"[0-9A-Fa-f]+\Z", re.ASCII)
_NOT_IP = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
_NOT_CIDR = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
_NOT_INTERFACE = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"


class IP(NamedTuple):
    """``bits`` is 32 or 128 by how it was written; ``number`` the address as an integer of that width."""

    number: int
    bits: int

    @property
    def is_mapped(self) -> bool:
        """Whether this is an IPv4 address written as IPv6 (``::ffff:0:0/96``, RFC 4291 2.5.5.2)."""
        return self.bits == 128 and self.number >> 32 == 0xFFFF

    @property
    def family(self) -> int:
        """4 or 6 by meaning: an IPv4-mapped address counts as IPv4, as in Go's ``net.IP``."""
        return 4 if self.bits == 32 or self.is_mapped else 6

    def __str__(self) -> str:
        if self.family == 4:
            return str(ipaddress.IPv4Address(self.number & 0xFFFFFFFF))
        return str(ipaddress.IPv6Address(self.number))


class CIDR(NamedTuple):
    """An address with the length of a prefix; it may have bits behind the prefix."""

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


def parse_ip(text: str) -> IP | None:
    """``netutils.ParseIPSloppy``."""
    for c in text:
        if c == ".":
            return _parse_ipv4(text)
        if c == ":":
            return _parse_ipv6(text)
    return None


def parse_cidr(text: str) -> CIDR | None:
    """``netutils.ParseCIDRSloppy``."""
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
    """The 16-bit groups of one side of ``::``; a dotted IPv4 tail only where the address ends."""
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


def _has_leading_zeros(address: str) -> bool:
    """What Go's ``netip`` refuses though the sloppy parser took it."""
    if ":" in address:
        head, _, tail = address.rpartition(":")
        if any(len(group) > 4 for group in head.split(":")):
            return True
        if "." not in tail:
            return len(tail) > 4
        address = tail
    return any(len(part) > 1 and part[0] == "0" for part in address.split("."))


def _parse_strictly(path: str, text: str, strict: bool) -> tuple[IP | None, list[FieldError]]:
    ip = parse_ip(text)
    if ip is None:
        return None, [field.invalid(path, text, _NOT_IP)]
    errors = []
    if strict:
        if _has_leading_zeros(text):
            errors.append(field.invalid(path, text, "must not have leading 0s"))
        elif ip.is_mapped:
            errors.append(field.invalid(path, text, "must not be an IPv4-mapped IPv6 address"))
    return ip, errors


def validate_ip(path: str, text: str) -> list[FieldError]:
    """The rule for new fields: valid, strict and canonical."""
    ip, errors = _parse_strictly(path, text, True)
    if not errors and text != str(ip):
        errors.append(field.invalid(path, text, f"must be in canonical form ({go_quote(str(ip))})"))
    return errors


def validate_legacy_ip(path: str, text: str, strict: bool = True, old: Sequence[str] = ()) -> list[FieldError]:
    """The rule for fields that once took sloppy addresses; what stands in ``old`` stays valid.

    ``strict`` is the gate StrictIPCIDRValidation.
    """
    return [] if text in old else _parse_strictly(path, text, strict)[1]


def _parse_cidr_strictly(path: str, text: str, strict: bool) -> tuple[CIDR | None, list[FieldError]]:
    cidr = parse_cidr(text)
    if cidr is None:
        return None, [field.invalid(path, text, _NOT_CIDR)]
    errors = []
    if strict:
        address, _, mask = text.partition("/")
        if _has_leading_zeros(address) or (len(mask) > 1 and mask[0] == "0"):
            errors.append(field.invalid(path, text, "must not have leading 0s in IP or prefix length"))
        elif cidr.ip.is_mapped:
            errors.append(field.invalid(path, text, "must not have an IPv4-mapped IPv6 address"))
        elif cidr.network != cidr.ip:
            errors.append(field.invalid(path, text, "must not have bits set beyond the prefix length"))
    return cidr, errors


def validate_cidr(path: str, text: str) -> list[FieldError]:
    """``ValidateCIDR``: strictly parsed and in canonical form."""
    cidr, errors = _parse_cidr_strictly(path, text, True)
    if not errors and text != str(cidr):
        errors.append(field.invalid(path, text, f"must be in canonical form ({go_quote(str(cidr))})"))
    return errors


def validate_legacy_cidr(path: str, text: str, strict: bool = True, old: Sequence[str] = ()) -> list[FieldError]:
    """``IsValidCIDRForLegacyField``: what ``old`` holds already passes; leading zeros and the like only without ``strict``."""
    return [] if text in old else _parse_cidr_strictly(path, text, strict)[1]


def validate_interface_address(path: str, text: str) -> list[FieldError]:
    """An address together with its subnet: ``10.9.8.7/24``."""
    cidr = parse_cidr(text)
    if cidr is None:
        return [field.invalid(path, text, _NOT_INTERFACE)]
    # An IPv4-mapped address prints as IPv4, and so does a prefix that only an IPv6 address can have.
    prefix = cidr.prefix - 96 if cidr.ip.family == 4 and cidr.prefix > 32 else cidr.prefix
    canonical = f"{cidr.ip}/{prefix}"
    return [] if text == canonical else [field.invalid(path, text, f"must be in canonical form ({go_quote(canonical)})")]


def ip_warnings(path: str, text: str) -> list[str]:
    """GetWarningsForIP; ``text`` is known to parse."""
    ip = parse_ip(text)
    if ip is None:
        return []
    if _has_leading_zeros(text):
        return [f"{path}: non-standard IP address {go_quote(text)} will be considered invalid in a future Kubernetes release:"
                f" use {go_quote(str(ip))}"]  # fmt: skip
    if ip.is_mapped:
        return [f"{path}: non-standard IP address {go_quote(text)} will be considered invalid in a future Kubernetes release:"
                f" use {go_quote(str(ip))}"]  # fmt: skip
    if ip.family == 6 and str(ip) != text:
        return [f"{path}: IPv6 address {go_quote(text)} should be in RFC 5952 canonical format ({go_quote(str(ip))})"]
    return []


def cidr_warnings(path: str, text: str) -> list[str]:
    """GetWarningsForCIDR."""
    cidr = parse_cidr(text)
    if cidr is None:
        return []
    address, _, mask = text.partition("/")
    warnings = []
    if cidr.network != cidr.ip:
        # The host bits make it ambiguous what was meant: the network or the address.
        warnings.append(
            f"{path}: CIDR value {go_quote(text)} is ambiguous in this context"
            f" (should be {go_quote(str(cidr))} or {go_quote(f'{cidr.ip}/{cidr.ip.bits}')}?)"
        )
    sloppy = _has_leading_zeros(address) or (len(mask) > 1 and mask[0] == "0")
    if sloppy or cidr.ip.is_mapped:
        warnings.append(
            f"{path}: non-standard CIDR value {go_quote(text)} will be considered invalid in a future Kubernetes release:"
            f" use {go_quote(str(cidr))}"
        )
    elif not warnings and cidr.ip.family == 6 and str(cidr) != text:
        warnings.append(f"{path}: IPv6 CIDR value {go_quote(text)} should be in RFC 5952 canonical format ({go_quote(str(cidr))})")
    return warnings
