"""A worker that cannot accept connections any more lets requests in flight finish and ends, with encryption at rest or without."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace

import pytest

from kas import supervisor, worker
from kas.observe import logs


@pytest.mark.parametrize("sealed", [False, True])
def test_requests_in_flight_finish_and_then_the_process_ends(monkeypatch, sealed):
    ends = []
    monkeypatch.setattr(worker.os, "_exit", ends.append)

    async def run() -> list[str]:
        seen, idle = [], asyncio.Event()

        async def wait(seconds: float) -> None:
            await idle.wait()
            seen.append("idle")

        encryption = SimpleNamespace(close=lambda: seen.append("keys")) if sealed else None
        store = SimpleNamespace(close=lambda: seen.append("store"))
        server = SimpleNamespace(waiting=SimpleNamespace(wait=wait), store=store, encryption=encryption, not_accepting=False, ending=None)
        worker._give_up(server)
        await asyncio.sleep(0)
        assert server.not_accepting and not ends and not seen
        idle.set()
        await server.ending
        return seen

    assert asyncio.run(run()) == ["idle", "store", *(["keys"] if sealed else [])]
    assert ends == [worker.EXIT_DEAF]


@pytest.mark.parametrize("process", ["_front", "_replicator"])
def test_every_process_sets_up_logging_by_the_flags(monkeypatch, process):
    """``--vmodule`` also works in the processes that are not workers."""

    class Called(Exception):
        pass

    def setup(*args: object) -> None:
        raise Called(*args)

    monkeypatch.setattr(logs, "setup_logging", setup)
    raw = SimpleNamespace(v=2, logging_format="text", vmodule="fetch=6")
    started = SimpleNamespace(options=SimpleNamespace(raw=raw), _close_go_writer=lambda: None)
    with pytest.raises(Called) as raised:
        getattr(supervisor._Supervisor, process)(started, 0)
    assert raised.value.args == (2, "text", "fetch=6")


@pytest.mark.parametrize(("path", "why"), [
    ("gone/x.sock", "No such file or directory"), ("file", "exists and is not a socket"), ("x" * 200, "AF_UNIX path too long"),
])  # fmt: skip
def test_a_debug_socket_that_cannot_be_created_is_reported_in_one_line(tmp_path, path, why):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=f"^--debug-socket-path: {tmp_path}/{path}: {why}$"):
        worker._free_path(str(tmp_path / path))
    assert (tmp_path / "file").exists()


def test_a_debug_socket_of_an_earlier_server_is_replaced(tmp_path):
    with socket.socket(socket.AF_UNIX) as earlier:
        earlier.bind(str(tmp_path / "x.sock"))
    worker._free_path(str(tmp_path / "x.sock"))
    assert list(tmp_path.iterdir()) == []
