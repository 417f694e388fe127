"""The log line of a request."""

from __future__ import annotations

import logging
import re

import pytest

from kas.filters.http_logging import http_logging
from kas.request.http import Response
from tests.filters.requests import request


def test_one_line_for_each_request_from_verbosity_3_on(caplog):
    caplog.set_level(logging.INFO, "kas.http")
    req = request("GET", "/api/v1/namespaces/a/pods", "watch=true&limit=5", user_agent="kubectl/v1")
    req.audit_id, req.client = "id-1", "192.0.2.7"
    http_logging(3).after(req, Response(200, []))
    (line,) = caplog.messages
    assert re.fullmatch(
        r'"HTTP" verb="WATCH" URI="/api/v1/namespaces/a/pods\?watch=true&limit=5" latency="\d+\.\d{3}ms" userAgent="kubectl/v1" '
        r'audit-ID="id-1" srcIP="192\.0\.2\.7" user="jane" resp=200', line,
    )  # fmt: skip


@pytest.mark.parametrize(("method", "path", "query", "verb"), [
    ("GET", "/api/v1/pods", "", "LIST"), ("HEAD", "/api/v1/namespaces/a/pods/p", "", "GET"), ("GET", "/api/v1/pods", "watch=1", "WATCH"),
    ("POST", "/api/v1/namespaces/a/pods", "", "POST"), ("DELETE", "/api/v1/namespaces/a/pods", "", "DELETE"),
    ("HEAD", "/version", "", "GET"),
    ("PATCH", "/api/v1/namespaces/a/pods/p", "", "APPLY"), ("POST", "/api/v1/namespaces/a/pods/p/exec", "", "CONNECT"),
])  # fmt: skip
def test_the_verb_is_that_of_the_metrics(caplog, method, path, query, verb):
    caplog.set_level(logging.INFO, "kas.http")
    headers = {"content_type": "application/apply-patch+yaml"} if method == "PATCH" else {}
    http_logging(3).after(request(method, path, query, **headers), Response(200, []))
    assert f' verb="{verb}" ' in caplog.messages[0]


@pytest.mark.parametrize("verbosity", [0, 2])
def test_nothing_at_lower_verbosity(verbosity):
    f = http_logging(verbosity)
    assert (f.before, f.after, f.release) == (None, None, None)


def test_a_client_cannot_inject_a_second_line(caplog):
    caplog.set_level(logging.INFO, "kas.http")
    http_logging(3).after(request("GET", '/api/\nE0101 "forged'), Response(404, []))
    (line,) = caplog.messages
    assert "\n" not in line and 'URI="/api/%0AE0101%20%22forged"' in line


def test_an_early_refusal_is_logged_too(caplog):
    """Before there is a user or a RequestInfo."""
    caplog.set_level(logging.INFO, "kas.http")
    req = request("GET", "/api")
    req.info = req.user = None
    http_logging(4).after(req, Response(503, []))
    (line,) = caplog.messages
    assert line.startswith('"HTTP" verb="GET" URI="/api" latency="') and line.endswith(' user="" resp=503')


def test_long_values_are_truncated_and_every_request_has_its_line(caplog):
    caplog.set_level(logging.INFO, "kas.http")
    req = request("GET", "/api/" + "x" * 100_000, user_agent="y" * 100_000)
    http_logging(3).after(req, Response(404, []))
    (record,) = caplog.records
    assert len(record.getMessage()) < 10_000 and record.getMessage().endswith("resp=404") and record.every
