"""What a certificate of a server has to be for a client in Go, and the authorities that an object names."""

from __future__ import annotations

import contextlib
import ssl

from kas.meta.pem import pem_blocks

# Of one bundle: OpenSSL sorts all it has with each one more, so that twice as many take three times as long (1,000: 0.4 s of a thread;
# 4,600, which an object has room for: 5 s). The authorities of a system are some 150.
MOST_AUTHORITIES = 1_000
_SEQUENCE, _LONG = 0x30, 0x80  # DER: the type of a certificate; a length that has bytes of its own


class AuthoritiesError(Exception):
    """Nobody can be believed by a bundle; the text is upstream's, or says that there are too many."""


def trust_as_go(context: ssl.SSLContext) -> ssl.SSLContext:
    """The context, believing what crypto/x509 does: a certificate that is trusted need not be an authority's, extensions that RFC 5280
    wants of certificates may be missing (from Python 3.13 on a default context asks for them), and a server's names are its subject
    alternative ones, not the subject's common name."""
    context.verify_flags = (context.verify_flags | ssl.VERIFY_X509_PARTIAL_CHAIN) & ~ssl.VERIFY_X509_STRICT
    context.hostname_checks_common_name = False
    return context


def trust_authorities(context: ssl.SSLContext, bundle: bytes) -> None:
    """Has the context believe the certificates of a bundle (PEM), as ``CertPool.AppendCertsFromPEM`` reads it: what is none is passed over.
    One at a time, because the interpreter's lock is kept while OpenSSL reads. Raises AuthoritiesError."""
    shown = [b.der for b in pem_blocks(bundle) if b.kind == "CERTIFICATE" and not b.has_headers and _is_one(b.der)]
    if len(shown) > MOST_AUTHORITIES:
        raise AuthoritiesError(f"unable to load root certificates: there are more than {MOST_AUTHORITIES}")
    some = False
    for der in shown:
        with contextlib.suppress(ssl.SSLError):
            context.load_verify_locations(cadata=der)
            some = True
    if not some:
        raise AuthoritiesError("unable to load root certificates: unable to parse bytes as PEM block")


def context_bytes(bundle: int, least: int) -> int:
    """What a context takes at most that believes a bundle of so many bytes of PEM: five times as many, and not less than ``least``."""
    return max(least, 5 * bundle)


def _is_one(der: bytes) -> bool:
    """Whether it is one value of DER: OpenSSL reads as many as there are."""
    if len(der) < 2 or der[0] != _SEQUENCE:
        return False
    length, at = der[1], 2
    if length >= _LONG:
        at += length - _LONG
        length = int.from_bytes(der[2:at], "big")
    return at + length == len(der)
