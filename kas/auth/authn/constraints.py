"""Name constraints of certificate authorities (RFC 5280 4.2.1.10), parsed and applied as in Go's ``crypto/x509``."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable
from typing import Any, Protocol
from urllib.parse import urlsplit

from cryptography import x509

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Names:
    """The alternative names of a certificate, of the four kinds that can be constrained."""

    __slots__ = ("dns", "emails", "ips", "uris")

    def __init__(self, names: x509.SubjectAlternativeName) -> None:
        self.dns: list[str] = names.get_values_for_type(x509.DNSName)
        self.emails: list[str] = names.get_values_for_type(x509.RFC822Name)
        self.uris: list[str] = names.get_values_for_type(x509.UniformResourceIdentifier)
        self.ips = names.get_values_for_type(x509.IPAddress)

    @property
    def empty(self) -> bool:
        """Whether there are no names of these kinds."""
        return not (self.dns or self.emails or self.uris or self.ips)


class Constraints:
    """The name constraints of a CA. ``unhandled``: there are constraints of an unsupported kind, which matters if they are critical."""

    __slots__ = ("_excluded", "_permitted", "unhandled")

    def __init__(self, constraints: x509.NameConstraints) -> None:
        self.unhandled = False
        self._permitted = self._sort(constraints.permitted_subtrees or ())
        self._excluded = self._sort(constraints.excluded_subtrees or ())

    def _sort(self, names: Iterable[x509.GeneralName]) -> dict[type, _Trees]:
        values: dict[type, list[Any]] = {}
        for name in names:
            if type(name) not in _TREES:
                self.unhandled = True
            else:
                values.setdefault(type(name), []).append(name.value)
        return {kind: _TREES[kind](found) for kind, found in values.items()}

    def refused(self, below: Iterable[Names | None]) -> str:
        """Return the first name of the certificates below that is excluded or not permitted; "" if there is none."""
        for names in below:
            if names is None:
                continue
            for kind, values in ((x509.RFC822Name, names.emails), (x509.DNSName, names.dns), (x509.UniformResourceIdentifier, names.uris),
                                 (x509.IPAddress, names.ips)):  # fmt: skip
                for value in values:
                    if not self._good(kind, value):
                        return str(value)
        return ""

    def _good(self, kind: type, value: object) -> bool:
        permitted, excluded = self._permitted.get(kind), self._excluded.get(kind)
        if permitted is None and excluded is None:
            return True
        try:
            if excluded is not None and excluded.hold(value):
                return False
            return permitted is None or permitted.hold(value)
        except ValueError:
            return False  # a name that cannot be parsed is not permitted


class _Trees(Protocol):
    """Constraints of one kind, indexed by value: a client may send as many constraints and names as fit into a handshake."""

    def hold(self, name: Any) -> bool:
        """Return whether a constraint matches the name. Raises ValueError if the name or a constraint cannot be parsed."""


class _Domains:
    """A constraint matches a host and its subdomains; with a leading dot, only the subdomains."""

    def __init__(self, constraints: Iterable[str]) -> None:
        self._all, self._bad = False, ""
        self._whole: set[tuple[str, ...]] = set()
        self._below: set[tuple[str, ...]] = set()
        for constraint in constraints:
            if not constraint:
                self._all = True
                continue
            try:
                (self._below if constraint.startswith(".") else self._whole).add(_labels(constraint.removeprefix(".")))
            except ValueError:
                self._bad = constraint
        self._lengths = {len(c) for c in self._whole | self._below}

    def hold(self, name: str) -> bool:
        if self._all:
            return True
        if self._bad:
            raise ValueError(f"cannot parse the name {self._bad!r}")
        labels = _labels(name)
        for length in self._lengths:
            if length <= len(labels):
                end = labels[len(labels) - length :]
                if end in self._whole or (length < len(labels) and end in self._below):
                    return True
        return False


def _labels(name: str) -> tuple[str, ...]:
    labels = tuple(name.lower().split("."))
    if not all(labels):
        raise ValueError(f"cannot parse the name {name!r}")
    return labels


class _Emails:
    """A constraint with an @ matches one address, any other matches a domain."""

    def __init__(self, constraints: Iterable[str]) -> None:
        found = [c.rpartition("@") for c in constraints]
        self._addresses = {(local, host.lower()) for local, at, host in found if at}
        self._domains = _Domains(host for _, at, host in found if not at)

    def hold(self, address: str) -> bool:
        local, at, host = address.rpartition("@")
        if not at or not local:
            raise ValueError(f"cannot parse the address {address!r}")
        return (local, host.lower()) in self._addresses or self._domains.hold(host)


class _Uris(_Domains):
    """Constraints match the host of a URI."""

    def hold(self, uri: str) -> bool:
        host = urlsplit(uri).hostname
        if not host or host.startswith("[") or host.replace(".", "").isdigit() or ":" in host:
            raise ValueError(f"the URI {uri!r} has no host that constraints could be about")
        return super().hold(host)


class _Networks:
    """Constraints are IP networks."""

    def __init__(self, constraints: Iterable[Network]) -> None:
        self._known: dict[tuple[int, int], set[int]] = {}
        for one in constraints:
            bits = one.max_prefixlen - one.prefixlen
            self._known.setdefault((one.version, bits), set()).add(int(one.network_address) >> bits)

    def hold(self, ip: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
        address = int(ip)
        return any(version == ip.version and address >> bits in found for (version, bits), found in self._known.items())


_TREES: dict[type, Callable[[Iterable[Any]], _Trees]] = {
    x509.DNSName: _Domains, x509.RFC822Name: _Emails, x509.UniformResourceIdentifier: _Uris, x509.IPAddress: _Networks,
}  # fmt: skip
