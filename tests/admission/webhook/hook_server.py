"""A webhook server: TLS on 127.0.0.1, with persistent connections. Requests arrive in ``seen``; ``answers`` are its responses."""

from __future__ import annotations

import base64
import http.server
import json
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.admission.policy_backend import certificate

Answer = tuple[int, dict[str, str], bytes]
PATIENCE_S = 60.0


def reviewed(review: dict[str, Any], allowed: bool = True, patch: Any = None, **more: Any) -> Answer:
    """The response to a review; ``patch`` has the operations of a JSON patch."""
    response = {"uid": review["body"]["request"]["uid"], "allowed": allowed}
    if patch is not None:
        response |= {"patch": base64.b64encode(json.dumps(patch).encode()).decode(), "patchType": "JSONPatch"}
    response |= more
    body = {"apiVersion": review["body"]["apiVersion"], "kind": "AdmissionReview", "response": response}
    return raw_answer(json.dumps(body).encode())


def raw_answer(body: bytes, code: int = 200, **headers: str) -> Answer:
    return code, {"Content-Type": "application/json", **headers}, body


class HookServer:
    """A context manager. ``names`` are those in its certificate besides 127.0.0.1; with ``client_ca`` it requires a client certificate of
    that CA."""

    def __init__(self, folder: Path, dns: str = "", client_ca: str = "") -> None:
        self.seen: list[dict[str, Any]] = []
        self.connections = 0
        self.answers: Callable[[dict[str, Any]], Answer] = reviewed
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # a response is one write, as of Go's server

            def setup(self) -> None:
                outer.connections += 1
                super().setup()

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except (OSError, ValueError):
                    self.close_connection = True

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                review = {
                    "path": self.path, "headers": {k.lower(): v for k, v in self.headers.items()}, "body": body,
                    "peer": self.connection.getpeercert(), "request": body.get("request") or {},
                }  # fmt: skip
                outer.seen.append(review)
                code, headers, data = outer.answers(review)
                self.send_response(code)
                for name, value in {"Content-Length": str(len(data)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        cert, key = certificate(folder, "hook", dns)
        self.ca_bundle = base64.b64encode(Path(cert).read_bytes()).decode()
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(cert, key)
        if client_ca:
            tls.load_verify_locations(client_ca)
            tls.verify_mode = ssl.CERT_REQUIRED

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 256

            def get_request(self) -> Any:  # the handshake is done in the thread of the connection
                sock, address = super().get_request()
                sock.settimeout(PATIENCE_S)
                return tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False), address

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass

        self.server = Server(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        self.url = f"https://127.0.0.1:{self.port}"

    def client(self, path: str = "/hook") -> dict[str, Any]:
        """The clientConfig for this server."""
        return {"url": self.url + path, "caBundle": self.ca_bundle}

    def requests(self, **fields: Any) -> list[dict[str, Any]]:
        """The requests of the reviews that arrived, those with these fields."""
        return [s["request"] for s in list(self.seen) if all(s["request"].get(k) == v for k, v in fields.items())]

    def wait_for(self, count: int, **fields: Any) -> None:
        """Waits until so many such reviews have arrived."""
        end = time.monotonic() + PATIENCE_S
        while len(self.requests(**fields)) < count:
            assert time.monotonic() < end, f"{len(self.requests(**fields))} of {count} reviews came"
            time.sleep(0.01)

    def __enter__(self) -> HookServer:
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


def webhook(client: dict[str, Any], name: str = "h.example.com", rules: Any = None, **more: Any) -> dict[str, Any]:
    """A webhook of a configuration: for all writes of config maps, unless other rules are given."""
    rule = {"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "scope": "*"}
    return {
        "name": name, "clientConfig": client, "rules": rules or [rule], "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "failurePolicy": "Fail", "matchPolicy": "Equivalent", "timeoutSeconds": 10, "namespaceSelector": {}, "objectSelector": {}, **more,
    }  # fmt: skip


def rule(*resources: str, groups: tuple[str, ...] = ("",), versions: tuple[str, ...] = ("v1",), **more: Any) -> dict[str, Any]:
    """A rule for these resources."""
    return {
        "operations": ["*"], "apiGroups": list(groups), "apiVersions": list(versions), "resources": list(resources), "scope": "*", **more
    }  # fmt: skip
