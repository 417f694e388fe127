"""The server of kas.testing: its errors when it is used wrongly, and what it leaves behind."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kas.meta.fdwait import readable
from kas.testing.server import KasServer
from tests.controllers.waiting import until
from tests.descriptors import opened

PROGRAM = """
import sys, time
from kas.testing.server import KasServer
server = KasServer(sys.argv[1], "--unsafe-no-fsync").start()
print(server.pid, *server.worker_pids(), flush=True)
time.sleep(600)
"""


def test_a_running_server_cannot_be_started_again(tmp_path):
    with KasServer(tmp_path, "--unsafe-no-fsync") as server:
        pid, url = server.pid, server.url
        with pytest.raises(RuntimeError, match="the server is running"):
            server.start()
        assert (server.pid, server.url) == (pid, url) and Path(f"/proc/{pid}").exists()
        server.process.kill()  # with any identity
        server.process.wait()
        assert server.start().pid != pid and server.url == url
    assert server.stop() == 0 and server.stop() == 0


def refused(at: tuple[str, int]) -> bool:
    with socket.socket() as client:
        return client.connect_ex(at) == errno.ECONNREFUSED


@pytest.mark.kill
def test_its_port_is_not_used_by_others_while_it_is_down(tmp_path):
    """``bind(0)`` would otherwise return it once in some 14,000 times: the server could not start again at the port that its clients know.
    """
    with KasServer(tmp_path, "--unsafe-no-fsync") as server:
        url, at = server.url, ("127.0.0.1", server.port)
        for end in (server.kill, server.stop):
            end()
            with socket.socket() as other, pytest.raises(OSError, match="in use"):
                other.bind(at)
            until(lambda: refused(at))  # a killed worker may end a moment after its supervisor
            assert server.start().url == url


def test_a_server_that_was_not_started_says_so(tmp_path):
    server = KasServer(tmp_path)
    for name in ("pid", "port"):
        with pytest.raises(RuntimeError, match="the server was not started"):
            getattr(server, name)
    assert server.stop() == 0
    server.kill()


def test_a_command_that_cannot_run_leaves_no_descriptor(tmp_path):
    server = KasServer(tmp_path, prefix=[str(tmp_path / "nothing")])
    before = opened()
    with pytest.raises(FileNotFoundError):
        server.start()
    assert opened() <= before and server.stop() == 0


@pytest.mark.kill
def test_it_ends_with_its_program(tmp_path):
    """As when a test run is killed: no fixture stops anything then."""
    program = subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    pids = program.stdout.readline().split()
    assert len(pids) == 2
    waiting = {os.pidfd_open(int(pid)) for pid in pids}
    try:
        program.send_signal(signal.SIGKILL)
        program.wait()
        running = set(waiting)
        while running and (ended := readable(running, 60)):
            running -= ended
        assert not running
    finally:
        for fd in waiting:
            os.close(fd)
        program.stdout.close()
