"""Certificates of an authority of the server's own, as they are written (RFC 5280), with keys on P-256.

They are the same few each time, and a first start waits for them: what ``cryptography`` reads and builds any certificate with takes three
times as long to load as what makes keys and signs.
"""

from __future__ import annotations

import base64
import ipaddress
import os
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from kas.meta.der import element

SERVER_AUTH, CLIENT_AUTH = bytes.fromhex("2b06010505070301"), bytes.fromhex("2b06010505070302")
COMMON_NAME, ORGANIZATION = bytes.fromhex("550403"), bytes.fromhex("55040a")
_KEY_ID, _KEY_USAGE, _ALT_NAME, _CONSTRAINTS, _AUTHORITY_KEY_ID, _EXTENDED_USAGE = (
    bytes.fromhex("551d" + last) for last in ("0e", "0f", "11", "13", "23", "25")
)
_EC, _P256 = bytes.fromhex("2a8648ce3d0201"), bytes.fromhex("2a8648ce3d030107")
_ECDSA_SHA256, _RSA_SHA256 = bytes.fromhex("2a8648ce3d040302"), bytes.fromhex("2a864886f70d01010b")
_BOOLEAN, _INTEGER, _BITS, _OCTETS, _NULL, _OID, _UTF8, _UTC, _GENERALIZED, _SEQUENCE, _SET = 1, 2, 3, 4, 5, 6, 12, 23, 24, 0x30, 0x31
_TRUE = element(_BOOLEAN, b"\xff")
# Digital signature and key encipherment; the authority's with certificates and revocations signed, too.
_USAGE, _AUTHORITY_USAGE = element(_BITS, bytes((5, 0b1010_0000))), element(_BITS, bytes((1, 0b1010_0110)))
_YEAR_2050 = 2524608000  # from which on times have four digits for the year


class Authority(NamedTuple):
    """Who signs: its name as in its certificate, the key's identifier there (b"" for none), and the private key (of ``cryptography``; of
    an elliptic curve or RSA)."""

    name: bytes
    key_id: bytes
    key: Any


def authority(common_name: str, since: float, until: float) -> tuple[bytes, Authority]:
    """A new one, and its certificate (DER)."""
    key = ec.generate_private_key(ec.SECP256R1())
    name, public = subject((COMMON_NAME, common_name)), _point(key)
    key_id = _key_id(public)
    own = Authority(name, key_id, key)
    extensions = [
        _extension(_CONSTRAINTS, _sequence(_TRUE), True), _extension(_KEY_USAGE, _AUTHORITY_USAGE, True),
        _extension(_KEY_ID, element(_OCTETS, key_id)),
    ]  # fmt: skip
    return _signed(own, name, public, since, until, extensions), own


def certificate(
    by: Authority, name: bytes, usage: bytes, since: float, until: float, names: Iterable[str] = (), ips: Iterable[str] = ()
) -> tuple[bytes, ec.EllipticCurvePrivateKey]:
    """A certificate (DER) of that authority for ``usage``, and its key, which is new. ``names`` and ``ips`` are those it is good for.
    Raises ValueError where the authority's key signs nothing."""
    key = ec.generate_private_key(ec.SECP256R1())
    alt = [element(0x82, n.encode("ascii")) for n in names] + [element(0x87, ipaddress.ip_address(ip).packed) for ip in ips]
    extensions = [_extension(_ALT_NAME, _sequence(*alt))] if alt else []
    extensions += [
        _extension(_CONSTRAINTS, _sequence(), True), _extension(_KEY_USAGE, _USAGE, True),
        _extension(_EXTENDED_USAGE, _sequence(element(_OID, usage))),
    ]  # fmt: skip
    if by.key_id:
        extensions.append(_extension(_AUTHORITY_KEY_ID, _sequence(element(0x80, by.key_id))))
    return _signed(by, name, _point(key), since, until, extensions), key


def subject(*attributes: tuple[bytes, str]) -> bytes:
    """The Name with these attributes, each in a set of its own."""
    return _sequence(*(element(_SET, _sequence(element(_OID, oid), element(_UTF8, text.encode()))) for oid, text in attributes))


def pem(label: str, der: bytes) -> bytes:
    """As PEM."""
    text = base64.b64encode(der).decode()
    lines = "".join(f"{text[at : at + 64]}\n" for at in range(0, len(text), 64))
    return f"-----BEGIN {label}-----\n{lines}-----END {label}-----\n".encode()


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A private key on P-256 as PEM (PKCS #8)."""
    number = element(_OCTETS, key.private_numbers().private_value.to_bytes(32, "big"))
    own = _sequence(element(_INTEGER, b"\1"), number, element(0xA1, element(_BITS, b"\0" + _point(key))))
    kind = _sequence(element(_OID, _EC), element(_OID, _P256))
    return pem("PRIVATE KEY", _sequence(element(_INTEGER, b"\0"), kind, element(_OCTETS, own)))


def _signed(by: Authority, name: bytes, public: bytes, since: float, until: float, extensions: list[bytes]) -> bytes:
    kind = _sequence(element(_OID, _EC), element(_OID, _P256))
    algorithm, sign = _signature(by.key)
    serial = bytes((0x40 | os.urandom(1)[0] & 0x3F,)) + os.urandom(15)  # positive, and of one length
    told = _sequence(
        element(0xA0, element(_INTEGER, b"\2")), element(_INTEGER, serial), algorithm, by.name, _sequence(_time(since), _time(until)), name,
        _sequence(kind, element(_BITS, b"\0" + public)), element(0xA3, _sequence(*extensions)),
    )  # fmt: skip
    return _sequence(told, algorithm, element(_BITS, b"\0" + sign(told)))


def _signature(key: Any) -> tuple[bytes, Any]:
    """The AlgorithmIdentifier of what the key signs, and what signs."""
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return _sequence(element(_OID, _ECDSA_SHA256)), lambda data: key.sign(data, ec.ECDSA(hashes.SHA256()))
    from cryptography.hazmat.primitives.asymmetric import padding, rsa  # an authority that somebody has put there

    if not isinstance(key, rsa.RSAPrivateKey):
        raise ValueError("the authority's key is neither of RSA nor of an elliptic curve")
    return (
        _sequence(element(_OID, _RSA_SHA256), element(_NULL, b"")), lambda data: key.sign(data, padding.PKCS1v15(), hashes.SHA256())
    )  # fmt: skip


def _sequence(*parts: bytes) -> bytes:
    return element(_SEQUENCE, b"".join(parts))


def _extension(oid: bytes, value: bytes, critical: bool = False) -> bytes:
    return _sequence(element(_OID, oid), _TRUE if critical else b"", element(_OCTETS, value))


def _time(at: float) -> bytes:
    if at < _YEAR_2050:
        return element(_UTC, time.strftime("%y%m%d%H%M%SZ", time.gmtime(at)).encode())
    return element(_GENERALIZED, time.strftime("%Y%m%d%H%M%SZ", time.gmtime(at)).encode())


def _point(key: ec.EllipticCurvePrivateKey) -> bytes:
    """The public half, not compressed."""
    numbers = key.public_key().public_numbers()
    return b"\4" + numbers.x.to_bytes(32, "big") + numbers.y.to_bytes(32, "big")


def _key_id(public: bytes) -> bytes:
    """As Go makes it (RFC 7093, the first way)."""
    digest = hashes.Hash(hashes.SHA256())
    digest.update(public)
    return digest.finalize()[:20]
