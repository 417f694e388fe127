"""Sends so many requests of HTTP/2 at once on each of so many connections, with large credentials that nobody knows, and waits for the
answers, so many times: ``python heads.py PORT CA CONNECTIONS STREAMS BYTES TIMES [another]``, with another credential for each. Prints how
many answers came.
"""

from __future__ import annotations

import socket
import ssl
import sys
import threading

HEADERS, SETTINGS, END_STREAM, END_HEADERS = 1, 4, 1, 4


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """See RFC 9113, 4.1."""
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def request(stream: int, credential: bytes) -> bytes:
    """GET /version. The credential has between 254 and 16,000 bytes."""
    more = len(credential) - 127
    length = bytes((127, more & 127 | 128, more >> 7)) if more < 1 << 14 else b""
    return frame(HEADERS, END_STREAM | END_HEADERS, stream, b"\x82\x87\x04\x08/version\x01\x01x\x0f\x08" + length + credential)


def talk(
    port: int, context: ssl.SSLContext, streams: int, size: int, times: int, another: bool, came: list[int], ready: threading.Barrier
) -> None:
    """One connection; the number of its answers is put into ``came``."""
    with context.wrap_socket(socket.create_connection(("127.0.0.1", port), 60), server_hostname="127.0.0.1") as s:
        s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0, b""))
        ready.wait()
        for turn in range(times):
            first = 1 + 2 * streams * turn
            made = []
            for n in range(first, first + 2 * streams, 2):
                name = f"Bearer {id(s)}.{n}." if another else "Bearer "
                made.append(request(n, name.encode().ljust(size, b"a")))
            s.sendall(b"".join(made))
            left, rest = streams, b""
            while left:
                data = s.recv(1 << 16)
                assert data, "the connection was closed"
                rest += data
                while len(rest) >= 9 and len(rest) >= 9 + (length := int.from_bytes(rest[:3], "big")):
                    if rest[3] in (0, HEADERS) and rest[4] & END_STREAM:
                        left -= 1
                    rest = rest[9 + length :]
            came.append(streams)


def main() -> None:
    port, ca, connections, streams, size, times = int(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:7])
    context = ssl.create_default_context(cafile=ca)
    context.set_alpn_protocols(["h2"])
    came, ready = list[int](), threading.Barrier(connections)
    what = (port, context, streams, size, times, "another" in sys.argv, came, ready)
    threads = [threading.Thread(target=talk, args=what) for _ in range(connections)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    print(sum(came))


if __name__ == "__main__":
    main()
