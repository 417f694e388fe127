"""Validation of IP addresses and CIDRs in fields: apimachinery's ``util/validation/ip.go``.

Old fields must keep accepting what the sloppy parser in ``ip.py`` accepts. The strict rules refuse leading zeros and IPv4-mapped IPv6
addresses and, for new fields, any non-canonical form.
"""

from __future__ import annotations

from collections.abc import Container

from kas.meta import field
from kas.meta.field import FieldError, go_quote
from kas.meta.ip import CIDR, IP, is_plain_ipv4, parse_cidr, parse_ip

_NOT_IP = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
_NOT_CIDR = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
_NOT_INTERFACE = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"


def _has_leading_zeros(address: str) -> bool:
    """Whether Go's ``netip`` refuses an address, although the sloppy parser accepted it, for leading zeros."""
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


def validate_legacy_ip(path: str, text: str, strict: bool = True, old: Container[str] = ()) -> list[FieldError]:
    """The rule for fields that used to accept sloppy addresses; values in ``old`` stay valid.

    ``strict`` is the gate StrictIPCIDRValidation.
    """
    return [] if text in old or is_plain_ipv4(text) else _parse_strictly(path, text, strict)[1]


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


def validate_legacy_cidr(path: str, text: str, strict: bool = True, old: Container[str] = ()) -> list[FieldError]:
    """``IsValidCIDRForLegacyField``: values in ``old`` are accepted; leading zeros and the like are accepted only without ``strict``."""
    return [] if text in old else _parse_cidr_strictly(path, text, strict)[1]


def validate_interface_address(path: str, text: str) -> list[FieldError]:
    """An address together with its subnet: ``10.9.8.7/24``."""
    cidr = parse_cidr(text)
    if cidr is None:
        return [field.invalid(path, text, _NOT_INTERFACE)]
    # An IPv4-mapped address prints as IPv4, with its prefix reduced accordingly.
    prefix = cidr.prefix - 96 if cidr.ip.family == 4 and cidr.prefix > 32 else cidr.prefix
    canonical = f"{cidr.ip}/{prefix}"
    return [] if text == canonical else [field.invalid(path, text, f"must be in canonical form ({go_quote(canonical)})")]


def ip_warnings(path: str, text: str) -> list[str]:
    """GetWarningsForIP. Returns none for a text that is not an address."""
    if is_plain_ipv4(text):
        return []  # most pods have one, and pod statuses are written most often
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
        # With host bits set, it is ambiguous whether the network or the address was meant.
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
