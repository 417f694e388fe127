"""Certificate policies (RFC 5280 6.1, updated by RFC 9618), applied to a chain as in Go's ``crypto/x509``, for any policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from cryptography import x509

from kas.meta.der import member, members

MAPPINGS = x509.ObjectIdentifier("2.5.29.33")
ANY = "2.5.29.32.0"
_SEQUENCE, _OID = 0x30, 0x06


class Policies:
    """The policy extensions of one certificate.

    - ``issued``: the policies it is issued under.
    - ``mappings``: pairs of equivalent policies, (issuer's, subject's).
    - ``require_explicit``, ``inhibit_mapping``, ``inhibit_any``: after how many more certificates an explicit policy is required, mapping
      is forbidden, and ANY no longer matches. None for never.
    """

    __slots__ = ("inhibit_any", "inhibit_mapping", "issued", "mappings", "require_explicit")

    def __init__(self) -> None:
        self.issued: tuple[str, ...] = ()
        self.mappings: list[tuple[str, str]] = []
        self.require_explicit: int | None = None
        self.inhibit_mapping: int | None = None
        self.inhibit_any: int | None = None

    def read_extension(self, value: x509.ExtensionType) -> None:
        """Read an extension if it is about policies. Raises ValueError for mappings that cannot be parsed."""
        if isinstance(value, x509.CertificatePolicies):
            self.issued = tuple(policy.policy_identifier.dotted_string for policy in value)
        elif isinstance(value, x509.PolicyConstraints):
            self.require_explicit, self.inhibit_mapping = value.require_explicit_policy, value.inhibit_policy_mapping
        elif isinstance(value, x509.InhibitAnyPolicy):
            self.inhibit_any = value.skip_certs
        elif isinstance(value, x509.UnrecognizedExtension) and value.oid == MAPPINGS:
            self.mappings = _mappings(value.value)


def _mappings(data: bytes) -> list[tuple[str, str]]:
    out = []
    pairs = member(data, _SEQUENCE)
    for tag, pair in members(pairs, len(pairs)):
        oids = members(pair, 3)
        if tag != _SEQUENCE or [tag for tag, _ in oids] != [_OID, _OID]:
            raise ValueError("invalid policy mappings extension")
        out.append((_dotted(oids[0][1]), _dotted(oids[1][1])))
    return out


def _dotted(data: bytes) -> str:
    numbers, number = list[int](), 0
    for byte in data:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    if not numbers or data[-1] & 0x80:
        raise ValueError("invalid object identifier")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


class Link(Protocol):
    """A certificate of a chain."""

    subject: bytes
    issuer: bytes
    policies: Policies


# The policies valid down to a certificate, each with its names in the certificates below; None if no policy is valid.
Held = dict[str, set[str]] | None


def hold(chain: Sequence[Link]) -> bool:
    """Return whether the policies of a chain (leaf first, root last) are valid: if some CA requires an explicit policy, one must be valid
    from top to bottom."""
    if len(chain) == 1:
        return True
    explicit = mapping = any_counts = len(chain)  # certificates until each rule applies; initially beyond the chain
    held: Held = {ANY: {ANY}}
    for i in range(len(chain) - 2, -1, -1):  # the root's policies are ignored
        link, said = chain[i], chain[i].policies
        own = link.subject == link.issuer
        if held is not None:
            held = _below(held, said.issued, any_counts > 0 or (i > 0 and own))
        if held is None and explicit == 0:
            return False
        if i == 0:
            break
        if held is not None and said.mappings and not _map(held, said.mappings, mapping > 0):
            return False
        if not own:
            explicit, mapping, any_counts = max(explicit - 1, 0), max(mapping - 1, 0), max(any_counts - 1, 0)
        explicit = _least(explicit, said.require_explicit)
        mapping = _least(mapping, said.inhibit_mapping)
        any_counts = _least(any_counts, said.inhibit_any)
    return bool(held) or (explicit > 1 and chain[0].policies.require_explicit != 0)


def _least(left: int, said: int | None) -> int:
    return left if said is None else min(left, said)


def _below(held: dict[str, set[str]], issued: Sequence[str], any_counts: bool) -> Held:
    """Return the policies valid for a certificate issued under these policies."""
    if not issued:
        return None
    expected = {name for names in held.values() for name in names}
    out = {policy: {policy} for policy in issued if policy != ANY and (policy in expected or ANY in held)}
    if ANY in issued and any_counts:
        out.update({policy: {policy} for policy in expected if policy not in out})
    return out


def _map(held: dict[str, set[str]], mappings: Sequence[tuple[str, str]], allowed: bool) -> bool:
    """Rename policies for the certificates below as the issuer maps them, or drop them if mapping is forbidden. Return whether the
    mapping is legal."""
    if not allowed:
        for policy, _ in mappings:
            held.pop(policy, None)
        return True
    renamed: dict[str, set[str]] = {}
    for policy, name in mappings:
        if ANY in (policy, name):
            return False
        renamed.setdefault(policy, set()).add(name)
    for policy, names in renamed.items():
        if policy in held or ANY in held:
            held[policy] = names
    return True
