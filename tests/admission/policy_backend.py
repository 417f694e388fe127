"""A service that reviews images: ``seen`` has the requests, ``answers`` has the answers."""

from __future__ import annotations

import datetime
import http.server
import ipaddress
import json
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

Answer = tuple[int, dict[str, str], bytes]


def certificate(folder: Path, name: str, dns: str = "") -> tuple[str, str]:
    """Returns (certificate file, key file), self-signed, for ``dns`` or 127.0.0.1."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    alt: Any = x509.DNSName(dns) if dns else x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
        .serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1)).add_extension(x509.SubjectAlternativeName([alt]), False)
        .add_extension(x509.BasicConstraints(True, None), True).sign(key, hashes.SHA256())
    )  # fmt: skip
    files = folder / f"{name}.crt", folder / f"{name}.key"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return str(files[0]), str(files[1])


def reviewed(allowed: bool, **status: Any) -> Answer:
    review = {"apiVersion": "imagepolicy.k8s.io/v1alpha1", "kind": "ImageReview", "status": {"allowed": allowed, **status}}
    return 200, {"Content-Type": "application/json"}, json.dumps(review).encode()


class PolicyBackend:
    """Listens on 127.0.0.1; with ``client_ca`` it requires a client certificate of that CA. A context manager."""

    def __init__(self, cert: tuple[str, str] | None = None, client_ca: str = "") -> None:
        self.seen: list[dict[str, Any]] = []
        self.answers: Callable[[dict[str, Any]], Answer] = lambda asked: reviewed(True)
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                peer = self.connection.getpeercert() if isinstance(self.connection, ssl.SSLSocket) else None
                asked = {"path": self.path, "headers": dict(self.headers.items()), "body": body, "peer": peer}
                outer.seen.append(asked)
                code, headers, data = outer.answers(asked)
                self.send_response(code)
                for name, value in {"Content-Length": str(len(data)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        if cert:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(*cert)
            if client_ca:
                tls.load_verify_locations(client_ca)
                tls.verify_mode = ssl.CERT_REQUIRED
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.url = f"http{'s' if cert else ''}://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self) -> PolicyBackend:
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


def kubeconfig(path: Path, server: str, cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None) -> str:
    path.write_text(json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "x", "user": "u"}}],
        "clusters": [{"name": "x", "cluster": {"server": server, **(cluster or {})}}], "users": [{"name": "u", "user": user or {}}],
    }))  # fmt: skip
    return str(path)
