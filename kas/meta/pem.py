"""PEM as Go's ``encoding/pem`` reads it."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

_BLOCK = re.compile(
    rb"^-----BEGIN ([^\r\n]*?)-----[ \t]*\r?\n((?:[^\r\n:]+:[^\r\n]*\r?\n)*)(?:\r?\n)?(.*?)\r?\n?-----END \1-----[ \t]*(?:\r?\n|\Z)",
    re.MULTILINE | re.DOTALL,
)


class Block(NamedTuple):
    """A PEM block: its label, whether it has headers, and what it holds."""

    kind: str
    has_headers: bool
    der: bytes


def pem_blocks(data: bytes) -> Iterator[Block]:
    """The blocks Go's ``pem.Decode`` would find; malformed ones are passed over as there."""
    for match in _BLOCK.finditer(data):
        body = b"".join(match.group(3).split())
        try:
            der = base64.b64decode(body, validate=True)
        except binascii.Error:
            continue
        yield Block(match.group(1).decode("utf-8", "replace"), bool(match.group(2)), der)


@cache
def unreadable() -> tuple[type[Exception], ...]:
    """What ``cryptography`` raises for a certificate or request that it cannot read: a version that there is not, an extension that comes
    twice and a name of some kinds are no ValueErrors to it, and a BIT STRING where a text should stand is a TypeError. Takes it in."""
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm

    return ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion, x509.DuplicateExtension, x509.UnsupportedGeneralNameType


def bundle_problem(bundle: bytes) -> str:
    """What keeps client-go's ``ParseCertsPEM`` from taking a bundle of certificates, "" for nothing. Takes ``cryptography`` in."""
    from cryptography import x509

    found = False
    for block in pem_blocks(bundle):
        if block.kind == "CERTIFICATE" and not block.has_headers:
            found = True
            try:
                x509.load_der_x509_certificate(block.der)
            except unreadable():
                return "x509: malformed certificate"
    return "" if found else "data does not contain any valid RSA or ECDSA certificates"


def authorities_problem(bundle: bytes) -> str:
    """What keeps client-go from taking a CA bundle, "" when it holds a certificate or nothing at all. Takes ``cryptography`` in."""
    from cryptography import x509

    broken = ""
    for block in pem_blocks(bundle):
        if block.kind == "CERTIFICATE" and not block.has_headers:
            try:
                x509.load_der_x509_certificate(block.der)
            except unreadable() as e:
                broken = broken or f"failed to parse certificate: {e}"
                continue
            return ""
    return f"unable to load root certificates: {broken or 'unable to parse bytes as PEM block'}" if bundle else ""
