"""The read-only port."""

from __future__ import annotations

import pytest

from kas.filters.read_only import read_only
from kas.meta.errors import ApiError
from tests.filters.requests import request


def test_read_only_port_reads_and_shows_no_secrets():
    tokens = [True, True, False]
    f = read_only(lambda: tokens.pop(0))
    assert f.before(request()) is None
    with pytest.raises(ApiError) as e:
        f.before(request("POST", "/api/v1/namespaces/a/pods"))
    assert e.value.code == 405
    with pytest.raises(ApiError) as e:
        f.before(request(path="/api/v1/namespaces/a/secrets/b"))
    assert e.value.code == 403
    with pytest.raises(ApiError) as e:
        f.before(request())
    assert e.value.code == 429
