"""Late arrivals are sent away."""

from __future__ import annotations

import pytest

from kas.filters.shutdown_retry import shutdown_retry
from kas.meta.errors import ApiError
from tests.filters.requests import request


def test_late_arrivals_get_429():
    f = shutdown_retry(lambda: True)
    with pytest.raises(ApiError) as e:
        f.before(request())
    assert e.value.code == 429 and e.value.headers["retry-after"] == "5"
    assert f.before(request(path="/livez")) is None
