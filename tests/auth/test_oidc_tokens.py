"""The claims of ID tokens."""

from __future__ import annotations

import base64
import json

import pytest

from kas.auth.authn import AuthenticationError
from kas.auth.authn.oidc.keys import RemoteKeys
from kas.auth.authn.oidc.tokens import Verifier, claimed_issuer
from kas.auth.tokens import MAX_TOKEN

NOW = 1_000_000.0
GOOGLE = "https://accounts.google.com"


class Signed:
    """Keys that signed everything."""

    def payload(self, token, allowed):
        return base64.urlsafe_b64decode(token.split(".")[1] + "==")


def token(**claims):
    parts = ({"alg": "RS256"}, {"aud": "a", "exp": NOW + 60, **claims})
    return ".".join(base64.urlsafe_b64encode(json.dumps(p).encode()).rstrip(b"=").decode() for p in parts) + ".c2ln"


def claims_of(issuer, text):
    # These keys are ready, so the result is no awaitable.
    return Verifier(issuer, ["a"], ("RS256",), Signed(), clock=lambda: NOW).claims(text)


@pytest.mark.parametrize("said", ["accounts.google.com", GOOGLE])
def test_google_may_omit_its_scheme(said):
    text = token(iss=said)
    assert claimed_issuer(text) == GOOGLE
    assert claims_of(GOOGLE, text)["iss"] == said


def test_an_oversized_token_is_not_parsed():
    """A user who may create reviews may send 3 MB, which took the loop 0.1 s to parse."""
    text = token(iss="https://x", more="a" * MAX_TOKEN)
    assert claimed_issuer(text) == "" and claimed_issuer(token(iss="https://x", more="a" * 100)) == "https://x"


@pytest.mark.parametrize(("issuer", "said"), [("https://x.example.com", "x.example.com"), (GOOGLE, "www.google.com"), (GOOGLE, "")])
def test_other_issuers_may_not(issuer, said):
    text = token(iss=said)
    assert claimed_issuer(text) == said
    with pytest.raises(AuthenticationError, match="issued by a different provider"):
        claims_of(issuer, text)


@pytest.mark.parametrize(
    ("audiences", "said", "why"),
    [
        (["a"], {"aud": "b"}, 'oidc: expected audience "a" got ["b"]'),
        (["b", "a", "b"], {"aud": ["c", "d"]}, 'oidc: expected audience in ["a" "b"] got ["c" "d"]'),
        (["a"], {"exp": 1257890400}, None),
        (["a"], {"exp": 0}, "oidc: token is expired (Token Expiry: 1970-01-01 00:00:00 +0000 UTC)"),
        (["a"], {"iss": "b"}, 'oidc: id token issued by a different provider, expected "https://x" got "b"'),
    ],
)
def test_errors_have_gos_texts(audiences, said, why):
    verifier = Verifier("https://x", audiences, ("RS256",), Signed(), clock=lambda: NOW)
    text = token(**{"iss": "https://x", **said})
    if why is None:
        assert verifier.claims(text)["iss"] == "https://x"
        return
    with pytest.raises(AuthenticationError) as e:
        verifier.claims(text)
    assert str(e.value) == why


def test_an_unsupported_algorithm_is_named():
    keys = RemoteKeys("https://x/keys", lambda url: None)
    with pytest.raises(AuthenticationError) as e:
        keys.payload(token(), ("ES256", "ES384"))
    assert str(e.value) == 'oidc: id token signed with unsupported algorithm, expected ["ES256" "ES384"] got "RS256"'
