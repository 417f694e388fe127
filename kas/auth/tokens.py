"""Service-account tokens: signing and verifying the JWTs (``pkg/serviceaccount/{jwt,claims,legacy}.go``).

Keys are loaded on first use. This module does not read the store (see ``authn/serviceaccount.py``). The public keys are served as JWKS
for other verifiers (``openidmetadata.go``).
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import uuid
from collections.abc import Sequence
from typing import Any

from kas.auth import jws
from kas.auth.authn import AuthenticationError
from kas.auth.user import service_account_username
from kas.meta.pem import unreadable
from kas.meta.publickeys import private_key

Claims = dict[str, Any]

LEGACY_ISSUER = "kubernetes/serviceaccount"
LEGACY_CLAIMS = "kubernetes.io/serviceaccount"
# Tokens for pods are requested with this unusual lifetime; they are valid for a year, to give clients time to learn to reload them.
WARN_AFTER_S = 3607
EXTENDED_EXPIRATION_S = 365 * 24 * 3600
MAX_TOKEN = 16 << 10
MAX_NUMBER = 1 << 62  # seconds; larger numbers are not valid times


class SignerError(ValueError):
    """An external signer could not be called, or returned an invalid response."""


class Signer:
    """Signs with one private key (PEM; RSA or EC on P-256, P-384, P-521)."""

    def __init__(self, pem: bytes, issuer: str) -> None:
        self.issuer = issuer
        self._pem = pem
        self._loaded: tuple[Any, str, str] | None = None

    def _key(self) -> tuple[Any, str, str]:
        if self._loaded is None:
            private = private_key(self._pem)
            public = private.public_key()
            found = jws.key(public, key_id(public))
            self._loaded = private, found.algorithms[0], found.id
        return self._loaded

    def load(self) -> None:
        """Read the key and import what signing needs. May run in any thread; takes tens of milliseconds, else spent by the first
        ``sign``."""
        import jwt.api_jws  # noqa: F401 (for ``sign``)

        self._key()

    def public_key(self) -> Any:
        """Return the public half of the signing key."""
        return self._key()[0].public_key()

    def sign(self, claims: Claims) -> str:
        """Return the claims as a compact JWS (RFC 7515), claims sorted, with the key's id in the header."""
        from jwt.api_jws import PyJWS

        private, algorithm, kid = self._key()
        payload = json.dumps(claims, separators=(",", ":"), sort_keys=True).encode()
        # go-jose writes no "typ".
        return PyJWS().encode(payload, private, algorithm=algorithm, headers={"kid": kid, "typ": None})


class Verifier:
    """Verifies with any of several public keys (or private keys, whose public half is used).

    ``issuers``: new tokens name the first one; all are accepted.
    """

    def __init__(self, keys: Sequence[bytes | Any], issuers: Sequence[str]) -> None:
        self.issuers = tuple(issuers)
        self._sources = tuple(keys)
        self._loaded: list[jws.Key] | None = None

    def _keys(self) -> list[jws.Key]:
        if self._loaded is None:
            public = [key for s in self._sources for key in (load_public_keys(s) if isinstance(s, bytes) else (s,))]
            # A key may be in several files: the signing key's public half is often among the verification keys.
            self._loaded = list({found.id: found for found in (jws.key(key, key_id(key)) for key in public)}.values())
        return self._loaded

    def claims(self, token: str) -> Claims | None:
        """Return the claims of a token of one of our issuers, or None if it is not a JWT of one of them.

        Raises ``AuthenticationError`` if no key verifies the signature. Checks nothing but the signature.
        """
        if issuer_of(token) not in self.issuers:
            return None
        try:
            payload = jws.verified(token, self._keys())
        except jws.JWSError as e:
            raise AuthenticationError(f"go-jose/go-jose/jwt: {e}") from None
        if payload is None:
            raise AuthenticationError("invalid signature: no key of this server made it")
        claims = json.loads(payload)
        return claims if isinstance(claims, dict) else None

    def jwks(self) -> dict[str, Any]:
        """Return the public keys as the document at /openid/v1/jwks."""
        from jwt.algorithms import ECAlgorithm, RSAAlgorithm

        out = []
        for kid, (algorithm, *_), public in self._keys():
            jwk = (RSAAlgorithm if algorithm[0] == "R" else ECAlgorithm).to_jwk(public, as_dict=True)
            jwk.pop("key_ops", None)
            out.append({"use": "sig", "kty": jwk.pop("kty"), "kid": kid, "alg": algorithm, **jwk})
        return {"keys": out}


