"""Bearer tokens, also those of WebSockets."""

import base64

import pytest

from kas.auth.authn import AuthenticationError
from kas.auth.authn.bearer import BearerToken, websocket_token
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


def test_websocket_token():
    proto = "base64url.bearer.authorization.k8s.io." + base64.urlsafe_b64encode(b"t").decode().rstrip("=")
    assert websocket_token(f"{proto}, v5.channel.k8s.io") == ("t", ["v5.channel.k8s.io"])
    bearer = BearerToken(admin_token("t"))
    assert bearer.authenticate(headers(upgrade="websocket", sec_websocket_protocol=f"{proto},x")).name == "admin"
    with pytest.raises(AuthenticationError):
        bearer.authenticate(headers(upgrade="websocket", sec_websocket_protocol=proto))
    with pytest.raises(AuthenticationError, match="multiple"):
        websocket_token(f"{proto},{proto}")


def test_an_empty_token_among_subprotocols_is_none_and_padding_is_no_part_of_one():
    prefix, bearer = "base64url.bearer.authorization.k8s.io.", BearerToken(admin_token("t"))
    for protocols in (prefix, f"{prefix},x", "x"):
        assert bearer.authenticate(headers(upgrade="websocket", sec_websocket_protocol=protocols)) is None
    with pytest.raises(AuthenticationError, match="multiple"):
        websocket_token(f"{prefix},{prefix}dA")
    for encoded in ("dA==", "dA=", "d", "+w", "/w", "_w", "dA\u00e4"):  # "_w" is a byte that is no UTF-8
        with pytest.raises(AuthenticationError, match=r"invalid base64\.bearer\.authorization token encoding"):
            websocket_token(f"{prefix}{encoded},x")
    assert websocket_token(f"{prefix}dB,x") == ("t", ["x"])  # bits that are left over are not looked at
