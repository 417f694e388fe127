"""Verification of client certificates: Go's ``Certificate.Verify`` (``crypto/x509``) for clientAuth, as kube-apiserver calls it.

The library's verifier applies the rules of web servers, which refuse certificates that clusters use (without alternative names, a CA as a
client, Ed25519). Therefore the chain is built here, while parsing and signature checks are the library's. All work is bounded: chains of
``MAX_CERTIFICATES``, ``MAX_SIGNATURES`` checks, of which ``MAX_SHOWN_SIGNATURES`` with keys that the client sent, key sizes by
``meta.publickeys``, a cache of ``MAX_VERDICTS``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from time import monotonic, time

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization

from kas.auth.authn import AuthenticationError
from kas.auth.authn.altnames import without_unread
from kas.auth.authn.constraints import Constraints, Names
from kas.auth.authn.policies import MAPPINGS, Policies, hold
from kas.auth.authn.x509 import Certificates
from kas.meta.files import read_configuration
from kas.meta.pem import unreadable
from kas.meta.publickeys import public_key, usable

log = logging.getLogger("kas.authn")

MAX_CERTIFICATES = 16  # sent by a client; the rest is ignored
MAX_SIGNATURES = 100  # Go's bound
MAX_SHOWN_SIGNATURES = 20  # enough for the longest chain; with the most expensive keys about 1 ms each
MAX_VERDICTS = 1024
LOOK_EVERY_S = 1.0  # interval between checks of the CA files
UNKNOWN_TTL_S = 1.0  # how long a refusal is cached that time or a new CA file may lift

_DER = serialization.Encoding.DER
_CLIENT_AUTH, _ANY = x509.ExtendedKeyUsageOID.CLIENT_AUTH, x509.ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE
_WEAK = (hashes.MD5, hashes.SHA1)
# Extensions that are understood and may therefore be critical.
_HANDLED = frozenset((
    x509.OID_KEY_USAGE, x509.OID_BASIC_CONSTRAINTS, x509.OID_SUBJECT_ALTERNATIVE_NAME, x509.OID_NAME_CONSTRAINTS,
    x509.OID_CRL_DISTRIBUTION_POINTS, x509.OID_AUTHORITY_KEY_IDENTIFIER, x509.OID_EXTENDED_KEY_USAGE, x509.OID_SUBJECT_KEY_IDENTIFIER,
    x509.OID_CERTIFICATE_POLICIES, x509.OID_AUTHORITY_INFORMATION_ACCESS, x509.OID_POLICY_CONSTRAINTS, x509.OID_INHIBIT_ANY_POLICY,
    MAPPINGS,
))  # fmt: skip


class _Certificate:
    """The properties of a certificate that decide about chains. Raises ``ValueError`` for one that cannot be parsed."""

    __slots__ = ("constraints", "der", "is_ca", "issuer", "names", "not_after", "not_before", "path_length", "policies", "read", "signs",
                 "subject", "unhandled", "usages")  # fmt: skip

    def __init__(self, read: x509.Certificate, der: bytes) -> None:
        self.read, self.der = read, der
        self.subject, self.issuer = read.subject.public_bytes(), read.issuer.public_bytes()
        self.not_before, self.not_after = read.not_valid_before_utc.timestamp(), read.not_valid_after_utc.timestamp()
        self.is_ca: bool | None = None
        self.path_length: int | None = None
        self.signs = True
        self.usages: frozenset[x509.ObjectIdentifier] = frozenset()
        self.names: Names | None = None
        self.constraints: Constraints | None = None
        self.policies = Policies()
        self.unhandled = False
        for extension in _extensions(read, der):
            value = extension.value
            if isinstance(value, x509.BasicConstraints):
                self.is_ca, self.path_length = value.ca, value.path_length
            elif isinstance(value, x509.KeyUsage):
                self.signs = value.key_cert_sign
            elif isinstance(value, x509.ExtendedKeyUsage):
                self.usages = frozenset(value)
            elif isinstance(value, x509.SubjectAlternativeName):
                self.names = Names(value)
                self.unhandled |= extension.critical and self.names.empty
            elif isinstance(value, x509.NameConstraints):
                self.constraints = Constraints(value)
                self.unhandled |= extension.critical and self.constraints.unhandled
            else:
                self.policies.read_extension(value)
            if extension.critical and extension.oid not in _HANDLED:
                self.unhandled = True


def _extensions(read: x509.Certificate, der: bytes) -> x509.Extensions:
    try:
        return read.extensions
    except x509.UnsupportedGeneralNameType:
        return x509.load_der_x509_certificate(without_unread(der)).extensions


def _read(der: bytes) -> _Certificate:
    try:
        return _Certificate(x509.load_der_x509_certificate(der), der)
    except unreadable() as e:
        raise AuthenticationError(f"x509: {e}") from None


class _Search:
    """One search for a chain to the roots; ``why`` is the reason for the last rejected candidate."""

    def __init__(self, roots: Sequence[_Certificate], more: Sequence[_Certificate], now: float) -> None:
        self._roots, self._more, self._now = roots, more, now
        self._left, self._left_shown = MAX_SIGNATURES, MAX_SHOWN_SIGNATURES
        self.why = "x509: certificate signed by unknown authority"

    def paths(self, leaf: _Certificate) -> Iterator[list[_Certificate]]:
        """Yield every valid chain, from the leaf to the root. Does not check extended key usages."""
        if not self._valid(leaf, [], root=False):
            return
        if any(leaf.der == root.der for root in self._roots):
            yield [leaf]
            return
        yield from self._extend([leaf])

    def _extend(self, path: list[_Certificate]) -> Iterator[list[_Certificate]]:
        last = path[-1]
        for candidates, root in ((self._roots, True), (self._more, False)):
            for candidate in candidates:
                if candidate.subject != last.issuer or any(candidate.der == c.der for c in path):
                    continue
                if not self._signed(last, candidate, root) or not self._valid(candidate, path, root):
                    continue
                if root:
                    yield [*path, candidate]
                elif len(path) < MAX_CERTIFICATES:
                    yield from self._extend([*path, candidate])

    def _signed(self, child: _Certificate, parent: _Certificate, root: bool) -> bool:
        if self._left <= 0 or (not root and self._left_shown <= 0):
            self.why = "x509: signature check attempts limit reached while verifying certificate chain"
            return False
        self._left -= 1
        self._left_shown -= not root
        if (not parent.is_ca and (parent.is_ca is not None or parent.read.version is x509.Version.v3)) or not parent.signs:
            self.why = "x509: invalid signature: parent certificate cannot sign this kind of certificate"
            return False
        try:
            if isinstance(child.read.signature_hash_algorithm, _WEAK):
                self.why = "x509: cannot verify signature: insecure algorithm"
                return False
            if not usable(public_key(parent.read)):
                self.why = "x509: cannot verify signature: algorithm unimplemented"
                return False
            child.read.verify_directly_issued_by(parent.read)
        except (InvalidSignature, UnsupportedAlgorithm, ValueError, TypeError):
            self.why = "x509: certificate signed by unknown authority"
            return False
        return True

    def _valid(self, c: _Certificate, below: list[_Certificate], root: bool) -> bool:
        """Go's ``isValid``: whether ``c`` may extend the chain ``below``, which is empty for the leaf."""
        if c.unhandled:
            self.why = "x509: unhandled critical extension"
        elif not c.not_before <= self._now <= c.not_after:
            self.why = "x509: certificate has expired or is not yet valid"
        elif below and not root and not c.is_ca:
            self.why = "x509: certificate is not authorized to sign other certificates"
        elif below and c.is_ca and c.path_length is not None and len(below) - 1 > c.path_length:
            self.why = "x509: too many intermediates for path length constraint"
        elif below and c.constraints is not None and (bad := c.constraints.refused(b.names for b in below)):
            self.why = "x509: a root or intermediate certificate is not authorized to sign for this name: " + bad
        else:
            return True
        return False


