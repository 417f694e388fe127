"""Keys that others show: read and judged without the work that their numbers could ask for.

OpenSSL looks for primes when it loads parameters of Diffie-Hellman or DSA, and ``cryptography`` when it loads a private key of RSA: some
kilobytes take minutes, with the interpreter's lock held. So the kind is told by the algorithm's identifier before a key is loaded, only
kinds that Go's ``crypto/tls`` and ``crypto/x509`` sign and verify with are, and a private key of RSA is judged as Go's
``rsa.PrivateKey.Validate`` does, by products.
"""

from __future__ import annotations

from typing import Any

from kas.meta.der import member, members
from kas.meta.pem import pem_blocks

# Go's bounds: crypto/tls takes no larger keys of RSA, crypto/rsa no larger exponents, crypto/x509 no other curves. A key of 3,072 bits
# whose exponent is as long takes 7 ms, one with the usual exponent 40 µs. Keys of 512 bits are factored for the price of a dinner:
# since 1.24 Go verifies nothing with those below 1,024.
MIN_RSA_BITS = 1024
MAX_RSA_BITS, MAX_RSA_EXPONENT = 8192, (1 << 31) - 1
CURVES = frozenset(("secp256r1", "secp384r1", "secp521r1"))
# What OpenSSL takes, and the bytes of a private key that has it: products of larger numbers would be the next long work.
_MAX_LOADED_BITS, _MAX_DER = 16384, 16 << 10

# The content of the OBJECT IDENTIFIERs of rsaEncryption, id-ecPublicKey, id-Ed25519; id-dsa and id-X25519, which Go only parses.
_RSA, _EC, _ED25519 = bytes.fromhex("2a864886f70d010101"), bytes.fromhex("2a8648ce3d0201"), bytes.fromhex("2b6570")
_LOADED = frozenset((_RSA, _EC, _ED25519))
_PARSED_ONLY = frozenset((bytes.fromhex("2a8648ce380401"), bytes.fromhex("2b656e")))
_LOADED_DOTTED = frozenset(("1.2.840.113549.1.1.1", "1.2.840.10045.2.1", "1.3.101.112"))
_INTEGER, _OCTETS, _OID, _SEQUENCE = 0x02, 0x04, 0x06, 0x30


def usable(key: Any) -> bool:
    """Whether a public key (of ``cryptography``) is of a kind and size that signatures are verified with."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    if isinstance(key, rsa.RSAPublicKey):
        return MIN_RSA_BITS <= key.key_size <= MAX_RSA_BITS and key.public_numbers().e <= MAX_RSA_EXPONENT
    if isinstance(key, ec.EllipticCurvePublicKey):
        return key.curve.name in CURVES
    return isinstance(key, ed25519.Ed25519PublicKey)


def known(holder: Any) -> bool:
    """Whether the key of a certificate, or of a request for one (of ``cryptography``), is of RSA, an elliptic curve or Ed25519."""
    return holder.public_key_algorithm_oid.dotted_string in _LOADED_DOTTED


def public_key(holder: Any) -> Any:
    """The public key of a certificate or of a request for one (of ``cryptography``). Raises UnsupportedAlgorithm for a key that is not
    ``known``, or on a strange curve, and ValueError for one that cannot be read."""
    if not known(holder):
        raise _unsupported()
    return holder.public_key()


def public_key_of(der: bytes) -> Any:
    """The key of a SubjectPublicKeyInfo (RFC 5280 §4.1), None for one of a kind that Go parses and does not verify with. Raises
    UnsupportedAlgorithm for other kinds, and ValueError for what cannot be read."""
    from cryptography.hazmat.primitives.serialization import load_der_public_key

    kind = member(member(member(der, _SEQUENCE), _SEQUENCE), _OID)
    if kind in _PARSED_ONLY:
        return None
    if kind not in _LOADED:
        raise _unsupported()
    return load_der_public_key(der)


def private_key(pem: bytes) -> Any:
    """The first private key of a PEM text: PKCS #1, PKCS #8 or SEC 1, whatever its block is called, as ``tls.X509KeyPair`` takes it.
    Raises ValueError, also for other kinds of keys than ``public_key`` knows."""
    for block in pem_blocks(pem):
        if block.kind == "PRIVATE KEY" or block.kind.endswith(" PRIVATE KEY"):
            return _private_key(block.der)
    raise ValueError("no private key among the PEM blocks")


def _private_key(der: bytes) -> Any:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.serialization import load_der_private_key

    if len(der) > _MAX_DER:
        raise ValueError("a private key that is too large")
    found = members(member(der, _SEQUENCE), 9)  # PKCS #1 has nine, DSA's own form six
    tags = [tag for tag, _ in found]
    pkcs1 = tags == [_INTEGER] * 9
    pkcs8 = tags[:3] == [_INTEGER, _SEQUENCE, _OCTETS]
    if pkcs8 and member(found[1][1], _OID) not in _LOADED:
        raise ValueError("a private key of an unknown kind")
    if not (pkcs1 or pkcs8 or tags[:2] == [_INTEGER, _OCTETS]):
        raise ValueError("no private key")
    try:
        key: Any = load_der_private_key(der, None, unsafe_skip_rsa_key_validation=True)
    except (TypeError, UnsupportedAlgorithm) as e:
        raise ValueError(str(e)) from None
    if isinstance(key, rsa.RSAPrivateKey):
        _validate(key)
    return key


def _validate(key: Any) -> None:
    """What ``rsa.PrivateKey.Validate`` of Go looks at. Raises ValueError."""
    if key.key_size > _MAX_LOADED_BITS:
        raise ValueError("the modulus is too large")
    numbers = key.private_numbers()
    p, q, d, e = numbers.p, numbers.q, numbers.d, numbers.public_numbers.e
    if max(p, q, d, e).bit_length() > key.key_size:
        raise ValueError("numbers that are larger than the modulus")
    if p <= 1 or q <= 1 or p * q != numbers.public_numbers.n:
        raise ValueError("the modulus is not the product of the primes")
    if (d * e - 1) % (p - 1) or (d * e - 1) % (q - 1):
        raise ValueError("the exponents are not of one key")


def _unsupported() -> Exception:
    from cryptography.exceptions import UnsupportedAlgorithm

    return UnsupportedAlgorithm("a public key of an unknown kind")
