"""Now and then a client is sent elsewhere."""

from __future__ import annotations

from kas.filters.goaway import goaway
from kas.request.http import Response
from tests.filters.requests import header, request


def test_goaway_always_and_never():
    resp = Response(200, [])
    goaway(1.0).after(request(), resp)
    assert header(resp, b"connection") == [b"close"]
    assert goaway(0).after is None
