"""Small checks shared by the validation of many kinds: upstream's ``pkg/apis/core/validation`` helpers.

Each returns a list of ``FieldError``, so that callers concatenate them in upstream's order. Values are plain dicts as decoded: an absent
key is Go's nil or zero value.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Container, Hashable, Iterable, Sequence
from typing import Any

from kas._codecs import Field, TypeDesc
from kas.config import features
from kas.meta import field, ip, ipchecks, names
from kas.meta.equality import semantic_equal
from kas.meta.field import FieldError
from kas.meta.patterns import later
from kas.meta.scalars import decimal

IMMUTABLE = "field is immutable"
_LINK_LOCAL_MULTICAST = ipaddress.ip_network("224.0.0.0/24")


def invalid_each(path: str, value: Any, messages: Iterable[str]) -> list[FieldError]:
    """One Invalid error per message of a name check."""
    return [field.invalid(path, value, message) for message in messages]


def repeats(values: Iterable[Hashable]) -> list[int]:
    """The indices of values that already occurred earlier."""
    seen: set[Hashable] = set()
    out = []
    for i, value in enumerate(values):
        if value in seen:
            out.append(i)
        seen.add(value)
    return out


def unsupported(path: str, value: Any, valid: Sequence[str]) -> FieldError:
    """A NotSupported error with the values in the caller's order; upstream sorts them only when it has a set."""
    detail = "supported values: " + ", ".join(field.go_quote(v) for v in valid)
    return FieldError(field.NOT_SUPPORTED, path, value, detail)


def immutable(new: Any, old: Any, path: str, shown: Any = None, of: TypeDesc | Field | None = None) -> list[FieldError]:
    """``ValidateImmutableField``. ``shown`` replaces the printed value where Go prints an internal struct.

    ``of`` is the field or the message type for ``semantic_equal``; None for a scalar, which is compared directly.
    """
    if new == old if of is None else semantic_equal(new, old, of):
        return []
    return [field.invalid(path, new if shown is None else shown, IMMUTABLE)]


def nonnegative(value: int, path: str) -> list[FieldError]:
    """``ValidateNonnegativeField``: at most one error, for a value below zero."""
    return [] if value >= 0 else [field.invalid(path, value, "must be greater than or equal to 0")]


# -- names -------------------------------------------------------------------------------------------------------------


def dns_subdomain(value: str, path: str) -> list[FieldError]:
    """Checks for a DNS-1123 subdomain; one error per problem."""
    return invalid_each(path, value, names.is_dns1123_subdomain(value))


def dns_label(value: str, path: str) -> list[FieldError]:
    """Checks for a DNS-1123 label; one error per problem."""
    return invalid_each(path, value, names.is_dns1123_label(value))


def qualified_name(value: str, path: str) -> list[FieldError]:
    """Checks for a qualified name (``prefix/name``); one error per problem."""
    return invalid_each(path, value, names.is_qualified_name(value))


def required_path_segment(value: str, path: str, missing: str = "") -> list[FieldError]:
    """Checks that the value is set and usable as a segment of a URL path."""
    if not value:
        return [field.required(path, missing)]
    return invalid_each(path, value, names.is_path_segment_name(value))


def csi_driver_name(value: str, path: str) -> list[FieldError]:
    """``ValidateCSIDriverName``: a DNS subdomain in any case of at most 63 bytes."""
    errs: list[FieldError] = []
    if not value:
        errs.append(field.required(path))
    if names.byte_length(value) > 63:
        errs.append(field.too_long(path, 63))
    return errs + invalid_each(path, value, names.is_dns1123_subdomain(value.lower()) if value else ())


# -- addresses -----------------------------------------------------------------------------------------------------------


def legacy_ip(path: str, value: str, existing: Container[str] = ()) -> list[FieldError]:
    """``IsValidIPForLegacyField``; values in ``existing`` (best a set), which are stored already, are accepted. Strict with the gate
    StrictIPCIDRValidation.
    """
    return ipchecks.validate_legacy_ip(path, value, features.DEFAULT.enabled("StrictIPCIDRValidation"), existing)


def legacy_cidr(path: str, value: str, existing: Container[str] = ()) -> list[FieldError]:
    """``IsValidCIDRForLegacyField``; values in ``existing``, which are stored already, are accepted."""
    return ipchecks.validate_legacy_cidr(path, value, features.DEFAULT.enabled("StrictIPCIDRValidation"), existing)


def non_special_ip(value: str, path: str) -> list[FieldError]:
    """``ValidateNonSpecialIP``: no unspecified, loopback, link-local or link-local multicast address."""
    parsed = ip.parse_ip(value)
    if parsed is None:
        return [field.invalid(path, value, "must be a valid IP address")]
    address = ipaddress.ip_address(str(parsed))
    errs = []
    if address.is_unspecified:
        errs.append(field.invalid(path, value, f"may not be unspecified ({value})"))
    if address.is_loopback:
        errs.append(field.invalid(path, value, "may not be in the loopback range (127.0.0.0/8, ::1/128)"))
    if address.is_link_local:
        errs.append(field.invalid(path, value, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"))
    if _link_local_multicast(address):
        errs.append(field.invalid(path, value, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"))
    return errs


def _link_local_multicast(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    if address.version == 4:
        return address in _LINK_LOCAL_MULTICAST
    return address.packed[0] == 0xFF and address.packed[1] & 0x0F == 2  # the low nibble is the scope, the high one the flags


# -- ports and int-or-string -----------------------------------------------------------------------------------------


def port_number(value: int, path: str) -> list[FieldError]:
    """Checks for a port from 1 to 65535."""
    return [] if 1 <= value <= 65535 else [field.invalid(path, value, "must be between 1 and 65535, inclusive")]


def port_name(value: str, path: str) -> list[FieldError]:
    """Checks for an IANA service name; one error per problem."""
    return invalid_each(path, value, names.is_port_name(value))


_PERCENT = re.compile(r"[0-9]+%")


def positive_int_or_percent(value: Any, path: str) -> list[FieldError]:
    """``ValidatePositiveIntOrPercent``: a number from 0 or a percentage."""
    if isinstance(value, str):
        return invalid_each(path, value, names.is_percent(value))
    return nonnegative(value, path)


def not_more_than_100_percent(value: Any, path: str) -> list[FieldError]:
    """``IsNotMoreThan100Percent``: refuses "101%" and above. Numbers and texts that are not percentages pass."""
    if isinstance(value, str) and _PERCENT.fullmatch(value) and decimal(value[:-1]) > 100:
        return [field.invalid(path, value, "must not be greater than 100%")]
    return []


# -- conditions ----------------------------------------------------------------------------------------------------------

_REASON = later(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
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
        errs.append(field.required(field.child(path, "lastTransitionTime"), "must be set"))
    reason = condition.get("reason") or ""
    if not reason:
        errs.append(field.required(field.child(path, "reason"), "must be set"))
    else:
        if not _REASON.fullmatch(reason):
            errs.append(field.invalid(field.child(path, "reason"), reason, _REASON_MESSAGE))
        if len(reason.encode()) > 1024:
            errs.append(field.too_long(field.child(path, "reason"), 1024))
    if len((condition.get("message") or "").encode()) > 32768:
        errs.append(field.too_long(field.child(path, "message"), 32768))
    return errs
