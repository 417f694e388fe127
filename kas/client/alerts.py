"""TLS errors other than those of certificates, in the words of Go's crypto/tls."""

from __future__ import annotations

import ssl

# Go's words for the peer's alerts, by OpenSSL's names.
_ALERTS = {
    "ACCESS_DENIED": "access denied", "BAD_CERTIFICATE": "bad certificate", "BAD_RECORD_MAC": "bad record MAC",
    "CERTIFICATE_EXPIRED": "expired certificate", "CERTIFICATE_REQUIRED": "certificate required",
    "CERTIFICATE_REVOKED": "revoked certificate", "CERTIFICATE_UNKNOWN": "unknown certificate", "DECODE_ERROR": "error decoding message",
    "DECRYPT_ERROR": "error decrypting message", "HANDSHAKE_FAILURE": "handshake failure", "ILLEGAL_PARAMETER": "illegal parameter",
    "INSUFFICIENT_SECURITY": "insufficient security level", "INTERNAL_ERROR": "internal error", "MISSING_EXTENSION": "missing extension",
    "NO_APPLICATION_PROTOCOL": "no application protocol", "PROTOCOL_VERSION": "protocol version not supported",
    "RECORD_OVERFLOW": "record overflow", "UNEXPECTED_MESSAGE": "unexpected message", "UNKNOWN_CA": "unknown certificate authority",
    "UNRECOGNIZED_NAME": "unrecognized name", "UNSUPPORTED_CERTIFICATE": "unsupported certificate", "USER_CANCELLED": "user canceled",
}  # fmt: skip
_OWN = {
    "WRONG_VERSION_NUMBER": "tls: first record does not look like a TLS handshake",
    "UNSUPPORTED_PROTOCOL": "tls: server selected unsupported protocol version 302",
}  # fmt: skip


def tls_text(error: ssl.SSLError) -> str:
    """A TLS error that is not about a certificate, in Go's words."""
    reason = error.reason or ""
    known = _OWN.get(reason)
    if known is not None:
        return known
    word = reason.partition("_ALERT_")[2] or reason.removeprefix("TLSV1_")
    return f"remote error: tls: {_ALERTS.get(word, reason or str(error))}"
