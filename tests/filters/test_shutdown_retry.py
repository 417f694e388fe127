"""Requests that arrive during shutdown are refused."""

from __future__ import annotations

import pytest

from kas.filters.shutdown_retry import not_ready_retry, shutdown_retry
from kas.meta.errors import ApiError
from tests.filters.requests import request

OWN_AGENT = {"user-agent": "kube-apiserver/v1.36.2"}
TEXT = {b"content-type": b"text/plain; charset=utf-8", b"x-content-type-options": b"nosniff", b"retry-after": b"5"}


def answer(f, **more):
    found = f.before(request(**more))
    return found.status, dict(found.headers), found.body


def test_late_arrivals_get_429_as_text():
    f = shutdown_retry(lambda: True)
    said = b"The apiserver is shutting down, please try again later.\n"
    assert answer(f) == (429, {**TEXT, b"connection": b"close"}, said)
    for path in ("/livez", "/readyz/ping", "/healthz", "/metrics/slis"):
        assert f.before(request(path=path)) is None
    assert f.before(request(**OWN_AGENT)) is None


def test_a_late_arrival_over_http2_gets_no_connection_header():
    late = request()
    late.http_version = "2"
    assert dict(shutdown_retry(lambda: True).before(late).headers) == TEXT


def test_requests_pass_before_the_shutdown():
    assert shutdown_retry(lambda: False).before(request()) is None


def test_late_arrivals_get_503_without_the_flag():
    f = shutdown_retry(lambda: True, False)
    with pytest.raises(ApiError) as e:
        f.before(request())
    assert (e.value.code, e.value.message, e.value.headers) == (503, "apiserver is shutting down", {"retry-after": "1"})
    assert f.before(request(path="/livez")) is None


def test_early_arrivals_get_429_until_the_server_was_ready():
    ready = [False]
    f = not_ready_retry(lambda: ready[0])
    said = b"The apiserver hasn't been fully initialized yet, please try again later.\n"
    assert answer(f) == (429, TEXT, said)
    assert f.before(request(path="/readyz")) is None
    assert f.before(request(**OWN_AGENT)) is None
    ready[0] = True
    assert f.before(request()) is None
