"""Users a proxy vouches for."""

import pytest

from kas.auth.authn import AuthenticationError
from kas.auth.authn.requestheader import RequestHeader
from kas.auth.authn.x509 import Peer
from tests.auth.headers import certificate


def test_request_header_needs_a_proven_proxy():
    der = certificate("proxy", [])
    pairs = [("x-remote-user", "jane"), ("x-remote-group", "a"), ("x-remote-group", "b"), ("x-remote-extra-scopes%2fx", "1")]
    get = dict(pairs).get
    auth = RequestHeader(allowed_names=["proxy"])
    user = auth.authenticate(get, Peer(der, False, True, lambda: pairs))
    assert (user.name, user.groups, user.extra) == ("jane", ("a", "b"), {"scopes/x": ["1"]})
    assert auth.authenticate(get) is None
    assert auth.authenticate(get, Peer(der, True, False, lambda: pairs)) is None
    with pytest.raises(AuthenticationError):
        RequestHeader(allowed_names=["other"]).authenticate(get, Peer(der, False, True, lambda: pairs))
