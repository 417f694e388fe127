"""Notes on a credential, kept as long as it is cached: annotations for the audit log, warnings for the client."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from kas.auth.authn import AuthenticationError
from kas.auth.authn.bearer import BearerToken
from kas.auth.authn.serviceaccount import GENERATED, INVALIDATED, LEGACY, MANUAL, NO_GENERATED, STALE, ServiceAccountTokens
from kas.auth.authn.tokenfile import admin_token
from kas.auth.authn.union import Authenticators, TokenUnion
from kas.auth.authn.websocket import WebSocketToken
from kas.auth.tokens import Signer, Verifier, bound_claims, legacy_claims
from kas.auth.user import Notes, UserInfo
from kas.filters.authentication import authentication
from kas.kinds.authentication.tokenreview import token_review
from kas.meta.errors import ApiError
from kas.observe.metrics import Registry
from kas.registry.strategy import Context
from kas.request.http import Request
from tests.pki import generate_key

KEY = generate_key()
SIGNER = Signer(KEY, "https://issuer")
ACCOUNT: dict[str, Any] = {"metadata": {"name": "bot", "namespace": "default", "uid": "u1"}}
SECRET: dict[str, Any] = {"metadata": {"name": "bot-token", "namespace": "default"}}
NOW = 1_800_000_000


def asked_twice(token: str, account: dict[str, Any] = ACCOUNT) -> list[Request]:
    """Sends two requests through the filter; the second finds the token in the cache."""
    objects = {"serviceaccounts": account, "secrets": SECRET | {"data": {"token": base64.b64encode(token.encode()).decode()}}}
    verifier = Verifier([KEY], ["https://issuer", "kubernetes/serviceaccount"])
    tokens = ServiceAccountTokens(verifier, ["api"], lambda resource, namespace, name: objects[resource], clock=lambda: NOW)
    passing = authentication(lambda: Authenticators([BearerToken(tokens)]), Registry(), lambda forget: None)
    out = []
    for _ in range(2):
        req = Request("GET", "/version", "", [(b"authorization", f"Bearer {token}".encode())])
        passing.before(req)
        assert req.user.name == "system:serviceaccount:default:bot"
        out.append(req)
    return out


def bound(warn_after_s: int) -> str:
    return SIGNER.sign(bound_claims("https://issuer", ACCOUNT, ["api"], NOW - 4000, 365 * 86400, warn_after_s=warn_after_s))


def test_an_outdated_token_is_named_in_the_audit_log():
    for req in asked_twice(bound(3607)):
        said = "subject: system:serviceaccount:default:bot, seconds after warning threshold: 393"
        assert req.annotations == {STALE: said} and req.warnings is None


def test_a_refreshed_token_is_not():
    for token in (bound(0), bound(5000)):
        assert [req.annotations for req in asked_twice(token)] == [None, None]


def test_a_legacy_tokens_secret_is_named_and_a_generated_one_warned_of():
    token = SIGNER.sign(legacy_claims(ACCOUNT, SECRET))
    without = {LEGACY: "system:serviceaccount:default:bot"}
    for req in asked_twice(token):
        assert req.annotations == {**without, MANUAL: "bot-token"} and req.warnings is None
    for req in asked_twice(token, ACCOUNT | {"secrets": [{"name": "other"}, {"name": "bot-token"}]}):
        assert req.annotations == {**without, GENERATED: "bot-token"} and list(req.warnings) == [NO_GENERATED]


def test_a_token_without_an_audience_is_reported_as_legacy() -> None:
    claims = bound_claims("https://issuer", ACCOUNT, [], NOW - 4000, 365 * 86400, warn_after_s=3607)
    del claims["aud"]
    for req in asked_twice(SIGNER.sign(claims)):
        assert req.annotations is not None
        assert req.annotations[LEGACY] == "system:serviceaccount:default:bot" and STALE in req.annotations


def test_notes_of_a_refused_token_are_audited_too():
    """Whichever authenticator is asked next."""
    marked = {"metadata": SECRET["metadata"] | {"labels": {"kubernetes.io/legacy-token-invalid-since": "2026-01-01"}}}
    token = SIGNER.sign(legacy_claims(ACCOUNT, SECRET))
    objects = {"serviceaccounts": ACCOUNT, "secrets": marked | {"data": {"token": base64.b64encode(token.encode()).decode()}}}
    verifier = Verifier([KEY], ["https://issuer", "kubernetes/serviceaccount"])
    tokens = ServiceAccountTokens(verifier, ["api"], lambda resource, namespace, name: objects[resource], clock=lambda: NOW)
    bearer = BearerToken(TokenUnion([tokens, admin_token("t")]))
    passing = authentication(lambda: Authenticators([bearer, WebSocketToken(bearer)]), Registry(), lambda forget: None)
    req = Request("GET", "/version", "", [(b"authorization", f"Bearer {token}".encode())])
    with pytest.raises(ApiError):
        passing.before(req)
    assert req.annotations == {LEGACY: "system:serviceaccount:default:bot", INVALIDATED: "bot-token/default"}


def test_a_token_review_returns_the_notes():
    """In the audit log of the review, and as a warning, as upstream."""
    user = UserInfo("jane")
    user.notes = Notes({GENERATED: "s"}, (NO_GENERATED,))
    for found, told, warnings in (
        (user, {GENERATED: "s"}, [NO_GENERATED]),
        (AuthenticationError("no", annotations={INVALIDATED: "s/ns"}), {INVALIDATED: "s/ns"}, []),
        (UserInfo("joe"), None, []),
    ):  # fmt: skip

        def review(token, audiences, found=found):
            if isinstance(found, AuthenticationError):
                raise found
            return found, ["api"]

        ctx = Context()
        assert token_review(ctx, {"spec": {"token": "t"}}, review, ["api"])["status"]
        assert (ctx.annotations, ctx.warnings) == (told, warnings)
