"""Sends concurrent HTTP/2 requests with large unknown credentials on several connections, waits for the answers, and repeats.

``python heads.py PORT CA CONNECTIONS STREAMS BYTES TIMES [another] [none] [h1]``. The options mean: another credential for each request;
none, but another field as large; HTTP/1.1, one request after the other. Prints how many answers came.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import sys
import threading

HEADERS, SETTINGS, PING, WINDOW, END_STREAM, END_HEADERS, ACK = 1, 4, 6, 8, 1, 4, 1
AUTHORIZATION, OTHER = b"\x0f\x08", b"\0\x03x-a"  # header names in HPACK


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """See RFC 9113, 4.1."""
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def request(stream: int, name: bytes, credential: bytes) -> bytes:
    """Returns GET /version. The credential has between 254 and 16,000 bytes."""
    more = len(credential) - 127
    length = bytes((127, more & 127 | 128, more >> 7)) if more < 1 << 14 else b""
    return frame(HEADERS, END_STREAM | END_HEADERS, stream, b"\x82\x87\x04\x08/version\x01\x01x" + name + length + credential)


def one_by_one(port: int, context: ssl.SSLContext, size: int, times: int, field: str, came: list[int], ready: threading.Barrier) -> None:
    """Sends on one HTTP/1.1 connection without waiting for answers; in one thread, as OpenSSL requires."""
    asked = f"GET /version HTTP/1.1\r\nHost: x\r\n{field}".encode().ljust(size, b"a") + b"\r\n\r\n"
    with context.wrap_socket(socket.create_connection(("127.0.0.1", port), 60), server_hostname="127.0.0.1") as s:
        ready.wait()
        s.setblocking(False)
        unsent, left, rest = memoryview(asked * times), times, b""
        while left:
            with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError):
                while unsent:
                    unsent = unsent[s.send(unsent[: 1 << 16]) :]
            try:
                data = s.recv(1 << 16)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                assert any(select.select([s], [s] if unsent else [], [], 60)), "no answer"
                continue
            assert data, "the connection was closed"
            rest += data
            found = rest.count(b"HTTP/1.1 ")
            left -= found
            rest = rest[-8:] if found == 0 else rest[rest.rfind(b"HTTP/1.1 ") + 9 :]
        came.append(times)


def talk(
    port: int, context: ssl.SSLContext, streams: int, size: int, times: int, more: list[str], came: list[int], ready: threading.Barrier
) -> None:
    """Runs one connection; puts the number of its answers into ``came``."""
    if "h1" in more:
        one_by_one(port, context, size, streams * times, "X-A: " if "none" in more else "Authorization: Bearer ", came, ready)
        return
    field = OTHER if "none" in more else AUTHORIZATION
    with context.wrap_socket(socket.create_connection(("127.0.0.1", port), 60), server_hostname="127.0.0.1") as s:
        room = frame(WINDOW, 0, 0, (1 << 30).to_bytes(4, "big"))
        s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0, b"") + room)
        ready.wait()
        for turn in range(times):
            first = 1 + 2 * streams * turn
            made = []
            for n in range(first, first + 2 * streams, 2):
                name = f"Bearer {id(s)}.{n}." if "another" in more else "Bearer "
                made.append(request(n, field, name.encode().ljust(size, b"a")))
            s.sendall(b"".join(made))
            left, rest = streams, b""
            while left:
                data = s.recv(1 << 16)
                assert data, "the connection was closed"
                rest += data
                while len(rest) >= 9 and len(rest) >= 9 + (length := int.from_bytes(rest[:3], "big")):
                    if rest[3] in (0, HEADERS) and rest[4] & END_STREAM:
                        left -= 1
                    elif rest[3] == PING and not rest[4] & ACK:  # the server closes connections that do not answer its pings
                        s.sendall(frame(PING, ACK, 0, rest[9:17]))
                    rest = rest[9 + length :]
            came.append(streams)


def main() -> None:
    port, ca, connections, streams, size, times = int(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:7])
    context = ssl.create_default_context(cafile=ca)
    more = sys.argv[7:]
    context.set_alpn_protocols(["http/1.1" if "h1" in more else "h2"])
    came, ready = list[int](), threading.Barrier(connections)
    what = (port, context, streams, size, times, more, came, ready)
    threads = [threading.Thread(target=talk, args=what) for _ in range(connections)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    print(sum(came))


if __name__ == "__main__":
    main()
