"""Strict-Transport-Security."""

from __future__ import annotations

from kas.filters.hsts import hsts
from kas.request.http import Response
from tests.filters.requests import header, request


def test_hsts():
    resp = Response(200, [])
    hsts(["max-age=31536000", "includeSubDomains"]).after(request(), resp)
    assert header(resp, b"strict-transport-security") == [b"max-age=31536000; includeSubDomains"]
    assert hsts([]).after is None
