"""A kubelet or API server, as a separate process, that answers without end: ``python flooder.py HOST CERTIFICATE KEY`` prints its port.
The last segment of a request's path chooses the kind of data."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import re
import socketserver
import ssl
import sys
import zlib

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
OK, CHUNKED = b"HTTP/1.1 200 OK\r\n", b"Transfer-Encoding: chunked\r\n"
HTML = b"Content-Type: text/html\r\n"
MIB = 1 << 20


def _bomb() -> bytes:
    packer = zlib.compressobj(9, wbits=31)
    return packer.compress(b'<a href="/x">' * MIB) + packer.flush(zlib.Z_FULL_FLUSH)


BOMB = _bomb()
# By name: what is sent first, and what is then repeated. Names that begin with "ws" are WebSockets, those with "spdy" SPDY.
FLOODS = {
    "endless": (OK + b"\r\n", b"x" * MIB),
    "chunks": (OK + CHUNKED + b"\r\n", b"1\r\nx\r\n" * 20_000),
    "trailers": (OK + CHUNKED + b"\r\n0\r\n", b"a:b\r\n" * 20_000),
    "heads": (OK, b"x: y\r\n" * 20_000),
    "informational": (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n" * 20_000),
    "page": (OK + HTML + b"\r\n", b'<a href="/x" b=c>' * 20_000),
    "page-chunks": (OK + HTML + CHUNKED + b"\r\n1\r\n<\r\n1\r\na\r\n3\r\n b=\r\n1\r\n\"\r\n", b"1\r\n>\r\n" * 20_000),
    "page-bomb": (OK + HTML + b"Content-Encoding: gzip\r\n\r\n", BOMB),
    "ws-pongs": (b"", b"\x8a\x00" * 50_000),
    "ws-pings": (b"", b"\x89\x00" * 50_000),
    "ws-small": (b"", b"\x82\x01x" * 50_000),
    "ws-pieces": (b"\x02\x00", b"\x00\x00" * 50_000),
    "ws-bytes": (b"\x02\x00", b"\x00\x02xy" * 50_000),
    "ws-large": (b"", b"\x82\x7f" + (15 * MIB).to_bytes(8, "big") + b"x" * (15 * MIB)),
    "spdy": (b"", b"\x80\x03\x00\x01\x01\x00\x00\x0a" * 8_000),
}  # fmt: skip


class Flooder(socketserver.ThreadingTCPServer):
    """Listens with TLS."""

    daemon_threads = True
    request_queue_size = 512

    def __init__(self, host: str, certificate: str, key: str) -> None:
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(certificate, key)
        super().__init__((host, 0), _Flood)


class _Flood(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, Flooder)
        with contextlib.suppress(OSError), self.server.tls.wrap_socket(self.request, server_side=True) as s:
            data = b""
            while b"\r\n\r\n" not in data and (piece := s.recv(65536)):
                data += piece
            if not data:
                return
            name = data.split(b" ")[1].split(b"?")[0].rpartition(b"/")[2].decode()
            found = re.search(rb"(?i)sec-websocket-key: ([^\r]*)", data)
            if b"upgrade: spdy" in data.lower():
                name = "spdy"
                s.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
            elif found:
                accept = base64.b64encode(hashlib.sha1(found[1] + GUID).digest())
                chosen = re.search(rb"(?i)sec-websocket-protocol: ([^\r,]*)", data)
                s.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n")
                s.sendall(b"Sec-WebSocket-Accept: " + accept + b"\r\n")
                s.sendall((b"Sec-WebSocket-Protocol: " + chosen[1] + b"\r\n" if chosen else b"") + b"\r\n")
            if name not in FLOODS:  # requests for its health, and for discovery
                s.sendall(OK + b"Content-Length: 2\r\n\r\n{}")
                return
            first, again = FLOODS[name]
            s.sendall(first)
            while True:
                s.sendall(again)


if __name__ == "__main__":
    with Flooder(*sys.argv[1:4]) as flooder:
        print(flooder.server_address[1], flush=True)
        flooder.serve_forever()
