"""Cross-origin requests."""

from __future__ import annotations

import pytest

from kas.filters.cors import cors
from kas.request.http import Response
from tests.filters.requests import header, request


def test_cors_answers_a_preflight_of_an_allowed_origin_only():
    f = cors([r"//example\.com(:\d+)?$"])
    req = request("OPTIONS", origin="https://example.com", access_control_request_method="PUT")
    resp = f.before(req)
    f.after(req, resp)
    assert resp.status == 204 and header(resp, b"access-control-allow-origin") == [b"https://example.com"]
    req = request("OPTIONS", origin="https://example.com.evil.org", access_control_request_method="PUT")
    assert f.before(req) is None
    resp = Response(200, [])
    f.after(req, resp)
    assert not resp.headers
    assert cors([]).before is None


@pytest.mark.parametrize(
    ("method", "sent", "answered"),
    [
        ("OPTIONS", {"origin": "https://example.com"}, True),  # upstream requires no more
        ("OPTIONS", {"access_control_request_method": "PUT"}, False),  # not from a page
        ("GET", {"origin": "https://example.com", "access_control_request_method": "PUT"}, False),
        ("OPTIONS", {"origin": "https://example.com:8443", "access_control_request_method": "PUT"}, True),
        ("OPTIONS", {"origin": "http://notexample.com", "access_control_request_method": "PUT"}, False),
    ],
)
def test_cors_answers_only_preflights(method, sent, answered):
    f = cors([r"^https://a\.test$", r"//example\.com(:\d+)?$"])
    assert (f.before(request(method, **sent)) is not None) is answered


def test_cors_marks_answers_to_an_allowed_origin():
    f = cors([r"//example\.com$"])
    resp = Response(403, [])
    f.after(request(origin="https://example.com"), resp)
    assert header(resp, b"access-control-allow-origin") == [b"https://example.com"] and header(resp, b"vary") == [b"Origin"]
    assert header(resp, b"access-control-allow-credentials") == [b"true"]
    resp = Response(200, [])
    f.after(request(), resp)
    assert not resp.headers
