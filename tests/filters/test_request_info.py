"""What a request is about."""

from __future__ import annotations

import pytest

from tests.filters.requests import request


@pytest.mark.parametrize(
    ("path", "query", "long_running"),
    [
        ("/api/v1/pods", "watch=true", True), ("/api/v1/pods", "", False), ("/api/v1/namespaces/a/pods/b/log", "", True),
        ("/api/v1/namespaces/a/pods/b/exec", "", True), ("/api/v1/watch/pods", "", True), ("/debug/pprof/profile", "", True),
        ("/healthz", "", False),
    ],
)  # fmt: skip
def test_long_running(path, query, long_running):
    assert request(path=path, query=query).long_running is long_running
