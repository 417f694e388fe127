"""Parsing and checking of untrusted keys, without the work that their numbers could demand.

OpenSSL tests primes when it loads parameters of Diffie-Hellman or DSA, and ``cryptography`` when it loads a private RSA key: some kilobytes
take minutes, with the GIL held. So the kind of a key is determined from its algorithm identifier before it is loaded. Only kinds that Go's
``crypto/tls`` and ``crypto/x509`` sign and verify with are loaded, and a private RSA key is checked like Go's ``rsa.PrivateKey.Validate``,
by multiplication.
"""

from __future__ import annotations

from typing import Any

from kas.meta.der import member, members
from kas.meta.pem import pem_blocks

# Go's bounds: crypto/tls accepts no larger RSA keys, crypto/rsa no larger exponents, crypto/x509 no other curves. A key of 3,072 bits whose
# exponent is as long takes 7 ms, one with the usual exponent 40 µs. Keys of 512 bits can be factored cheaply: since 1.24 Go verifies
# nothing with keys below 1,024 bits.
MIN_RSA_BITS = 1024
MAX_RSA_BITS, MAX_RSA_EXPONENT = 8192, (1 << 31) - 1
CURVES = frozenset(("secp256r1", "secp384r1", "secp521r1"))
# OpenSSL's limit, and the size of a private key of that length: products of larger numbers would take long.
_MAX_LOADED_BITS, _MAX_DER = 16384, 16 << 10

# The content of the OBJECT IDENTIFIERs of rsaEncryption, id-ecPublicKey and id-Ed25519; of id-dsa and id-X25519, which Go only parses.
_RSA, _EC, _ED25519 = bytes.fromhex("2a864886f70d010101"), bytes.fromhex("2a8648ce3d0201"), bytes.fromhex("2b6570")
_LOADED = frozenset((_RSA, _EC, _ED25519))
_PARSED_ONLY = frozenset((bytes.fromhex("2a8648ce380401"), bytes.fromhex("2b656e")))
_LOADED_DOTTED = frozenset(("1.2.840.113549.1.1.1", "1.2.840.10045.2.1", "1.3.101.112"))
_INTEGER, _OCTETS, _OID, _SEQUENCE = 0x02, 0x04, 0x06, 0x30


def usable(key: Any) -> bool:
    """Whether a public key (of ``cryptography``) is of a kind and size with which Go verifies signatures."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    if isinstance(key, rsa.RSAPublicKey):
        return MIN_RSA_BITS <= key.key_size <= MAX_RSA_BITS and key.public_numbers().e <= MAX_RSA_EXPONENT
    if isinstance(key, ec.EllipticCurvePublicKey):
        return key.curve.name in CURVES
    return isinstance(key, ed25519.Ed25519PublicKey)


def known(holder: Any) -> bool:
    """Whether the key of a certificate or certificate request (of ``cryptography``) is RSA, EC or Ed25519."""
    return holder.public_key_algorithm_oid.dotted_string in _LOADED_DOTTED


def public_key(holder: Any) -> Any:
    """The public key of a certificate or certificate request (of ``cryptography``). Raises UnsupportedAlgorithm for a key that is not
    ``known`` or is on an unsupported curve, and ValueError for one that cannot be parsed.
    """
    if not known(holder):
        raise _unsupported()
    return holder.public_key()


def public_key_of(der: bytes) -> Any:
    """The key of a SubjectPublicKeyInfo (RFC 5280 §4.1); None for a kind that Go parses but does not verify with. Raises
    UnsupportedAlgorithm for other kinds, and ValueError for an invalid one.
    """
    from cryptography.hazmat.primitives.serialization import load_der_public_key

    kind = member(member(member(der, _SEQUENCE), _SEQUENCE), _OID)
    if kind in _PARSED_ONLY:
        return None
    if kind not in _LOADED:
        raise _unsupported()
    return load_der_public_key(der)


def private_key(pem: bytes) -> Any:
    """The first private key of a PEM text: PKCS #1, PKCS #8 or SEC 1, whatever its block is called, like ``tls.X509KeyPair``. Raises
    ValueError, also for kinds of keys other than those of ``public_key``.
    """
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
    found = members(member(der, _SEQUENCE), 9)  # PKCS #1 has nine members, DSA's own form six
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
    """The checks of Go's ``rsa.PrivateKey.Validate``. Raises ValueError."""
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
