"""The documents with which others verify tokens of service accounts."""

from __future__ import annotations

import json

import pytest

from kas.auth.tokens import Verifier
from kas.endpoints import openid
from tests.pki import generate_key

KEYS = "https://issuer.example.com/openid/v1/jwks"
VERIFIER = Verifier([generate_key()], ["https://issuer.example.com"])


@pytest.mark.parametrize("issuer", ["https://issuer.example.com", "https://192.0.2.1:80", "https://issuer.example.com/path/", "HTTPS://x"])
def test_an_issuer_that_supports_discovery(issuer: str) -> None:
    found = openid.documents(VERIFIER, issuer, KEYS)
    assert found is not None
    assert json.loads(found[0]) == {
        "issuer": issuer, "jwks_uri": KEYS, "response_types_supported": ["id_token"], "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"],
    }  # fmt: skip
    (key,) = json.loads(found[1])["keys"]
    assert key.keys() == {"use", "kty", "kid", "alg", "crv", "x", "y"}


@pytest.mark.parametrize("issuer", [
    "http://issuer.example.com", "issuer.example.com", "https://issuer.example.com?foo=bar", "https://issuer.example.com#baz",
    "https://issuer.example.com?foo=bar#baz", "issuer", "https://issuer.example.com:port", "",
])  # fmt: skip
def test_an_issuer_that_does_not_support_discovery(issuer: str) -> None:
    """Upstream's table (``openidmetadata_test.go``)."""
    assert openid.documents(VERIFIER, issuer, KEYS) is None
