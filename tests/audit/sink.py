"""A webhook for audit events."""

from __future__ import annotations

import http.server
import json
import threading
from pathlib import Path


class Sink:
    """Keeps what it is sent, list by list; ``fails`` when told to, and counts what it ``refused``."""

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
        """The flag that names a kubeconfig for it, which is written into ``directory``."""
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
        """Take no more."""
        self.server.shutdown()
        self.server.server_close()
