"""TLS verification as by Go clients, and CA bundles in API objects."""

from __future__ import annotations

import contextlib
import ssl

from kas.meta.pem import pem_blocks

# The limit per bundle: OpenSSL sorts all certificates whenever one is added, so that twice as many take three times as long (1,000: 0.4 s
# of a thread; 4,600, the most that fit an object: 5 s). A system has some 150 authorities.
MOST_AUTHORITIES = 1_000
_SEQUENCE, _LONG = 0x30, 0x80  # DER: the type of a certificate; a length that has bytes of its own


class AuthoritiesError(Exception):
    """A bundle without a usable certificate, or with too many; the text is upstream's where it has one."""


def trust_as_go(context: ssl.SSLContext) -> ssl.SSLContext:
    """Makes a context verify like crypto/x509, and returns it.

    A trusted certificate need not be a CA's. Extensions that RFC 5280 requires may be missing (from Python 3.13 on, a default context
    demands them). A server's names are its subject alternative names, not the subject's common name.
    """
    context.verify_flags = (context.verify_flags | ssl.VERIFY_X509_PARTIAL_CHAIN) & ~ssl.VERIFY_X509_STRICT
    context.hostname_checks_common_name = False
    return context


def trust_authorities(context: ssl.SSLContext, bundle: bytes) -> None:
    """Adds the certificates of a PEM bundle to a context, like ``CertPool.AppendCertsFromPEM``: invalid ones are skipped. Raises
    AuthoritiesError.

    They are added one at a time, because the GIL is held while OpenSSL parses.
    """
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
    """The estimated memory of a context with a PEM bundle of ``bundle`` bytes: five times as much, and at least ``least``."""
    return max(least, 5 * bundle)


def _is_one(der: bytes) -> bool:
    """Whether ``der`` is exactly one DER value: OpenSSL would read several."""
    if len(der) < 2 or der[0] != _SEQUENCE:
        return False
    length, at = der[1], 2
    if length >= _LONG:
        at += length - _LONG
        length = int.from_bytes(der[2:at], "big")
    return at + length == len(der)
