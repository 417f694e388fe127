"""Name constraints of certificate authorities (RFC 5280 4.2.1.10), as Go's ``crypto/x509`` reads and applies them."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Sequence
from urllib.parse import urlsplit

from cryptography import x509

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Names:
    """The alternative names of a certificate, of the four kinds that constraints are about."""

    __slots__ = ("dns", "emails", "ips", "uris")

    def __init__(self, names: x509.SubjectAlternativeName) -> None:
        self.dns: list[str] = names.get_values_for_type(x509.DNSName)
        self.emails: list[str] = names.get_values_for_type(x509.RFC822Name)
        self.uris: list[str] = names.get_values_for_type(x509.UniformResourceIdentifier)
        self.ips = names.get_values_for_type(x509.IPAddress)


class Constraints:
    """``unhandled``: there are constraints of a kind that is not understood, which counts when they are critical."""

    __slots__ = ("_excluded", "_permitted", "unhandled")

    def __init__(self, constraints: x509.NameConstraints) -> None:
        self.unhandled = False
        self._permitted = self._sort(constraints.permitted_subtrees or ())
        self._excluded = self._sort(constraints.excluded_subtrees or ())

    def _sort(self, names: Iterable[x509.GeneralName]) -> dict[type, list[str | Network]]:
        out: dict[type, list[str | Network]] = {}
        for name in names:
            if type(name) not in _MATCH:
                self.unhandled = True
            else:
                out.setdefault(type(name), []).append(name.value)
        return out

    def refused(self, below: Iterable[Names | None]) -> str:
        """The first name of the certificates below that is not permitted or is excluded; "" when all are good."""
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
        match, permitted, excluded = _MATCH[kind], self._permitted.get(kind), self._excluded.get(kind)
        if permitted is None and excluded is None:
            return True
        try:
            if excluded is not None and any(match(value, c) for c in excluded):
                return False
            return permitted is None or any(match(value, c) for c in permitted)
        except ValueError:
            return False  # a name that cannot be read is not known to be permitted


def _domain(name: str, constraint: str) -> bool:
    """A constraint is of a host and all below it; with a leading dot only of what is below."""
    if not constraint:
        return True
    labels, wanted = _labels(name), _labels(constraint.removeprefix("."))
    if constraint.startswith(".") and len(labels) == len(wanted):
        return False
    return labels[len(labels) - len(wanted) :] == wanted if len(labels) >= len(wanted) else False


def _labels(name: str) -> Sequence[str]:
    labels = name.lower().split(".")
    if not all(labels):
        raise ValueError(f"cannot parse the name {name!r}")
    return labels


def _email(address: str, constraint: str) -> bool:
    local, at, host = address.rpartition("@")
    if not at or not local:
        raise ValueError(f"cannot parse the address {address!r}")
    if "@" in constraint:
        wanted, _, domain = constraint.rpartition("@")
        return local == wanted and host.lower() == domain.lower()
    return _domain(host, constraint)


def _uri(uri: str, constraint: str) -> bool:
    host = urlsplit(uri).hostname
    if not host or host.startswith("[") or host.replace(".", "").isdigit() or ":" in host:
        raise ValueError(f"the URI {uri!r} has no host that constraints could be about")
    return _domain(host, constraint)


def _ip(ip: ipaddress.IPv4Address | ipaddress.IPv6Address, constraint: Network) -> bool:
    return ip.version == constraint.version and ip in constraint


_MATCH: dict[type, Callable[..., bool]] = {
    x509.DNSName: _domain, x509.RFC822Name: _email, x509.UniformResourceIdentifier: _uri, x509.IPAddress: _ip,
}  # fmt: skip
