"""503 until all resources are served."""

from __future__ import annotations

import pytest

from kas.filters.mux_complete import mux_complete
from kas.meta.errors import ApiError
from tests.filters.requests import request


def test_not_complete_is_503_with_retry_after_but_health_answers():
    f = mux_complete(lambda: False)
    with pytest.raises(ApiError) as e:
        f.before(request())
    assert e.value.code == 503 and e.value.headers == {"retry-after": "1"}
    assert f.before(request(path="/readyz")) is None
