"""Users that an authenticating proxy names."""

import pytest

from kas.auth.authn import AuthenticationError
from kas.auth.authn.requestheader import RequestHeader
from tests import pki
from tests.auth.headers import headers
from tests.auth.test_x509 import Authority, peer

PROXY = pki.issue([("CN", "proxy"), ("O", "front")], dns=["other"])
NAMES = (["X-First-User", "X-Remote-User"], ["X-Remote-Group", "X-More"], ["X-Remote-Extra-"], ["X-Remote-Uid"])


def user(*pairs, allowed=(), shown=PROXY, names=NAMES):
    sent = [(k.lower().encode(), v.encode()) for k, v in pairs]
    return RequestHeader(Authority(PROXY), *names, allowed).authenticate(headers(), peer(shown, *sent))


def test_user_groups_uid_and_extra():
    found = user(
        ("X-Remote-User", "jane"), ("X-More", "c"), ("X-Remote-Group", "a,b"), ("X-Remote-Group", ""), ("X-Remote-Group", "a"),
        ("X-Remote-Uid", "1"), ("X-Remote-Uid", "2"), ("X-Remote-Extra-Scopes%2fX", "1"), ("X-Remote-Extra-scopes%2fx", "2"),
        ("X-Remote-Extra-A%2fb%zz", "3"), ("X-Remote-Extra-", "4"),
    )  # fmt: skip
    assert (found.name, found.uid, found.groups) == ("jane", "1", ("a,b", "a", "c"))
    assert found.extra == {"scopes/x": ["1", "2"], "a%2fb%zz": ["3"], "": ["4"]}


def test_the_first_header_and_its_first_value_name_the_user():
    assert user(("X-Remote-User", "a"), ("X-Remote-User", "b")).name == "a"
    assert user(("X-Remote-User", "a"), ("X-First-User", "b")).name == "b"
    assert user(("X-First-User", ""), ("X-Remote-User", "a")).name == "a"
    assert user(("X-First-User", ""), ("X-First-User", "b")) is None
    assert user(("X-Remote-User", "jäne")).name == "jäne"


def test_only_a_proxy_is_trusted():
    sent = ("X-Remote-User", "jane")
    assert user(sent, allowed=["x", "proxy"]).name == "jane"
    assert user(("X-Remote-Group", "a")) is None
    assert RequestHeader(Authority(PROXY), *NAMES).authenticate(headers(), None) is None
    for allowed in (["other"], ["front"]):  # neither its alternative names nor its organization
        with pytest.raises(AuthenticationError, match="subject with cn=proxy is not in the allowed list"):
            user(sent, allowed=allowed)
    with pytest.raises(AuthenticationError):
        user(sent, shown=pki.issue([("CN", "proxy")]))


def test_unconfigured_headers_are_ignored():
    assert user(("X-Remote-User", "jane"), names=((), (), (), ())) is None
    assert user(("X-Remote-User", "jane"), ("X-Remote-Uid", "1"), names=(["X-Remote-User"], [], [], [])).uid == ""
