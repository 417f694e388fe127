"""Small checks that the validation of many kinds shares: upstream's ``pkg/apis/core/validation`` helpers.

All return lists of ``FieldError`` so that callers add them up in upstream's order. What is here takes plain dicts as
they come out of decoding: an absent key is Go's nil or zero value.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kas.api import field
from kas.api.equality import semantic_equal
from kas.api.field import FieldError
from kas.api.validation import names

IMMUTABLE = "field is immutable"
NameCheck = Callable[[str], list[str]]


def invalid_each(path: str, value: Any, messages: Iterable[str]) -> list[FieldError]:
    """One Invalid error per message of a name check."""
    return [field.invalid(path, value, message) for message in messages]


def unsupported(path: str, value: Any, valid: Sequence[str]) -> FieldError:
    """NotSupported with the values in the caller's order: upstream sorts only where it lists a set."""
    detail = "supported values: " + ", ".join(field.go_quote(v) for v in valid)
    return FieldError(field.NOT_SUPPORTED, path, value, detail)


def immutable(new: Any, old: Any, path: str, shown: Any = None) -> list[FieldError]:
    """``ValidateImmutableField``; ``shown`` replaces the printed value where Go prints an internal struct."""
    if semantic_equal(new, old):
        return []
    return [field.invalid(path, new if shown is None else shown, IMMUTABLE)]


def nonnegative(value: int, path: str) -> list[FieldError]:
    return [] if value >= 0 else [field.invalid(path, value, "must be greater than or equal to 0")]


def go_struct(obj: dict[str, Any] | None, *fields: tuple) -> dict[str, Any] | None:
    """An internal Go struct as its field names print in an error: every field, nil as null.

    ``fields`` are (Go name, JSON name, zero value[, function of the nested value]).
    """
    if obj is None:
        return None
    out = {}
    for name, key, zero, *nested in fields:
        value = obj.get(key)
        if value is not None and nested:
            value = nested[0](value)
        out[name] = zero if value is None else value
    return out


# -- names -------------------------------------------------------------------------------------------------------------


def dns_subdomain(value: str, path: str) -> list[FieldError]:
    return invalid_each(path, value, names.is_dns1123_subdomain(value))


def dns_label(value: str, path: str) -> list[FieldError]:
    return invalid_each(path, value, names.is_dns1123_label(value))


def qualified_name(value: str, path: str) -> list[FieldError]:
    return invalid_each(path, value, names.is_qualified_name(value))


def required_path_segment(value: str, path: str) -> list[FieldError]:
    """Required, and usable as a segment of a URL path."""
    if not value:
        return [field.required(path)]
    return invalid_each(path, value, names.is_path_segment_name(value))


def csi_driver_name(value: str, path: str) -> list[FieldError]:
    """``ValidateCSIDriverName``: a DNS subdomain in any case of at most 63 characters."""
    errs: list[FieldError] = []
    if not value:
        errs.append(field.required(path))
    if len(value) > 63:
        errs.append(field.too_long(path, 63))
    return errs + invalid_each(path, value, names.is_dns1123_subdomain(value.lower()) if value else ())


# -- addresses -----------------------------------------------------------------------------------------------------------


def parse_ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """``netutils.ParseIPSloppy``: leading zeros in IPv4 octets are decimal; an IPv4-mapped IPv6 address is its IPv4."""
    if "%" in text:
        return None
    if "." in text and ":" not in text:
        parts = text.split(".")
        if len(parts) != 4 or not all(p.isascii() and p.isdigit() and len(p.lstrip("0")) <= 3 for p in parts):
            return None
        text = ".".join(str(int(p)) for p in parts)
    try:
        ip = ipaddress.ip_address(text)
    except ValueError:
        return None
    if ip.version == 6 and ip.ipv4_mapped is not None:
        return ip.ipv4_mapped
    return ip


