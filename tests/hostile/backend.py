"""A kubelet or pod that answers as an attacker would; ``seen`` has the requests that it received."""

from __future__ import annotations

import contextlib
import socketserver
import ssl
import threading

from tests import prerequisites

MOVED = b"HTTP/1.1 302 Found\r\nLocation: %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n%s\r\nok"


class Backend:
    """Listens with TLS, as kubelets do, on an address to which requests are proxied; ``answer`` is the answer to the next requests. A
    context manager."""

    def __init__(self, certificate: str, key: str) -> None:
        self.seen: list[bytes] = []
        self.answer = OK % b""
        outer = self

        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate, key)

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                self.request.settimeout(60)
                with contextlib.suppress(OSError), tls.wrap_socket(self.request, server_side=True) as s:
                    data = b""
                    while b"\r\n\r\n" not in data and (piece := s.recv(65536)):
                        data += piece
                    outer.seen.append(data)
                    s.sendall(outer.answer)

        self.server = socketserver.ThreadingTCPServer((prerequisites.global_address(), 0), Handler)
        self.server.daemon_threads = True
        self.host, self.port = self.server.server_address[:2]

    def __enter__(self) -> Backend:
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()
