"""Public keys that strangers show: verifying with one of their choice may cost what a thousand others do."""

from __future__ import annotations

from typing import Any

# Go's bounds: crypto/tls takes no larger keys of RSA, crypto/rsa no larger exponents, crypto/x509 no other curves. A key of 3,072 bits
# whose exponent is as long takes 7 ms, one with the usual exponent 40 µs.
MAX_RSA_BITS, MAX_RSA_EXPONENT = 8192, (1 << 31) - 1
CURVES = frozenset(("secp256r1", "secp384r1", "secp521r1"))


def usable(key: Any) -> bool:
    """Whether a public key (of ``cryptography``) is of a kind and size that signatures are verified with."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    if isinstance(key, rsa.RSAPublicKey):
        return key.key_size <= MAX_RSA_BITS and key.public_numbers().e <= MAX_RSA_EXPONENT
    if isinstance(key, ec.EllipticCurvePublicKey):
        return key.curve.name in CURVES
    return isinstance(key, ed25519.Ed25519PublicKey)
