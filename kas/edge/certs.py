"""The self-signed CA and the serving certificate in the data directory.

``ensure`` is idempotent. It makes what is missing, and renews a serving certificate that is about to expire, lacks a
requested name or was issued by another CA. It never replaces a CA that is still good, because clients hold it in
their kubeconfigs. A certificate that does not match its key counts as missing: that is what remains when a process
is killed between writing the two.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kas.edge.certpaths import CertPaths, note, paths_in
from kas.meta.files import write_whole
from kas.meta.publickeys import private_key

RENEW_BEFORE = datetime.timedelta(days=30)
CA_LIFE = datetime.timedelta(days=3650)
CERT_LIFE = datetime.timedelta(days=365)
UNREADABLE = (ValueError, TypeError, UnsupportedAlgorithm)  # raised for a file that is not PEM, or has a key of an unknown kind


def ensure(directory: Path, names: list[str], ips: list[str], serving: tuple[Path, Path] | None = None) -> CertPaths:
    """Makes sure that ``directory`` holds a CA and a serving certificate for ``names`` and ``ips``.

    ``serving`` are other places for certificate and key. A certificate there that this CA did not issue is somebody
    else's and is left alone. What is made there has the CA appended, so that clients may use the one file for both.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    paths = paths_in(directory, serving)
    now = datetime.datetime.now(datetime.UTC)
    ca = _load_ca(paths.ca_cert, paths.ca_key)
    if ca is None or ca[0].not_valid_after_utc < now + RENEW_BEFORE:
        ca = _make_ca(now)
        write_whole(paths.ca_key, _key_pem(ca[1]), 0o600)
        write_whole(paths.ca_cert, ca[0].public_bytes(serialization.Encoding.PEM), 0o644)
        if serving is None:
            _forget(paths)
    elif ca[0].not_valid_before_utc > now:  # the clock may be wrong now, and clients hold the CA
        import logging  # not needed by a start whose clock is right

        logging.getLogger("kas.certs").warning(
            "%s is not valid before %s, and no client will take the server's certificate until then: set the clock, or remove the file to "
            "have another CA created", paths.ca_cert, ca[0].not_valid_before_utc,
        )  # fmt: skip
    if serving is not None:
        paths.cert.parent.mkdir(parents=True, exist_ok=True)
    have = _load(paths.cert, paths.key)
    if serving is not None and paths.cert.exists() and (have is None or not _issued(have[0], ca[0])):
        return paths
    if have is None or not _covers(have[0], names, ips) or not _lasts(have[0], ca[0], now):
        have = _make_cert(ca, names, ips, now)
        chain = [have[0]] if serving is None else [have[0], ca[0]]
        write_whole(paths.key, _key_pem(have[1]), 0o600)
        write_whole(paths.cert, b"".join(c.public_bytes(serialization.Encoding.PEM) for c in chain), 0o644)
    since = max(c.not_valid_before_utc for c in (ca[0], have[0]))
    until = min(c.not_valid_after_utc for c in (ca[0], have[0])) - RENEW_BEFORE
    note(paths, names, ips, since.timestamp(), until.timestamp())
    return paths


def ensure_client(directory: Path, name: str, group: str) -> tuple[bytes, bytes]:
    """Returns a client certificate of the CA in ``directory`` and its key (PEM), for a user of one group. It is
    renewed before it expires, and when the CA has changed."""
    cert_path, key_path = directory / f"{name}.crt", directory / f"{name}.key"
    now = datetime.datetime.now(datetime.UTC)
    ca = _load(directory / "ca.crt", directory / "ca.key")
    assert ca is not None  # ensure() was called
    have = _load(cert_path, key_path)
    if have is None or not _lasts(have[0], ca[0], now):
        key = ec.generate_private_key(ec.SECP256R1())
        organization = x509.NameAttribute(NameOID.ORGANIZATION_NAME, group)
        subject = x509.Name([organization, x509.NameAttribute(NameOID.COMMON_NAME, name)])
        cert = _sign(ca, subject, key, now, ExtendedKeyUsageOID.CLIENT_AUTH, [])
        write_whole(key_path, _key_pem(key), 0o600)
        write_whole(cert_path, cert.public_bytes(serialization.Encoding.PEM), 0o644)
    return cert_path.read_bytes(), key_path.read_bytes()


