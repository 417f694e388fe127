"""Signatures of JSON Web Tokens (RFC 7515): the algorithms a key can verify, and verification against a set of keys.

The key and the caller restrict the algorithm; the token alone never chooses it. Symmetric algorithms and "none" are never accepted.
"""

from __future__ import annotations

import base64
import contextlib
import re
import warnings
from collections.abc import Collection, Iterable
from typing import Any

from kas.meta.publickeys import MAX_RSA_BITS, MIN_RSA_BITS, usable
from kas.meta.records import NamedTuple

RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
EC = {"secp256r1": ("ES256",), "secp384r1": ("ES384",), "secp521r1": ("ES512",)}  # by the curve
ALL = frozenset((*RSA, *(name for names in EC.values() for name in names)))
_BASE64URL = re.compile(r"[A-Za-z0-9_-]*\Z")


class JWSError(ValueError):
    """The text is not a signed token, or the signature is of a form that is not allowed."""


class AlgorithmError(JWSError):
    """The token names an algorithm that is not in ``allowed``; ``given`` is the named algorithm."""

    def __init__(self, given: str, allowed: Collection[str]) -> None:
        super().__init__(f'unexpected signature algorithm "{given}"; expected [{" ".join(sorted(allowed))}]')
        self.given = given


class Key(NamedTuple):
    """A public key, its id ("" for none) and the algorithms it can verify. The first algorithm is the one its owner signs with."""

    id: str
    algorithms: tuple[str, ...]
    public: Any


def key(public: Any, id: str) -> Key:
    """Return a verification key.

    Raises ValueError for a key that is neither RSA nor EC on P-256, P-384 or P-521, is too short, or is too expensive to verify with.
    """
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    if isinstance(public, rsa.RSAPublicKey):
        if not usable(public):
            raise ValueError(f"an RSA key of less than {MIN_RSA_BITS} or more than {MAX_RSA_BITS} bits, or with an exponent above 2^31")
        return Key(id, RSA, public)
    if isinstance(public, ec.EllipticCurvePublicKey) and public.curve.name in EC:
        return Key(id, EC[public.curve.name], public)
    raise ValueError("unknown public key type, must be RSA or ECDSA on P-256, P-384 or P-521")


def verified(token: str, keys: Iterable[Key], allowed: Collection[str] = ALL) -> bytes | None:
    """Return the payload of a compact token if one of ``keys`` signed it, else None.

    A token with a key id is only checked against keys of that id. Raises JWSError.
    """
    from jwt.api_jws import PyJWS
    from jwt.exceptions import InvalidTokenError

    if not all(map(_BASE64URL.match, token.split("."))):  # the library ignores characters outside the alphabet
        raise JWSError("illegal base64 data")
    jws = PyJWS()
    try:
        header = jws.get_unverified_header(token)
    except InvalidTokenError as e:
        raise JWSError(str(e)) from None
    algorithm, kid = header.get("alg"), header.get("kid") or ""
    if not isinstance(algorithm, str) or algorithm not in allowed:
        raise AlgorithmError(str(algorithm)[:16], allowed)
    for known in keys:
        if algorithm not in known.algorithms or (kid and known.id != kid):
            continue
        with contextlib.suppress(InvalidTokenError), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about short keys, which are their owner's choice
            return bytes(jws.decode(token, known.public, algorithms=[algorithm]))
    return None


def b64decoded(text: str) -> bytes:
    """Decode base64url without padding (RFC 7515 2). Raises ValueError for anything else."""
    if not _BASE64URL.match(text):
        raise ValueError("illegal base64 data")
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
