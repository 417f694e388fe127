"""Identity from a client certificate (``authentication/request/x509``): CN is the user, O the groups.

A client may present any certificate. It is verified on every request, because certificates expire and CAs change while a connection is
open.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from time import time
from typing import Any, Protocol

from kas.auth.authn import AuthenticationError, HeaderGet
from kas.auth.user import CREDENTIAL_ID, UserInfo, with_authenticated
from kas.config import features
from kas.meta.pem import unreadable
from kas.observe.caches import Cache
from kas.observe.metrics import Histogram, Registry

# The user's uid as a subject attribute (AllowParsingUserUIDFromCertAuth).
UID_OID = "1.3.6.1.4.1.57683.2"

HOUR_S, DAY_S = 3600.0, 86400.0
# All floats: they are compared on every request.
LIFETIMES_S = (
    0.0, HOUR_S / 2, HOUR_S, 2 * HOUR_S, 6 * HOUR_S, 12 * HOUR_S, DAY_S, 2 * DAY_S, 4 * DAY_S, 7 * DAY_S, 30 * DAY_S, 90 * DAY_S,
    180 * DAY_S, 360 * DAY_S,
)  # fmt: skip

HeaderPairs = Sequence[tuple[bytes, bytes]]


class Certificates:
    """The certificates a client presented on its connection, not verified yet.

    ``chain`` is DER, the client's own certificate first. ``digest`` is the hex SHA-256 of that one; ``key`` identifies the whole chain.
    """

    __slots__ = ("_ends", "_name", "chain", "digest", "key")

    def __init__(self, chain: Sequence[bytes]) -> None:
        self.chain = tuple(chain)
        self.digest = hashlib.sha256(self.chain[0]).hexdigest()
        self.key = hashlib.sha256(b"".join(hashlib.sha256(der).digest() for der in self.chain)).digest()
        self._name: str | None = None
        self._ends: float | None = None

    @property
    def ends(self) -> float:
        """When the client's own certificate expires, in seconds since the epoch, cached. 0 if it cannot be parsed."""
        if self._ends is None:
            self._ends = _end(self.chain[0])
        return self._ends

    @property
    def common_name(self) -> str:
        """The subject's common name, cached."""
        if self._name is None:
            self._name = _attributes(self.chain[0])[0]
        return self._name


class Peer:
    """The certificates of a request's connection, and all headers of the request: groups and extras are repeated headers."""

    __slots__ = ("certificates", "headers")

    def __init__(self, certificates: Certificates, headers: Callable[[], HeaderPairs] = tuple) -> None:
        self.certificates, self.headers = certificates, headers


class Verifier(Protocol):
    """Verifies certificates against one CA bundle (``chain.Verifier``)."""

    def check(self, certificates: Certificates) -> None:
        """Raise AuthenticationError unless the certificates are valid now."""


def lifetimes(metrics: Registry) -> Histogram:
    """Return the histogram of the remaining lifetime of client certificates; dashboards use it to warn before clients are locked out."""
    said = "Distribution of the remaining lifetime on the certificate used to authenticate a request."
    return metrics.histogram("apiserver_client_certificate_expiration_seconds", said, (), LIFETIMES_S)


class ClientCertificate:
    """Authenticates by client certificate. Caches users by certificate: parsing one takes about 50 µs, and connections are reused."""

    by_certificate = True

    def __init__(self, verifier: Verifier, lifetimes: Histogram | None = None) -> None:
        self._verifier, self._lifetimes = verifier, lifetimes
        self._known: Cache[str, UserInfo] = Cache("client_certificates", "certificates and their users", 16 << 20, 32 << 10)

    def authenticate(self, get: HeaderGet, peer: Peer | None = None) -> UserInfo | None:
        """Return the user of a certificate issued by the client CA; None without a certificate. Raises AuthenticationError for a bad
        one."""
        if peer is None:
            return None
        shown = peer.certificates
        if self._lifetimes is not None:  # also for a certificate that is invalid or expired
            self._lifetimes.observe((), shown.ends - time())
        self._verifier.check(shown)
        user = self._known.entries.get(shown.digest)
        if user is None:
            named = user_from_certificate(shown.chain[0])
            if named is None:
                return None
            user = with_authenticated(named)  # one shared object, which keeps the authorizers' cached state
            self._known.put(shown.digest, user, len(shown.digest) + user.length)
        return user


def user_from_certificate(der: bytes) -> UserInfo | None:
    """Return the user a certificate names, or None. Raises AuthenticationError for an empty uid or several."""
    name, groups, uids = _attributes(der)
    if not name:
        return None
    extra = {CREDENTIAL_ID: [f"X509SHA256={hashlib.sha256(der).hexdigest()}"]}
    return UserInfo(name, groups, _uid(uids) if uids and features.DEFAULT.enabled("AllowParsingUserUIDFromCertAuth") else "", extra)


def _uid(uids: Sequence[str]) -> str:
    if len(uids) > 1:
        raise AuthenticationError(f"expected 1 UID, but found multiple: [{' '.join(uids)}]")
    if not uids[0]:
        raise AuthenticationError("UID cannot be an empty string")
    return uids[0]


def _end(der: bytes) -> float:
    from cryptography import x509

    try:
        return x509.load_der_x509_certificate(der).not_valid_after_utc.timestamp()
    except unreadable():
        return 0.0


def _attributes(der: bytes) -> tuple[str, list[str], list[str]]:
    """Return (last common name, organizations, uids)."""
    from cryptography import x509  # a server without client certificates never loads it

    def values(oid: Any) -> list[str]:
        return [a.value if isinstance(a.value, str) else a.value.decode("utf-8", "replace") for a in subject.get_attributes_for_oid(oid)]

    subject = x509.load_der_x509_certificate(der).subject
    # Go keeps the last CN of a subject that has several.
    names = values(x509.NameOID.COMMON_NAME)
    return (names[-1] if names else ""), values(x509.NameOID.ORGANIZATION_NAME), values(x509.ObjectIdentifier(UID_OID))