def _for_clients(path: Sequence[_Certificate]) -> bool:
    return all(not c.usages or _CLIENT_AUTH in c.usages or _ANY in c.usages for c in path)


def verify(certificates: Sequence[bytes], roots: Sequence[_Certificate], now: float) -> float:
    """Verify that the first of ``certificates`` (DER; the others are intermediates) is a client certificate under ``roots``.

    Returns when the chain expires, in seconds since the epoch. Raises AuthenticationError with Go's reason.
    """
    leaf, *more = map(_read, certificates[:MAX_CERTIFICATES])
    search, policies, usages = _Search(roots, more, now), 0, 0
    for path in search.paths(leaf):
        if not hold(path):
            policies += 1
        elif not _for_clients(path):
            usages += 1
        else:
            return min(c.not_after for c in path)
    if policies:
        details = [f"{usages} chains with incompatible key usage"] if usages else []
        search.why = f"x509: no valid chains built: {', '.join([*details, f'{policies} chains with invalid policies'])}"
    elif usages:
        search.why = "x509: certificate specifies an incompatible key usage"
    raise AuthenticationError(search.why)


class Bundle:
    """The CAs in the PEM ``files``, reloaded when one of them changes. If the new content cannot be used, the old CAs are kept.

    ``generation`` increases with each reload. The constructor raises ``OSError`` and ``ValueError``.
    """

    def __init__(self, *files: str, clock: Callable[[], float] = monotonic) -> None:
        self._files, self._clock = files, clock
        self._looked, self.generation = clock(), 0
        self._seen = self._stamp()
        self.roots = self._load()

    def fresh(self) -> Bundle:
        """Return itself, after checking the files if the last check was at least ``LOOK_EVERY_S`` ago."""
        now = self._clock()
        if now - self._looked >= LOOK_EVERY_S:
            self._looked = now
            try:
                stamp = self._stamp()
                if stamp != self._seen:
                    self.roots, self._seen = self._load(), stamp
                    self.generation += 1
                    log.info("loaded the certificate authorities of %s anew", ", ".join(self._files))
            except (OSError, ValueError) as e:
                log.error("the certificate authorities of %s are unchanged: %s", ", ".join(self._files), e)
        return self

    def _stamp(self) -> list[tuple[int, int, int]]:
        return [(s.st_mtime_ns, s.st_size, s.st_ino) for s in map(os.stat, self._files)]

    def _load(self) -> list[_Certificate]:
        out = []
        for file in self._files:
            pem = read_configuration(file)
            if b"-----BEGIN CERTIFICATE-----" not in pem:
                raise ValueError(f"data does not contain any valid RSA or ECDSA certificates: {file}")
            try:
                out += [_Certificate(c, c.public_bytes(_DER)) for c in x509.load_pem_x509_certificates(pem)]
            except unreadable() as e:
                raise ValueError(f"{e}: {file}") from None
        return out


