"""Rows of connections that upgrade, or ask to: WebSockets, CONNECT, other protocols; and of answers that no client reads."""

from __future__ import annotations

import contextlib
import time

from tests.hostile.attacker import END_HEADERS, HEADERS, MERGE, MIB, Attacker, authorized, frame
from tests.hostile.rows import row
from tests.hostile.rows_lists import let_mallory_watch

UPGRADE = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==")
MASK = bytes(4)
UNTAKEN_S = 2.0
TEXT, BINARY, PING, CONTINUED = 0x81, 0x82, 0x89, 0x00


def message(kind: int, size: int, declared: int | None = None) -> bytes:
    """Returns a masked WebSocket frame (RFC 6455, 5.2), which may claim to be longer than it is."""
    return bytes((kind, 0xFF)) + (size if declared is None else declared).to_bytes(8, "big") + MASK + b"x" * size


def untaken(a: Attacker, connections: int, head: bytes) -> None:
    """Sends requests whose answers are not read for a while."""
    with contextlib.ExitStack() as stack:
        for _ in range(connections):
            with contextlib.suppress(OSError):
                stack.enter_context(a.wire()).sendall(head)
        time.sleep(UNTAKEN_S)


def fill(a: Attacker) -> None:
    """Creates 10 MB of objects."""
    a.many(("POST", a.maps, {"metadata": {"name": f"l{i}"}, "data": {"a": "x" * MIB}}) for i in range(10))


@row("lists: whole ones of 10 MB that nobody takes", 201)
def _(a: Attacker) -> None:
    let_mallory_watch(a)
    fill(a)
    untaken(a, 40, f"GET {a.maps}?pretty=true HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer m-token\r\n\r\n".encode())


@row("answers: of 1 MB on 200 streams of six connections, which nobody takes", 201)
def _(a: Attacker) -> None:
    let_mallory_watch(a)
    a.ask("POST", a.maps, {"metadata": {"name": "m"}, "data": {"a": "x" * MIB}})
    with contextlib.ExitStack() as stack:
        for path in (f"{a.maps}/m", a.maps, f"{a.maps}?pretty=true"):
            for _ in range(2):
                with contextlib.suppress(OSError):
                    s = stack.enter_context(a.wire("h2"))
                    s.sendall(b"".join(authorized(1 + 2 * i, path, "m-token") for i in range(200)))
        time.sleep(UNTAKEN_S)


@row("WebSockets: 40 handshakes for a list of 10 MB", 201)
def _(a: Attacker) -> None:
    fill(a)
    untaken(a, 40, a.head("GET", a.maps, *UPGRADE))


@row("WebSockets: watches that nobody reads", 200, 201)
def _(a: Attacker) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(40):
            stack.enter_context(a.wire()).sendall(a.head("GET", f"{a.maps}?watch=true", *UPGRADE))
        a.ask("POST", a.maps, {"metadata": {"name": "big"}})
        a.many(("PATCH", f"{a.maps}/big", {"data": {"a": str(i) * 100_000}}, MERGE) for i in range(40))


@row("WebSockets: messages without end, of any length, in pieces, and pings")
def _(a: Attacker) -> None:
    watch = a.head("GET", f"{a.maps}?watch=true", *UPGRADE)
    short = bytes((PING, 0x84)) + MASK + b"ping"
    for said in (
        message(BINARY, 100_000, 1 << 62), message(BINARY, MIB, 60 << 20), message(TEXT & 0x0F, 0) + message(CONTINUED, 60_000) * 100,
        short * 50_000, b"\x82\x7e\xff\xff" + bytes(65_535), message(0x8F, 100), bytes((0x88, 0x80)) + MASK + message(TEXT, 100) * 1000,
    ):  # fmt: skip
        a.raw(6, watch, said, listen=0.1)


@row("upgrades: to what nobody speaks, and CONNECT")
def _(a: Attacker) -> None:
    for other in ("h2c", "spdy/3.1", "TLS/1.0", "websocket, h2c", "x" * 60_000):
        a.raw(4, a.head("GET", a.maps, "Connection: Upgrade", f"Upgrade: {other}", "HTTP2-Settings: AAMAAABk"), bytes(1000), listen=0.1)
    a.raw(20, a.head("CONNECT", "127.0.0.1:22"), bytes(100_000), listen=0.1)
    tunnels = (frame(HEADERS, END_HEADERS, 1 + 2 * i, b"\x02\x07CONNECT\x01\x01x") for i in range(200))
    a.frames(tunnels)


@row("WebSockets: ten messages of 20 MB in pieces that do not end", 201)
def _(a: Attacker) -> None:
    let_mallory_watch(a)
    watch = f"GET {a.maps}?watch=true HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer m-token\r\n" + "\r\n".join((*UPGRADE, "", ""))
    a.raw(10, watch.encode(), message(TEXT & 0x0F, 0), message(CONTINUED, MIB) * 20, listen=0.5)
