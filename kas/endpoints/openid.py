"""The two documents by which others check service-account tokens: OpenID discovery and the key set (KEP-1393)."""

from __future__ import annotations

import orjson

from kas.auth.tokens import Verifier, discovery_document


def documents(verifier: Verifier, issuer: str, jwks_uri: str) -> tuple[bytes, bytes] | None:
    """(discovery document, key set) of a token issuer; ``jwks_uri`` is where the key set is found. None for an issuer that is no https URL,
    whom nobody could check."""
    if not issuer.startswith("https://"):
        return None
    keys = verifier.jwks()
    algorithms = sorted({k["alg"] for k in keys["keys"]})
    return orjson.dumps(discovery_document(issuer, jwks_uri, algorithms)), orjson.dumps(keys)
