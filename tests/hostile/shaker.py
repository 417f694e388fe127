"""Connections of nobody, one after the other as fast as they can be made, as a process of its own:
``python shaker.py PORT CA SECONDS THREADS opened|words|handshakes|prefaces|gets``. They are closed at once: without a word, after the first
words of a handshake, after all of it, after the beginning of HTTP/2, or after a request nobody waits for."""

from __future__ import annotations

import contextlib
import socket
import ssl
import sys
import threading
import time

# A record that promises a message of 508 bytes and has its first four.
WORDS = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)
GET = b"\x00\x00\x0f\x01\x05\x00\x00\x00\x01\x82\x87\x04\x08/version\x01\x01x"
RESET = b"\x01\0\0\0\0\0\0\0"  # struct linger: what is left of the connection is thrown away
SAYS = {"opened": b"", "words": WORDS, "handshakes": b"", "prefaces": PREFACE, "gets": PREFACE + GET}


def shake(port: int, context: ssl.SSLContext, until: float, how: str) -> None:
    """Whatever the server does to them is all right."""
    while time.monotonic() < until:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 10) as plain:
            if how in ("opened", "words"):
                plain.sendall(SAYS[how])
                plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                continue
            with context.wrap_socket(plain, server_hostname="127.0.0.1") as s:
                s.sendall(SAYS[how])
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


if __name__ == "__main__":
    made = ssl.create_default_context(cafile=sys.argv[2])
    made.set_alpn_protocols(["h2"])
    what = (int(sys.argv[1]), made, time.monotonic() + float(sys.argv[3]), sys.argv[5])
    threads = [threading.Thread(target=shake, args=what) for _ in range(int(sys.argv[4]))]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
