"""Does what controller-runtime's envtest (its ``pkg/internal/testing``) does with the programs in ``KUBEBUILDER_ASSETS``."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests
from cryptography.hazmat.primitives.asymmetric import rsa

import kas
from kas import cli, envtest
from kas.store.etcd import etcd_pb2 as pb
from kas.store.etcd.client import RANGE, Client
from tests import etcd, pki, ports

WAIT_S = 120.0  # envtest itself waits for 20 s
COLLECTOR = 'workqueue_adds_total{name="garbage-collector-controller"}'


def new_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


def has_flag(program: Path, flag: str) -> bool:
    """Whether the help text has a flag: envtest checks this before it passes some flags."""
    shown = subprocess.run([program, "--help"], capture_output=True, text=True, check=True, timeout=60)
    return bool(re.search(rf"(?m)^\s*--{flag}\b", shown.stdout + shown.stderr))


class ControlPlane:
    """The same as envtest's: certificates, both programs with its command lines, their health checks."""

    def __init__(self, assets: Path, directory: Path) -> None:
        self.assets, self.certs, self.etcd_data = assets, directory / "certs", directory / "etcd"
        for d in (self.certs, self.etcd_data):
            d.mkdir()
        serving, accounts, self.clients = (pki.authority("envtest-environment", key=new_key()) for _ in range(3))
        pki.issue([("O", "envtest"), ("CN", "localhost")], serving, usages=("server",), dns=["localhost"], ips=["127.0.0.1"],
                  key=new_key()).write(self.certs, "apiserver")  # fmt: skip
        accounts.write(self.certs, "sa-signer")
        self.clients.write(self.certs, "client-cert-auth-ca")
        self.ca = directory / "ca.crt"
        self.ca.write_bytes(serving.pem)
        user = pki.issue([("O", "system:masters"), ("CN", "admin")], self.clients, key=new_key())
        self.user = user.write(directory, "user")
        self.running: list[subprocess.Popen] = []

    def start(self, *more: str) -> None:
        url = f"http://127.0.0.1:{ports.reserve()}"
        flags = [f"--advertise-client-urls={url}", f"--data-dir={self.etcd_data}", f"--listen-client-urls={url}",
                 f"--listen-peer-urls=http://127.0.0.1:{ports.reserve()}"]  # fmt: skip
        if has_flag(self.assets / "etcd", "unsafe-no-fsync"):
            flags.append("--unsafe-no-fsync=true")
        self._run("etcd", flags, f"{url}/health")
        self.serve(url, *more)

    def serve(self, etcd_url: str, *more: str) -> None:
        port = ports.reserve()
        self.url = f"https://127.0.0.1:{port}"
        flags = [
            "--allow-privileged=true", "--authorization-mode=RBAC", "--bind-address=127.0.0.1", f"--cert-dir={self.certs}",
            f"--client-ca-file={self.certs}/client-cert-auth-ca.crt", "--disable-admission-plugins=ServiceAccount",
            f"--etcd-servers={etcd_url}", f"--secure-port={port}", f"--service-account-issuer={self.url}/",
            f"--service-account-key-file={self.certs}/sa-signer.crt", f"--service-account-signing-key-file={self.certs}/sa-signer.key",
            "--service-cluster-ip-range=10.0.0.0/24", *more,
        ]  # fmt: skip
        if has_flag(self.assets / "kube-apiserver", "insecure-port"):
            flags.append("--insecure-port=0")
        self._run("kube-apiserver", flags, f"{self.url}/healthz")

    def _run(self, program: str, flags: list[str], health: str) -> None:
        process = subprocess.Popen([self.assets / program, *flags], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.running.append(process)
        until, unchecked = time.monotonic() + WAIT_S, ssl._create_unverified_context()  # as envtest
        while True:
            with contextlib.suppress(urllib.error.URLError, ConnectionError), urllib.request.urlopen(health, context=unchecked) as answer:
                assert answer.status == 200
                return
            assert process.poll() is None and time.monotonic() < until, f"{program} did not become healthy"
            time.sleep(0.1)

    def stop(self) -> list[str]:
        """Stops both programs; returns their output. Fails the test if they do not end."""
        said = []
        while self.running:
            process = self.running.pop()
            process.terminate()
            said.append(process.communicate(timeout=WAIT_S)[0])
            assert process.returncode == 0, said[-1]
        return said

    def ask(self, method: str, path: str, body: object = None, **more: object) -> requests.Response:
        with requests.Session() as session:
            session.trust_env = False
            return session.request(
                method, self.url + path, json=body, cert=self.user, verify=str(self.ca), timeout=30, **more  # type: ignore[arg-type]
            )  # fmt: skip


@pytest.fixture(scope="module")
def assets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("a s") / "it's"  # a path that a shell would split
    envtest.write_programs(directory)
    return directory


@pytest.fixture
def plane(assets: Path, tmp_path: Path) -> Iterator[Callable[..., ControlPlane]]:
    made = ControlPlane(assets, tmp_path)
    try:
        yield lambda *flags: made.start(*flags) or made
    finally:
        for process in made.running:
            process.kill()
            process.communicate()


def test_a_control_plane_is_started_used_and_stopped(plane) -> None:
    running = plane()
    assert running.ask("GET", "/api/v1/namespaces/default").status_code == 200
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    assert running.ask("POST", "/api/v1/namespaces/default/pods", pod).status_code == 201, "no service account is wanted"
    token = running.ask("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "mine"}})
    assert token.status_code == 201
    token = running.ask("POST", "/api/v1/namespaces/default/serviceaccounts/mine/token", {"spec": {"expirationSeconds": 600}})
    assert token.status_code == 201, token.text
    who = {"spec": {"token": token.json()["status"]["token"]}}
    review = running.ask("POST", "/apis/authentication.k8s.io/v1/tokenreviews", who).json()
    assert review["status"]["user"]["username"] == "system:serviceaccount:default:mine", "its key is told by a certificate"
    assert requests.get(f"{running.url}/api/v1/pods", verify=str(running.ca), timeout=60).status_code == 403
    with running.ask("GET", "/api/v1/pods?watch=true", stream=True) as open_watch:
        assert open_watch.status_code == 200
        running.stop()


def test_controllers_are_off_by_default(plane) -> None:
    running = plane()
    orphan = {"metadata": {"name": "o", "ownerReferences": [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "never", "uid": "00000000-0000-4000-8000-000000000000"}]}}  # fmt: skip
    assert running.ask("POST", "/api/v1/namespaces/default/configmaps", orphan).status_code == 201
    assert COLLECTOR not in running.ask("GET", "/metrics").text
    running.stop()
    plane("--controllers=*")
    until = time.monotonic() + WAIT_S
    while running.ask("GET", "/api/v1/namespaces/default/configmaps/o").status_code != 404:
        assert time.monotonic() < until, "what was stored before is there no more, or is not collected"
        time.sleep(0.1)
    assert COLLECTOR in running.ask("GET", "/metrics").text
    running.stop()


def test_data_survive_a_restart_of_the_programs(plane) -> None:
    running = plane()
    assert running.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "kept"}}).status_code == 201
    running.stop()
    plane()
    assert running.ask("GET", "/api/v1/namespaces/kept").status_code == 200
    running.stop()


