"""A webhook server for audit events."""

from __future__ import annotations

import http.server
import json
import threading
from pathlib import Path


class Sink:
    """Keeps the lists that it receives; ``fails`` makes it refuse, and ``refused`` counts these."""

    def __init__(self) -> None:
        sink = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                sink.refused += sink.fails
                if not sink.fails:
                    sink.lists.append(body)
                self.send_response(400 if sink.fails else 200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                return

        self.lists: list[dict] = []
        self.fails, self.refused = False, 0
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def kubeconfig(self, directory: Path) -> str:
        """Writes a kubeconfig for it into ``directory``; returns the flag that names it."""
        path = directory / "sink.kubeconfig"
        cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{self.server.server_port}/events"}}
        context = {"name": "x", "context": {"cluster": "c", "user": ""}}
        path.write_text(json.dumps({"kind": "Config", "clusters": [cluster], "contexts": [context], "current-context": "x"}))
        return f"--audit-webhook-config-file={path}"

    @property
    def events(self) -> list[dict]:
        """All events, in the order in which they came."""
        return [e for found in self.lists for e in found["items"]]

    def close(self) -> None:
        """Stops it."""
        self.server.shutdown()
        self.server.server_close()
