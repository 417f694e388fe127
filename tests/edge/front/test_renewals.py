"""Clients that renew the keys of their connection, now and then or continually."""

from __future__ import annotations

import _ssl
import asyncio
import ctypes
import socket
import time

import pytest

from kas.edge.front import tls
from kas.edge.front.tls import Renewals
from tests import prerequisites
from tests.edge.front.test_relay import run, scene

POINTER = ctypes.c_void_p
TIMEOUT_S = 30


class Client:
    """A client with OpenSSL, which can do what Python's module does not offer; for a thread."""

    def __init__(self, port: int) -> None:
        self._lib = ctypes.CDLL(_ssl.__file__)
        if not hasattr(self._lib, "SSL_key_update"):
            prerequisites.give_up("no OpenSSL that can be reached below Python's")
        for name in ("TLS_client_method", "SSL_CTX_new", "SSL_new"):
            getattr(self._lib, name).restype = POINTER
        self._socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        self._socket.setblocking(True)
        self._context = POINTER(self._lib.SSL_CTX_new(POINTER(self._lib.TLS_client_method())))
        self._ssl = POINTER(self._lib.SSL_new(self._context))
        self._lib.SSL_set_fd(self._ssl, self._socket.fileno())
        assert self._lib.SSL_connect(self._ssl) == 1

    def renew(self) -> bool:
        """Renews the keys of its direction; returns whether that could be sent."""
        return self._lib.SSL_key_update(self._ssl, 0) == 1 and self._lib.SSL_do_handshake(self._ssl) == 1

    def echoed(self, text: bytes) -> bool:
        """Whether the data are echoed."""
        got = ctypes.create_string_buffer(len(text))
        return self._lib.SSL_write(self._ssl, text, len(text)) == len(text) and (
            self._lib.SSL_read(self._ssl, got, len(text)) == len(text) and got.raw == text
        )

    def close(self) -> None:
        self._lib.SSL_free(self._ssl)
        self._lib.SSL_CTX_free(self._context)
        self._socket.close()


@pytest.mark.parametrize("words_between", [False, True])
def test_a_client_that_renews_keys_continually_is_closed(tmp_path, monkeypatch, words_between):
    """OpenSSL continues to read while no data arrive: one such client used to block the front."""
    monkeypatch.setattr(tls, "RENEWALS", 8)

    def flood(port: int) -> int:
        client = Client(port)
        assert client.echoed(b"one")
        sent = 0
        while sent < 10_000 and client.renew() and (not words_between or client.echoed(b"two")):
            sent += 1
        client.close()
        return sent

    async def test():
        async with scene(tmp_path) as s:
            # The test does not count what the client could send before it learned of the close.
            assert await asyncio.to_thread(flood, s.port) < (9 if words_between else 10_000)
            reader, writer = await s.dial()
            writer.write(b"x")
            assert await reader.readexactly(1) == b"x"
            writer.close()

    run(test())


def test_a_client_that_renews_keys_now_and_then_stays_connected(tmp_path, monkeypatch):
    monkeypatch.setattr(tls, "RENEWALS", 8)

    def use(port: int) -> None:
        client = Client(port)
        assert all(client.renew() and client.echoed(b"one") for _ in range(2))
        client.close()

    async def test():
        async with scene(tmp_path) as s:
            await asyncio.to_thread(use, s.port)

    run(test())


def test_the_count_of_renewals_is_reset_after_a_while(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    ours, theirs = socket.socketpair()
    with ours, theirs:
        renewals = Renewals(ours)
        for _ in range(10):
            for _ in range(tls.RENEWALS):
                renewals.count()
            now[0] += tls.RENEWED_S
            renewals.count()
        theirs.setblocking(False)
        with pytest.raises(BlockingIOError):
            theirs.recv(1)
        for _ in range(tls.RENEWALS + 1):
            renewals.count()
        assert theirs.recv(1) == b""
