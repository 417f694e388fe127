"""The identity that the front announces for a connection: exactly the certificates that were shown on it."""

from __future__ import annotations

import contextlib
import os
import select
import ssl
import subprocess
import sys
from pathlib import Path

import h2.config
import h2.connection
import h2.events
import pytest

from tests import pki
from tests.edge.front.conftest import LIMIT_S, World, ask, until

MIB = 1 << 20
JANE = [("CN", "jane"), ("O", "dev")]


@pytest.fixture
def world(module_world) -> World:
    return module_world


def test_a_client_certificate_is_a_user(world):
    status, user = world.who(pki.issue(JANE, world.ca))
    assert (status, user["username"], user["groups"]) == (201, "jane", ["dev", "system:authenticated"])


def test_intermediate_certificates_are_those_of_the_client(world):
    middle = pki.authority("middle", world.ca)
    assert world.who(pki.issue(JANE, middle, chain=[middle]))[1]["username"] == "jane"
    assert world.who(pki.issue(JANE, middle))[0] == 401


@pytest.mark.parametrize("shown", ["self", "other", "expired", "server"])
def test_a_bad_certificate_is_401_and_harmless_beside_a_good_token(world, shown):
    bad = {
        "self": lambda: pki.issue(JANE), "other": lambda: pki.issue(JANE, pki.authority("clients")),
        "expired": lambda: pki.issue(JANE, world.ca, ends_s=-60), "server": lambda: pki.issue(JANE, world.ca, usages=("server",)),
    }[shown]()  # fmt: skip
    with world.dial(bad) as s:
        assert ask(s) == (401, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "Unauthorized",
                                "reason": "Unauthorized", "code": 401})  # fmt: skip
        assert ask(s, f"Authorization: Bearer {world.server.token}")[1]["username"] == "admin"
        assert ask(s)[0] == 401


class Odd(pki.Issued):
    """A certificate with other bytes than it was issued with."""

    def __init__(self, der: bytes, like: pki.Issued) -> None:
        super().__init__(like.cert, like.key)
        self._der = der

    @property
    def pem(self) -> bytes:
        return ssl.DER_cert_to_PEM_cert(self._der).encode()


@pytest.mark.parametrize("odd", ["version", "bits", "twice", "name"])
def test_an_unreadable_certificate_is_401_too(world, odd):
    """One of an unknown version ends the handshake, as in Go."""
    key = pki.issue(JANE)
    shown = Odd(pki.unreadable(world.ca, key.key)[odd], key)
    if odd == "version":
        with pytest.raises((ConnectionError, ssl.SSLError)):
            world.who(shown)
    else:
        with world.dial(shown) as s:
            assert ask(s)[0] == 401
            assert ask(s, f"Authorization: Bearer {world.server.token}")[1]["username"] == "admin"
    assert "Traceback" not in world.server.output


def test_a_certificate_wins_over_a_token_even_if_cached(world):
    admin = f"Authorization: Bearer {world.server.token}"
    with world.dial() as s:
        assert ask(s, admin)[1]["username"] == "admin"
    with world.dial(pki.issue(JANE, world.ca)) as s:
        assert ask(s, admin)[1]["username"] == "jane"
        assert ask(s, "Authorization: Bearer nonsense")[1]["username"] == "jane"


def test_a_connection_without_a_certificate_uses_other_credentials(world):
    with world.dial() as s:
        assert ask(s)[0] == 403  # anonymous
        assert ask(s, f"Authorization: Bearer {world.server.token}")[1]["username"] == "admin"


def test_only_a_proxy_may_name_the_user(world):
    proxy = pki.issue([("CN", "proxy")], world.proxies)
    named = ("X-Remote-User: carol", "X-Remote-Uid: 7", "X-Remote-Group: dev", "X-Remote-Extra-Scopes: a")
    carol = {"username": "carol", "uid": "7", "groups": ["dev", "system:authenticated"], "extra": {"scopes": ["a"]}}
    with world.dial(proxy) as s:
        assert ask(s, *named) == (201, carol)
        assert ask(s, "X-Remote-User: dave")[1]["username"] == "dave"  # each request of a connection has its own user
        assert ask(s)[0] == 401
    assert world.who(pki.issue([("CN", "other")], world.proxies), *named)[0] == 401
    assert world.who(pki.issue([("CN", "proxy")], world.ca), *named)[1]["username"] == "proxy"
    assert world.who(None, *named)[0] == 403


def front_directory(world: World) -> Path:
    return world.server.data_dir / "run" / "front"


def connections(world: World) -> list[str]:
    """Returns the addresses of the relays in use."""
    return [p.name for p in front_directory(world).iterdir() if len(p.name) == 32]


def test_other_users_cannot_reach_a_worker(world):
    directory = front_directory(world)
    assert directory.stat().st_mode & 0o777 == 0o700
    assert {p.name for p in directory.iterdir()} >= {"worker-0", "introductions-0"}


