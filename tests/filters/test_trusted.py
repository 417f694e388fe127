"""The insecure port: whoever asks is the server itself."""

from __future__ import annotations

from kas.filters.trusted import trusted
from tests.filters.requests import request
from tests.filters.serving import Harness


def test_everybody_is_the_loopback_user_and_credentials_go_no_further():
    req = request(authorization="Bearer x", accept="*/*")
    trusted().before(req)
    assert req.user.name == "system:apiserver" and "system:masters" in req.user.groups
    assert req.headers == [(b"accept", b"*/*")]


def test_only_the_insecure_port_trusts():
    for port, who in (("insecure", "trusted"), ("secure", "authentication"), ("read-only", "authentication")):
        names = Harness(port=port).chain.names
        assert [n for n in names if n in ("trusted", "authentication")] == [who]


def test_nobody_is_asked_on_the_insecure_port():
    """Neither who it is nor whether they may: an authenticator and an authorizer that refuse everybody are not reached."""

    class Nobody(Harness):
        def authenticate(self, get, peer=None, path="", found=None):
            raise AssertionError("asked who it is")

        def authorize(self, a):
            raise AssertionError("asked whether they may")

    assert Nobody(port="insecure").chain(request(authorization="Bearer x")).status == 200
