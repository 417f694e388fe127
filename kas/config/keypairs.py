"""Validation of a certificate and its key as by Go's ``tls.X509KeyPair``, with its messages."""

from __future__ import annotations

import re
from pathlib import Path

from kas.meta.pem import unreadable
from kas.meta.publickeys import private_key, public_key

_BLOCK = re.compile(rb"-----BEGIN ([^-\n]+)-----\s[A-Za-z0-9+/=\s:,-]*?-----END \1-----")
CERTIFICATE, KEY = "CERTIFICATE", "PRIVATE KEY"


def problem(cert_file: str, key_file: str, name: str) -> str:
    """Return the error in the pair of PEM files, "" if there is none; ``name`` is upstream's name of the pair.

    Unreadable files are not reported here.
    """
    try:
        cert, key = Path(cert_file).read_bytes(), Path(key_file).read_bytes()
    except OSError:
        return ""
    if not cert or not key:
        return f'missing content for serving cert "{name}::{cert_file}::{key_file}"'
    return _missing_certificate(cert) or _missing_key(key) or _mismatch(cert, key)


def _types(pem: bytes) -> list[str]:
    return [kind.decode("ascii", "replace") for kind in _BLOCK.findall(pem)]


def _missing_certificate(pem: bytes) -> str:
    types = _types(pem)
    if CERTIFICATE in types:
        return ""
    if not types:
        return "tls: failed to find any PEM data in certificate input"
    if len(types) == 1 and types[0].endswith(KEY):
        return (
            "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may have been switched"
        )
    skipped = " ".join(types)
    return f'tls: failed to find "CERTIFICATE" PEM block in certificate input after skipping PEM blocks of the following types: [{skipped}]'


def _missing_key(pem: bytes) -> str:
    types = _types(pem)
    if any(kind == KEY or kind.endswith(f" {KEY}") for kind in types):
        return ""
    if not types:
        return "tls: failed to find any PEM data in key input"
    if types == [CERTIFICATE]:
        return "tls: found a certificate rather than a key in the PEM for the private key"
    skipped = " ".join(types)
    wanted = 'PEM block with type ending in "PRIVATE KEY"'
    return f"tls: failed to find {wanted} in key input after skipping PEM blocks of the following types: [{skipped}]"


def _mismatch(cert: bytes, key: bytes) -> str:
    """Return the error if the key belongs to another certificate. Files that cannot be parsed are reported when they are used."""
    from cryptography import x509

    try:
        own = public_key(x509.load_pem_x509_certificates(cert)[0])
        other = private_key(key).public_key()
    except unreadable():
        return ""
    if type(own) is not type(other):
        return "tls: private key type does not match public key type"
    return "" if own == other else "tls: private key does not match public key"
