"""A small HTTPS server on loopback for tests: issuers and webhooks whose answers the test chooses."""

from __future__ import annotations

import contextlib
import http.server
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from tests import pki


class Asked(NamedTuple):
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    shown: bool  # the client certificate
    client: str = ""  # its common name
    connection: int = 0  # the client's port


class Answer(NamedTuple):
    status: int = 200
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = (("Content-Type", "application/json"),)


class TLSStub:
    """``answer`` is called on a thread for each request; if it raises, the connection is closed. ``asked`` has the requests so far. A
    context manager; ``certificate`` and ``key`` are files. ``weak`` uses a certificate that OpenSSL would refuse to serve."""

    def __init__(
        self, certificate: Path, key: Path, answer: Callable[[Asked], Answer], clients: Path | None = None, weak: bool = False
    ) -> None:
        self.asked: list[Asked] = []
        self._open: set[socket.socket] = set()
        stub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: object) -> None:
                pass

            def setup(self) -> None:
                super().setup()
                stub._open.add(self.connection)

            def finish(self) -> None:
                stub._open.discard(self.connection)
                super().finish()

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                certificate = self.connection.getpeercert()  # type: ignore[attr-defined]
                names = dict(part for parts in (certificate or {}).get("subject", ()) for part in parts)
                headers = {name.lower(): value for name, value in self.headers.items()}
                asked = Asked(
                    self.command, self.path, headers, body, bool(certificate), names.get("commonName", ""), self.client_address[1]
                )  # fmt: skip
                stub.asked.append(asked)
                status, data, said = answer(asked)
                self.send_response(status)
                for name, value in said:
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = handle_any

        context = self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        if weak:
            context.set_ciphers("DEFAULT:@SECLEVEL=0")
        context.load_cert_chain(certificate, key)
        if clients is not None:
            context.load_verify_locations(clients)
            context.verify_mode = ssl.CERT_REQUIRED
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *args: None  # type: ignore[method-assign]
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        self.url = f"https://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self) -> list[Asked]:
        """Returns the requests since the last call."""
        taken = self.asked[:]
        del self.asked[: len(taken)]
        return taken

    def close(self) -> None:
        """Stops it, and closes persistent connections."""
        self.server.shutdown()
        self.server.server_close()
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> TLSStub:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def authority(directory: Path, name: str = "stub-ca") -> pki.Issued:
    """Returns a CA, with its certificate in ``<name>.crt``."""
    issued = pki.issue([("CN", name)], ca=True)
    issued.write(directory, name)
    return issued


def serving(directory: Path, by: pki.Issued, name: str = "stub") -> tuple[Path, Path]:
    """Returns a serving certificate for 127.0.0.1 and its key."""
    certificate, key = pki.issue([("CN", name)], by, usages=["server"], ips=["127.0.0.1"]).write(directory, name)
    return Path(certificate), Path(key)
