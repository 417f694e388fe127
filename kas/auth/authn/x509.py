"""Identity of a client certificate (``authentication/request/x509``): CN is the user, O the groups.

A connection shows any certificate it likes; whether it means something is asked anew with every request, because certificates expire and
authorities change while a connection is open.
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
# All of one type: which is compared with every request.
LIFETIMES_S = (
    0.0, HOUR_S / 2, HOUR_S, 2 * HOUR_S, 6 * HOUR_S, 12 * HOUR_S, DAY_S, 2 * DAY_S, 4 * DAY_S, 7 * DAY_S, 30 * DAY_S, 90 * DAY_S,
    180 * DAY_S, 360 * DAY_S,
)  # fmt: skip

HeaderPairs = Sequence[tuple[bytes, bytes]]


class Certificates:
    """What a client has shown on its connection: ``chain`` is DER, its own certificate first. ``digest`` is the hex SHA-256 of that one,
    ``key`` stands for the whole chain. Nothing is verified yet."""

    __slots__ = ("_ends", "_name", "chain", "digest", "key")

    def __init__(self, chain: Sequence[bytes]) -> None:
        self.chain = tuple(chain)
        self.digest = hashlib.sha256(self.chain[0]).hexdigest()
        self.key = hashlib.sha256(b"".join(hashlib.sha256(der).digest() for der in self.chain)).digest()
        self._name: str | None = None
        self._ends: float | None = None

    @property
    def ends(self) -> float:
        """When the client's own certificate expires, in seconds since the epoch; read from it once. 0 for what cannot be read."""
        if self._ends is None:
            self._ends = _end(self.chain[0])
        return self._ends

    @property
    def common_name(self) -> str:
        """The subject's common name, read from the certificate once."""
        if self._name is None:
            self._name = _attributes(self.chain[0])[0]
        return self._name


class Peer:
    """What the connection of one request has shown, and all its headers: groups and extras come in several headers of one name."""

    __slots__ = ("certificates", "headers")

    def __init__(self, certificates: Certificates, headers: Callable[[], HeaderPairs] = tuple) -> None:
        self.certificates, self.headers = certificates, headers


class Verifier(Protocol):
    """Knows an authority's clients (``chain.Verifier``)."""

    def check(self, certificates: Certificates) -> None:
        """Raises AuthenticationError unless the certificates are good at this moment."""


def lifetimes(metrics: Registry) -> Histogram:
    """How long the certificates that clients show are good for yet; dashboards warn by it of clients that will be locked out."""
    said = "Distribution of the remaining lifetime on the certificate used to authenticate a request."
    return metrics.histogram("apiserver_client_certificate_expiration_seconds", said, (), LIFETIMES_S)


class ClientCertificate:
    """Remembers the users of recent certificates: reading one costs some 50 µs, a connection is used many times."""

    by_certificate = True

    def __init__(self, verifier: Verifier, lifetimes: Histogram | None = None) -> None:
        self._verifier, self._lifetimes = verifier, lifetimes
        self._known: Cache[str, UserInfo] = Cache("client_certificates", "certificates and their users", 16 << 20, 32 << 10)

    def authenticate(self, get: HeaderGet, peer: Peer | None = None) -> UserInfo | None:
        """The user of a certificate that the client CA vouches for, None without one; AuthenticationError for one that is not good."""
        if peer is None:
            return None
        shown = peer.certificates
        if self._lifetimes is not None:  # also of one that is not good, or is no more
            self._lifetimes.observe((), shown.ends - time())
        self._verifier.check(shown)
        user = self._known.entries.get(shown.digest)
        if user is None:
            named = user_from_certificate(shown.chain[0])
            if named is None:
                return None
            user = with_authenticated(named)  # one object, so that what authorizers work out stays
            self._known.put(shown.digest, user, len(shown.digest) + user.length)
        return user


def user_from_certificate(der: bytes) -> UserInfo | None:
    """The user a certificate names, None when it names none; AuthenticationError for a uid that is empty or one of several."""
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
    """The last common name, the organizations, and the uids."""
    from cryptography import x509  # a server without client certificates never loads it

    def values(oid: Any) -> list[str]:
        return [a.value if isinstance(a.value, str) else a.value.decode("utf-8", "replace") for a in subject.get_attributes_for_oid(oid)]

    subject = x509.load_der_x509_certificate(der).subject
    # Go keeps the last CN of a subject that has several.
    names = values(x509.NameOID.COMMON_NAME)
    return (names[-1] if names else ""), values(x509.NameOID.ORGANIZATION_NAME), values(x509.ObjectIdentifier(UID_OID))
