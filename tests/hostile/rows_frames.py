"""Rows of frames that make the server end streams, of heads that cost more than they weigh, and of streams that never end."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from tests.hostile.attacker import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GET_VERSION,
    HEADERS,
    PING,
    PRIORITY,
    SETTINGS,
    WINDOW,
    Attacker,
    authorized,
    frame,
    string,
)  # fmt: skip
from tests.hostile.rows import row

CONNECTIONS, STREAMS = 8, 1500
UNTAKEN_S = 2.0


def fill(a: Attacker) -> None:
    """Creates something that takes a while to list."""
    a.many((("POST", a.maps, {"metadata": {"generateName": "f"}, "data": {"a": "x" * 2000}}) for _ in range(200)), 8)


def connections(a: Attacker, pieces: Callable[[], Iterator[bytes]], times: int = CONNECTIONS) -> None:
    """Runs the same on several connections in turn, because the server closes one that misbehaves too often."""
    for _ in range(times):
        a.frames(pieces(), listen=0.2)


# -- frames that make the server reset a stream whose request has begun ("MadeYouReset", CVE-2025-8671)

WRONG: dict[str, Callable[[int], bytes]] = {
    "a window that grows by nothing": lambda n: frame(WINDOW, 0, n, bytes(4)),
    "a window beyond all bounds": lambda n: frame(WINDOW, 0, n, b"\x7f\xff\xff\xff"),
    "a window of five bytes": lambda n: frame(WINDOW, 0, n, bytes(5)),
    "a stream that depends on itself": lambda n: frame(PRIORITY, 0, n, n.to_bytes(4, "big") + b"\x10"),
    "a priority of four bytes": lambda n: frame(PRIORITY, 0, n, bytes(4)),
    "another head after the end": lambda n: frame(HEADERS, END_STREAM | END_HEADERS, n, GET_VERSION),
    "data after the end": lambda n: frame(DATA, END_STREAM, n, b"x"),
}


def _add(name: str, wrong: Callable[[int], bytes]) -> None:
    @row(f"HTTP/2: resets provoked by {name}", 201)
    def _(a: Attacker) -> None:
        fill(a)
        connections(a, lambda: (authorized(n, a.maps, a.token) + wrong(n) for n in range(1, 2 * STREAMS, 2)))


for _name, _wrong in WRONG.items():
    _add(_name, _wrong)


def head(a: Attacker, method: bytes, path: str, *fields: tuple[bytes, bytes]) -> bytes:
    """Returns a head in HPACK without its dynamic table."""
    said = ((b"authorization", b"Bearer " + a.token.encode()), *fields)
    return method + b"\x87\x04" + string(path.encode()) + b"\x01\x01x" + b"".join(b"\0" + string(k) + string(v) for k, v in said)


@row("HTTP/2: resets provoked by bodies that are longer than was told")
def _(a: Attacker) -> None:
    told = head(a, b"\x83", a.maps, (b"content-type", b"application/json"), (b"content-length", b"2"))
    connections(a, lambda: (
        frame(HEADERS, END_HEADERS, n, told) + frame(DATA, 0, n, b"{") + frame(DATA, END_STREAM, n, b"}" * 100)
        for n in range(1, 2 * STREAMS, 2)))  # fmt: skip


@row("HTTP/2: resets provoked by trailers that are none")
def _(a: Attacker) -> None:
    told = head(a, b"\x83", a.maps, (b"content-type", b"application/json"))
    for trailer in (b"\x82", b"\0\x01A\x01b", b"\0\nconnection\x01a"):
        connections(a, lambda t=trailer: (
            frame(HEADERS, END_HEADERS, n, told) + frame(DATA, 0, n, b"{}") + frame(HEADERS, END_STREAM | END_HEADERS, n, t)
            for n in range(1, 2 * STREAMS, 2)), 3)  # fmt: skip


@row("HTTP/2: heads that are none")
def _(a: Attacker) -> None:
    for bad in (b"\x82" + GET_VERSION, GET_VERSION + b"\0\x01A\x01b", GET_VERSION + b"\0\x02te\x01x", GET_VERSION[1:], b"", b"\x80"):
        connections(a, lambda b=bad: (frame(HEADERS, END_STREAM | END_HEADERS, n, b) for n in range(1, 2 * STREAMS, 2)), 3)


# -- heads that cost more than they weigh

CRUMB = b"\x0f\x11\x01a"  # "cookie: a", its name from the static table, in four bytes
EMPTY_VALUE, EMPTY_NAME = b"\0\x01a\0", b"\0\0\x01a"
ZEROS = b"\0" * 3000  # Huffman's shortest code: five zero bits are a "0"


def heads(name: str, more: Callable[[], bytes], streams: int = 200) -> None:
    """An attack of heads with many fields each, in frames of at most 16 KiB, on eight connections."""

    def pieces() -> Iterator[bytes]:
        for n in range(1, 2 * streams, 2):
            whole = GET_VERSION + more()
            rest = [whole[at : at + 16_000] for at in range(0, len(whole), 16_000)]
            yield frame(HEADERS, END_STREAM | (END_HEADERS if len(rest) == 1 else 0), n, rest[0])
            for i, piece in enumerate(rest[1:], 2):
                yield frame(CONTINUATION, END_HEADERS if i == len(rest) else 0, n, piece)

    @row(f"HTTP/2: heads of {name}")
    def _(a: Attacker) -> None:
        connections(a, pieces)


heads("400 crumbs of cookies", lambda: CRUMB * 400)
heads("10,000 crumbs of cookies", lambda: CRUMB * 10_000, 20)
heads("4,000 empty values", lambda: EMPTY_VALUE * 4000)
heads("4,000 empty names", lambda: EMPTY_NAME * 4000)
heads("the static table's longest field 16,000 times", lambda: b"\x90" * 16_000)
heads("codes of five bits", lambda: b"\0\x01a" + b"\xff\xb9\x16" + ZEROS)
heads("codes that end in the middle", lambda: b"\0\x01a" + b"\x84\xff\xff\xff\xff")
heads("fields put into the table and named 10,000 times", lambda: b"\x40\x01a\x7f\x81\x1e" + b"b" * 4000 + b"\xbe" * 10_000, 50)


@row("HTTP/2: settings that change the table, with pings between")
def _(a: Attacker) -> None:
    sizes = b"".join(frame(SETTINGS, 0, 0, b"\0\1" + size.to_bytes(4, "big")) for size in (0, 4096, 65_536, 1, 1 << 20, (1 << 32) - 1))
    connections(a, lambda: (
        sizes * 20 + frame(PING, 0, 0, b"12345678") * 20 + authorized(n, "/version", a.token) for n in range(1, 801, 2)), 3)  # fmt: skip


@row("HTTP/2: settings of 2,700 entries each")
def _(a: Attacker) -> None:
    many = frame(SETTINGS, 0, 0, b"\0\1\0\0\x10\0" * 1350 + b"\0\4\0\0\xff\xff" * 1350)
    connections(a, lambda: (many for _ in range(200)), 3)


# -- streams that never end

def stalled(a: Attacker, each: Callable[[int], bytes], first: bytes, many: int = 60, streams: int = 200) -> None:
    """Leaves streams of many connections open for a while, without reading."""
    with contextlib.ExitStack() as stack:
        for _ in range(many):
            with contextlib.suppress(OSError):
                stack.enter_context(a.wire("h2")).sendall(first + b"".join(each(n) for n in range(1, 2 * streams, 2)))
        time.sleep(UNTAKEN_S)


NO_WINDOW = frame(SETTINGS, 0, 0, b"\0\4\0\0\0\0")


@row("HTTP/2: streams of 60 connections whose window is nothing", 201)
def _(a: Attacker) -> None:
    fill(a)
    stalled(a, lambda n: authorized(n, a.maps, a.token), NO_WINDOW)


@row("HTTP/2: watches of 60 connections whose window is nothing", 201)
def _(a: Attacker) -> None:
    fill(a)
    stalled(a, lambda n: authorized(n, f"{a.maps}?watch=true", a.token), NO_WINDOW, streams=20)


@row("HTTP/2: bodies of 60 connections that do not end")
def _(a: Attacker) -> None:
    told = head(a, b"\x83", a.maps, (b"content-type", b"application/json"))
    stalled(a, lambda n: frame(HEADERS, END_HEADERS, n, told) + frame(DATA, 0, n, b'{"a":'), b"")


@row("HTTP/2: windows of a byte, one by one")
def _(a: Attacker) -> None:
    with a.wire("h2") as s:
        s.sendall(NO_WINDOW + b"".join(authorized(n, a.maps, a.token) for n in range(1, 201, 2)))
        for _ in range(100):
            s.sendall(b"".join(frame(WINDOW, 0, n, b"\0\0\0\1") for n in range(1, 201, 2)))
        s.settimeout(0.2)
        while s.recv(65536):
            pass
