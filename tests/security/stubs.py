"""The servers that recorded ones call: token issuers, and webhooks with fixed answers."""

from __future__ import annotations

import json
import time
from typing import Any

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from kas.auth.tokens import load_public_keys
from tests.security.files import Files
from tests.tlsstub import Answer, Asked, TLSStub

AUTHORITY = {"ca": [["CN", "stub-ca"]]}
SERVING = {"cert": [["CN", "stub"]], "by": "stub-ca.crt", "eku": ["server"], "ip": ["127.0.0.1"]}
DISCOVERY, JWKS = "/.well-known/openid-configuration", "/jwks"


def jwk(pem: bytes, kid: str | None) -> dict[str, Any]:
    """Returns a public key as a JSON Web Key."""
    public = load_public_keys(pem)[0]
    out = (RSAAlgorithm if isinstance(public, RSAPublicKey) else ECAlgorithm).to_jwk(public, as_dict=True)
    out.pop("key_ops", None)
    return {**out, "use": "sig", **({"kid": kid} if kid else {})}


def subset(part: Any, whole: Any) -> bool:
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(k in whole and subset(v, whole[k]) for k, v in part.items())
    return part == whole


class Stub:
    """One of a setup's ``stubs``: ``spec`` has its answers."""

    def __init__(self, spec: dict[str, Any], files: Files) -> None:
        self._spec, self._files = spec, files
        self._server = TLSStub(files.path("stub.crt"), files.path("stub.key"), self._answer)
        self.url = self._server.url

    def take(self) -> list[dict[str, Any]]:
        """Returns the requests to a webhook since the last call."""
        return [
            {"path": a.path, "contentType": a.headers.get("content-type"), "body": json.loads(a.body)}
            for a in self._server.take() if a.method == "POST"
        ]  # fmt: skip

    def close(self) -> None:
        self._server.close()

    def _answer(self, asked: Asked) -> Answer:
        if asked.method == "GET":
            return self._document(asked.path.partition("?")[0])
        body = json.loads(asked.body)
        for canned in [*self._spec.get("answers", ()), self._spec.get("default", {"reply": {}})]:
            if subset(canned.get("match", {}), body):
                time.sleep(canned.get("sleep", 0))
                if canned.get("code"):
                    return Answer(canned["code"], canned.get("text", "").encode(), (("Content-Type", "text/plain"),))
                of = {"apiVersion": body["apiVersion"], "kind": body["kind"]}
                said = canned["raw"] if canned.get("raw") is not None else {**of, "status": canned.get("reply", {})}
                return Answer(200, json.dumps(said).encode())
        return Answer(404, b"{}")

    def _document(self, path: str) -> Answer:
        base = self._spec.get("path", "")
        if path == base + DISCOVERY:
            document = {"issuer": self.url + base, "jwks_uri": self.url + JWKS, **(self._spec.get("discovery") or {})}
            return Answer(200, json.dumps(document).encode())
        if path == JWKS:
            keys = [jwk(self._files.path(k["key"]).read_bytes(), k.get("kid")) for k in self._spec.get("keys", ())]
            return Answer(200, json.dumps({"keys": keys}).encode())
        return Answer(404, b"{}")
