"""Rows of frames, heads, chunks and handshakes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.hostile import shaker
from tests.hostile.attacker import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GET_VERSION,
    HEADERS,
    JSON,
    MIB,
    PING,
    PRIORITY,
    RST,
    SETTINGS,
    WINDOW,
    Attacker,
    frame,
    get,
)  # fmt: skip
from tests.hostile.rows import row


def frames(name: str, pieces: Callable[[], Any]) -> None:
    """An attack that sends frames on a connection."""
    row(f"HTTP/2: {name}")(lambda a: a.frames(pieces()))


# -- frames

HUGE = b"\x40\x01a\x7f\x81\x1e" + b"b" * 4000  # "a: bbb...", put into the dynamic table
frames("rapid reset", lambda: (get(n) + frame(RST, 0, n, bytes(4)) for n in range(1, 10_001, 2)))
frames("settings", lambda: (frame(SETTINGS, 0, 0, b"\0\4\0\1\0\0") * 100 for _ in range(200)))
frames("pings", lambda: (frame(PING, 0, 0, b"12345678") * 100 for _ in range(200)))
frames("priorities", lambda: (frame(PRIORITY, 0, n, b"\0\0\0\1\x10") * 50 for n in range(3, 803, 2)))
frames("windows", lambda: [get(1)] + [frame(WINDOW, 0, 0, b"\0\0\0\1") * 100] * 200)
frames("windows beyond all bounds", lambda: [frame(WINDOW, 0, 0, b"\x7f\xff\xff\xff") * 10])
frames("unknown kinds", lambda: [frame(0xEE, 0, 0, bytes(16_000))] * 500)
frames("streams all at once", lambda: (get(n) for n in range(1, 4001, 2)))
frames("empty data", lambda: [frame(HEADERS, END_HEADERS, 1, b"\x83" + GET_VERSION[1:])] + [frame(DATA, 0, 1, b"") * 100] * 200)
frames("padding", lambda: [frame(HEADERS, END_HEADERS, 1, b"\x83" + GET_VERSION[1:])] + [frame(DATA, 8, 1, b"\xff" + bytes(255))] * 200)
frames("a head without end", lambda: [frame(HEADERS, END_STREAM, 1, GET_VERSION)] + [frame(CONTINUATION, 0, 1, b"\0\1a\1b" * 3000)] * 300)
frames("a head of empty parts", lambda: [frame(HEADERS, END_STREAM, 1, GET_VERSION)] + [frame(CONTINUATION, 0, 1, b"") * 100] * 200)
frames("a header told 15,000 times", lambda: [frame(HEADERS, 5, 1, GET_VERSION + HUGE + b"\xbe" * 12_000)] * 1)
frames("resets of what is not open", lambda: [get(1)] + [frame(RST, 0, n, bytes(4)) for n in range(3, 4003, 2)])


@row("HTTP/2: answers that nobody takes")
def _(a: Attacker) -> None:
    with a.wire("h2") as s:
        s.sendall(frame(SETTINGS, 0, 0, b"\0\4\0\0\0\0") + b"".join(get(n) for n in range(1, 401, 2)))
        s.settimeout(3)
        while s.recv(65536):
            pass


SIZES = b"\x20\x3f\xe1\x1f" * 4000
frames("a table of another size in every head", lambda: (frame(HEADERS, 5, n, SIZES + GET_VERSION) for n in range(1, 201, 2)))
frames("headers that are never the same", lambda: (frame(HEADERS, 5, n, GET_VERSION + b"".join(
    b"\x40\x06%06d\x01v" % (n * 500 + i) for i in range(500))) for n in range(1, 201, 2)))  # fmt: skip


# -- HTTP/1

@row("HTTP/1: thousands of headers")
def _(a: Attacker) -> None:
    a.raw(20, a.head("GET", "/version", *(f"X-{i}: y" for i in range(10_000))))


@row("HTTP/1: one header of 200 kB")
def _(a: Attacker) -> None:
    a.raw(20, a.head("GET", "/version", "X: " + "y" * 200_000))


@row("HTTP/1: a path of 200 kB")
def _(a: Attacker) -> None:
    a.raw(20, a.head("GET", "/api/" + "a/" * 100_000))


@row("HTTP/1: timeouts of 240 kB that are none")
def _(a: Attacker) -> None:
    for text in ("%FF" * 80_000, "%09" * 80_000, "a" * 240_000):
        a.raw(8, a.head("GET", f"/version?timeout={text}"))


@row("HTTP/1: selectors of 120,000 terms, and nobody who asks")
def _(a: Attacker) -> None:
    for text in ("a," * 120_000, "a in (b)," * 26_000, "," * 240_000):
        a.raw(8, f"GET {a.maps}?labelSelector={text.replace(' ', '+')} HTTP/1.1\r\nHost: x\r\n\r\n".encode())


@row("HTTP/1: long lists of what is accepted, selected and known")
def _(a: Attacker) -> None:
    accepted = ",".join(f"application/json;q=0.{i % 9};v=v{i};g=x;as=Table" for i in range(4500))
    known = ",".join(f'"{i}"' for i in range(25_000))
    a.raw(4, a.head("GET", a.maps, f"Accept: {accepted}"))
    a.raw(4, a.head("GET", "/openapi/v2", f"If-None-Match: {known}"))
    a.raw(4, a.head("GET", a.maps, f"Accept-Encoding: {known}", "Range: bytes=0-1,2-3"))
    a.raw(2, a.head("GET", a.maps + "?fieldSelector=" + ",".join(f"metadata.name!%3Da{i}" for i in range(4000))))
    a.raw(4, a.head("GET", a.maps + "?labelSelector=" + "%61" * 60_000))


@row("HTTP/1: chunks of a byte")
def _(a: Attacker) -> None:
    a.raw(4, a.head("POST", a.maps, f"Content-Type: {JSON}", "Transfer-Encoding: chunked"), b"1\r\n \r\n" * 200_000, b"0\r\n\r\n")


@row("HTTP/1: chunks with long extensions")
def _(a: Attacker) -> None:
    a.raw(8, a.head("POST", a.maps, f"Content-Type: {JSON}", "Transfer-Encoding: chunked"), b"1;" + b"x" * MIB + b"\r\n{\r\n")


@row("HTTP/1: a chunk of all bytes there are")
def _(a: Attacker) -> None:
    a.raw(8, a.head("POST", a.maps, f"Content-Type: {JSON}", "Transfer-Encoding: chunked"), b"fffffffffffffff0\r\n" + bytes(100_000))


@row("HTTP/1: trailers without end")
def _(a: Attacker) -> None:
    a.raw(8, a.head("POST", a.maps, f"Content-Type: {JSON}", "Transfer-Encoding: chunked"), b"0\r\n" + b"X: y\r\n" * 100_000)


@row("HTTP/1: 3,000 requests on a connection, unread")
def _(a: Attacker) -> None:
    a.raw(8, a.head("GET", "/version") * 3000, listen=0.2)


@row("HTTP/1: a thousand requests at once, unread")
def _(a: Attacker) -> None:
    a.raw(8, a.head("GET", "/openapi/v2") * 100)


@row("HTTP/1: heads that stall")
def _(a: Attacker) -> None:
    a.raw(100, a.head("GET", "/version")[:-2], listen=0.01)


@row("TLS: half a handshake")
def _(a: Attacker) -> None:
    a.plain(200, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100))


@row("TLS: what is no handshake")
def _(a: Attacker) -> None:
    a.plain(200, b"GET / HTTP/1.1\r\n\r\n" * 10)


def _shaken(name: str, how: str) -> None:
    @row(name)
    def _(a: Attacker) -> None:
        script = str(Path(shaker.__file__))
        command = [sys.executable, script, str(a.server.port), str(a.server.ca), "3", "8", how]
        subprocess.run(command, check=True, timeout=120)


for _name, _how in {
    "without a word": "opened",
    "of half a handshake": "words",
    "of a whole handshake": "handshakes",
    "and the beginning of HTTP/2": "prefaces",
    "and a request nobody waits for": "gets",
}.items():
    _shaken(f"TLS: connections, as fast as they can be made, {_name}", _how)
_shaken("HTTP/2: pings, as fast as eight connections can send them", "pings")
_shaken("HTTP/2: settings, as fast as eight connections can send them", "settings")
