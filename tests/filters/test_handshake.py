"""Invalid WebSocket handshakes."""

from __future__ import annotations

import pytest

from kas.filters.handshake import handshake
from kas.meta.errors import ApiError
from kas.request.websocket import WebSocketRequest
from tests.filters.requests import request


def test_a_handshake_is_a_get_without_a_body():
    before = handshake().before
    assert before(WebSocketRequest("/api/v1/pods", "", [(b"host", b"x")], [])) is None
    assert before(request("POST", content_length="2")) is None, "a request that is no handshake may have a body"


@pytest.mark.parametrize("header", [(b"content-length", b"2"), (b"content-length", b"0"), (b"transfer-encoding", b"chunked")])
def test_a_request_with_a_body_is_no_handshake(header):
    with pytest.raises(ApiError) as e:
        handshake().before(WebSocketRequest("/api/v1/pods", "", [header], []))
    assert (e.value.code, e.value.reason) == (400, "BadRequest")
