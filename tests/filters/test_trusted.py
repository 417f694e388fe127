"""The insecure port: every client is the server itself."""

from __future__ import annotations

import pytest

from kas.filters.trusted import trusted
from kas.request.http import Response
from tests.filters.requests import request
from tests.filters.serving import Harness


def test_everyone_is_the_loopback_user_and_credentials_are_removed():
    req = request(authorization="Bearer x", accept="*/*")
    trusted().before(req)
    assert req.user.name == "system:apiserver" and "system:masters" in req.user.groups
    assert req.headers == [(b"accept", b"*/*")]


def test_only_the_insecure_port_trusts_everyone(tmp_path):
    for port, who in (("insecure", "trusted"), ("secure", "authentication"), ("read-only", "authentication")):
        names = Harness(port=port, run_dir=tmp_path).chain.names
        assert [n for n in names if n in ("trusted", "authentication")] == [who]


def test_the_insecure_port_neither_authenticates_nor_authorizes():
    """An authenticator and an authorizer that refuse everything are not called."""

    class Nobody(Harness):
        def authenticate(self, get, peer=None, path="", found=None):
            raise AssertionError("asked who it is")

        def authorize(self, a):
            raise AssertionError("asked whether they may")

    assert Nobody(port="insecure").chain(request(authorization="Bearer x")).status == 200


@pytest.mark.parametrize("headers, may", [
    ({}, True), ({"host": "localhost:8080"}, True), ({"host": "LOCALHOST"}, True), ({"host": "127.0.0.1:8080"}, True),
    ({"host": "127.1.2.3"}, True), ({"host": "[::1]:8080"}, True), ({"host": "[::1]"}, True),
    # A name that another site resolves to this machine.
    ({"host": "evil.example.com:8080"}, False), ({"host": "localhost.evil.example.com"}, False),
    ({"host": "127.0.0.1.evil.example.com"}, False),
    ({"host": "192.0.2.1"}, False), ({"host": "[::1"}, False), ({"host": "0.0.0.0"}, False),
    # A page of this server, of another one, and of one that CORS allows.
    ({"host": "127.0.0.1:8080", "origin": "http://127.0.0.1:8080"}, True),
    ({"host": "127.0.0.1:8080", "origin": "http://127.0.0.1:80"}, False),
    ({"host": "127.0.0.1:8080", "origin": "https://evil.example.com"}, False), ({"host": "127.0.0.1:8080", "origin": "null"}, False),
    ({"origin": "https://evil.example.com"}, False), ({"host": "localhost", "origin": "https://good.example.com"}, True),
    # Reads have no origin.
    ({"host": "127.0.0.1:8080", "sec_fetch_site": "none"}, True), ({"host": "127.0.0.1:8080", "sec_fetch_site": "same-origin"}, True),
    ({"host": "127.0.0.1:8080", "sec_fetch_site": "cross-site"}, False), ({"host": "127.0.0.1:8080", "sec_fetch_site": "same-site"}, False),
    ({"host": "localhost", "origin": "https://good.example.com", "sec_fetch_site": "cross-site"}, True),
])  # fmt: skip
def test_requests_that_a_browser_may_send_for_another_site_are_not_trusted(headers, may):
    req = request("POST", "/api/v1/namespaces", **headers)
    answer = trusted(["^https://good[.]example[.]com$"]).before(req)
    if may:
        assert answer is None and "system:masters" in req.user.groups
    else:
        assert isinstance(answer, Response) and answer.status == 403 and req.user.name == "jane"
