"""PEM as parsed by Go's ``encoding/pem``."""

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
    """A PEM block: its label, whether it has headers, and its content."""

    kind: str
    has_headers: bool
    der: bytes


def pem_blocks(data: bytes) -> Iterator[Block]:
    """Yields the blocks that Go's ``pem.Decode`` would find one after another; malformed ones are skipped, as in Go. Linear in the data:
    each END line is searched only once, however many blocks begin before it.
    """
    at, end = 0, _NextEnd(data)
    while (start := _line_start(data, _BEGIN, at)) >= 0:
        label, at = _line(data, start + len(_BEGIN))
        if not label.endswith(_DASHES):
            continue
        body = _headers(data, at)
        has_headers, at = body > at, body
        if not end.find(at + has_headers):  # headers are followed by a blank line
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
    """The next END line: where it starts, and where its text ends."""

    def __init__(self, data: bytes) -> None:
        self._data, self.start, self.text_end = data, -1, -1

    def find(self, at: int) -> bool:
        """Advances to the first END line at or after ``at``; False when there is none."""
        if self.start < at:
            self.start = _line_start(self._data, _END, at)
            if self.start < 0:
                return False
            self.text_end = self.start + len(_line(self._data, self.start)[0])
        return True


def _line_start(data: bytes, prefix: bytes, at: int) -> int:
    """The start of the first line at or after ``at`` with this prefix, -1 if there is none."""
    if data.startswith(prefix, at) and (at == 0 or data[at - 1] == 0x0A):
        return at
    found = data.find(b"\n" + prefix, at)
    return found + 1 if found >= 0 else -1


def _line(data: bytes, at: int) -> tuple[bytes, int]:
    """The rest of the line at ``at`` without trailing blanks, and the start of the next line."""
    end = data.find(b"\n", at)
    return (data[at:].rstrip(_BLANKS), len(data)) if end < 0 else (data[at:end].rstrip(_BLANKS), end + 1)


def _headers(data: bytes, at: int) -> int:
    """The end of the header lines (those with a colon) that start at ``at``."""
    while at < len(data):
        end = data.find(b"\n", at)
        end = len(data) if end < 0 else end + 1
        if data.find(b":", at, end) < 0:
            break
        at = end
    return at


@cache
def unreadable() -> tuple[type[Exception], ...]:
    """The exceptions that ``cryptography`` raises for a certificate or request that it cannot parse.

    An unknown version, a repeated extension and some kinds of names are not ValueErrors, and a BIT STRING in place of a text is a
    TypeError. Imports ``cryptography``.
    """
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm

    return ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion, x509.DuplicateExtension, x509.UnsupportedGeneralNameType


def _read(der: bytes) -> None:
    """Parses a certificate and its key like Go's ``ParseCertificate``; raises one of ``unreadable()``."""
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm

    certificate = x509.load_der_x509_certificate(der)
    with contextlib.suppress(UnsupportedAlgorithm):  # a kind of key that Go does not parse either
        certificate.public_key()


def bundle_problem(bundle: bytes) -> str:
    """The error of client-go's ``ParseCertsPEM`` for a bundle of certificates, "" if it accepts it. Imports ``cryptography``."""
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
    """The error of client-go for a CA bundle, "" when it contains a valid certificate or is empty. Imports ``cryptography``."""
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