class Verifier:
    """Verifies client certificates against ``bundle`` and caches the verdicts.

    A verdict is valid until the first certificate of the chain expires, the bundle changes, or the clock is set back to before the
    verification.
    """

    def __init__(self, bundle: Bundle, clock: Callable[[], float] = time) -> None:
        self._bundle, self._clock = bundle, clock
        self._verdicts: dict[bytes, tuple[int, float, float, str]] = {}  # generation, valid from, valid until, reason of refusal

    def check(self, certificates: Certificates) -> None:
        """Return if the certificate is valid now; raise AuthenticationError with the reason otherwise."""
        bundle, now = self._bundle.fresh(), self._clock()
        known = self._verdicts.get(certificates.key)
        if known is None or known[0] != bundle.generation or not known[1] <= now < known[2]:
            try:
                known = (bundle.generation, now, verify(certificates.chain, bundle.roots, now), "")
            except AuthenticationError as e:
                until, why = now + UNKNOWN_TTL_S, f"verifying certificate SHA256={certificates.digest} failed: {e}"
                known = (bundle.generation, now, until, why)
            self._verdicts.pop(certificates.key, None)
            if len(self._verdicts) >= MAX_VERDICTS:
                del self._verdicts[next(iter(self._verdicts))]
            self._verdicts[certificates.key] = known
        if known[3]:
            raise AuthenticationError(known[3])
