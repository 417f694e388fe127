"""The line of a slow request."""

from __future__ import annotations

import re
from time import monotonic
from types import SimpleNamespace

from kas.auth.user import UserInfo
from kas.filters import slow_requests as module
from kas.filters.slow_requests import SLOW_S, slow_requests
from kas.observe.logs import MOST
from kas.request.http import Response
from tests.filters.requests import request


def said(caplog, **changed: object) -> list[str]:
    caplog.clear()
    req = request("GET", "/api/v1/pods", "token=secret")
    req.started = monotonic() - SLOW_S - 1
    req.audit_id = "id-1"
    for name, value in changed.items():
        setattr(req, name, value)
    slow_requests().after(req, Response(200, []))
    return caplog.messages


def test_the_line_has_the_durations_of_steps(caplog):
    began = monotonic() - SLOW_S - 1
    (line,) = said(caplog, started=began, ticket=SimpleNamespace(arrived=began + 0.25, began=began + 0.75))
    found = re.fullmatch(
        r'"Slow request" verb="list" URI="/api/v1/pods\?token=[^"]*" latency="(\d+)\.\d{3}ms" authentication="250\.\d{3}ms" '
        r'queue="500\.\d{3}ms" serving="(\d+)\.\d{3}ms" audit-ID="id-1" user="jane" resp=200', line,
    )  # fmt: skip
    assert found and int(found[1]) - int(found[2]) in (750, 749, 751) and "secret" not in line


def test_a_request_that_never_began_was_in_the_queue(caplog):
    began = monotonic() - SLOW_S - 1
    (line,) = said(caplog, started=began, ticket=SimpleNamespace(arrived=began + 0.25, began=0.0))
    assert 'serving="0.000ms"' in line


def test_without_flow_control_only_the_total(caplog):
    (line,) = said(caplog)
    assert "latency=" in line and "queue=" not in line


def test_quick_and_long_running_requests_have_no_line(caplog):
    assert said(caplog, started=monotonic()) == [] and said(caplog, long_running=True) == []


def test_the_length_of_a_line_is_bounded(caplog):
    """A URI of 250 kB, and an impersonated name, were written completely."""
    (line,) = said(caplog, query="labelSelector=" + "a," * 100_000, user=UserInfo("u" * 100_000))
    assert len(line) < 10_000 and 'URI="/api/v1/pods?labelSelector=a,a,' in line and "... (200027 characters)" in line
    assert "u... (100000 characters)" in line


def test_of_thousands_at_once_a_hundred_are_logged(caplog, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    filter_ = slow_requests()
    for _ in range(3000):
        req = request("GET", "/api/v1/pods", "")
        req.started = now[0] - SLOW_S - 1
        filter_.after(req, Response(200, []))
    assert len(caplog.messages) == MOST
    now[0] += 1
    filter_.after(req, Response(200, []))
    assert caplog.messages[MOST] == f"{3000 - MOST} more requests were slow" and len(caplog.messages) == MOST + 2
