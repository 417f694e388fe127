"""Bearer tokens among the subprotocols of WebSockets."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from kas.auth.authn import AuthenticationError
from kas.auth.authn.bearer import BearerToken
from kas.auth.authn.tokenfile import admin_token
from kas.auth.authn.union import Authenticators
from kas.auth.authn.websocket import WebSocketToken, websocket_token
from tests.auth.headers import headers

PREFIX = "base64url.bearer.authorization.k8s.io."
BEARER = BearerToken(admin_token("t"))
T = PREFIX + base64.urlsafe_b64encode(b"t").decode().rstrip("=")


HANDSHAKE = {"upgrade": "websocket", "connection": "Upgrade"}


def authenticated(protocols: str, **more: str) -> Any:
    return WebSocketToken(BEARER).authenticate(headers(**{**HANDSHAKE, **more}, sec_websocket_protocol=protocols))


def test_the_token_is_found_among_others() -> None:
    assert websocket_token(f"{T}, v5.channel.k8s.io") == ("t", ["v5.channel.k8s.io"])
    assert authenticated(f"{T},x").name == authenticated(f"x, {T}").name == "admin"
    with pytest.raises(AuthenticationError, match="missing additional subprotocol"):
        authenticated(T)
    with pytest.raises(AuthenticationError, match="multiple"):
        websocket_token(f"{T},{T}")
    with pytest.raises(AuthenticationError, match="invalid bearer token"):
        authenticated(f"{T}dA,x")


@pytest.mark.parametrize(
    ("upgrade", "connection", "counts"),
    [
        ("websocket", "Upgrade", True),
        ("WebSocket", "keep-alive, UPGRADE", True),
        ("websocket", "upgrade , close", True),
        ("websocket", "", False),
        ("websocket", "keep-alive", False),
        ("websocket", "no-upgrade", False),
        ("", "Upgrade", False),
        ("SPDY/3.1", "Upgrade", False),
    ],
)
def test_only_a_handshake_carries_a_token(upgrade: str, connection: str, counts: bool) -> None:
    found = authenticated(f"{T},x", upgrade=upgrade, connection=connection)
    assert found.name == "admin" if counts else found is None


def test_a_handshake_without_the_header_connection_carries_no_token() -> None:
    assert WebSocketToken(BEARER).authenticate(headers(upgrade="websocket", sec_websocket_protocol=f"{T},x")) is None


def test_an_empty_subprotocol_counts_as_another_one() -> None:
    assert authenticated(f"{T},").name == "admin"


def test_an_empty_token_is_none_and_padding_is_no_part_of_one() -> None:
    for protocols in (PREFIX, f"{PREFIX},x", "x"):
        assert authenticated(protocols) is None
    with pytest.raises(AuthenticationError, match="multiple"):
        websocket_token(f"{PREFIX},{PREFIX}dA")
    for encoded in ("dA==", "dA=", "d", "+w", "/w", "_w", "dA\u00e4"):  # "_w" is a byte that is no UTF-8
        with pytest.raises(AuthenticationError, match=r"invalid base64\.bearer\.authorization token encoding"):
            websocket_token(f"{PREFIX}{encoded},x")
    assert websocket_token(f"{PREFIX}dB,x") == ("t", ["x"])  # bits that are left over are not looked at


def test_a_bad_header_keeps_no_good_subprotocol_from_counting() -> None:
    """Both are asked, as all authenticators are."""
    union = Authenticators([BEARER, WebSocketToken(BEARER)])
    sent = {**HANDSHAKE, "sec_websocket_protocol": f"{T},x"}
    for authorization in ("Bearer bad", "Bearer t", "Basic x"):
        assert union.authenticate(headers(authorization=authorization, **sent)).name == "admin"  # type: ignore[union-attr]
    with pytest.raises(AuthenticationError):
        union.authenticate(headers(authorization="Bearer bad", **HANDSHAKE, sec_websocket_protocol="x"))


def test_a_cached_websocket_token_is_not_accepted_as_an_authorization_header() -> None:
    bearer = BearerToken(admin_token("t"))
    assert WebSocketToken(bearer).authenticate(headers(**HANDSHAKE, sec_websocket_protocol=f"{T},x")).name == "admin"
    for scheme in ("websocket t", "Websocket t", "t"):
        assert bearer.authenticate(headers(authorization=scheme)) is None
