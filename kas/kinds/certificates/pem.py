"""PEM and X.509 contents of the certificates API (upstream ``pkg/apis/certificates/validation``).

``cryptography`` is imported on first use: most servers never have a certificate object.
"""

from __future__ import annotations

import base64
from typing import Any

from kas.meta import field
from kas.meta.field import FieldError, go_quote
from kas.meta.offload import LARGE
from kas.meta.pem import pem_blocks, unreadable
from kas.meta.publickeys import public_key

OMITTED = "<value omitted>"
MAX_TRUST_BUNDLE = 1 << 20


def request_problem(request: bytes) -> str:
    """Return the error in a PEM certificate request, "" if it can be parsed and its signature is valid."""
    block = next(pem_blocks(request), None)
    if block is None or block.kind != "CERTIFICATE REQUEST":
        return "PEM block type must be CERTIFICATE REQUEST"
    problem = der_request_problem(block.der)
    return (_shape_problem(block.der) or "asn1: structure error: malformed certificate request") if problem is None else problem


def der_request_problem(der: bytes) -> str | None:
    """Return the error in a DER request's signature, "" if it is valid; None if the bytes are not a certificate request."""
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        request = x509.load_der_x509_csr(der)
        if len(der) < LARGE:  # the names of a larger one are parsed where they are needed, off the event loop
            _ = request.subject
        return _signature_problem(request)
    except UnsupportedAlgorithm:
        return "x509: cannot verify signature: algorithm unimplemented"
    except unreadable():
        return None


def stub_key(der: bytes) -> Any:
    """Return the public key of a valid certificate request, None if keys of its type are not supported."""
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        return public_key(x509.load_der_x509_csr(der))
    except UnsupportedAlgorithm:
        return None


_PARAMETERS = (
    "{optional:false explicit:false application:false private:false defaultValue:<nil> tag:<nil> stringType:0 timeType:0 set:false "
    "omitEmpty:false}"
)
_SEQUENCE, _BIT_STRING = 16, 3


def _shape_problem(der: bytes) -> str:
    """Return the error of Go's ``encoding/asn1`` for a malformed request: in its outer sequence or the three members of that.

    Returns "" if the error is deeper.
    """
    try:
        start, end = _element(der, 0, _SEQUENCE, "certificateRequest")
        inner, at = der[start:end], 0
        for tag, name in ((_SEQUENCE, "tbsCertificateRequest"), (_SEQUENCE, "AlgorithmIdentifier"), (_BIT_STRING, "BitString")):
            at = _element(inner, at, tag, name)[1]
    except ValueError as e:
        return f"asn1: {e}"
    return "asn1: syntax error: trailing data" if end < len(der) else ""


def _element(data: bytes, at: int, wanted: int, name: str) -> tuple[int, int]:
    """Return the start and end of the content of the element at ``at``. Raises ValueError if it is not of the wanted type."""
    if at == len(data):
        raise ValueError("syntax error: sequence truncated")
    first, at = data[at], at + 1
    if at >= len(data):
        raise ValueError("syntax error: truncated tag or length")
    length, at = data[at], at + 1
    if length & 0x80:
        count, length = length & 0x7F, 0
        if not count:
            raise ValueError("syntax error: indefinite length found (not DER)")
        for byte in data[at : at + count]:
            if length >= 1 << 23:
                raise ValueError("structure error: length too large")
            length = length << 8 | byte
            if not length:
                raise ValueError("structure error: superfluous leading zeros in length")
        at += count
        if at > len(data):
            raise ValueError("syntax error: truncated tag or length")
        if length < 0x80:
            raise ValueError("structure error: non-minimal length")
    compound = bool(first & 0x20)
    if (first >> 6, first & 0x1F, compound) != (0, wanted, wanted == _SEQUENCE):
        found = f"{{class:{first >> 6} tag:{first & 0x1F} length:{length} isCompound:{str(compound).lower()}}}"
        raise ValueError(f"structure error: tags don't match ({wanted} vs {found}) {_PARAMETERS} {name} @{at}")
    if at + length > len(data):
        raise ValueError("syntax error: data truncated")
    return at, at + length


def _signature_problem(csr: Any) -> str:
    """``CertificateRequest.CheckSignature``, which accepts SHA-1; the library's own check is stricter."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    key, message = public_key(csr), csr.tbs_certrequest_bytes
    try:
        if isinstance(key, rsa.RSAPublicKey):
            if csr.signature_hash_algorithm.name == "md5":
                return "x509: cannot verify signature: insecure algorithm MD5-RSA"
            key.verify(csr.signature, message, csr.signature_algorithm_parameters, csr.signature_hash_algorithm)
        elif isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(csr.signature, message, csr.signature_algorithm_parameters)
        elif isinstance(key, ed25519.Ed25519PublicKey):
            key.verify(csr.signature, message)
        else:
            return "x509: cannot verify signature: algorithm unimplemented"
    except InvalidSignature:
        if isinstance(key, rsa.RSAPublicKey):
            return "crypto/rsa: verification error"
        return f"x509: {'ECDSA' if isinstance(key, ec.EllipticCurvePublicKey) else 'Ed25519'} verification failure"
    return ""


def certificate_problem(data: bytes) -> str:
    """Return the error in ``status.certificate``, which must be CERTIFICATE blocks without headers, at least one."""
    from cryptography import x509

    if not data:
        return ""
    count = 0
    for block in pem_blocks(data):
        if block.kind != "CERTIFICATE":
            return f"only CERTIFICATE PEM blocks are allowed, found {go_quote(block.kind)}"
        if block.has_headers:
            return "no PEM block headers are permitted"
        count += 1
        try:
            x509.load_der_x509_certificate(block.der)
        except unreadable():
            return "x509: malformed certificate"
    return "" if count else "must contain at least one CERTIFICATE PEM block"


def trust_bundle(text: str, path: str) -> list[FieldError]:
    """Check that the text has CA certificates only, at least one, and none twice."""
    from cryptography import x509

    if len(text.encode()) > MAX_TRUST_BUNDLE:
        return [field.too_long(path, MAX_TRUST_BUNDLE)]
    errs: list[FieldError] = []
    places: dict[bytes, list[int]] = {}
    for i, block in enumerate(pem_blocks(text.encode())):
        problem = ""
        if block.kind != "CERTIFICATE":
            problem = f"has bad block type: {block.kind}"
        elif block.has_headers:
            problem = "has PEM block headers"
        else:
            try:
                certificate = x509.load_der_x509_certificate(block.der)
                constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
                problem = "" if constraints.ca else "does not have the CA bit set"
            except x509.ExtensionNotFound:
                problem = "does not have the CA bit set"
            except unreadable():
                problem = "does not parse as X.509"
        if problem:
            errs.append(field.invalid(path, OMITTED, f"entry {i} {problem}"))
        else:
            places.setdefault(block.der, []).append(i)
    if errs:
        return errs
    if not places:
        errs.append(field.invalid(path, OMITTED, "at least one trust anchor must be provided"))
    for indices in places.values():
        if len(indices) > 1:
            shown = "[" + " ".join(map(str, indices)) + "]"
            errs.append(field.invalid(path, OMITTED, f"duplicate trust anchor (indices {shown})"))
    return errs


def decode_bytes(value: Any) -> bytes:
    """Return the value of a bytes field in JSON; decoding has refused invalid base64."""
    return base64.b64decode(value) if value else b""
