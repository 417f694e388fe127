"""Identity of a verified client certificate (``authentication/request/x509``): CN is the user, O the groups.

Verifying the chain is the TLS front's work; here a certificate that passed is only read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from kas.auth.authn import HeaderGet
from kas.auth.user import CREDENTIAL_ID, UserInfo
from kas.observe.caches import Cache

# The user's uid as a subject attribute (AllowParsingUserUIDFromCertAuth).
UID_OID = "1.3.6.1.4.1.57683.2"


class Peer:
    """What a connection proved. ``certificate`` is DER; the two flags say which CA its chain ends in."""

    __slots__ = ("_name", "certificate", "client_ca", "headers", "request_header_ca")

    def __init__(
        self,
        certificate: bytes,
        client_ca: bool,
        request_header_ca: bool = False,
        headers: Callable[[], Sequence[tuple[str, str]]] = tuple,
    ) -> None:
        self.certificate = certificate
        self.client_ca = client_ca
        self.request_header_ca = request_header_ca
        self.headers = headers
        self._name: str | None = None

    @property
    def common_name(self) -> str:
        """The subject's common name, read from the certificate once."""
        if self._name is None:
            self._name = _attributes(self.certificate)[0]
        return self._name


class ClientCertificate:
    """Remembers the users of recent certificates: reading one costs some 50 µs, a connection is used many times."""

    def __init__(self) -> None:
        self._known: Cache[bytes, UserInfo | None] = Cache("client_certificates", "certificates and their users", 16 << 20, 32 << 10)

    def authenticate(self, get: HeaderGet, peer: Any = None) -> UserInfo | None:
        """The user of a certificate that the client CA vouches for, None without one; users of recent certificates are kept."""
        if peer is None or not peer.client_ca:
            return None
        der = peer.certificate
        if der in self._known.entries:
            return self._known.entries[der]
        user = user_from_certificate(der)
        self._known.put(der, user, len(der) * 2)  # a user says no more than the certificate
        return user


def user_from_certificate(der: bytes) -> UserInfo | None:
    """None when the certificate names no user (empty CN)."""
    name, groups, uid = _attributes(der)
    if not name:
        return None
    return UserInfo(name, groups, uid, {CREDENTIAL_ID: [f"X509SHA256={hashlib.sha256(der).hexdigest()}"]})


def _attributes(der: bytes) -> tuple[str, list[str], str]:
    from cryptography import x509  # a server without client certificates never loads it

    subject = x509.load_der_x509_certificate(der).subject
    names = [str(a.value) for a in subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)]
    groups = [str(a.value) for a in subject.get_attributes_for_oid(x509.NameOID.ORGANIZATION_NAME)]
    uids = [str(a.value) for a in subject.get_attributes_for_oid(x509.ObjectIdentifier(UID_OID))]
    # Go keeps the last CN of a subject that has several.
    return (names[-1] if names else ""), groups, (uids[-1] if uids else "")
