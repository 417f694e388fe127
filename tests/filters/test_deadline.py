"""The time limit of a request."""

from __future__ import annotations

import pytest

from kas.filters.deadline import deadline
from kas.meta.errors import ApiError
from tests.filters.requests import request


@pytest.mark.parametrize(("query", "limit"), [("", 60), ("timeout=5s", 5), ("timeout=1m30s", 60), ("timeout=0s", 60), ("timeout=0", 60),
     ("timeout=-5s", 60), ("timeout=%2B5s", 5), ("timeout=.5s", 0.5), ("timeout=1m.5s500ms", 60), ("timeout=2s500ms", 2.5)])  # fmt: skip
def test_deadline(query, limit):
    req = request(query=query)
    deadline(60).before(req)
    assert abs(req.deadline - req.started - limit) < 0.001


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("5", 'missing unit in duration "5"'),
        ("1h1", 'missing unit in duration "1h1"'),
        ("x", 'invalid duration "x"'),
        ("-", 'invalid duration "-"'),
        (".s", 'invalid duration ".s"'),
        ("5x", 'unknown unit "x" in duration "5x"'),
        ("1e3s", 'unknown unit "e" in duration "1e3s"'),
        ("99999999999h", 'invalid duration "99999999999h"'),
    ],
)
def test_a_bad_timeout_is_400(bad, why):
    """With the message of Go's ParseDuration."""
    with pytest.raises(ApiError) as e:
        deadline(60).before(request(query=f"timeout={bad}"))
    assert (e.value.code, e.value.message) == (400, f"invalid timeout specified in the request URL - time: {why}")
