"""Exactly one Host in HTTP/1.1."""

from __future__ import annotations

import pytest

from kas.filters.host import host
from tests.filters.requests import request


def asked(version: str, hosts: int):
    req = request()
    req.headers = [(b"host", b"a.example")] * hosts + [(b"accept", b"*/*")]
    req.http_version = version
    return host().before(req)


@pytest.mark.parametrize(("version", "hosts"), [("1.1", 1), ("1.0", 0), ("2", 0), ("2.0", 1)])
def test_accepted(version, hosts):
    assert asked(version, hosts) is None


@pytest.mark.parametrize(("hosts", "why"), [(0, b"missing required Host header"), (2, b"too many Host headers")])
def test_answered_400(hosts, why):
    resp = asked("1.1", hosts)
    assert (resp.status, resp.body) == (400, b"400 Bad Request: " + why)
    assert (b"connection", b"close") in resp.headers


def test_an_empty_host_counts_as_none():
    req = request()
    req.http_version, req.headers = "1.1", [(b"host", b"")]
    assert host().before(req).status == 400
