"""The authenticator of service account tokens, before the first token."""

from __future__ import annotations

from typing import Any

from kas.auth.authn.jwttokens import JWTTokens
from kas.auth.user import UserInfo

BUILDER = UserInfo("system:serviceaccount:ns:builder")


class Known:
    """Accepts all tokens."""

    def authenticate_token(self, token: str) -> UserInfo:
        return BUILDER

    def review(self, token: str, audiences: list[str]) -> tuple[UserInfo, list[str]]:
        return BUILDER, audiences


def test_the_authenticator_is_created_at_the_first_possible_token():
    made: list[Any] = []
    tokens = JWTTokens(lambda: made.append(Known()) or made[-1])  # type: ignore[func-returns-value]
    for other in ("", "secret", "a.b", "a.b.c.d"):
        assert tokens.authenticate_token(other) is None and tokens.review(other, ["api"]) is None
    assert not made
    assert tokens.authenticate_token("a.b.c") is BUILDER
    assert tokens.review("a.b.c", ["api"]) == (BUILDER, ["api"])
    assert len(made) == 1
