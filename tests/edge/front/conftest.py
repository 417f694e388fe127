"""A server behind a TLS front, and connections to it with client certificates."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kas.testing.plugin import servers
from kas.testing.server import KasServer
from tests import pki

REVIEW = b'{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}'
LIMIT_S = 60.0


class World:
    """CAs, the server's flags, and ``dial``. ``server`` is set by the fixtures."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ca, self.proxies, self.serving_ca = pki.authority("clients"), pki.authority("proxies"), pki.authority("serving")
        self.ca.write(directory, "ca")
        self.proxies.write(directory, "proxies")
        self.serving = self.issue_serving()
        self.shown = 0
        self.server: KasServer

    def issue_serving(self, **more) -> pki.Issued:
        issued = pki.issue([("CN", "kube-apiserver")], self.serving_ca, usages=("server",), ips=["127.0.0.1"], dns=["localhost"], **more)
        issued.write(self.directory, "serving")
        return issued

    @property
    def flags(self) -> list[str]:
        d = self.directory
        return [
            f"--client-ca-file={d}/ca.crt", f"--requestheader-client-ca-file={d}/proxies.crt", "--requestheader-allowed-names=proxy",
            "--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-", "--requestheader-uid-headers=X-Remote-Uid",
            f"--tls-cert-file={d}/serving.crt", f"--tls-private-key-file={d}/serving.key", "--unsafe-no-fsync", "--controllers=none",
        ]  # fmt: skip

    def context(self, shown: pki.Issued | None = None, alpn: str = "http/1.1") -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols([alpn])
        if shown is not None:
            self.shown += 1
            context.load_cert_chain(*shown.write(self.directory, f"shown-{self.shown}"))
        return context

    def dial(self, shown: pki.Issued | None = None, context: ssl.SSLContext | None = None, name: str = "127.0.0.1") -> ssl.SSLSocket:
        context = context or self.context(shown)
        return context.wrap_socket(socket.create_connection(("127.0.0.1", self.server.port), LIMIT_S), server_hostname=name)

    def who(self, shown: pki.Issued | None = None, *headers: str) -> tuple[int, dict]:
        """Returns the SelfSubjectReview of a new connection."""
        with self.dial(shown) as s:
            return ask(s, *headers)


def ask(s: ssl.SSLSocket | socket.socket, *headers: str) -> tuple[int, dict]:
    """Returns (status, userInfo or the Status) of a SelfSubjectReview on an open connection."""
    head = ["POST /apis/authentication.k8s.io/v1/selfsubjectreviews HTTP/1.1", "Host: x", "Content-Type: application/json",
            f"Content-Length: {len(REVIEW)}", *headers, "", ""]  # fmt: skip
    s.sendall("\r\n".join(head).encode() + REVIEW)
    status, body = answer(s)
    got = json.loads(body)
    return status, got.get("status", {}).get("userInfo", {}) if status == 201 else got


def answer(s: ssl.SSLSocket | socket.socket) -> tuple[int, bytes]:
    """Reads the next answer of a connection."""
    got = b""
    while b"\r\n\r\n" not in got:
        data = s.recv(65536)
        if not data:
            raise ConnectionError("the connection was closed")
        got += data
    head, _, body = got.partition(b"\r\n\r\n")
    length = next(int(x.split(b":")[1]) for x in head.lower().split(b"\r\n") if x.startswith(b"content-length:"))
    while len(body) < length:
        data = s.recv(65536)
        if not data:
            raise ConnectionError("the connection was closed in the middle of an answer")
        body += data
    return int(head.split(b" ")[1]), body


def until(condition, what: str):
    """Returns the first true value of ``condition()``; exceptions count as not yet."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        with contextlib.suppress(OSError):
            if found := condition():
                return found
        assert time.monotonic() < deadline, f"waited {LIMIT_S:g} s for {what}"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def module_world(tmp_path_factory) -> Iterator[World]:
    """A server for all tests of a module that do not change it."""
    world = World(tmp_path_factory.mktemp("pki"))
    for start in servers(tmp_path_factory):
        world.server = start(*world.flags)
        yield world


@pytest.fixture
def world(tmp_path) -> World:
    """Certificates; the test starts its own server."""
    return World(tmp_path)
