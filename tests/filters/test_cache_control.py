"""Cache-Control."""

from __future__ import annotations

from kas.filters.cache_control import cache_control
from kas.request.http import Response
from tests.filters.requests import header, request


def test_cache_control_is_not_overwritten():
    f = cache_control()
    resp = Response(200, [(b"cache-control", b"public")])
    f.after(request(), resp)
    assert header(resp, b"cache-control") == [b"public"]
