"""Keys as attackers make them, in DER.

The primes are Mersenne primes, 2^4423-1 and 2^9689-1. A library takes minutes to find that they are prime.
"""

from __future__ import annotations

import base64
import math

from kas.meta.der import element

P, Q = 2**4423 - 1, 2**9689 - 1
DH, DSA = bytes.fromhex("2a864886f70d010301"), bytes.fromhex("2a8648ce380401")


def integer(n: int) -> bytes:
    """Returns an INTEGER."""
    return element(2, n.to_bytes(n.bit_length() // 8 + 1, "big"))


def pem(der: bytes, label: str = "PRIVATE KEY") -> bytes:
    """Returns a PEM block."""
    return f"-----BEGIN {label}-----\n{base64.encodebytes(der).decode()}-----END {label}-----\n".encode()


def algorithm(oid: bytes, *numbers: int) -> bytes:
    """Returns an AlgorithmIdentifier with numbers as parameters."""
    return element(0x30, element(6, oid) + element(0x30, b"".join(map(integer, numbers))))


def spki(oid: bytes, *numbers: int) -> bytes:
    """Returns a SubjectPublicKeyInfo."""
    return element(0x30, algorithm(oid, *numbers) + element(3, b"\0" + integer(2**900 + 12345)))


def pkcs1(p: int, q: int, d: int, e: int = 65537) -> bytes:
    """Returns an RSA private key."""
    numbers = (0, p * q, e, d, p, q, d % (p - 1), d % (q - 1), pow(q, -1, p))
    return element(0x30, b"".join(map(integer, numbers)))


HUGE = pkcs1(P, Q, pow(65537, -1, math.lcm(P - 1, Q - 1)))
COSTLY = {"dh": (DH, Q, 2), "dsa": (DSA, Q, P, 3)}
