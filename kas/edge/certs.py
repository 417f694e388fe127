"""The self-made CA and serving certificate, kept in the data directory.

``ensure`` is idempotent: it makes what is missing, renews a serving certificate that is about to expire, lacks a name asked for or is of
another CA, and never replaces a CA that is still good, because clients hold it in their kubeconfigs. A certificate whose key is another's
is as good as none: that is what is left when a process is killed between writing the two.

What reads certificates is loaded once there is one: a first start makes all of them anew.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, NamedTuple

from kas.edge import issuing
from kas.edge.certpaths import CertPaths, note, paths_in
from kas.edge.issuing import Authority
from kas.meta.files import write_whole

if TYPE_CHECKING:
    from cryptography import x509

DAY_S = 86400.0
RENEW_BEFORE_S = 30 * DAY_S
CA_LIFE_S, CERT_LIFE_S = 3650 * DAY_S, 365 * DAY_S
BACKDATE_S = 3600.0  # for clocks that are behind


class _CA(NamedTuple):
    """The authority, its certificate (PEM), and its times (Unix, in seconds)."""

    authority: Authority
    pem: bytes
    since: float
    until: float


def ensure(directory: Path, names: list[str], ips: list[str], serving: tuple[Path, Path] | None = None) -> CertPaths:
    """Makes sure that ``directory`` holds a CA and a serving certificate for ``names`` and ``ips``.

    ``serving`` are other places for certificate and key. What lies there and is not of this CA is somebody else's and left alone; what
    is made there has the CA behind it, so that clients may take the one file for both.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    paths = paths_in(directory, serving)
    now = int(time())
    ca = _load_ca(paths.ca_cert, paths.ca_key)
    if ca is None or ca.until < now + RENEW_BEFORE_S:
        ca = _make_ca(now)
        write_whole(paths.ca_key, issuing.key_pem(ca.authority.key), 0o600)
        write_whole(paths.ca_cert, ca.pem, 0o644)
        if serving is None:
            _forget(paths)
    elif ca.since > now:  # it may be today's clock that is wrong, and clients hold the authority
        _warn(paths.ca_cert)
    if serving is not None:
        paths.cert.parent.mkdir(parents=True, exist_ok=True)
    have = _load(paths.cert, paths.key)
    if serving is not None and paths.cert.exists() and (have is None or not _issued(have[0], ca)):
        return paths
    if have is not None and _covers(have[0], names, ips) and _lasts(have[0], ca, now):
        since, until = _times(have[0])
    else:
        since, until = now - BACKDATE_S, now + CERT_LIFE_S
        subject = issuing.subject((issuing.COMMON_NAME, "kube-apiserver"))
        cert, key = issuing.certificate(ca.authority, subject, issuing.SERVER_AUTH, since, until, names, ips)
        write_whole(paths.key, issuing.key_pem(key), 0o600)
        write_whole(paths.cert, issuing.pem("CERTIFICATE", cert) + (b"" if serving is None else ca.pem), 0o644)
    note(paths, names, ips, max(ca.since, since), min(ca.until, until) - RENEW_BEFORE_S)
    return paths


def ensure_client(directory: Path, name: str, group: str) -> tuple[bytes, bytes]:
    """A client certificate of the CA in ``directory`` and its key (PEM), for a user of one group; made anew in time before it expires and
    when the CA is another."""
    cert_path, key_path = directory / f"{name}.crt", directory / f"{name}.key"
    now = int(time())
    ca = _load_ca(directory / "ca.crt", directory / "ca.key")
    assert ca is not None  # ensure() was called
    have = _load(cert_path, key_path)
    if have is None or not _lasts(have[0], ca, now):
        subject = issuing.subject((issuing.ORGANIZATION, group), (issuing.COMMON_NAME, name))
        cert, key = issuing.certificate(ca.authority, subject, issuing.CLIENT_AUTH, now - BACKDATE_S, now + CERT_LIFE_S)
        write_whole(key_path, issuing.key_pem(key), 0o600)
        write_whole(cert_path, issuing.pem("CERTIFICATE", cert), 0o644)
    return cert_path.read_bytes(), key_path.read_bytes()


def _forget(paths: CertPaths) -> None:
    for p in (paths.cert, paths.key):
        with contextlib.suppress(FileNotFoundError):
            p.unlink()


def _make_ca(now: int) -> _CA:
    since, until = now - BACKDATE_S, now + CA_LIFE_S
    der, authority = issuing.authority(f"kas-ca@{now}", since, until)
    return _CA(authority, issuing.pem("CERTIFICATE", der), since, until)


# --- what is there


def _load(cert: Path, key: Path):
    """Certificate and key, None unless both are there and belong together."""
    if not (cert.exists() and key.exists()):
        return None
    from cryptography import x509

    from kas.meta.keys import private_key

    found = x509.load_pem_x509_certificate(cert.read_bytes())
    private = private_key(key.read_bytes())
    return (found, private) if found.public_key() == private.public_key() else None


def _load_ca(cert: Path, key: Path) -> _CA | None:
    found = _load(cert, key)
    if found is None:
        return None
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    ca, private = found
    try:
        key_id = ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
    except x509.ExtensionNotFound:
        key_id = b""
    return _CA(Authority(ca.subject.public_bytes(), key_id, private), ca.public_bytes(Encoding.PEM), *_times(ca))


def _times(cert: x509.Certificate) -> tuple[float, float]:
    return cert.not_valid_before_utc.timestamp(), cert.not_valid_after_utc.timestamp()


def _issued(cert: x509.Certificate, ca: _CA) -> bool:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    try:
        cert.verify_directly_issued_by(x509.load_pem_x509_certificate(ca.pem))
    except (ValueError, TypeError, InvalidSignature):  # another name, another kind of key, another key
        return False
    return True


def _lasts(cert: x509.Certificate, ca: _CA, now: float) -> bool:
    """Whether this CA has issued it, and for a while to come. One that is not valid yet was made while the clock was ahead; where the CA is
    not either, it is no worse than another would be."""
    since, until = _times(cert)
    if not _issued(cert, ca) or until < now + RENEW_BEFORE_S:
        return False
    return since <= now or ca.since > now


def _covers(cert: x509.Certificate, names: list[str], ips: list[str]) -> bool:
    from cryptography import x509

    san = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    have_ips = {str(ip) for ip in san.get_values_for_type(x509.IPAddress)}
    return set(names) <= set(san.get_values_for_type(x509.DNSName)) and set(ips) <= have_ips


def _warn(ca_cert: Path) -> None:
    import logging

    from cryptography import x509

    since = x509.load_pem_x509_certificate(ca_cert.read_bytes()).not_valid_before_utc
    logging.getLogger("kas.certs").warning(
        "%s is not valid before %s, and no client will take the server's certificate until then: set the clock, or remove the file to "
        "have another authority made", ca_cert, since,
    )  # fmt: skip
