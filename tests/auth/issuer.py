"""An issuer of ID tokens over TLS, whose keys change and whose faults a test turns on."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from tests import pki
from tests.tlsstub import Answer, Asked, TLSStub, serving

DISCOVERY, JWKS = "/.well-known/openid-configuration", "/keys"
LIMIT_S = 60.0
VAST = {"huge": 10 << 20, "vast": 100 << 20}


def rsa_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


def ec_key(curve: ec.EllipticCurve | None = None) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(curve or ec.SECP256R1())


def jwk(key: Any, kid: str = "") -> dict[str, Any]:
    algorithm = RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm
    out = algorithm.to_jwk(key.public_key(), as_dict=True)
    out.pop("key_ops", None)
    return {**out, "use": "sig", **({"kid": kid} if kid else {})}


class Issuer:
    """``keys`` by their ids are what it signs with and publishes. ``fault``: "" for none; "slow" delays the keys until ``release`` is set,
    "huge", "vast", "garbage" and "error" are answers instead of them, "redirect" redirects, "loop" redirects without end, "stranger" is
    another issuer's document."""

    def __init__(self, directory: Path, by: pki.Issued, name: str = "issuer") -> None:
        self.keys: dict[str, Any] = {"k1": rsa_key(), "e1": ec_key()}
        self.shown: list[dict[str, Any]] | None = None  # instead of the keys
        self.fault, self.release = "", threading.Event()
        self.stub = TLSStub(*serving(directory, by, name), self._answer)
        self.url = self.stub.url

    def fetches(self) -> int:
        """How often its keys were fetched."""
        return sum(a.path == JWKS for a in self.stub.asked)

    def token(self, kid: str | None = "k1", alg: str | None = None, key: Any = None, **claims: Any) -> str:
        """Returns a token with these claims in place of the usual ones; None removes one."""
        now = int(time.time())
        said = {"iss": self.url, "aud": "client", "sub": "jane", "exp": now + 600, "iat": now, **claims}
        signer = key if key is not None else self.keys[kid or "k1"]
        algorithm = alg or ("RS256" if isinstance(signer, rsa.RSAPrivateKey) else "ES256")
        headers = {"kid": kid} if kid else None
        return jwt.encode({k: v for k, v in said.items() if v is not None}, signer, algorithm, headers)

    def _answer(self, asked: Asked) -> Answer:
        if asked.path == DISCOVERY:
            if self.fault == "down":
                raise ConnectionResetError
            issuer = "https://stranger.example.com" if self.fault == "stranger" else self.url
            return Answer(200, json.dumps({"issuer": issuer, "jwks_uri": self.url + JWKS}).encode())
        if asked.path == "/loop" or (self.fault == "loop" and asked.path == JWKS):
            return Answer(302, b"", (("Location", "/loop"),))
        if asked.path == JWKS and self.fault == "redirect":
            return Answer(307, b"", (("Location", f"{self.url}/elsewhere"),))
        if asked.path not in (JWKS, "/elsewhere"):
            return Answer(404, b"{}")
        if self.fault == "slow":
            self.release.wait(LIMIT_S)
        if self.fault in VAST:
            return Answer(200, b'{"keys": [' + b" " * VAST[self.fault] + b"]}")
        if self.fault == "garbage":
            return Answer(200, b"<html>")
        if self.fault == "error":
            return Answer(500, b"boom")
        keys = self.shown if self.shown is not None else [jwk(key, kid) for kid, key in self.keys.items()]
        return Answer(200, json.dumps({"keys": keys}).encode())

    def close(self) -> None:
        self.release.set()
        self.stub.close()
