"""A server whose standard streams are closed, full or no longer read still serves."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import requests

from kas.testing.server import KasServer
from tests.server.test_lifecycle import wait_for


class Unheard(KasServer):
    """A server whose output is not read; its kubeconfig tells where it listens. ``out`` is its standard output and error; None closes
    these and its standard input."""

    def __init__(self, directory: Path, *flags: str, out: int | None, workers: int) -> None:
        super().__init__(directory, *flags, workers=workers)
        self.out = out

    def start(self) -> Unheard:
        """Starts it; returns when it answers."""
        command = [sys.executable, "-m", "kas.cli", "serve", "--data-dir", str(self.data_dir), "--secure-port=auto"]
        command.append(f"--workers={self.workers}")
        if self.out is None:
            command = ["sh", "-c", 'exec "$@" 0>&- 1>&- 2>&-', "sh", *command]
        self.process = subprocess.Popen([*command, *self.flags], stdout=self.out, stderr=self.out)
        wait_for(self.answers, "an answer")
        return self

    def _ended(self) -> int:
        return self.process.wait()

    def answers(self) -> bool:
        """Whether it answers; AssertionError if it has ended."""
        assert self.process.poll() is None, f"it ended with {self.process.returncode}"
        try:
            self.url = re.search(r"server: (\S+)", Path(self.kubeconfig).read_text())[1]
            path = f"{self.url}/api/v1/namespaces/default"
            return requests.get(path, headers={"Authorization": f"Bearer {self.token}"}, verify=self.ca, timeout=5).status_code == 200
        except (requests.RequestException, FileNotFoundError):
            return False


def fill(writer: int) -> None:
    """Fills a pipe or socket completely, so that a process that inherits it blocks."""
    os.set_blocking(writer, False)
    for size in (1024, 1):
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writer, b"\n" * size)
    os.set_blocking(writer, True)


@pytest.fixture
def ends():
    """Possible standard streams: a full disk, a pipe without a reader, a pipe and a socket (as systemd passes) that nobody reads, and
    none."""
    reader, broken = os.pipe()
    os.close(reader)
    full = os.open("/dev/full", os.O_WRONLY)
    held_reader, held = os.pipe()
    fill(held)
    here, there = socket.socketpair()
    fill(there.fileno())
    yield {"full": full, "broken": broken, "closed": None, "held": held, "held socket": there.fileno()}
    here.close()
    there.close()
    for fd in (full, broken, held, held_reader):
        os.close(fd)


@pytest.mark.kill
@pytest.mark.parametrize("how", ["closed", "full", "broken", "held", "held socket"])
def test_a_server_serves_though_its_output_cannot_be_written(how, ends, tmp_path):
    with Unheard(tmp_path, "-v=3", out=ends[how], workers=2) as server:
        if how == "closed":
            assert [os.readlink(f"/proc/{server.pid}/fd/{fd}") for fd in range(3)] == [os.devnull] * 3
        first, second = server.worker_pids()
        os.kill(first, signal.SIGKILL)  # it logs this, and continues
        wait_for(lambda: first not in server.worker_pids() and server.answers(), "another worker")
        assert second in server.worker_pids()
        assert server.stop() == 0


@pytest.mark.parametrize("how", ["full", "broken"])
def test_a_failed_start_has_an_exit_code_though_its_output_cannot_be_written(how, ends, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "of-somebody-else").touch()
    server = KasServer(tmp_path)
    command = [sys.executable, "-m", "kas.cli", "serve", "--data-dir", str(server.data_dir)]
    assert subprocess.run(command, stdout=ends[how], stderr=ends[how], timeout=60, check=False).returncode == 1


def test_a_reader_that_returns_is_told_how_much_was_lost(tmp_path):
    """Until then the log's health check fails, and so does the server's own log, and nothing else."""
    reader, writer = os.pipe()
    fill(writer)
    said = b""

    def checks() -> tuple[str, str]:
        known = {"headers": {"Authorization": f"Bearer {server.token}"}, "verify": server.ca, "timeout": 60}
        return tuple(requests.get(f"{server.url}/livez{path}", **known).text for path in ("/log", "?exclude=log"))

    def read() -> bool:
        nonlocal said
        said += os.read(reader, 1 << 20)
        return checks() == ("ok", "ok")

    try:
        with Unheard(tmp_path, "-v=3", out=writer, workers=1) as server:
            wait_for(lambda: checks() == ("internal server error: logging blocked\n", "ok"), "the check to fail")
            wait_for(read, "the check to pass")
            while b"could not be written" not in said:
                said += os.read(reader, 1 << 20)
    finally:
        os.close(reader)
        os.close(writer)
    assert re.search(rb"kas\.logs\] [0-9]+ lines could not be written when they were due: logging blocked\n", said)