def _forget(paths: CertPaths) -> None:
    for p in (paths.cert, paths.key):
        with contextlib.suppress(FileNotFoundError):
            p.unlink()


def _load(cert: Path, key: Path):
    """Certificate and key; None unless both exist, can be parsed and belong together."""
    try:
        found, private = x509.load_pem_x509_certificate(cert.read_bytes()), private_key(key.read_bytes())
    except (FileNotFoundError, *UNREADABLE):
        return None
    return (found, private) if found.public_key() == private.public_key() else None


def _load_ca(cert: Path, key: Path):
    """Like ``_load``, but raises OSError for a file that is not PEM: a damaged CA is not replaced unasked, as a
    backup may have it."""
    if cert.exists() and key.exists():
        for path, read in ((cert, x509.load_pem_x509_certificate), (key, private_key)):
            try:
                read(path.read_bytes())
            except UNREADABLE:
                why = f"it is damaged: restore it, or remove {cert.name} and {key.name} to have another CA created"
                raise OSError(errno.EINVAL, why, str(path)) from None
    return _load(cert, key)


def _issued(cert: x509.Certificate, ca: x509.Certificate) -> bool:
    try:
        cert.verify_directly_issued_by(ca)
    except (ValueError, TypeError, InvalidSignature):  # another name, kind of key, or key
        return False
    return True


def _lasts(cert: x509.Certificate, ca: x509.Certificate, now: datetime.datetime) -> bool:
    """Whether this CA issued the certificate and it stays valid for a while. One that is not valid yet was made
    while the clock was ahead; if the CA is not valid yet either, a new one would be no better."""
    if not _issued(cert, ca) or cert.not_valid_after_utc < now + RENEW_BEFORE:
        return False
    return cert.not_valid_before_utc <= now or ca.not_valid_before_utc > now


def _covers(cert: x509.Certificate, names: list[str], ips: list[str]) -> bool:
    try:
        san = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, x509.DuplicateExtension, ValueError):  # an operator's: it names nothing that clients look for
        return False
    have_ips = {str(ip) for ip in san.get_values_for_type(x509.IPAddress)}
    return set(names) <= set(san.get_values_for_type(x509.DNSName)) and set(ips) <= have_ips


def _make_ca(now: datetime.datetime):
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"kas-ca@{int(now.timestamp())}")])
    usage = x509.KeyUsage(True, False, True, False, False, True, True, False, False)
    builder = _builder(name, name, key.public_key(), now, CA_LIFE)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    builder = builder.add_extension(usage, critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    return builder.sign(key, hashes.SHA256()), key


def _make_cert(ca, names: list[str], ips: list[str], now: datetime.datetime):
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-apiserver")])
    alt: list[x509.GeneralName] = [*map(x509.DNSName, names), *(x509.IPAddress(ipaddress.ip_address(i)) for i in ips)]
    return _sign(ca, subject, key, now, ExtendedKeyUsageOID.SERVER_AUTH, alt), key


def _sign(ca, subject: x509.Name, key, now: datetime.datetime, usage: x509.ObjectIdentifier, alt: list[x509.GeneralName]):
    ca_cert, ca_key = ca
    builder = _builder(subject, ca_cert.subject, key.public_key(), now, CERT_LIFE)
    if alt:
        builder = builder.add_extension(x509.SubjectAlternativeName(alt), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    key_usage = x509.KeyUsage(True, False, True, False, False, False, False, False, False)
    builder = builder.add_extension(key_usage, critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    with contextlib.suppress(x509.ExtensionNotFound):  # another CA need not carry a key identifier
        ski = ca_cert.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        builder = builder.add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(ski), critical=False)
    return builder.sign(ca_key, hashes.SHA256())


def _builder(subject: x509.Name, issuer: x509.Name, public_key, now: datetime.datetime, life: datetime.timedelta):
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(public_key)
    return (
        builder.serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(hours=1)).not_valid_after(now + life)
    )


def _key_pem(key) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
