"""Connections that send requests and read nothing: the kernel's buffers for all of them are bounded, and slow readers get their answers."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from kas.edge.slowreaders import BUDGET
from kas.testing.server import KasServer
from tests.hostile.attacker import SETTINGS, WINDOW, authorized, frame
from tests.hostile.conftest import Caller
from tests.hostile.hostile_wire import statuses

pytestmark = pytest.mark.long

MAPS = "/api/v1/namespaces/default/configmaps"
# Answers of less than 64 KiB, which are not counted before the kernel has them; as many as fit into a connection's buffer, and more.
MAP, MAP_BYTES, TIMES, CONNECTIONS = f"{MAPS}/large", 60_000, 16, 240
LARGEST_WINDOW = (1 << 31) - 1
CLOSED = 7  # TCP_CLOSE of <netinet/tcp.h>, the first byte of TCP_INFO
SLOW_TIMES, SLOW_BYTES, SLOW_S = 100, 1 << 14, 0.2  # answers of slow readers, bytes per read, and seconds between two reads


def dial(server: KasServer, alpn: str) -> ssl.SSLSocket:
    """Opens a connection whose own receive buffer is small."""
    context = ssl.create_default_context(cafile=server.ca)
    context.set_alpn_protocols([alpn])
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    s.settimeout(60)
    s.connect(("127.0.0.1", server.port))
    return context.wrap_socket(s, server_hostname="127.0.0.1")


def was_reset(s: socket.socket) -> bool:
    """Whether the kernel knows of a reset, whatever data remain to be read."""
    return s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == CLOSED


def waiting(port: int) -> int:
    """Returns the bytes that clients of the port have not read (``tx_queue``)."""
    found = 0
    with open("/proc/net/tcp") as f:
        for line in f.readlines()[1:]:
            _, local, _, _, queues, *_ = line.split()
            if int(local.rpartition(":")[2], 16) == port:
                found += int(queues.partition(":")[0], 16)
    return found


def ask(s: ssl.SSLSocket, server: KasServer, http2: bool, times: int = TIMES) -> None:
    if http2:
        s.sendall(
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0, b"\0\4" + LARGEST_WINDOW.to_bytes(4, "big"))
            + frame(WINDOW, 0, 0, (LARGEST_WINDOW - 65535).to_bytes(4, "big"))
            + b"".join(authorized(1 + 2 * i, MAP, server.token) for i in range(times))
        )  # fmt: skip
    else:
        s.sendall(f"GET {MAP} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.token}\r\n\r\n".encode() * times)


def taken_slowly(s: ssl.SSLSocket, fast: threading.Event) -> bytes:
    """Reads all answers, slowly."""
    got = b""
    while got.count(b"x" * MAP_BYTES) < SLOW_TIMES and (data := s.recv(SLOW_BYTES)):
        got += data
        if not fast.is_set():
            time.sleep(SLOW_S)
    return got


@pytest.mark.parametrize("http2", [False, True], ids=["HTTP/1.1", "HTTP/2"])
@pytest.mark.parametrize("flags", [(), ("--tls-curve-preferences=29",)], ids=["direct", "front"])
def test_kernel_buffers_of_idle_readers_are_bounded(kas_server: Callable[..., KasServer], flags: tuple[str, ...], http2: bool) -> None:
    server = kas_server("--unsafe-no-fsync", *flags)
    assert bool(server.front_pid()) == bool(flags)
    body = {"metadata": {"name": "large"}, "data": {"a": "x" * MAP_BYTES}}
    assert Caller(server, server.token)("POST", MAPS, body)[0] == 201
    with contextlib.ExitStack() as stack:
        slow = stack.enter_context(dial(server, "http/1.1"))
        ask(slow, server, False, SLOW_TIMES)
        fast, pool = threading.Event(), stack.enter_context(ThreadPoolExecutor(1))
        taken, stuck = pool.submit(taken_slowly, slow, fast), []
        stack.callback(fast.set)
        for _ in range(CONNECTIONS):
            stuck.append(stack.enter_context(dial(server, "h2" if http2 else "http/1.1")))
            ask(stuck[-1], server, http2)
        until = time.monotonic() + 50  # within a minute without a read; the reason for resets is checked below
        while waiting(server.port) > BUDGET or sum(map(was_reset, stuck)) < CONNECTIONS // 4:
            assert time.monotonic() < until, f"{waiting(server.port) >> 20} MiB, {sum(map(was_reset, stuck))} were reset"
            time.sleep(0.2)
        fast.set()
        assert statuses(taken.result(120)) == [200] * SLOW_TIMES
        assert sum(map(was_reset, stuck)) < CONNECTIONS
    server.stop()  # all its output has been read then
    assert "were reset whose clients did not take" in server.output
