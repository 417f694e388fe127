"""The read-only port."""

from __future__ import annotations

import pytest

from kas.filters.read_only import TokenBucket, read_only
from kas.meta.errors import ApiError
from tests.filters.requests import request


def test_token_bucket():
    now = [0.0]
    bucket = TokenBucket(2, 3, lambda: now[0])
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]
    now[0] = 0.5
    assert bucket.take() and not bucket.take()
    now[0] = 100
    assert [bucket.take() for _ in range(4)] == [True, True, True, False]


def test_read_only_port_reads_and_shows_no_secrets():
    f = read_only(TokenBucket(1000, 1000, lambda: 0.0))
    assert f.before(request()) is None
    with pytest.raises(ApiError) as e:
        f.before(request("POST", "/api/v1/namespaces/a/pods"))
    assert e.value.code == 405
    with pytest.raises(ApiError) as e:
        f.before(request(path="/api/v1/namespaces/a/secrets/b"))
    assert e.value.code == 403