def parse_cidr(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    """``netutils.ParseCIDRSloppy``; host bits are masked off."""
    address, slash, bits = text.partition("/")
    ip = parse_ip(address)
    if ip is None or not slash or not re.fullmatch(r"\d{1,3}", bits):
        return None
    if ip.version == 4 and ":" in address:
        # Go keeps the mask's own length for an IPv4-mapped prefix; below /96 it is no IPv4 network any more.
        if int(bits) > 128:
            return None
        return ipaddress.ip_network(f"::ffff:{ip}/{bits}", strict=False)
    if int(bits) > ip.max_prefixlen:
        return None
    return ipaddress.ip_network(f"{ip}/{bits}", strict=False)


def legacy_ip(path: str, value: str, existing: Sequence[str] = ()) -> list[FieldError]:
    """``IsValidIPForLegacyField``; a value that is already stored is let through."""
    return [] if value in existing else names.is_valid_ip_for_legacy_field(path, value)


def legacy_cidr(path: str, value: str, existing: Sequence[str] = ()) -> list[FieldError]:
    """``IsValidCIDRForLegacyField``; a value that is already stored is let through."""
    return [] if value in existing else names.is_valid_cidr_for_legacy_field(path, value)


def non_special_ip(value: str, path: str) -> list[FieldError]:
    """``ValidateNonSpecialIP``: no unspecified, loopback, link-local or link-local multicast address."""
    ip = parse_ip(value)
    if ip is None:
        return [field.invalid(path, value, "must be a valid IP address")]
    errs = []
    if ip.is_unspecified:
        errs.append(field.invalid(path, value, f"may not be unspecified ({value})"))
    if ip.is_loopback:
        errs.append(field.invalid(path, value, "may not be in the loopback range (127.0.0.0/8, ::1/128)"))
    if ip.is_link_local:
        errs.append(field.invalid(path, value, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"))
    multicast = ipaddress.ip_network("224.0.0.0/24") if ip.version == 4 else ipaddress.ip_network("ff02::/16")
    if ip in multicast:
        errs.append(field.invalid(path, value, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"))
    return errs


# -- ports and int-or-string -----------------------------------------------------------------------------------------


def port_number(value: int, path: str) -> list[FieldError]:
    return [] if 1 <= value <= 65535 else [field.invalid(path, value, "must be between 1 and 65535, inclusive")]


def port_name(value: str, path: str) -> list[FieldError]:
    return invalid_each(path, value, names.is_port_name(value))


_PERCENT = re.compile(r"[0-9]+%")


def positive_int_or_percent(value: Any, path: str) -> list[FieldError]:
    """``ValidatePositiveIntOrPercent``: a number from 0 or a percentage."""
    if isinstance(value, str):
        return invalid_each(path, value, names.is_percent(value))
    return nonnegative(value, path)


def not_more_than_100_percent(value: Any, path: str) -> list[FieldError]:
    if isinstance(value, str) and _PERCENT.fullmatch(value) and int(value[:-1]) > 100:
        return [field.invalid(path, value, "must not be greater than 100%")]
    return []


# -- conditions ----------------------------------------------------------------------------------------------------------

_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_REASON_MESSAGE = (
    "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters "
    "or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or "
    "'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')"
)


def conditions(items: Sequence[dict[str, Any]] | None, path: str) -> list[FieldError]:
    """``metav1validation.ValidateConditions``: metav1.Condition lists, unique by type."""
    errs: list[FieldError] = []
    seen: set[str] = set()
    for i, condition in enumerate(items or ()):
        at = field.index(path, i)
        kind = condition.get("type") or ""
        if kind in seen:
            errs.append(field.duplicate(field.child(at, "type"), kind))
        seen.add(kind)
        errs += _condition(condition, at)
    return errs


def _condition(condition: dict[str, Any], path: str) -> list[FieldError]:
    errs = qualified_name(condition.get("type") or "", field.child(path, "type"))
    status = condition.get("status") or ""
    if status not in ("False", "True", "Unknown"):
        errs.append(unsupported(field.child(path, "status"), status, ("False", "True", "Unknown")))
    observed = condition.get("observedGeneration") or 0
    if observed < 0:
        errs.append(field.invalid(field.child(path, "observedGeneration"), observed, "must be greater than or equal to zero"))
    if not condition.get("lastTransitionTime"):
        errs.append(field.required(field.child(path, "lastTransitionTime")))
    reason = condition.get("reason") or ""
    if not reason:
        errs.append(field.required(field.child(path, "reason")))
    else:
        if not _REASON.fullmatch(reason):
            errs.append(field.invalid(field.child(path, "reason"), reason, _REASON_MESSAGE))
        if len(reason.encode()) > 1024:
            errs.append(field.too_long(field.child(path, "reason"), 1024))
    if len((condition.get("message") or "").encode()) > 32768:
        errs.append(field.too_long(field.child(path, "message"), 32768))
    return errs
