"""Name constraints: their matching, and that many constraints and many names do not multiply."""

from __future__ import annotations

import sys
from collections.abc import Callable
from ipaddress import ip_address, ip_network
from itertools import product

import pytest
from cryptography import x509

from kas.auth.authn.constraints import Constraints, Names

MANY: dict[str, tuple[Callable[[int], x509.GeneralName], Callable[[int], x509.GeneralName]]] = {
    "domains": (lambda i: x509.DNSName(f"a{i}.b"), lambda i: x509.DNSName(f"c{i}.d.e" if i % 2 else f".c{i}")),
    "addresses": (lambda i: x509.RFC822Name(f"a{i}@b"), lambda i: x509.RFC822Name(f"c{i}@d" if i % 2 else f"c{i}.d")),
    "URIs": (lambda i: x509.UniformResourceIdentifier(f"a://a{i}.b"), lambda i: x509.UniformResourceIdentifier(f"c{i}.d")),
    "networks": (lambda i: x509.IPAddress(ip_address(i)), lambda i: x509.IPAddress(ip_network((0x0B000000 + (i << 8), 24)))),
}


def refused(constraints: x509.NameConstraints, *names: x509.GeneralName) -> str:
    return Constraints(constraints).refused([Names(x509.SubjectAlternativeName(names)), None])


def calls(work: Callable[[], object]) -> int:
    """Returns how many functions are called, including compiled ones."""
    count = 0

    def seen(frame: object, event: str, arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("what", list(MANY))
def test_many_names_and_constraints_are_checked_in_linear_time(what: str) -> None:
    """1,500 names and as many constraints, which fit into 16 KiB, took the loop 2 s."""
    name, constraint = MANY[what]

    def cost(n: int) -> int:
        names, constraints = [name(i) for i in range(n)], x509.NameConstraints(None, [constraint(i) for i in range(n)])
        assert not refused(constraints, *names)
        return calls(lambda: refused(constraints, *names))

    assert cost(400) < 2.5 * cost(200)


def by_the_letter(name: str, constraint: str) -> bool:
    """RFC 5280 as Go implements it, one constraint at a time."""
    if not constraint:
        return True
    if constraint.startswith("."):
        return name.lower().endswith(constraint)
    return name.lower() == constraint or name.lower().endswith("." + constraint)


def test_indexed_domains_agree_with_comparing_each() -> None:
    domains = ["b", "a.b", "x.a.b", "xa.b", "A.B", "b.a", "y.x.a.b"]
    shown = ["", "b", ".b", "a.b", ".a.b", "x.a.b", "a", ".x.a.b"]
    for name, one, two in product(domains, shown, shown):
        held = by_the_letter(name, one) or by_the_letter(name, two)
        constraints = [x509.DNSName(one), x509.DNSName(two)]
        assert bool(refused(x509.NameConstraints(constraints, None), x509.DNSName(name))) is not held, (name, one, two)
        assert bool(refused(x509.NameConstraints(None, constraints), x509.DNSName(name))) is held, (name, one, two)


@pytest.mark.parametrize("bad", ["a..b", ".", ".."])
def test_an_unreadable_constraint_permits_nothing(bad: str) -> None:
    good = x509.DNSName("a.b")
    assert refused(x509.NameConstraints([x509.DNSName(bad), good], None), good) == "a.b"
    assert refused(x509.NameConstraints([good], None), x509.DNSName(bad)) == bad


@pytest.mark.parametrize(("network", "address", "held"), [
    ("10.0.0.0/8", "10.1.2.3", True), ("10.0.0.0/8", "11.1.2.3", False), ("0.0.0.0/0", "1.2.3.4", True), ("0.0.0.0/0", "::1", False),
    ("10.1.2.3/32", "10.1.2.3", True), ("2001:db8::/32", "2001:db8::1", True), ("2001:db8::/32", "2001:db9::1", False),
])  # fmt: skip
def test_networks(network: str, address: str, held: bool) -> None:
    constraints = x509.NameConstraints(None, [x509.IPAddress(ip_network("192.0.2.0/24")), x509.IPAddress(ip_network(network))])
    assert bool(refused(constraints, x509.IPAddress(ip_address(address)))) is held
