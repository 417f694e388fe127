"""A tenant that floods, and one that does not: the other's answers take a bounded multiple of what they took alone."""

from __future__ import annotations

import http.client
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

from kas.testing.server import KasServer
from tests.hostile.bystander import Bystander, Echo

SEATS = ("--max-requests-inflight=40", "--max-mutating-requests-inflight=20")  # five of them are for regular users
TIMES = 10
WORKERS = 2


def test_a_tenant_that_floods_is_bounded_and_others_are_served(kas_server: Callable[..., KasServer], tmp_path: Path, echo: Echo):
    tokens = tmp_path / "tokens.csv"
    tokens.write_text("flood-token,flood,1\nquiet-token,quiet,2\n")
    flags = ("--token-auth-file", str(tokens), "--authorization-mode=AlwaysAllow", "--unsafe-no-fsync", *SEATS)
    server = kas_server(*flags, workers=WORKERS)
    of_quiet = SimpleNamespace(token="quiet-token", port=server.port, ca=server.ca, worker_pids=server.worker_pids)
    quiet = Bystander(of_quiet, echo)  # type: ignore[arg-type]
    stop = threading.Event()
    answers: list[int] = []

    def flood() -> None:
        context = ssl.create_default_context(cafile=server.ca)
        connection = http.client.HTTPSConnection("127.0.0.1", server.port, timeout=60, context=context)
        while not stop.is_set():
            connection.request("GET", "/api/v1/configmaps", headers={"Authorization": "Bearer flood-token"})
            answer = connection.getresponse()
            answer.read()
            answers.append(answer.status)
        connection.close()

    def floods() -> None:
        # Ten times half of the five seats.
        threads = [threading.Thread(target=flood) for _ in range(TIMES * 5 // 2)]
        answers.clear()
        stop.clear()
        for t in threads:
            t.start()
        while len(answers) < 1000 and any(t.is_alive() for t in threads):
            stop.wait(0.05)
        stop.set()
        for t in threads:
            t.join()
        assert len(answers) >= 1000 and set(answers) <= {200, 429} and answers.count(200) > 500

    quiet.beside(floods)
