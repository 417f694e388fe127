"""The resource of a request."""

from __future__ import annotations

import pytest

from kas.filters.request_info import request_info
from kas.request.http import Request
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


def test_only_usual_queries_share_their_parsed_form():
    before = request_info().before
    for query, shared in (("resourceVersion=0", True), ("limit=500&resourceVersion=0", True), ("limit=1", False)):
        views = []
        for _ in range(2):
            req = Request("GET", "/api/v1/pods", query, [])
            assert before(req) is None
            views.append(req.params)
        assert (views[0] is views[1]) == shared and views[0].raw == query.encode()
