"""A client that GETs one ConfigMap all the while, and what the server says of its loop meanwhile."""

from __future__ import annotations

import http.client
import json
import re
import ssl
import threading
import time

from kas.testing.server import KasServer

COLLECTION = "/api/v1/namespaces/kube-system/configmaps"
PATH = f"{COLLECTION}/bystander"
QUIET_S = 1.0
# Wide enough for a machine of two busy processors; what these tests are about took from two seconds to three minutes.
P99_FLOOR_S, P99_RATIO = 1.5, 3.0
HELD_S = 0.5
_BUCKET = re.compile(r'^apiserver_event_loop_held_seconds_bucket\{le="([^"]+)"\} (\S+)$', re.M)


class Bystander:
    """A context manager: outside of it quiet, inside of it disturbed. ``check`` says whether the disturbed one was served as the quiet one.
    """

    def __init__(self, server: KasServer) -> None:
        self._server = server
        self.errors: list[str] = []
        self._make()
        self.quiet = self._serve_for(QUIET_S)
        self.disturbed: list[float] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Bystander:
        self._held = self._holds()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _make(self) -> None:
        connection = self._connect()
        body = json.dumps({"metadata": {"name": "bystander"}, "data": {"a": "1"}})
        headers = {"Authorization": f"Bearer {self._server.token}", "Content-Type": "application/json"}
        connection.request("POST", COLLECTION, body, headers)
        answer = connection.getresponse()
        assert answer.status in (201, 409), answer.read()
        connection.close()

    def _run(self) -> None:
        self.disturbed = self._serve_for(0.0)

    def _connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection("127.0.0.1", self._server.port, timeout=60, context=self._context())

    def _context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self._server.ca)

    def _serve_for(self, seconds: float) -> list[float]:
        """The time each request took, until ``seconds`` have passed or, for 0, until it is told to stop."""
        connection, took, began = self._connect(), [], time.monotonic()
        while not self._stop.is_set() if not seconds else time.monotonic() - began < seconds:
            start = time.monotonic()
            try:
                self._get(connection, PATH)
            except (OSError, http.client.HTTPException, AssertionError) as e:
                self.errors.append(f"{type(e).__name__}: {e}")
                connection.close()
                connection = self._connect()
            took.append(time.monotonic() - start)
        connection.close()
        return took

    def _get(self, connection: http.client.HTTPSConnection, path: str) -> bytes:
        connection.request("GET", path, headers={"Authorization": f"Bearer {self._server.token}"})
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == 200, f"{answer.status} {body[:200]!r}"
        return body

    def _holds(self) -> float:
        """How often the loop was held for more than ``HELD_S`` of the worker's own time."""
        connection = self._connect()
        try:
            buckets = {le: float(n) for le, n in _BUCKET.findall(self._get(connection, "/metrics").decode())}
        finally:
            connection.close()
        return buckets["+Inf"] - buckets[str(HELD_S)]

    def check(self) -> None:
        """No error, no long hold of the loop, and a p99 in ratio to the quiet one. After the context."""
        assert not self.errors, self.errors[:3]
        assert self._holds() == self._held, f"the loop was held for more than {HELD_S} s"
        assert self.disturbed, "no request was answered"
        quiet, disturbed = _p99(self.quiet), _p99(self.disturbed)
        assert disturbed <= max(P99_FLOOR_S, P99_RATIO * quiet), f"p99 {disturbed * 1000:.0f} ms, quiet {quiet * 1000:.0f} ms"


def _p99(times: list[float]) -> float:
    return sorted(times)[len(times) * 99 // 100]
