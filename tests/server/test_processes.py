"""The processes of a server: none outlives the supervisor, an unresponsive one is replaced, and all of them end when the server is
stopped."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import requests

from kas.observe.process import NoProcess
from kas.supervisor import EXIT_FAILED, EXIT_LOST, FRONT, REPLICATOR, Worker, _Supervisor
from kas.testing.server import KasServer
from tests.conftest import Client
from tests.descriptors import opened
from tests.pki import authority

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def wait_for(condition, what: str, timeout: float = 60.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout} s for {what}"
        threading.Event().wait(0.05)


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] == "Z"
    except OSError:
        return True


@pytest.fixture
def two(tmp_path: Path):
    """A server with two workers and short timeouts for them."""
    servers = []

    def start(*flags: str) -> KasServer:
        server = KasServer(tmp_path, "--unsafe-no-fsync", *flags, workers=2)
        servers.append(server)
        return server.start()

    yield start
    for server in servers:
        for pid in [*server.worker_pids(), server.pid] if server.process.poll() is None else []:
            os.kill(pid, signal.SIGCONT)
        server.stop()


@pytest.mark.parametrize("stopped", [False, True], ids=["running", "stopped worker"])
def test_workers_end_with_the_process_that_started_them(two, stopped: bool):
    server = two()
    workers = server.worker_pids()
    if stopped:
        os.kill(workers[0], signal.SIGSTOP)
    server.process.kill()
    server.process.wait()
    server = two()  # at once: it waits for the processes that are about to end
    assert all(gone(pid) for pid in workers)
    assert requests.get(server.url + "/readyz", verify=server.ca, timeout=60).status_code == 200


def test_a_worker_that_does_not_answer_is_replaced_and_no_write_is_lost(two):
    server = two("--worker-timeout", "9s")
    acknowledged: list[str] = []
    stop = threading.Event()

    def write(writer: int) -> None:
        n = 0
        while not stop.is_set():
            name = f"w{writer}-{n}"
            n += 1
            try:
                status, _ = Client(server)("POST", CONFIG_MAPS, {"metadata": {"name": name}})
            except requests.RequestException:
                continue
            if status == 201:
                acknowledged.append(name)

    writers = [threading.Thread(target=write, args=(i,)) for i in range(3)]
    for t in writers:
        t.start()
    try:
        wait_for(lambda: len(acknowledged) > 20, "writes")
        stuck = server.worker_pids()[0]
        os.kill(stuck, signal.SIGSTOP)
        wait_for(lambda: "new connections go to others" in server.output, "the port to be without it")
        # The other worker answers every new connection.
        for _ in range(20):
            assert requests.get(server.url + "/version", verify=server.ca, timeout=60).status_code == 200
        wait_for(lambda: gone(stuck), "its end")
        wait_for(lambda: stuck not in server.worker_pids(), "a new worker")
        done = len(acknowledged)
        wait_for(lambda: len(acknowledged) > done + 20, "writes")
    finally:
        stop.set()
        for t in writers:
            t.join()
    stored = {o["metadata"]["name"] for o in Client(server)("GET", CONFIG_MAPS)[1]["items"]}
    assert set(acknowledged) <= stored
    assert 9 <= int(re.search(r"has not answered for (\d+) s and is killed", server.output)[1]) < 30, "30 s are the default"


def test_an_unresponsive_front_is_replaced(two, tmp_path: Path):
    """Otherwise no client could connect, although all workers respond."""
    (tmp_path / "clients.crt").write_bytes(authority("clients").pem)
    server = two("--worker-timeout", "9s", "--client-ca-file", str(tmp_path / "clients.crt"))
    workers, stuck = server.worker_pids(), server.front_pid()
    os.kill(stuck, signal.SIGSTOP)
    wait_for(lambda: gone(stuck) and server.front_pid() not in (0, stuck), "a new front")
    assert requests.get(server.url + "/version", verify=server.ca, timeout=60).status_code == 200
    assert server.worker_pids() == workers
    assert 9 <= int(re.search(r"the TLS front has not answered for (\d+) s and is killed", server.output)[1]) < 30


def test_a_worker_that_responds_again_is_replaced_too(two):
    """Its listener has been closed, so it finishes its requests and ends at once, whatever the grace period."""
    server = two("--worker-timeout", "9s", "--shutdown-grace", "10m")
    stuck = server.worker_pids()[0]
    os.kill(stuck, signal.SIGSTOP)
    wait_for(lambda: "new connections go to others" in server.output, "the port to be without it")
    os.kill(stuck, signal.SIGCONT)
    wait_for(lambda: gone(stuck), "its end")
    wait_for(lambda: stuck not in server.worker_pids(), "a new worker")
    for _ in range(10):
        assert requests.get(server.url + "/version", verify=server.ca, timeout=60).status_code == 200


def test_a_worker_that_cannot_be_forked_is_tried_again(monkeypatch, capfd):
    """At the start, a failure to fork ends the server; later the other workers continue."""
    def none() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    supervisor = _Supervisor(SimpleNamespace(etcd=False, raw=SimpleNamespace(logging_format="text")))
    held = opened()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fork", none)
        why = "no process can be created: Resource temporarily unavailable: ulimit -u, TasksMax of systemd, --pids-limit of containers"
        with pytest.raises(NoProcess, match=why):
            supervisor._spawn(0)
        supervisor.deaths[0] = [time.monotonic()]
        supervisor._spawn(0)
        supervisor._spawn(0)
        assert supervisor.owed == {0} and not supervisor.workers and opened() <= held
    assert capfd.readouterr().err == f"kas: {why}; worker 0 is missing until one can be started\n"
    monkeypatch.setattr(os, "fork", lambda: 4242)
    supervisor._spawn(0)
    assert not supervisor.owed and supervisor.workers[4242].index == 0
    os.close(supervisor.workers[4242].pipe)


def test_a_replicator_that_cannot_be_forked_does_not_end_the_server(monkeypatch, capfd):
    def none() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    supervisor, signalled = _Supervisor(SimpleNamespace(etcd=True, raw=SimpleNamespace(logging_format="text"))), list[int]()
    supervisor.shared, supervisor.others = SimpleNamespace(close=lambda: None), []
    monkeypatch.setattr(supervisor, "_share", lambda: None)
    monkeypatch.setattr(supervisor, "_signal_all", signalled.append)
    monkeypatch.setattr(os, "fork", none)
    supervisor._renew()
    assert supervisor.owed == {REPLICATOR} and supervisor.waiting_for_replica and signalled == [signal.SIGKILL]
    assert capfd.readouterr().err.count("no process can be created") == 1


def test_a_child_that_cannot_start_while_the_replica_is_replaced_does_not_end_the_server(monkeypatch):
    """It may have found what made the replicator end; all children are started again anyway."""
    supervisor, spawned = _Supervisor(SimpleNamespace(etcd=True, raw=SimpleNamespace(logging_format="text"))), list[int]()
    supervisor.shared, supervisor.others = SimpleNamespace(close=lambda: None), []
    monkeypatch.setattr(supervisor, "_share", lambda: None)
    monkeypatch.setattr(supervisor, "_spawn", spawned.append)
    monkeypatch.setattr(supervisor, "_signal", lambda *_: None)
    supervisor.workers = {41: Worker(REPLICATOR, 41, -1, {}), 42: Worker(FRONT, 42, -1, {})}
    supervisor.workers[41].ready = True
    ended = [(41, EXIT_LOST << 8), (42, EXIT_FAILED << 8)]
    monkeypatch.setattr(os, "waitpid", lambda *_: ended.pop(0))
    supervisor._reap()
    assert not supervisor.stopping and supervisor.waiting_for_replica and spawned == [REPLICATOR]


def test_the_grace_period_of_workers_includes_all_flags():
    raw = SimpleNamespace(shutdown_delay_duration=2.0, shutdown_grace=1.0, shutdown_watch_termination_grace_period=4.0)
    assert _Supervisor._grace_s(SimpleNamespace(options=SimpleNamespace(raw=raw))) == 12.0


def test_sigterm_ends_the_server_though_a_worker_is_suspended(two):
    server = two("--shutdown-grace", "1s")
    workers = server.worker_pids()
    os.kill(workers[1], signal.SIGSTOP)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(100) == 1
    wait_for(lambda: "did not end in time and were killed" in server.output, "its last words to be read")
    wait_for(lambda: all(gone(pid) for pid in workers), "the workers' end")
