"""Few file descriptors: idle connections take none, and a server at its limit recovers when connections close."""

from __future__ import annotations

import resource
import socket
import sys
import time
from pathlib import Path

import pytest
import requests

from kas.testing.server import KasServer
from tests import prerequisites

LIMITED = "import os, resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2]))); os.execv(sys.argv[3], sys.argv[3:])"  # noqa: E501


def limited(directory: Path, soft: int, hard: int) -> KasServer:
    return KasServer(directory, "--unsafe-no-fsync", prefix=(sys.executable, "-c", LIMITED, str(soft), str(hard)))


def ticks(pid: int) -> int:
    """Returns the processor time of a process, in hundredths of a second."""
    return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[11:13]))


def answers(server: KasServer) -> bool:
    try:
        return requests.get(server.url + "/readyz", verify=server.ca, timeout=5).status_code == 200
    except requests.RequestException:
        return False


def until(condition, what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"waited 60 s for {what}"
        time.sleep(0.1)


def test_the_soft_limit_is_raised(tmp_path: Path) -> None:
    with limited(tmp_path, 200, 4000) as server:
        for pid in (server.pid, *server.worker_pids()):
            line = next(x for x in Path(f"/proc/{pid}/limits").read_text().splitlines() if x.startswith("Max open files"))
            assert line.split()[3:5] == ["4000", "4000"]


@pytest.mark.parametrize("said", [b"", b"\x16"], ids=["silent", "a byte"])
def test_four_hundred_idle_connections_under_a_limit_of_three_hundred(tmp_path: Path, said: bytes) -> None:
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 600:
        prerequisites.give_up("this process may not open 400 connections")
    with limited(tmp_path, 300, 300) as server:
        (worker,) = server.worker_pids()
        idle = []
        for _ in range(400):
            s = socket.socket()
            s.setblocking(False)
            s.connect_ex(("127.0.0.1", server.port))
            idle.append(s)
        for s in idle:
            try:
                s.send(said)
            except OSError:
                continue
        if not said:
            until(lambda: answers(server), "an answer beside them")
        for s in idle:
            s.close()
        until(lambda: answers(server), "an answer after them")
        (worker,) = server.worker_pids()

        def resting() -> bool:
            before = ticks(worker)
            time.sleep(1)
            return ticks(worker) - before < 40

        until(resting, "the worker to rest")
        until(lambda: len(list(Path(f"/proc/{worker}/fd").iterdir())) < 80, "the descriptors to be given back")
