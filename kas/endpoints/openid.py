"""The two documents for verifying service account tokens: OpenID discovery and the key set (KEP-1393)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from kas.auth.tokens import Verifier

# The paths of the two. Upstream serves neither for an issuer that cannot be verified.
PATHS = ("/.well-known/openid-configuration", "/openid/v1/jwks")


def verifiable(issuer: str) -> bool:
    """Return whether OpenID Connect Discovery allows the issuer: an https URL without query and fragment."""
    from kas.meta import gourl

    try:
        said = gourl.parse(issuer)
    except ValueError:
        return False
    return said.scheme == "https" and not said.query and not said.fragment


def documents(verifier: Verifier, issuer: str, jwks_uri: str) -> tuple[bytes, bytes] | None:
    """Return (discovery document, key set) of a token issuer, or None if it is not ``verifiable``.

    ``jwks_uri`` is the address of the key set.
    """
    if not verifiable(issuer):
        return None
    from kas.auth.tokens import discovery_document  # rarely requested

    keys = verifier.jwks()
    algorithms = sorted({k["alg"] for k in keys["keys"]})
    return orjson.dumps(discovery_document(issuer, jwks_uri, algorithms)), orjson.dumps(keys)
