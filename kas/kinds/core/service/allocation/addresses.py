"""Choice of service IPs from the ranges of ServiceCIDR objects (upstream ``pkg/registry/core/service/ipallocator``).

An address is taken exactly if its IPAddress object exists. This module reads and chooses; the choice takes effect when the object is
created in the same commit as the Service.
"""

from __future__ import annotations

import ipaddress
import secrets
import socket
from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Any

from kas.meta.ip import IP, parse_cidr, parse_ip
from kas.meta.records import NamedTuple

FULL = "range is full"
TAKEN = "provided IP is already allocated"
NO_NETWORK = "the provided network does not match the current range"
NOT_READY = "allocator not ready"
BAND_MIN, BAND_MAX, BAND_STEP = 16, 256, 16  # KEP-3070
RANDOM_TRIES = 16
SHORTEST_V6_PREFIX = 64

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class AllocationError(Exception):
    """An address or a port is not available; the text is upstream's."""


class Range(NamedTuple):
    """The addresses ``first`` to ``last`` can be allocated; those below ``dynamic`` are reserved for explicit requests."""

    network: Network
    ready: bool

    @property
    def family(self) -> str:
        """"IPv4" or "IPv6"."""
        return f"IPv{self.network.version}"

    @property
    def first(self) -> int:
        """The lowest address that can be allocated, as a number: not the network's own."""
        return int(self.network.network_address) + 1

    @property
    def last(self) -> int:
        """The highest address that can be allocated, as a number: not the IPv4 broadcast address."""
        return int(self.network.broadcast_address) - (1 if self.network.version == 4 else 0)

    @property
    def dynamic(self) -> int:
        """Where the upper band begins, from which addresses are chosen before those below it (KEP-3070)."""
        size = self.network.num_addresses
        return self.first + (0 if size <= BAND_MIN else min(max(size // BAND_STEP, BAND_MIN), BAND_MAX))

    def address(self, number: int) -> str:
        """Return the address with this number as text."""
        return str(ipaddress.IPv4Address(number) if self.network.version == 4 else ipaddress.IPv6Address(number))


def canonical(ip: str) -> str:
    """Return the name of the IPAddress of an address in any spelling."""
    return str(parse_ip(ip))


def is_ready(cidr: dict[str, Any]) -> bool:
    """Whether a range is ready; without a condition it counts as ready, since its controller may not be running."""
    if cidr["metadata"].get("deletionTimestamp"):
        return False
    for condition in (cidr.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "Ready":
            return condition.get("status") == "True"
    return True


def ranges(cidrs: list[dict[str, Any]]) -> list[Range]:
    """Return the ranges of all ServiceCIDR objects, as ``together``."""
    return together(map(ranges_of, cidrs))


def ranges_of(cidr: dict[str, Any]) -> list[Range]:
    """Return the ranges of one ServiceCIDR object, without IPv6 ranges that are too large."""
    ready = is_ready(cidr)
    return [Range(network, ready) for network in networks(cidr) if network.version == 4 or network.prefixlen >= SHORTEST_V6_PREFIX]


def networks(cidr: dict[str, Any]) -> list[Network]:
    """Return the ranges of one ServiceCIDR object.

    Invalid networks, which only another client of the store can have written, are skipped, as by ``MetaAllocator.syncAllocators``: they
    must not block every Service.
    """
    found = map(parse_cidr, (cidr.get("spec") or {}).get("cidrs") or ())
    return [ipaddress.ip_network(str(one)) for one in found if one is not None]


def together(all_said: Iterable[list[Range]]) -> list[Range]:
    """Return the ranges of several objects, each once; a range is ready if any object that contains it is."""
    found: dict[Any, Range] = {}
    for each in all_said:
        for one in each:
            before = found.get(one.network)
            if before is None or (one.ready and not before.ready):
                found[one.network] = one
    return list(found.values())


class Covered:
    """A set of addresses, given as (version, first, last) ranges; lookup takes logarithmic time."""

    def __init__(self, told: Iterable[tuple[int, int, int]]) -> None:
        self._first: list[tuple[int, int]] = []
        self._last: list[int] = []
        for version, first, last in sorted(told):
            if self._first and self._first[-1][0] == version and first <= self._last[-1] + 1:
                self._last[-1] = max(self._last[-1], last)
            else:
                self._first.append((version, first))
                self._last.append(last)

    def __contains__(self, ip: IP) -> bool:
        number = number_in(ip)
        at = bisect_right(self._first, (ip.family, number)) - 1
        return at >= 0 and self._first[at][0] == ip.family and number <= self._last[at]


def number_in(ip: IP) -> int:
    """Return the number of an address in its family."""
    return ip.number & 0xFFFFFFFF if ip.family == 4 else ip.number


def given_out(known: Iterable[Range]) -> Covered:
    """Return the addresses that ranges, ready or not, can allocate."""
    return Covered((r.network.version, r.first, r.last) for r in known)


def range_of(known: list[Range], ip: str) -> Range | None:
    """Return the first range, ready or not, that can allocate ``ip``."""
    parsed = parse_ip(ip)
    if parsed is None:
        return None
    family, number = f"IPv{parsed.family}", number_in(parsed)
    return next((r for r in known if r.family == family and r.first <= number <= r.last), None)


def check(known: list[Range], ip: str, taken: Callable[[str], bool], dry_run: bool = False) -> None:
    """Check that ``ip`` can be allocated. Raises AllocationError. A dry run checks only one range, and not whether the address is taken."""
    parsed = parse_ip(ip)
    if parsed is None:
        raise AllocationError(NO_NETWORK)
    family, number = f"IPv{parsed.family}", number_in(parsed)
    mine = [r for r in known if r.family == family]
    if dry_run:
        fitting = mine[0] if mine else None
        if fitting is None or not fitting.ready:
            raise AllocationError(NOT_READY)
        if not fitting.first <= number <= fitting.last:
            raise AllocationError(f"the provided IP ({parsed}) is not in the valid range. The range of valid IPs is {fitting.network}")
    else:
        fitting = next((r for r in mine if r.ready and r.first <= number <= r.last), None)
        if fitting is None:
            raise AllocationError(NO_NETWORK)
    if not dry_run and taken(str(parsed)):
        raise AllocationError(TAKEN)


def number_of(family: str, name: str) -> int | None:
    """Return the number of the address in an IPAddress's name, None for one of another family."""
    try:
        return int.from_bytes(socket.inet_pton(socket.AF_INET6 if family == "IPv6" else socket.AF_INET, name))
    except (OSError, ValueError):  # ValueError: the text contains a NUL
        return None


def choose(
    known: list[Range], family: str, taken: Callable[[str], bool], free: Callable[[int, int], int | None], dry_run: bool = False
) -> str:
    """A free address of ``family``, from the upper part of a range while there is one. Raises AllocationError.

    A few random tries come first; where they fail, ``free(low, high)`` knows a number of the family that nobody has. A dry run takes
    nothing and answers with the network's own address, which is never given out.
    """
    mine = [r for r in known if r.family == family]
    if dry_run:
        if not mine or not mine[0].ready:
            raise AllocationError(NOT_READY)
        return str(mine[0].network.network_address)
    mine = [r for r in mine if r.ready]
    for r in mine:
        span = r.last - r.dynamic + 1
        for _ in range(RANDOM_TRIES if span > 0 else 0):
            ip = r.address(r.dynamic + secrets.randbelow(span))
            if not taken(ip):
                return ip
    for r in mine:
        for low, high in ((r.dynamic, r.last), (r.first, r.dynamic - 1)):
            number = free(low, high)
            if number is not None:
                return r.address(number)
    raise AllocationError(FULL)
