"""Warnings about addresses that are accepted but ambiguous or written in an unusual form.

Upstream: ``apimachinery/pkg/util/validation/ip.go`` (GetWarningsForIP, GetWarningsForCIDR).
"""

from __future__ import annotations

import ipaddress

from kas.api.field import go_quote
from kas.api.validation.checks import parse_cidr, parse_ip


def _strict(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def ip_warnings(path: str, value: str) -> list[str]:
    """What to tell the client about an IP that is already known to be acceptable."""
    ip = parse_ip(value)
    if ip is None:
        return []
    strict = _strict(value)
    if strict is None or (strict.version == 6 and strict.ipv4_mapped is not None):
        text = f"non-standard IP address {go_quote(value)} will be considered invalid in a future Kubernetes release"
        return [f"{path}: {text}: use {go_quote(str(ip))}"]
    if strict.version == 6 and str(strict) != value:
        return [f"{path}: IPv6 address {go_quote(value)} should be in RFC 5952 canonical format ({go_quote(str(strict))})"]
    return []


def cidr_warnings(path: str, value: str) -> list[str]:
    """What to tell the client about a CIDR that is already known to be acceptable."""
    net = parse_cidr(value)
    if net is None:
        return []
    found = []
    address, _, bits = value.partition("/")
    ip = parse_ip(address)
    if ip is not None and ip.version == net.version and ip != net.network_address:
        single = f"{ip}/{ip.max_prefixlen}"
        found.append(
            f"{path}: CIDR value {go_quote(value)} is ambiguous in this context (should be {go_quote(str(net))} or {go_quote(single)}?)"
        )
    strict = _strict(address)
    if strict is None or bits != str(int(bits)) or (strict.version == 6 and strict.ipv4_mapped is not None):
        text = f"non-standard CIDR value {go_quote(value)} will be considered invalid in a future Kubernetes release"
        found.append(f"{path}: {text}: use {go_quote(str(net))}")
    elif strict.version == 6 and f"{strict}/{bits}" != value:
        found.append(f"{path}: IPv6 CIDR value {go_quote(value)} should be in RFC 5952 canonical format ({go_quote(f'{strict}/{bits}')})")
    return found
