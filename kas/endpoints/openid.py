"""The two documents by which others check service-account tokens: OpenID discovery and the key set (KEP-1393)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from kas.auth.tokens import Verifier


def documents(verifier: Verifier, issuer: str, jwks_uri: str) -> tuple[bytes, bytes] | None:
    """(discovery document, key set) of a token issuer; ``jwks_uri`` is where the key set is found. None for an issuer that OpenID Connect
    Discovery does not allow, whom nobody could check: no https URL, or one with a query or a fragment."""
    from kas.auth.tokens import discovery_document  # few servers are ever asked for them
    from kas.meta import gourl

    try:
        said = gourl.parse(issuer)
    except ValueError:
        return None
    if said.scheme != "https" or said.query or said.fragment:
        return None
    keys = verifier.jwks()
    algorithms = sorted({k["alg"] for k in keys["keys"]})
    return orjson.dumps(discovery_document(issuer, jwks_uri, algorithms)), orjson.dumps(keys)
