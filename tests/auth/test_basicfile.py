"""User names and passwords from a file."""

import base64

import pytest

from kas.auth.authn import AuthenticationError
from kas.auth.authn.basicfile import load_basic_file
from kas.auth.authn.tokenfile import TokenFileError
from kas.auth.user import UserInfo
from kas.testing.server import KasServer
from tests.auth.test_oidc import REVIEW
from tests.conftest import Client

FILE = 'pa:ss,alice,1,"a,b"\nold,bob,2\nnew,bob,2\n'


def header(name, password):
    return {"authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


@pytest.fixture
def path(tmp_path):
    (tmp_path / "users.csv").write_text(FILE)
    return str(tmp_path / "users.csv")


def test_users(path):
    users = load_basic_file(path)
    assert users.authenticate(header("alice", "pa:ss").get) == UserInfo("alice", ("a", "b"), "1")
    assert users.authenticate(header("bob", "new").get) == UserInfo("bob", (), "2")
    for other in ({}, {"authorization": "Bearer x"}, {"authorization": ""}):
        assert users.authenticate(other.get) is None
    for name, password in (("alice", "new"), ("bob", "old"), ("carol", ""), ("", "")):
        with pytest.raises(AuthenticationError, match="invalid username/password combination"):
            users.authenticate(header(name, password).get)


@pytest.mark.parametrize("bad", ["Basic", "Basic ", "Basic !!", "Basic YWxpY2U=", "basic /w=="])
def test_headers_without_basic_credentials(path, bad):
    with pytest.raises(AuthenticationError, match="invalid basic authorization header"):
        load_basic_file(path).authenticate({"authorization": bad}.get)


def test_an_unusable_file(tmp_path):
    (tmp_path / "f").write_text("secret,alice\n")
    with pytest.raises(TokenFileError, match="must have at least 3 columns") as e:
        load_basic_file(str(tmp_path / "f"))
    assert "secret" not in str(e.value)


def test_passwords_are_bytes(tmp_path):
    (tmp_path / "f").write_bytes(b"p\xff,alice,1\n")
    users = load_basic_file(str(tmp_path / "f"))
    assert users.authenticate({"authorization": "Basic " + base64.b64encode(b"alice:p\xff").decode()}.get) == UserInfo("alice", (), "1")
    with pytest.raises(AuthenticationError):
        users.authenticate({"authorization": "Basic " + base64.b64encode(b"alice:p\xfe").decode()}.get)


def test_a_server_with_such_a_file(path, tmp_path_factory):
    tokens = tmp_path_factory.mktemp("tokens") / "tokens.csv"
    tokens.write_bytes("grüße,alice,1\n".encode() + b"\xff\xfe.\xff.\xff,bob,2\n")
    flags = (f"--basic-auth-file={path}", f"--token-auth-file={tokens}", "--controllers=none", "--unsafe-no-fsync")
    with KasServer(tmp_path_factory.mktemp("kas"), *flags) as server:
        def who(**headers):
            client = Client(server)
            client.session.headers["Authorization"] = headers["authorization"]
            status, body = client("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", REVIEW)
            return body["status"]["userInfo"]["username"] if status == 201 else status

        assert who(**header("alice", "pa:ss")) == "alice" and who(**header("alice", "x")) == 401
        assert who(authorization=f"Bearer {server.token}") == "admin"
        assert "pa:ss" not in server.output
        assert who(authorization="Bearer grüße".encode()) == "alice" and who(authorization=b"Bearer \xff\xfe.\xff.\xff") == "bob"
        for wrong in ("Bearer grüsse".encode(), "Bearer grüße".encode("latin-1"), b"Bearer \xff.\xfe.\xff"):
            assert who(authorization=wrong) == 401