def forge(world: World, name: str) -> str:
    """Returns the answer to a request that comes past the front from an address; only the server's own user can send one."""
    directory = front_directory(world)
    front = Path(f"/proc/{world.server.front_pid()}/fd")
    fd = next(p.name for p in front.iterdir() if os.readlink(p) == str(directory))
    command = [sys.executable, str(Path(__file__).with_name("forger.py")), str(directory), fd, name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * LIMIT_S, check=False)
    return done.stdout.strip() or done.stderr


def test_taking_an_address_does_not_forge_an_identity(world):
    """While its connection is open the address is in use; afterwards it has no identity, however soon it is tried."""
    shown = pki.issue([("CN", "root"), ("O", "system:masters")], world.ca)
    before = set(connections(world))
    with world.dial(shown) as s:
        assert ask(s)[1]["username"] == "root"
        (mine,) = set(connections(world)) - before
        assert "Address already in use" in forge(world, mine)
    until(lambda: mine not in connections(world), "the end of the relay")
    for name in (mine, "", "0" * 32):
        told = forge(world, name)
        assert told.startswith("403 ") and 'User "system:anonymous" cannot create' in told


def test_every_connection_has_its_own_address_which_is_released(world):
    seen: set[str] = set()
    shown = pki.issue(JANE, world.ca)
    for _ in range(5):
        before = set(connections(world))
        with world.dial(shown) as s:
            ask(s)
            new = set(connections(world)) - before
            assert len(new) == 1 and not new & seen
            seen |= new
        until(lambda new=new: not new & set(connections(world)), "the address to be given back")


@pytest.mark.parametrize("alpn", ["http/1.1", "h2"])
def test_a_disconnecting_watcher_ends_the_workers_connection(world, alpn):
    shown = pki.issue([("CN", "root"), ("O", "system:masters")], world.ca)
    before = set(connections(world))
    path = "/api/v1/namespaces?watch=1&timeoutSeconds=3000"
    with world.dial(context=world.context(shown, alpn)) as s:
        if alpn == "h2":
            client = h2.connection.H2Connection(h2.config.H2Configuration())
            client.initiate_connection()
            head = {":method": "GET", ":path": path, ":scheme": "https", ":authority": "x"}
            client.send_headers(1, list(head.items()), end_stream=True)
            s.sendall(client.data_to_send())
            while not any(isinstance(e, h2.events.ResponseReceived) for e in client.receive_data(s.recv(65536))):
                s.sendall(client.data_to_send())
        else:
            s.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            assert b" 200 " in s.recv(65536)
        assert set(connections(world)) - before
    until(lambda: not set(connections(world)) - before, "the end of the relay")


def test_a_websocket_has_the_certificates_user(world):
    key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
    upgrade = ("Host: x", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", key, "", "")
    path = "/api/v1/namespaces?watch=1&fieldSelector=metadata.name%3Ddefault"
    for group, status in (("system:masters", b"101"), ("nobody", b"403")):
        with world.dial(pki.issue([("CN", "root"), ("O", group)], world.ca)) as s:
            s.sendall("\r\n".join((f"GET {path} HTTP/1.1", *upgrade)).encode())
            got = s.recv(65536)
            assert got.split(b" ")[1] == status
            while status == b"101" and b'"type":"ADDED"' not in got:
                data = s.recv(65536)
                assert data
                got += data


def ended(s: ssl.SSLSocket) -> bool:
    """Whether nothing more arrives; the connection is reset where not all its data were read."""
    with contextlib.suppress(ConnectionError):
        return s.recv(65536) == b""
    return True


def test_endless_websocket_messages_are_ended(world):
    """The kernel's count of received bytes is the front's: a worker used to gather them without a bound (326 MB for ten of 30 MB)."""
    token, piece = f"Authorization: Bearer {world.server.token}", bytes((0, 0xFF)) + MIB.to_bytes(8, "big") + bytes(4 + MIB)
    upgrade = ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="]
    head = "\r\n".join(["GET /api/v1/namespaces/default/configmaps?watch=true HTTP/1.1", "Host: x", token, *upgrade, "", ""]).encode()
    with contextlib.ExitStack() as stack:
        small, *large = [stack.enter_context(world.dial()) for _ in range(4)]
        for s in (small, *large):
            s.sendall(head)
            assert s.recv(65536).startswith(b"HTTP/1.1 101")
        for s in large:
            s.sendall(bytes((1, 0x80)) + bytes(4) + piece * 30)  # the first frame of a text, and more of it
        # The longest are ended while all together are too long, so one or two may remain.
        told, _, _ = select.select(large, [], [], LIMIT_S)
        assert told and all(map(ended, told))
        small.sendall(bytes((0x89, 0x84)) + bytes(4) + b"ping")
        assert small.recv(65536) == b"\x8a\x04ping"
