"""PEM as Go's ``encoding/pem`` reads it."""

from __future__ import annotations

import base64
import binascii
import contextlib
from collections.abc import Iterator
from functools import cache

from kas.meta.records import NamedTuple

_BEGIN, _END, _DASHES = b"-----BEGIN ", b"-----END ", b"-----"
_BLANKS = b" \t\r"


class Block(NamedTuple):
    """A PEM block: its label, whether it has headers, and what it holds."""

    kind: str
    has_headers: bool
    der: bytes


def pem_blocks(data: bytes) -> Iterator[Block]:
    """The blocks that Go's ``pem.Decode`` would find one after another; malformed ones are passed over as there. Linear in the data: a
    line that ends a block is looked for once, however many begin before it."""
    at, end = 0, _NextEnd(data)
    while (start := _line_start(data, _BEGIN, at)) >= 0:
        label, at = _line(data, start + len(_BEGIN))
        if not label.endswith(_DASHES):
            continue
        body = _headers(data, at)
        has_headers, at = body > at, body
        if not end.find(at + has_headers):  # a blank line stands behind headers
            return
        stop = end.start + len(_END) + len(label)
        if data[end.start + len(_END) : stop] != label or stop < end.text_end:
            continue
        if data.find(b"-", at, end.start) >= 0:
            continue
        try:
            der = base64.b64decode(b"".join(data[at : end.start].split()), validate=True)
        except binascii.Error:
            continue
        at = end.start
        yield Block(label[: -len(_DASHES)].decode("utf-8", "replace"), has_headers, der)


class _NextEnd:
    """The next line that ends a block: where it starts, and where its text ends."""

    def __init__(self, data: bytes) -> None:
        self._data, self.start, self.text_end = data, -1, -1

    def find(self, at: int) -> bool:
        """Moves on to the first at or behind ``at``; False when there is none."""
        if self.start < at:
            self.start = _line_start(self._data, _END, at)
            if self.start < 0:
                return False
            self.text_end = self.start + len(_line(self._data, self.start)[0])
        return True


def _line_start(data: bytes, prefix: bytes, at: int) -> int:
    """Where the first line at or behind ``at`` starts that has this prefix, -1 for none."""
    if data.startswith(prefix, at) and (at == 0 or data[at - 1] == 0x0A):
        return at
    found = data.find(b"\n" + prefix, at)
    return found + 1 if found >= 0 else -1


def _line(data: bytes, at: int) -> tuple[bytes, int]:
    """The rest of the line at ``at`` without blanks at its end, and where the next one starts."""
    end = data.find(b"\n", at)
    return (data[at:].rstrip(_BLANKS), len(data)) if end < 0 else (data[at:end].rstrip(_BLANKS), end + 1)


def _headers(data: bytes, at: int) -> int:
    """Where the lines with a colon end that start at ``at``."""
    while at < len(data):
        end = data.find(b"\n", at)
        end = len(data) if end < 0 else end + 1
        if data.find(b":", at, end) < 0:
            break
        at = end
    return at


@cache
def unreadable() -> tuple[type[Exception], ...]:
    """What ``cryptography`` raises for a certificate or request that it cannot read: a version that there is not, an extension that comes
    twice and a name of some kinds are no ValueErrors to it, and a BIT STRING where a text should stand is a TypeError. Takes it in."""
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm

    return ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion, x509.DuplicateExtension, x509.UnsupportedGeneralNameType


def _read(der: bytes) -> None:
    """As Go's ``ParseCertificate`` reads a certificate, with its key; raises what is ``unreadable``."""
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm

    certificate = x509.load_der_x509_certificate(der)
    with contextlib.suppress(UnsupportedAlgorithm):  # a kind of key that Go does not look into either
        certificate.public_key()


def bundle_problem(bundle: bytes) -> str:
    """What keeps client-go's ``ParseCertsPEM`` from taking a bundle of certificates, "" for nothing. Takes ``cryptography`` in."""
    found = False
    for block in pem_blocks(bundle):
        if block.kind == "CERTIFICATE" and not block.has_headers:
            found = True
            try:
                _read(block.der)
            except unreadable():
                return "x509: malformed certificate"
    return "" if found else "data does not contain any valid RSA or ECDSA certificates"


def authorities_problem(bundle: bytes) -> str:
    """What keeps client-go from taking a CA bundle, "" when it holds a certificate or nothing at all. Takes ``cryptography`` in."""
    broken = ""
    for block in pem_blocks(bundle):
        if block.kind == "CERTIFICATE" and not block.has_headers:
            try:
                _read(block.der)
            except unreadable():
                broken = "failed to parse certificate: x509: malformed certificate"
                continue
            return ""
    return f"unable to load root certificates: {broken or 'unable to parse bytes as PEM block'}" if bundle else ""
