"""The two documents by which others check service-account tokens: OpenID discovery and the key set (KEP-1393)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from kas.auth.tokens import Verifier

# Where the two are; upstream has neither for an issuer that nobody could check.
PATHS = ("/.well-known/openid-configuration", "/openid/v1/jwks")


def verifiable(issuer: str) -> bool:
    """Whether OpenID Connect Discovery allows the issuer: nobody could check one that is no https URL, or has a query or a fragment."""
    from kas.meta import gourl

    try:
        said = gourl.parse(issuer)
    except ValueError:
        return False
    return said.scheme == "https" and not said.query and not said.fragment


def documents(verifier: Verifier, issuer: str, jwks_uri: str) -> tuple[bytes, bytes] | None:
    """(discovery document, key set) of a token issuer; ``jwks_uri`` is where the key set is found. None where it is not ``verifiable``."""
    if not verifiable(issuer):
        return None
    from kas.auth.tokens import discovery_document  # few servers are ever asked for them

    keys = verifier.jwks()
    algorithms = sorted({k["alg"] for k in keys["keys"]})
    return orjson.dumps(discovery_document(issuer, jwks_uri, algorithms)), orjson.dumps(keys)
