"""A server whose standard streams are closed, full, or read by nobody any more: it serves."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import requests

from kas.testing.server import KasServer
from tests.server.test_lifecycle import wait_for


class Unheard(KasServer):
    """One whose words do not reach us: where it is stands in its kubeconfig. ``out`` is its standard output and error; None closes these
    and its standard input."""

    def __init__(self, directory: Path, *flags: str, out: int | None, workers: int) -> None:
        super().__init__(directory, *flags, workers=workers)
        self.out = out

    def start(self) -> Unheard:
        """Returns when it answers."""
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
        """Whether it does; AssertionError when it has ended instead."""
        assert self.process.poll() is None, f"it ended with {self.process.returncode}"
        try:
            self.url = re.search(r"server: (\S+)", Path(self.kubeconfig).read_text())[1]
            path = f"{self.url}/api/v1/namespaces/default"
            return requests.get(path, headers={"Authorization": f"Bearer {self.token}"}, verify=self.ca, timeout=5).status_code == 200
        except (requests.RequestException, FileNotFoundError):
            return False


@pytest.fixture
def ends():
    """What may be in the place of a stream: a full disk, a pipe that nobody reads, nothing."""
    reader, broken = os.pipe()
    os.close(reader)
    full = os.open("/dev/full", os.O_WRONLY)
    yield {"full": full, "broken": broken, "closed": None}
    os.close(full)
    os.close(broken)


@pytest.mark.kill
@pytest.mark.parametrize("how", ["closed", "full", "broken"])
def test_nobody_hears_it(how, ends, tmp_path):
    with Unheard(tmp_path, "-v=3", out=ends[how], workers=2) as server:
        if how == "closed":
            assert [os.readlink(f"/proc/{server.pid}/fd/{fd}") for fd in range(3)] == [os.devnull] * 3
        first, second = server.worker_pids()
        os.kill(first, signal.SIGKILL)  # which it tells, and goes on
        wait_for(lambda: first not in server.worker_pids() and server.answers(), "another worker")
        assert second in server.worker_pids()
        assert server.stop() == 0


@pytest.mark.parametrize("how", ["full", "broken"])
def test_why_it_does_not_start_is_its_exit_code_then(how, ends, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "of-somebody-else").touch()
    server = KasServer(tmp_path)
    command = [sys.executable, "-m", "kas.cli", "serve", "--data-dir", str(server.data_dir)]
    assert subprocess.run(command, stdout=ends[how], stderr=ends[how], timeout=60, check=False).returncode == 1
