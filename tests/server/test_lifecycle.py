"""kas serve as an operator meets it: what it prints, how it refuses, how it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import requests


def serve(*flags: str, timeout: float = 60) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "kas.cli", "serve", *flags], capture_output=True, text=True, timeout=timeout, check=False)


def wait_for(condition, what: str, timeout: float = 30.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout} s for {what}"
        threading.Event().wait(0.02)


def test_version_names_both_versions():
    out = subprocess.run([sys.executable, "-m", "kas.cli", "version"], capture_output=True, text=True, check=True).stdout
    assert out.startswith("kas ") and "Kubernetes v1.36" in out


def test_help_shows_every_flag_with_its_default():
    from kas.options import SPECS

    out = subprocess.run([sys.executable, "-m", "kas.cli", "serve", "--help"], capture_output=True, text=True, check=True).stdout
    for name in SPECS:
        flag = "-v" if name == "v" else "--" + name.replace("_", "-")
        assert flag in out
    assert "[default: 6443]" in " ".join(out.split())


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--no-such-flag"], "No such option"),
        (["--bind-address", "example.com"], "--bind-address: 'example.com' is not an IP address"),
        (["--secure-port", "70000"], "--secure-port: '70000' is not a port"),
        (["--secure-port", "0"], "nothing to serve"),
        (["--tls-cert-file", "/nope"], "go together"),
        (["--token-auth-file", "/no/such/file"], "/no/such/file: No such file or directory"),
        (["--authorization-mode", "Magic"], "'Magic' is not one of"),
        (["--history-window", "soon"], "is not a duration"),
        (["--service-cluster-ip-range", "10.0.0.1/8"], "--service-cluster-ip-range"),
        (["--service-node-port-range", "9"], "--service-node-port-range"),
        (["--store-max-size", "big"], "--store-max-size"),
        (["--goaway-chance", "0.5"], "--goaway-chance"),
        (["--storage-backend", "sqlite"], "--storage-backend"),
        (["--cors-allowed-origins", "^https://(a$"], "--cors-allowed-origins: '^https://(a$' is not a regular expression: missing )"),
        (["--cors-allowed-origins", r"^https://a$,example\.com$"], r"'example\\.com$' must name the start (^ or //) and the end"),
        (["--cors-allowed-origins", "^https"], "'^https' must name the start (^ or //) and the end ($ or :) of the host"),
        (["--cors-allowed-origins", ".*"], "'.*' must name the start"),
    ],
)
def test_wrong_flags_are_refused_with_one_line(tmp_path: Path, flags, says):
    done = serve("--data-dir", str(tmp_path / "d"), *flags)
    assert done.returncode == 2
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--runtime-config", "nope/v1=true"], "unknown API version"),
        (["--enable-admission-plugins", "Nope"], "plugin 'Nope' is unknown"),
    ],
)
def test_flags_only_a_worker_can_judge(tmp_path: Path, flags, says):
    done = serve("--data-dir", str(tmp_path / "d"), "--secure-port", "auto", "--workers", "1", *flags)
    assert done.returncode != 0
    assert says in done.stderr and "Traceback" not in done.stderr


def test_port_in_use(tmp_path: Path):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        port = s.getsockname()[1]
        done = serve("--data-dir", str(tmp_path / "d"), "--secure-port", str(port))
    assert done.returncode == 2
    assert done.stderr.strip() == f"kas: --secure-port: 127.0.0.1:{port} is in use"


def test_data_directory_held_by_another(kas):
    done = serve("--data-dir", str(kas.data_dir), "--secure-port", "auto")
    assert done.returncode == 2
    assert "is held by another kas" in done.stderr


def test_data_directory_of_another_format(tmp_path: Path):
    (tmp_path / "format").write_text("99\n")
    done = serve("--data-dir", str(tmp_path), "--secure-port", "auto")
    assert done.returncode == 2
    assert "has format 99" in done.stderr


def test_data_directory_that_is_none(tmp_path: Path):
    (tmp_path / "thesis.txt").write_text("precious")
    done = serve("--data-dir", str(tmp_path), "--secure-port", "auto")
    assert done.returncode == 2
    assert "not a kas data directory" in done.stderr
    assert (tmp_path / "thesis.txt").read_text() == "precious"


def test_secrets_are_private(kas):
    for name in ("admin.kubeconfig", "admin.token", "pki/ca.key", "pki/apiserver.key"):
        mode = stat.S_IMODE((kas.data_dir / name).stat().st_mode)
        assert mode == 0o600, name


def test_json_logs(kas_server):
    server = kas_server("--logging-format", "json")
    ready = json.loads(next(line for line in server.output.splitlines() if '"ready"' in line))
    assert ready["addresses"] == [server.url] if server.url else ready["addresses"]
    assert Path(ready["kubeconfig"]).exists()


def test_certificate_names(kas_server):
    from cryptography import x509

    server = kas_server("--tls-san", "api.example.com,192.0.2.7", "--service-cluster-ip-range", "10.9.0.0/16")
    cert = x509.load_pem_x509_certificate((server.data_dir / "pki" / "apiserver.crt").read_bytes())
    san = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {"localhost", "kubernetes", "kubernetes.default.svc", "api.example.com"} <= set(san.get_values_for_type(x509.DNSName))
    assert {"127.0.0.1", "192.0.2.7", "10.9.0.1"} <= {str(i) for i in san.get_values_for_type(x509.IPAddress)}


def test_sigterm_ends_it_with_open_watches(kas_server, connect):
    server = kas_server("--workers", "2")
    api = connect(server)
    watches = [
        api.session.get(server.url + "/api/v1/configmaps?watch=true", stream=True, timeout=60) for _ in range(3)
    ]
    assert all(w.status_code == 200 for w in watches)
    assert server.stop() == 0
    for w in watches:
        # The stream ends cleanly, so a client sees the end and resumes.
        assert b"".join(w.iter_content()) .count(b"\n") >= 1


def test_sigterm_waits_for_a_list_on_its_way(kas_server, connect):
    server = kas_server("--workers", "1")
    api, path = connect(server), "/api/v1/namespaces/default/configmaps"
    for i in range(48):  # far more than the buffers between the two hold
        assert api("POST", path, {"metadata": {"name": f"c{i}", "labels": {"big": "1"}}, "data": {"a": "x" * 900_000}})[0] == 201
    plain = {"Accept-Encoding": "identity"}
    with api.session.get(f"{server.url}{path}?labelSelector=big", headers=plain, stream=True, timeout=60) as answer:
        pieces = answer.iter_content(1 << 16)
        first = next(pieces)
        server.process.send_signal(signal.SIGTERM)
        wait_for(lambda: not _ready(server), "readyz to fail")
        threading.Event().wait(3)  # longer than a server that did not wait would live
        assert server.process.poll() is None
        body = first + b"".join(pieces)
    assert len(json.loads(body)["items"]) == 48
    assert server.process.wait(30) == 0


def test_second_signal_ends_it_at_once(kas_server):
    server = kas_server("--shutdown-delay-duration", "30s")
    server.process.send_signal(signal.SIGTERM)
    wait_for(lambda: not _ready(server), "readyz to fail")
    assert server.process.poll() is None
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(10) == 1


def _ready(server) -> bool:
    try:
        return requests.get(server.url + "/readyz", verify=server.ca, timeout=5).status_code == 200
    except requests.RequestException:
        return False


def test_a_dead_worker_is_replaced(kas_server, connect):
    from kas.testing.server import _children

    server = kas_server("--workers", "2")
    api = connect(server)
    assert api("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "kept"}, "data": {"a": "1"}})[0] == 201
    before = _children(server.pid)
    assert len(before) == 2
    os.kill(before[0], signal.SIGKILL)
    wait_for(lambda: len(_children(server.pid)) == 2 and before[0] not in _children(server.pid), "a new worker")

    def answers() -> bool:
        try:
            return connect(server)("GET", "/api/v1/namespaces/default/configmaps/kept")[0] == 200
        except requests.RequestException:
            return False

    wait_for(answers, "an answer")
    assert "starting it again" in server.output


def test_a_killed_server_leaves_nothing_outside_of_its_data_directory(kas_server, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    server = kas_server()
    server.kill()
    assert list(tmp_path.glob("kas-*")) == []
    server.start()
    assert _ready(server) and server.stop() == 0
    assert not (server.data_dir / "run").exists()


def test_it_restarts_where_it_was(kas_server, connect):
    server = kas_server()
    api = connect(server)
    status, made = api("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "c"}, "data": {"a": "1"}})
    assert status == 201
    token, ca = server.token, Path(server.ca).read_bytes()
    server.kill()
    server.start()
    assert (server.token, Path(server.ca).read_bytes()) == (token, ca)
    assert connect(server)("GET", "/api/v1/namespaces/default/configmaps/c") == (200, made)
