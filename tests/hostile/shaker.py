"""Unauthenticated connections, opened one after the other as fast as possible by a separate process.

``python shaker.py PORT CA SECONDS THREADS opened|words|handshakes|prefaces|gets|pings|settings``. They are closed at once: without a byte,
after the first bytes of a handshake, after all of it, after the HTTP/2 preface, or after a request whose answer is not awaited. The last
two then send pings or settings as fast as they can until the server closes, and read the answers.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import sys
import threading
import time

# A record that announces a message of 508 bytes and contains its first four.
WORDS = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)
GET = b"\x00\x00\x0f\x01\x05\x00\x00\x00\x01\x82\x87\x04\x08/version\x01\x01x"
RESET = b"\x01\0\0\0\0\0\0\0"  # struct linger: unsent data of the connection is discarded
FRAMES = {"pings": b"\0\0\x08\x06" + bytes(13), "settings": b"\0\0\x06\x04" + bytes(5) + b"\0\4\0\1\0\0"}
BLOCK_BYTES = 64 << 10
SAYS = {"opened": b"", "words": WORDS, "handshakes": b"", "prefaces": PREFACE, **dict.fromkeys(("gets", *FRAMES), PREFACE + GET)}


def shake(port: int, context: ssl.SSLContext, until: float, how: str) -> None:
    """Opens connections. Whatever the server does to them is accepted."""
    while time.monotonic() < until:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 10) as plain:
            if how in ("opened", "words"):
                plain.sendall(SAYS[how])
                plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                continue
            with context.wrap_socket(plain, server_hostname="127.0.0.1") as s:
                s.sendall(SAYS[how])
                if how in FRAMES:
                    flood(s, FRAMES[how], until)
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


def flood(s: ssl.SSLSocket, frame: bytes, until: float) -> None:
    """Raises ``OSError`` when the server ends it."""
    threading.Thread(target=take, args=(s,), daemon=True).start()
    block = frame * (BLOCK_BYTES // len(frame))
    while time.monotonic() < until:
        s.sendall(block)


def take(s: ssl.SSLSocket) -> None:
    """Reads everything that arrives."""
    with contextlib.suppress(OSError):
        while s.recv(BLOCK_BYTES):
            pass


if __name__ == "__main__":
    made = ssl.create_default_context(cafile=sys.argv[2])
    made.set_alpn_protocols(["h2"])
    what = (int(sys.argv[1]), made, time.monotonic() + float(sys.argv[3]), sys.argv[5])
    threads = [threading.Thread(target=shake, args=what) for _ in range(int(sys.argv[4]))]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
