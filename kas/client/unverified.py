"""Why a backend's certificate was refused, in the words of Go's crypto/x509.

OpenSSL makes the decision. The reason given here follows the order of ``Certificate.Verify``: validity period,
names, issuer, usage.
"""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import ssl
from collections.abc import Sequence

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID

from kas.client.http import INSECURE_SHA1, MISSING_SAN, UnverifiedError
from kas.meta.field import go_quote

# OpenSSL's codes: no trusted issuer was found, none that has signed the certificate, or a signature algorithm that is
# too weak.
_UNKNOWN = frozenset((2, 7, 18, 19, 20, 21, 68))
_EXPIRED = frozenset((9, 10))
_PURPOSE = 26
_MOST_NAMES = 100  # of a certificate that are listed
_UNKNOWN_AUTHORITY = "certificate signed by unknown authority"
_LEGACY = "certificate relies on legacy Common Name field, use SANs instead"
_SHA1 = "cannot verify signature: insecure algorithm"


def unverified(error: ssl.SSLCertVerificationError, shown: Sequence[bytes], name: str, trusted: Sequence[bytes]) -> UnverifiedError:
    """Go's error for the certificates that a server of this ``name`` has presented (``shown``, its own first) and
    that OpenSSL refused with ``error``. ``trusted`` are the CAs (DER)."""
    why = ""
    with contextlib.suppress(ValueError):  # OpenSSL can parse some certificates that this library cannot
        chain = [x509.load_der_x509_certificate(der) for der in shown]
        if chain:
            now = datetime.datetime.now(datetime.UTC)
            why = _time(chain[0], now) or _named(chain[0], name) or _signed(error, chain, trusted, now)
    if not why:
        why = _UNKNOWN_AUTHORITY if error.verify_code in _UNKNOWN else error.verify_message
    outdated = MISSING_SAN if why == _LEGACY else INSECURE_SHA1 if _SHA1 in why else None
    return UnverifiedError(f"tls: failed to verify certificate: x509: {why}", outdated)


def _time(certificate: x509.Certificate, now: datetime.datetime) -> str:
    """What is wrong with its validity period, "" if nothing is."""
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if begins <= now <= ends:
        return ""
    than = f"before {_rfc3339(begins)}" if now < begins else f"after {_rfc3339(ends)}"
    return f"certificate has expired or is not yet valid: current time {_rfc3339(now)} is {than}"


def _rfc3339(moment: datetime.datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _named(certificate: x509.Certificate, host: str) -> str:
    """Why the certificate is not for this host, "" if it is."""
    names: list[str] = []
    addresses: list[str] = []
    alternative = _alternative(certificate)
    if alternative is not None:
        names = alternative.get_values_for_type(x509.DNSName)
        addresses = [str(address) for address in alternative.get_values_for_type(x509.IPAddress)]
    try:
        address = str(ipaddress.ip_address(host))
    except ValueError:
        address = ""
    if (address in addresses) if address else any(_matches(name, host) for name in names):
        return ""
    if alternative is None and _matches(_common_name(certificate), host):
        return _LEGACY
    if address and not addresses:
        return f"cannot validate certificate for {host} because it doesn't contain any IP SANs"
    told, what = (addresses, "IP SANs") if address else (names, "names")
    if len(told) >= _MOST_NAMES:
        return f"certificate is valid for {len(told)} {what}, but none matched {host}"
    if not any(told):
        return f"certificate is not valid for any names, but wanted to match {host}"
    return f"certificate is valid for {', '.join(told)}, not {host}"


def _alternative(certificate: x509.Certificate) -> x509.SubjectAlternativeName | None:
    try:
        return certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return None


def _matches(pattern: str, host: str) -> bool:
    """Whether a name in a certificate matches the host; only its whole first label may be a wildcard."""
    own, wanted = pattern.lower().split("."), host.lower().removesuffix(".").split(".")
    if not pattern or len(own) != len(wanted):
        return False
    return own[1:] == wanted[1:] and (own[0] == wanted[0] or (own[0] == "*" and len(own) > 1))


def _common_name(certificate: x509.Certificate) -> str:
    found = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[-1].value) if found else ""


def _signed(
    error: ssl.SSLCertVerificationError, chain: Sequence[x509.Certificate], trusted: Sequence[bytes], now: datetime.datetime
) -> str:
    """What is wrong with its issuer or usage, "" if that is not what OpenSSL found."""
    if error.verify_code == _PURPOSE:
        return "certificate specifies an incompatible key usage"
    if error.verify_code not in _UNKNOWN | _EXPIRED:
        return ""
    leaf = chain[0]
    issuer = leaf.issuer.public_bytes()
    roots = [x509.load_der_x509_certificate(der) for der in trusted if issuer in der]
    for candidate in [*roots, *chain[1:]]:
        if candidate.subject == leaf.issuer and (why := _not_by(leaf, candidate) or _time(candidate, now)):
            by = _common_name(candidate) or _organization(candidate) or f"serial:{candidate.serial_number}"
            why = f"x509: {why}" if not why.startswith("crypto/") else why
            said = f"possibly because of {go_quote(why)} while trying to verify candidate authority certificate {go_quote(by)}"
            return f"{_UNKNOWN_AUTHORITY} ({said})"
    return _UNKNOWN_AUTHORITY


def _organization(certificate: x509.Certificate) -> str:
    found = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    return str(found[0].value) if found else ""


def _not_by(certificate: x509.Certificate, authority: x509.Certificate) -> str:
    """Why the CA has not signed the certificate, "" if it has."""
    key = authority.public_key()
    if isinstance(certificate.signature_hash_algorithm, hashes.SHA1):
        return f"{_SHA1} {'ECDSA-SHA1' if isinstance(key, ec.EllipticCurvePublicKey) else 'SHA1-RSA'}"
    try:
        if not authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
            return "invalid signature: parent certificate cannot sign this kind of certificate"
    except x509.ExtensionNotFound:
        pass
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, TypeError):
        if isinstance(key, rsa.RSAPublicKey):
            return "crypto/rsa: verification error"
        return f"{'Ed25519' if isinstance(key, ed25519.Ed25519PublicKey) else 'ECDSA'} verification failure"
    return ""