def discovery_document(issuer: str, jwks_uri: str, algorithms: Sequence[str]) -> dict[str, Any]:
    """Return the document at /.well-known/openid-configuration."""
    return {
        "issuer": issuer,
        "jwks_uri": jwks_uri,
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": sorted(set(algorithms)),
    }


def load_public_keys(pem: bytes) -> list[Any]:
    """Return the public keys in a PEM file, which may contain public keys, private keys and certificates.

    Other blocks are skipped, as in client-go's ``ParsePublicKeysPEM``. Raises ValueError if no key remains.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    out = []
    for block in _pem_blocks(pem):
        with contextlib.suppress(*unreadable()):
            if b"PRIVATE KEY" in block.split(b"\n", 1)[0]:
                key = private_key(block).public_key()
            elif b"CERTIFICATE" in block.split(b"\n", 1)[0]:
                key = x509.load_pem_x509_certificate(block).public_key()
            else:
                key = serialization.load_pem_public_key(block)
            if isinstance(key, rsa.RSAPublicKey | ec.EllipticCurvePublicKey):
                out.append(key)
    if not out:
        raise ValueError("data does not contain any valid RSA or ECDSA public keys")
    return out


def _pem_blocks(pem: bytes) -> list[bytes]:
    blocks: list[bytes] = []
    lines: list[bytes] = []
    for line in pem.splitlines():
        if line.startswith(b"-----BEGIN"):
            lines = []
        lines.append(line)
        if line.startswith(b"-----END"):
            blocks.append(b"\n".join(lines) + b"\n")
    return [b for b in blocks if b" PARAMETERS" not in b]


def key_id(public: Any) -> str:
    """Return upstream's key id: the SHA-256 of the key's SubjectPublicKeyInfo, base64url without padding."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    der = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return base64.urlsafe_b64encode(hashlib.sha256(der).digest()).rstrip(b"=").decode()


def issuer_of(token: str) -> str | None:
    """Return the issuer a compact JWT claims, unverified; None if it is not a JWT or is longer than ``MAX_TOKEN``: the creator of a
    TokenReview may send any text."""
    parts = token.split(".") if len(token) <= MAX_TOKEN else []
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(jws.b64decoded(parts[1]))
    except (ValueError, RecursionError):
        return None
    issuer = claims.get("iss") if isinstance(claims, dict) else None
    return issuer if isinstance(issuer, str) else None


# --- claims ----------------------------------------------------------------------------------------------------------


def bound_claims(
    issuer: str,
    service_account: dict[str, Any],
    audiences: Sequence[str],
    now: int,
    expiration_s: int,
    pod: dict[str, Any] | None = None,
    secret: dict[str, Any] | None = None,
    node: dict[str, Any] | None = None,
    warn_after_s: int = 0,
    jti: str = "",
) -> Claims:
    """Return the claims of a TokenRequest's token.

    ``service_account``, ``pod``, ``secret`` and ``node`` are the objects the token is bound to; with ``pod``, ``node`` is the pod's node.
    ``warn_after_s`` is the requested lifetime if the lifetime was extended, else 0.
    """
    meta = service_account["metadata"]
    private: dict[str, Any] = {"namespace": meta["namespace"], "serviceaccount": _ref(service_account)}
    for name, obj in (("pod", pod), ("secret", secret), ("node", node)):
        if obj is not None:
            private[name] = _ref(obj)
    if warn_after_s:
        private["warnafter"] = now + warn_after_s
    return {
        "aud": list(audiences),
        "exp": now + expiration_s,
        "iat": now,
        "iss": issuer,
        "jti": jti or str(uuid.uuid4()),
        "kubernetes.io": private,
        "nbf": now,
        "sub": service_account_username(meta["namespace"], meta["name"]),
    }


def legacy_claims(service_account: dict[str, Any], secret: dict[str, Any]) -> Claims:
    """Return the claims of the token in a Secret of type kubernetes.io/service-account-token, which never expires."""
    meta = service_account["metadata"]
    return {
        "iss": LEGACY_ISSUER,
        "sub": service_account_username(meta["namespace"], meta["name"]),
        f"{LEGACY_CLAIMS}/namespace": meta["namespace"],
        f"{LEGACY_CLAIMS}/secret.name": secret["metadata"]["name"],
        f"{LEGACY_CLAIMS}/service-account.name": meta["name"],
        f"{LEGACY_CLAIMS}/service-account.uid": meta.get("uid", ""),
    }


def _ref(obj: dict[str, Any]) -> dict[str, str]:
    meta = obj["metadata"]
    return {"name": meta["name"], "uid": meta["uid"]} if meta.get("uid") else {"name": meta["name"]}
