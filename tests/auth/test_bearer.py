"""Bearer tokens."""

import pytest

from kas.auth.authn import AuthenticationError, bearer, tokenfile
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
def test_other_schemes_are_ignored(header):
    assert BearerToken(admin_token("t")).authenticate(headers(authorization=header)) is None


def test_a_token_longer_than_any_valid_one_is_not_hashed(monkeypatch):
    """Hashing 12 kB was most of the cost of refusing an unknown token."""
    worked_out = []
    for where in (bearer, tokenfile):
        digest = where._digest
        monkeypatch.setattr(where, "_digest", lambda text, digest=digest: worked_out.append(len(text)) or digest(text))
    known = BearerToken(admin_token("good"))
    assert known.authenticate(headers(authorization="Bearer good")).name == "admin"
    worked_out.clear()
    for _ in range(2):
        with pytest.raises(AuthenticationError):
            known.authenticate(headers(authorization="Bearer " + "a" * 12_000))
    assert worked_out == []
    assert known.authenticate(headers(authorization="Bearer good")).name == "admin"
    with pytest.raises(AuthenticationError):
        known.authenticate(headers(authorization="Bearer evil"))
    assert sorted(worked_out) == [4, 11, 11]
