"""A server started by systemd as a unit of ``Type=notify``, as kube-apiserver may be: it reports when it is ready."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import requests

from kas.observe.process import notify_ready
from kas.testing.server import KasServer


def test_the_manager_is_notified_once_when_the_server_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        with KasServer(tmp_path / "kas", "--unsafe-no-fsync") as server:
            assert manager.recv(100) == b"READY=1\n"
            assert requests.get(f"{server.url}/readyz", verify=server.ca, timeout=60).text == "ok"
            manager.settimeout(0)
            with pytest.raises(BlockingIOError):  # only once
                manager.recv(100)
        assert "systemd" not in server.output


def test_a_missing_notify_socket_is_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "none"))
    with KasServer(tmp_path / "kas", "--unsafe-no-fsync") as server:
        assert requests.get(f"{server.url}/readyz", verify=server.ca, timeout=60).text == "ok"
    assert f"kas: systemd could not be told of the start at {tmp_path}/none: " in server.output


def test_an_abstract_socket_is_notified_and_a_full_one_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("")  # Linux chooses an abstract name
        name = "@" + manager.getsockname()[1:].decode()
        manager.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        assert notify_ready() == "" and manager.recv(100) == b"READY=1\n"
        assert notify_ready() == ""  # the variable has been removed
        failed = ""
        for _ in range(10_000):  # its queue is finite
            monkeypatch.setenv("NOTIFY_SOCKET", name)
            if failed := notify_ready():
                break
        assert failed.startswith(f"systemd could not be told of the start at {name}: ")