def test_a_real_etcd_is_used(assets: Path, tmp_path: Path) -> None:
    with etcd.Etcd(tmp_path / "real") as cluster:
        running = ControlPlane(assets, tmp_path)
        try:
            running.serve(cluster.url)
            assert running.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "there"}}).status_code == 201
        finally:
            running.stop()
        client = Client(cluster.config)
        try:
            assert client.call(RANGE, pb.RangeRequest(key=b"/registry/namespaces/there")).count == 1
        finally:
            client.close()


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    kubectl = tmp_path / "bin" / "kubectl"
    kubectl.write_text("#!/bin/sh\n")
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", str(kubectl.parent))
    for _ in range(2):  # a directory may be filled again
        with pytest.raises(SystemExit) as ended:
            cli.main(["envtest", str(tmp_path / "assets")])
        assert ended.value.code == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"export KUBEBUILDER_ASSETS={tmp_path / 'assets'}"
    assert sorted(os.listdir(tmp_path / "assets")) == ["etcd", "kube-apiserver", "kubectl"]
    assert (tmp_path / "assets" / "kubectl").resolve() == kubectl
    assert envtest.main(["--help"], cli.serve) == 0 and capsys.readouterr().out == envtest.USAGE
    assert [envtest.main(args, cli.serve) for args in ([], ["a", "b"], ["--x"], [""])] == [2, 2, 2, 2]
    (tmp_path / "file").write_text("")
    capsys.readouterr()
    assert envtest.main([str(tmp_path / "file")], cli.serve) == 1
    assert capsys.readouterr().err == f"kas: {tmp_path / 'file'}: Not a directory\n"


def test_other_programs_are_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A directory that setup-envtest has filled, or links to one."""
    (tmp_path / "etcd").write_bytes(b"\x7fELF\xff")
    assert envtest.main([str(tmp_path)], cli.serve) == 1
    assert capsys.readouterr().err == f"kas: {tmp_path / 'etcd'} is somebody else's: name another directory\n"
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("etcd", b"\x7fELF\xff")]
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "kube-apiserver").symlink_to(tmp_path / "nowhere")
    assert envtest.main([str(tmp_path / "links")], cli.serve) == 1 and not (tmp_path / "nowhere").exists()


def test_a_deleted_kubectl_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envtest.shutil, "which", lambda name: sys.executable)
    (tmp_path / "kubectl").symlink_to(tmp_path / "nowhere")
    envtest.write_programs(tmp_path)
    assert (tmp_path / "kubectl").exists()


def test_unsupported_flags_of_etcd_are_reported_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        assert envtest.etcd(["--listen-client-urls", url, "--data-dir", str(tmp_path)]) == 1
    assert envtest.etcd(["--listen-client-urls", url, "--data-dir", str(tmp_path / "file")]) == 1
    said = f"etcd: --listen-client-urls: {url}: Address already in use\netcd: --data-dir: {tmp_path / 'file'}: File exists\n"
    assert capsys.readouterr().err == said
    assert [envtest.etcd(args) for args in (["--version"], ["-h"])] == [0, 0]
    assert capsys.readouterr().out == f"etcd: a stand-in, of kas {kas.__version__}\n{envtest.ETCD_USAGE}"


def test_only_plain_http_is_supported_by_the_replacement(capsys: pytest.CaptureFixture[str]) -> None:
    assert envtest.etcd(["--listen-client-urls", "https://127.0.0.1:1"]) == 2
    assert "http only" in capsys.readouterr().err
