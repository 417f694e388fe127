"""Whom the front says a connection is: what was shown on it, and nothing else."""

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


def test_intermediates_are_those_the_client_shows(world):
    middle = pki.authority("middle", world.ca)
    assert world.who(pki.issue(JANE, middle, chain=[middle]))[1]["username"] == "jane"
    assert world.who(pki.issue(JANE, middle))[0] == 401


@pytest.mark.parametrize("shown", ["self", "other", "expired", "server"])
def test_a_bad_certificate_is_401_and_does_no_harm_beside_a_good_token(world, shown):
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
def test_a_certificate_that_cannot_be_read_does_no_more_harm(world, odd):
    """Of a version that there is not it ends the handshake, as it does in Go."""
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


def test_a_certificate_wins_over_a_token_also_one_that_is_known(world):
    admin = f"Authorization: Bearer {world.server.token}"
    with world.dial() as s:
        assert ask(s, admin)[1]["username"] == "admin"
    with world.dial(pki.issue(JANE, world.ca)) as s:
        assert ask(s, admin)[1]["username"] == "jane"
        assert ask(s, "Authorization: Bearer nonsense")[1]["username"] == "jane"


def test_without_a_certificate_a_connection_is_as_ever(world):
    with world.dial() as s:
        assert ask(s)[0] == 403  # anonymous
        assert ask(s, f"Authorization: Bearer {world.server.token}")[1]["username"] == "admin"


def test_a_proxy_names_the_user_and_only_a_proxy(world):
    proxy = pki.issue([("CN", "proxy")], world.proxies)
    named = ("X-Remote-User: carol", "X-Remote-Uid: 7", "X-Remote-Group: dev", "X-Remote-Extra-Scopes: a")
    carol = {"username": "carol", "uid": "7", "groups": ["dev", "system:authenticated"], "extra": {"scopes": ["a"]}}
    with world.dial(proxy) as s:
        assert ask(s, *named) == (201, carol)
        assert ask(s, "X-Remote-User: dave")[1]["username"] == "dave"  # each request of a connection has its own
        assert ask(s)[0] == 401
    assert world.who(pki.issue([("CN", "other")], world.proxies), *named)[0] == 401
    assert world.who(pki.issue([("CN", "proxy")], world.ca), *named)[1]["username"] == "proxy"
    assert world.who(None, *named)[0] == 403


def front_directory(world: World) -> Path:
    return world.server.data_dir / "run" / "front"


def connections(world: World) -> list[str]:
    """The addresses of the relays that speak for somebody."""
    return [p.name for p in front_directory(world).iterdir() if len(p.name) == 32]


def test_nobody_else_can_reach_a_worker(world):
    directory = front_directory(world)
    assert directory.stat().st_mode & 0o777 == 0o700
    assert {p.name for p in directory.iterdir()} >= {"worker-0", "introductions-0"}


def forge(world: World, name: str) -> str:
    """What a request is told that comes past the front from an address; only the server's own user gets this far."""
    directory = front_directory(world)
    front = Path(f"/proc/{world.server.front_pid()}/fd")
    fd = next(p.name for p in front.iterdir() if os.readlink(p) == str(directory))
    command = [sys.executable, str(Path(__file__).with_name("forger.py")), str(directory), fd, name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * LIMIT_S, check=False)
    return done.stdout.strip() or done.stderr


def test_an_identity_is_not_forged_by_taking_an_address(world):
    """While its connection is open an address is taken; afterwards it stands for nobody, however soon it is tried."""
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


def test_every_connection_has_an_address_of_its_own_that_goes_with_it(world):
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
def test_a_client_that_leaves_its_watch_takes_the_connection_along(world, alpn):
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


def test_a_websocket_passes_and_is_the_certificates_user(world):
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
    """Whether nothing more comes of it; it is reset where not all was read of what it sent."""
    with contextlib.suppress(ConnectionError):
        return s.recv(65536) == b""
    return True


def test_messages_of_websockets_that_do_not_end_are_ended(world):
    """The kernel's count of what has come is the front's: nothing bounded what a worker gathered of them (326 MB for ten of 30 MB)."""
    token, piece = f"Authorization: Bearer {world.server.token}", bytes((0, 0xFF)) + MIB.to_bytes(8, "big") + bytes(4 + MIB)
    upgrade = ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="]
    head = "\r\n".join(["GET /api/v1/namespaces/default/configmaps?watch=true HTTP/1.1", "Host: x", token, *upgrade, "", ""]).encode()
    with contextlib.ExitStack() as stack:
        small, *large = [stack.enter_context(world.dial()) for _ in range(4)]
        for s in (small, *large):
            s.sendall(head)
            assert s.recv(65536).startswith(b"HTTP/1.1 101")
        for s in large:
            s.sendall(bytes((1, 0x80)) + bytes(4) + piece * 30)  # the first piece of a text, and more of it
        # The longest are ended as long as all together are too long, so one or two may stay.
        told, _, _ = select.select(large, [], [], LIMIT_S)
        assert told and all(map(ended, told))
        small.sendall(bytes((0x89, 0x84)) + bytes(4) + b"ping")
        assert small.recv(65536) == b"\x8a\x04ping"
