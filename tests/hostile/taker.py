"""Clients, as a separate process, that send one request each and read the answers as fast as they arrive, or not at all.

``python taker.py PORT CA CONNECTIONS SECONDS take|"" < HEAD``.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import sys
import threading
import time


def take(context: ssl.SSLContext, port: int, head: bytes, until: float, taking: bool) -> None:
    """Runs one client. Whatever the server does to it is accepted."""
    with (
        contextlib.suppress(OSError),
        socket.create_connection(("127.0.0.1", port), 10) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as s,
    ):
        s.sendall(head)
        s.settimeout(0.5)
        while taking and time.monotonic() < until:
            with contextlib.suppress(TimeoutError):
                if not s.recv(1 << 16):
                    break
        time.sleep(max(0.0, until - time.monotonic()))


if __name__ == "__main__":
    port, ca, connections, seconds, how = sys.argv[1:]
    made, said, end = ssl.create_default_context(cafile=ca), sys.stdin.buffer.read(), time.monotonic() + float(seconds)
    made.set_alpn_protocols(["http/1.1"])
    threads = [threading.Thread(target=take, args=(made, int(port), said, end, bool(how))) for _ in range(int(connections))]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
