"""The memory of a request is freed with its answer."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from kas.testing.server import KasServer

BODY_BYTES, WARM_UP, REQUESTS = 1_000_000, 40, 300


def anonymous_mb(pid: int) -> float:
    """Returns the process's own memory, without the pages of the database's map."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) / 1024


@pytest.mark.parametrize("query", ["?dryRun=All", ""])
def test_bodies_of_writes_are_not_kept(kas_server: Callable[..., KasServer], query: str) -> None:
    """Creates of 1 MB, accepted (dry run) and refused (the name is taken): if each kept its body, the worker would grow by 300 MB."""
    server = kas_server("--unsafe-no-fsync", "--controllers", "none")
    (worker,) = server.worker_pids()
    path = f"/api/v1/namespaces/default/configmaps{query}"
    headers = {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"}
    connection = http.client.HTTPSConnection("127.0.0.1", server.port, timeout=60, context=ssl.create_default_context(cafile=server.ca))

    def create(n: int) -> int:
        body = json.dumps({"metadata": {"name": "large"}, "data": {"a": chr(ord("a") + n % 26) * BODY_BYTES}})
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status

    first = [create(n) for n in range(WARM_UP)]
    before = anonymous_mb(worker)
    then = [create(n) for n in range(REQUESTS)]
    after = anonymous_mb(worker)
    connection.close()
    assert set(then) == ({201} if query else {409}), (first, then)
    assert after - before < REQUESTS * BODY_BYTES / 1e6 / 4, (before, after)
