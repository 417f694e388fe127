"""Bearer tokens."""

import pytest

from kas.auth.authn.bearer import BearerToken
from kas.auth.authn.tokenfile import admin_token
from kas.auth.user import UserInfo
from tests.auth.headers import headers


def test_bearer_success_is_marked_authenticated_and_remembered():
    asked = []

    class Tokens:
        def authenticate_token(self, token):
            asked.append(token)
            return UserInfo("u") if token == "good" else None

    now = [0.0]
    bearer = BearerToken(Tokens(), ttl_s=10, clock=lambda: now[0])
    get = headers(authorization="Bearer good")
    first = bearer.authenticate(get)
    assert first.groups == ("system:authenticated",)
    assert bearer.authenticate(get) is first and asked == ["good"]
    now[0] = 10.0
    bearer.authenticate(get)
    assert asked == ["good", "good"]
    bearer.invalidate()
    bearer.authenticate(get)
    assert len(asked) == 3


@pytest.mark.parametrize("header", ["Basic abc", "Bearer", "", "Bearer "])
def test_other_schemes_are_not_mine(header):
    assert BearerToken(admin_token("t")).authenticate(headers(authorization=header)) is None
