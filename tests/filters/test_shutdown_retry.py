"""Requests that arrive during shutdown are refused."""

from __future__ import annotations

import pytest

from kas.filters.shutdown_retry import not_ready_retry, shutdown_retry
from kas.meta.errors import ApiError
from tests.filters.requests import request


def test_late_arrivals_get_429():
    f = shutdown_retry(lambda: True)
    with pytest.raises(ApiError) as e:
        f.before(request())
    assert e.value.code == 429 and e.value.headers["retry-after"] == "5"
    assert f.before(request(path="/livez")) is None


def test_late_arrivals_get_503_without_the_flag():
    f = shutdown_retry(lambda: True, False)
    with pytest.raises(ApiError) as e:
        f.before(request())
    assert (e.value.code, e.value.message, e.value.headers) == (503, "apiserver is shutting down", {"retry-after": "1"})
    assert f.before(request(path="/livez")) is None


def test_early_arrivals_get_429_until_the_server_was_ready():
    ready = [False]
    f = not_ready_retry(lambda: ready[0])
    with pytest.raises(ApiError) as e:
        f.before(request())
    assert (e.value.code, e.value.headers) == (429, {"retry-after": "5"})
    assert f.before(request(path="/readyz")) is None
    assert f.before(request(**{"user-agent": "kube-apiserver/v1.36.2"})) is None
    ready[0] = True
    assert f.before(request()) is None
