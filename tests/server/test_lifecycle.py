"""``kas serve`` as an operator sees it: its output, refusals and shutdown."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import ssl
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from kas import cli
from kas.config.datadir import StartError, check_data_dir, claim_data_dir
from kas.config.options import Completed, complete, read
from kas.observe.metrics import NOW
from kas.storage import migrate
from kas.store.etcd.rpc.http2 import ACK, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, SETTINGS, frame
from kas.supervisor import _Supervisor
from kas.testing.server import KasServer


def serve(*flags: str, timeout: float = 60) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "kas.cli", "serve", *flags], capture_output=True, text=True, timeout=timeout, check=False)


def wait_for(condition, what: str, timeout: float = 60.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout} s for {what}"
        threading.Event().wait(0.02)


def test_version_shows_both_versions():
    out = subprocess.run([sys.executable, "-m", "kas", "version"], capture_output=True, text=True, check=True).stdout
    assert out.startswith("kas ") and "Kubernetes v1.36" in out


@pytest.mark.parametrize("args", [["version"], ["--version"], ["serve", "--version"], ["serve", "--version=true"]])
def test_every_spelling_of_the_version_command(args):
    done = subprocess.run([sys.executable, "-m", "kas.cli", *args], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("kas ") and "Kubernetes v1.36.2" in done.stdout and len(done.stdout.splitlines()) == 1


@pytest.mark.parametrize("command", ["serve", "storage", "snapshot", "envtest"])
def test_help_on_a_command_equals_the_commands_own_help(command, capsys):
    told = []
    for args in (["help", command], [command, "--help"]):
        with contextlib.suppress(SystemExit):
            cli.main(args)
        told.append(capsys.readouterr())
    assert told[0] == told[1] and f"sage: kas {command}" in told[0].out and not told[0].err


def test_a_misspelt_command_is_refused_with_a_suggestion(capsys):
    for word, meant in (("serv", " (did you mean serve?)"), ("snapshots", " (did you mean snapshot?)"), ("dance", "")):
        with pytest.raises(SystemExit) as ended:
            cli.main([word])
        assert ended.value.code == 2
        assert capsys.readouterr().err == f"kas: unknown command {word!r}{meant}; see kas --help\n"


def test_the_raw_version_equals_that_of_the_endpoint(kas, client):
    out = serve("--version=raw").stdout
    assert dict(line.split(": ", 1) for line in out.splitlines()) == client("GET", "/version")[1]


def test_errors_in_flags_are_reported_one_a_line_for_any_input(capsys):
    assert cli.serve(["--basic-auth-file=a\nkas: b\x1b[2J", "--bogus\n"]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 and all(line.startswith("kas: ") and line.isprintable() for line in lines)
    assert any(r"a\nkas: b\x1b[2J" in line for line in lines)
    assert migrate.main(["--bogus\n"]) == 2 and capsys.readouterr().err == "kas: unknown flag: --bogus\\n\n"


@pytest.mark.parametrize("args", [["nope"], ["version", "now"]])
def test_unknown_commands_are_refused(args):
    done = subprocess.run([sys.executable, "-m", "kas.cli", *args], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1


def test_help_shows_every_flag_with_its_default_and_description():
    from kas.config.flags import FLAGS

    out = serve("--help").stdout
    for flag in FLAGS:
        assert f"--{flag.name}" in out
    words = " ".join(out.split())
    assert "--secure-port port TLS port; 'auto' = a free one, 0 = off (needs another port). (default 6443)" in words
    assert "No effect: one thread serves requests and waits for no lock." in words
    assert "One value: kas behaves as one version of Kubernetes, the one it prints." in words


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--no-such-flag"], "unknown flag: --no-such-flag"),
        (["-secure-port=1"], "unknown shorthand flag: 's' in -secure-port=1"),
        (["--event-ttl"], "flag needs an argument: --event-ttl"),
        (["extra"], '"kas serve" does not take any arguments, got ["extra"]'),
        (["--bind-address", "example.com"], 'invalid argument "example.com" for "--bind-address" flag: failed to parse IP: "example.com"'),
        (["--secure-port", "70000"], "--secure-port 70000 must be between 1 and 65535, inclusive"),
        (["--secure-port", "0"], "--secure-port 0 must be between 1 and 65535, inclusive"),
        (["--tls-cert-file", sys.executable], "missing filename for serving cert"),
        (["--tls-min-version", "VersionTLS99"], 'unknown tls version "VersionTLS99"'),
        (["--token-auth-file", "/no/such/file"], "open /no/such/file: no such file or directory"),
        (["--authorization-mode", "Magic"], 'authorization-mode "Magic" is not a valid mode'),
        (["--authorization-mode", "Node, RBAC"], 'authorization-mode " RBAC" is not a valid mode'),
        (["--authorization-mode", "ABAC"], "authorization-mode ABAC's authorization policy file not passed"),
        (["--history-window", "soon"], 'for "--history-window" flag: time: invalid duration "soon"'),
        (["--history-window", "5"], 'for "--history-window" flag: time: missing unit in duration "5"'),
        (["--request-timeout=-1s"], "--request-timeout can not be negative value"),
        (["--worker-timeout=-1s"], "--worker-timeout can not be negative value"),
        (["--workers=99999"], f"--workers must be at most {max(64, 8 * (os.cpu_count() or 1))} on this machine"),
        (["--worker-timeout=1ns"], "--worker-timeout must be 0 or at least 3s"),
        (["--http2-max-streams-per-connection=99999999999"], "--http2-max-streams-per-connection must be at most 4294967295"),
        (["--service-cluster-ip-range", "10.0.0.0/33"], "service-cluster-ip-range[0] is not a valid cidr"),
        (["--service-node-port-range", "0-70000"], "the port range cannot be greater than 65535: 0-70000"),
        (["--service-account-issuer="], "service-account-issuer should not be an empty string"),
        (["--service-account-max-token-expiration=-1h"], "must be between 1 hour and 2^32 seconds"),
        (["--store-max-size", "big"], 'invalid argument "big" for "--store-max-size" flag: quantities must match the regular expression'),
        (["--goaway-chance", "0.5"], "--goaway-chance can not be less than 0 or greater than 0.02"),
        (["--storage-backend", "etcd2"], "--storage-backend invalid, allowed values: lmdb, etcd3"),
        (["--storage-backend", "etcd3"], "--etcd-servers must be specified"),
        (["--storage-backend", "etcd3", "--etcd-servers", "ftp://x"], "ftp://x is not the URL of a server"),
        (["--strict-transport-security-directives=max-age"], "--strict-transport-security-directives invalid, allowed values"),
        (["--cors-allowed-origins", "^https://(a$"], 'expression: error parsing regexp: missing closing ): `^https://(a$`, help: List of'),
        (["--cors-allowed-origins", r"^https://a$,example\.com$"], "does not pin to start/end of host in the origin header, help: List of"),
        (["--cors-allowed-origins", "^https"], "does not pin to start/end of host in the origin header, help: List of"),
        (["--cors-allowed-origins", ".*"], "does not pin to start/end of host in the origin header, help: List of"),
        (["--feature-gates", "Nope=true"], "unrecognized feature gate: Nope"),
        (["--feature-gates", "Nope"], "missing bool value for Nope"),
        (["--runtime-config", "apps/v1=maybe"], 'invalid value of apps/v1: maybe, err: strconv.ParseBool: parsing "maybe": invalid syntax'),
        (["--runtime-config", "foo/v9=true"], "unknown api groups foo"),
        (["--runtime-config", "apps/v9=true"], "group version apps/v9 that has not been registered"),
        (["--controllers", "nope"], "--controllers: 'nope' is not one of"),
        (["--enable-admission-plugins", "Nope"], 'plugin "Nope" is unknown'),
        (["--client-ca-file", "/nowhere/ca.crt"], "open /nowhere/ca.crt: no such file or directory"),
        (["--egress-selector-config-file=p"], "egress-selector-config-file p does not exist"),
        (
            ["--encryption-provider-config=/none"],
            'encryption provider configuration file "/none": open /none: no such file or directory',
        ),
        (
            ["--encryption-provider-config-automatic-reload"],
            "--encryption-provider-config-automatic-reload must be set with --encryption-provider-config",
        ),
        (["--audit-policy-file=p"], 'loading audit policy file: failed to read file path "p"'),
        (["--admission-control=AlwaysAdmit,X"], 'admission-control plugin "X" is unknown'),
        (
            ["--admission-control=AlwaysAdmit", "--enable-admission-plugins=NodeRestriction"],
            "admission-control and enable-admission-plugins/disable-admission-plugins flags are mutually exclusive",
        ),
    ],
)
def test_wrong_flags_are_refused_with_one_line(tmp_path: Path, flags, says):
    done = serve("--data-dir", str(tmp_path / "d"), *flags)
    assert done.returncode == 1
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "d").exists()


def test_a_certificate_directory_that_cannot_be_created_is_refused(tmp_path: Path):
    (tmp_path / "file").write_text("")
    done = serve("--data-dir", str(tmp_path / "d"), "--secure-port", "auto", "--cert-dir", str(tmp_path / "file" / "certs"))
    assert done.returncode == 1
    assert done.stderr == f"kas: error creating self-signed certificates: mkdir {tmp_path}/file/certs: not a directory\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is full")
def test_a_full_disk_at_the_first_start_is_reported_in_one_line(tmp_path: Path):
    (tmp_path / "pki").mkdir()
    (tmp_path / "format").write_text("1\n")
    (tmp_path / "pki" / "apiserver.key.new").symlink_to("/dev/full")
    done = serve("--data-dir", str(tmp_path), "--secure-port", "auto")
    assert done.returncode == 1
    assert done.stderr == f"kas: --data-dir: {tmp_path}/pki/apiserver.key: No space left on device\n"


def test_an_audit_log_needs_a_writable_file_and_warns_without_a_policy(tmp_path: Path, kas_server):
    (tmp_path / "file").write_text("")
    done = serve("--data-dir", str(tmp_path / "d"), "--audit-log-path", str(tmp_path / "file" / "log"))
    assert (done.returncode, done.stderr) == (1, f"kas: ensureLogFile: mkdir {tmp_path}/file: not a directory\n")
    server = kas_server(f"--audit-log-path={tmp_path / 'log'}")
    assert "kas: warning: --audit-log-path has no effect: without --audit-policy-file no request is recorded" in server.output


def test_a_certificate_without_its_key_is_refused(tmp_path: Path):
    (tmp_path / "apiserver.key").write_text("")
    done = serve("--data-dir", str(tmp_path / "d"), "--cert-dir", str(tmp_path))
    assert done.returncode == 1
    assert done.stderr == f"kas: error reading {tmp_path}/apiserver.crt, certificate and key must be supplied as a pair\n"
    assert os.listdir(tmp_path) == ["apiserver.key"]


def test_all_errors_are_reported_at_once(tmp_path: Path):
    done = serve(
        "--data-dir", str(tmp_path / "d"), "--nope", "x", "--event-ttl=5", "--client-ca-file=/x", "--goaway-chance=1",
        "--egress-selector-config-file=/x", "--requestheader-group-headers= ",
        "--feature-gates=A=b,Nope=true", "--runtime-config=foo/v9=true", "--controllers=nope", "--enable-admission-plugins=Nope",
    )  # fmt: skip
    says = (
        "unknown flag: --nope", "missing unit in duration", "open /x: no such file",
        "egress-selector-config-file /x does not exist", "--goaway-chance", "empty value in", "invalid value of A=b",
        "unrecognized feature gate: Nope", "unknown api groups foo", "--controllers: 'nope'", 'plugin "Nope" is unknown',
    )  # fmt: skip
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert len(lines) == len(says) and all(sum(text in line for line in lines) == 1 for text in says), done.stderr


def test_flags_without_effect_are_reported_once(kas_server):
    server = kas_server(
        "--etcd-servers=http://127.0.0.1:2379", "--watch-cache=true", "--watch-cache-sizes=pods#10", "--etcd-compaction-interval=0",
        "--enable-priority-and-fairness=false", "--allow-privileged=true",
        "--storage-backend=lmdb",
    )  # fmt: skip
    lines = [line.split(" has no effect: ")[0] for line in server.output.splitlines() if "has no effect" in line]
    assert lines == [f"kas: warning: --{name}" for name in ("etcd-servers", "watch-cache-sizes", "etcd-compaction-interval")]


def test_too_few_open_files_are_refused(tmp_path: Path):
    """At the start, instead of when clients cannot connect."""
    command = f"ulimit -n 64; exec {sys.executable} -m kas.cli serve --secure-port auto --workers 2 --data-dir {tmp_path / 'd'}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr == "kas: the limit of 64 open files is too low, 2 workers need at least 144: ulimit -n, LimitNOFILE of systemd\n"
    assert not (tmp_path / "d").exists()


def test_a_long_flag_value_is_cut_off_in_the_error():
    done = serve("--logging-format", "x" * 100_000)
    assert done.returncode == 1 and done.stderr.endswith("xxx ...\n") and len(done.stderr) < 5000


def test_a_server_starts_with_an_external_host_that_no_certificate_can_have(tmp_path: Path):
    with KasServer(tmp_path, "--unsafe-no-fsync", "--external-hostname", "é:80") as server:
        assert requests.get(server.url + "/readyz", verify=str(server.ca), timeout=60).status_code == 200


def test_a_too_small_address_space_is_refused(tmp_path: Path):
    """At the start, instead of when threads cannot be created."""
    command = f"ulimit -v 2000000; exec {sys.executable} -m kas.cli serve --secure-port auto --data-dir {tmp_path / 'd'}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("kas: the limit of 1953 MiB of address space is too low, threads and the store need at least 2048: ")
    assert done.stderr.count("\n") == 1 and not (tmp_path / "d").exists()


def test_the_smallest_allowed_address_space_suffices(tmp_path: Path):
    with KasServer(tmp_path, "--unsafe-no-fsync", workers=2, prefix=["sh", "-c", 'ulimit -v 2200000; exec "$@"', "sh"]) as server:
        wait_for(lambda: "the store's file is limited to 562 MiB" in server.output, "what is told")
        headers = {"Authorization": f"Bearer {server.token}"}
        for path in ["/openapi/v2", "/api/v1/pods", "/metrics"] * 5:
            assert requests.get(server.url + path, headers=headers, verify=str(server.ca), timeout=60).status_code == 200
    assert "Traceback" not in server.output and "new thread" not in server.output


def test_a_missing_proc_file_system_is_reported(tmp_path: Path):
    command = f"mount -t tmpfs none /proc && exec {sys.executable} -m kas.cli serve --secure-port auto --data-dir {tmp_path / 'd'}"
    done = subprocess.run(["unshare", "-m", "sh", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    if "kas: " not in done.stderr:
        pytest.skip(f"nothing can be mounted here: {done.stderr}")
    assert (done.returncode, done.stderr) == (
        1, "kas: /proc is not mounted, which kas needs to inspect its processes: mount -t proc proc /proc\n"
    )  # fmt: skip


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", ["version", "storage --help"])
def test_a_closed_standard_output_ends_a_command_silently(words: str, unbuffered: str):
    """As in ``kas version | true`` in a shell."""
    reader, writer = os.pipe()
    os.close(reader)
    command, env = [sys.executable, "-m", "kas", *words.split()], {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, env=env, timeout=60, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (cli.UNHEARD, b"")


def test_an_unbuffered_interpreter_prints_at_once():
    """Buffered output of a long command would come only at its end."""
    code = "import os; from kas.meta.stdio import name_standard_output as n; n(); print('said', end=''); os._exit(0)"
    done = subprocess.run([sys.executable, "-u", "-c", code], stdout=subprocess.PIPE, timeout=60, check=True)
    assert done.stdout == b"said"


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", ["version", "storage --help"])
def test_output_to_a_full_disk_is_an_error(words: str, unbuffered: str):
    command, env = [sys.executable, "-m", "kas", *words.split()], {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, env=env, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (1, b"kas: standard output: No space left on device\n")


def test_serve_replaces_an_umask_that_hides_files_from_their_owner():
    before = os.umask(0o777)
    try:
        assert cli.serve(["--secure-port=99999"]) == 1
    finally:
        masked = os.umask(before)
    assert masked == 0o077


def test_port_in_use(tmp_path: Path):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        port = s.getsockname()[1]
        done = serve("--data-dir", str(tmp_path / "d"), "--secure-port", str(port))
    assert done.returncode == 1
    assert done.stderr.strip() == f"kas: --secure-port: 127.0.0.1:{port} is in use"
    assert not (tmp_path / "d").exists()


def options_of(tmp_path: Path, port: int) -> Completed:
    """Returns the flags of a server at this port."""
    asked, errors = read(["--data-dir", str(tmp_path), "--secure-port", str(port)])
    assert not errors
    return complete(asked)


def at(port: int, *options: int) -> socket.socket:
    """Returns a socket that is bound to this port on loopback."""
    s = socket.socket()
    for option in options:
        s.setsockopt(socket.SOL_SOCKET, option, 1)
    s.bind(("127.0.0.1", port))
    return s


@pytest.mark.parametrize("before", [(), (socket.SO_REUSEADDR,), (socket.SO_REUSEADDR, socket.SO_REUSEPORT)])
def test_port_in_use_by_a_kas_that_does_not_listen_yet(tmp_path: Path, before: tuple[int, ...]):
    """Closed connections do not block the port, whether or not their program shares its ports."""
    with at(0, *before) as program:
        port = program.getsockname()[1]
        if before:
            program.listen()
            with socket.create_connection(("127.0.0.1", port)) as client:
                program.accept()[0].close()
                assert client.recv(1) == b""
    first, second = (_Supervisor(options_of(tmp_path / d, port)) for d in "ab")
    assert first._reserve_ports(first.options).secure_port == port
    with first.reserved["secure_port"], at(port, socket.SO_REUSEADDR, socket.SO_REUSEPORT) as worker:
        if before == (socket.SO_REUSEADDR,):
            worker.listen()
        with pytest.raises(StartError, match=f"--secure-port: 127.0.0.1:{port} is in use"):
            second._reserve_ports(second.options)


def test_a_data_directory_in_use_is_refused(kas):
    done = serve("--data-dir", str(kas.data_dir), "--secure-port", "auto")
    assert done.returncode == 1
    assert "is in use by another kas" in done.stderr


def test_a_data_directory_of_another_format_is_refused(tmp_path: Path):
    (tmp_path / "format").write_text("99\n")
    done = serve("--data-dir", str(tmp_path), "--secure-port", "auto")
    assert done.returncode == 1
    assert "has format 99" in done.stderr


def test_a_data_directory_that_is_not_one_is_refused(tmp_path: Path):
    (tmp_path / "thesis.txt").write_text("precious")
    done = serve("--data-dir", str(tmp_path), "--secure-port", "auto")
    assert done.returncode == 1
    assert "not a kas data directory" in done.stderr
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("thesis.txt", "precious")]


def test_a_data_directory_that_cannot_be_created_is_refused(tmp_path: Path):
    file, long = tmp_path / "file", tmp_path / ("d" * 300)
    file.write_text("")
    for path, why in ((file, "Not a directory"), (file / "d", "Not a directory"), (long, "File name too long")):
        done = serve("--data-dir", str(path), "--secure-port", "auto")
        assert (done.returncode, done.stderr) == (1, f"kas: --data-dir: {path}: {why}\n")


def test_a_deleted_working_directory_is_reported(tmp_path: Path):
    command = f"cd {tmp_path} && mkdir gone && cd gone && rmdir ../gone && exec {sys.executable} -m kas.cli serve --secure-port auto"
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False, env=env)
    says = 'kas: --data-dir: "kas-data" is relative to the working directory, which cannot be found: No such file or directory\n'
    assert (done.returncode, done.stderr) == (1, says)


def test_a_damaged_ca_is_not_replaced_without_a_request(tmp_path: Path, kas_server):
    server = kas_server()
    server.kill()
    authority, token = server.data_dir / "pki" / "ca.crt", server.data_dir / "admin.token"
    whole = authority.read_bytes()
    authority.write_bytes(whole[:100])
    done = serve("--data-dir", str(server.data_dir), "--secure-port", "auto")
    why = "it is damaged: restore it, or remove ca.crt and ca.key to have another CA created"
    assert (done.returncode, done.stderr) == (1, f"kas: --data-dir: {authority}: {why}\n")
    authority.write_bytes(whole)
    (server.data_dir / "pki" / "apiserver.crt").write_bytes(b"")  # a certificate that the CA can issue again is replaced
    token.write_bytes(b"")
    server.start()
    assert authority.read_bytes() == whole and len(server.token) == 43


@pytest.mark.parametrize("kept", [0, 60, 900])
def test_a_damaged_key_of_service_account_tokens_is_not_replaced_without_a_request(tmp_path: Path, kas_server, kept: int):
    server = kas_server()
    key = server.data_dir / "pki" / "sa.key"
    wait_for(key.exists, "the key")
    server.kill()
    whole = key.read_bytes()
    key.write_bytes(whole[:kept])
    done = serve("--data-dir", str(server.data_dir), "--secure-port", "auto")
    why = "it is damaged: restore it, or remove it to have another key created, with which no earlier token is valid"
    assert (done.returncode, done.stderr) == (1, f"kas: --data-dir: {key}: {why}\n")
    key.write_bytes(whole)
    server.start()
    assert key.read_bytes() == whole


def test_an_interrupted_first_start_leaves_a_usable_data_directory(tmp_path: Path):
    for name in ("lock", "format.new"):  # what a kill or a power failure leaves of the first moments
        (tmp_path / name).write_text("")
    assert not check_data_dir(tmp_path)
    assert [claim_data_dir(tmp_path), claim_data_dir(tmp_path), check_data_dir(tmp_path)] == [True, False, True]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["format", "lock"]


@pytest.mark.parametrize("name", ["format", "lock", "admin.token", "admin.kubeconfig", "pki/ca.crt", "pki/sa.key"])
def test_a_pipe_in_a_data_directory_is_refused(tmp_path, name):
    """The start used to wait without a word until somebody wrote to it."""
    claim_data_dir(tmp_path)
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.unlink(missing_ok=True)
    os.mkfifo(file)
    with pytest.raises(StartError, match=f"{file} is a pipe"):
        check_data_dir(tmp_path)


@pytest.mark.parametrize("left", ["store.copying", "store.restoring"])
def test_a_server_does_not_start_with_an_incomplete_copy(tmp_path: Path, left: str):
    """As an interrupted ``kas storage copy`` leaves it, in the store of an existing server."""
    claim_data_dir(tmp_path)
    (tmp_path / left).mkdir()
    done = serve("--data-dir", str(tmp_path), "--secure-port", "auto")
    assert done.returncode == 1 and f"{left} is an incomplete store" in done.stderr and not (tmp_path / "store").exists()


def test_secrets_are_private(kas):
    for name in ("admin.kubeconfig", "admin.token", "pki/ca.key", "pki/apiserver.key", "lock"):
        mode = stat.S_IMODE((kas.data_dir / name).stat().st_mode)
        assert mode == 0o600, name


def test_json_logs(kas_server):
    server = kas_server("--logging-format", "json")
    ready = json.loads(next(line for line in server.output.splitlines() if '"ready"' in line))
    assert ready["addresses"] == [server.url] if server.url else ready["addresses"]
    assert Path(ready["kubeconfig"]).exists()
    assert ready["first_start"] is True and ready["start_ms"] > 0


def test_the_supervisors_log_is_json_too(tmp_path: Path, kas_server):
    server = kas_server("--logging-format=json", "--audit-log-path=-", workers=2)
    (worker, _) = server.worker_pids()
    os.kill(worker, signal.SIGKILL)
    deadline = time.monotonic() + 60
    while "starting it again" not in server.output:
        assert time.monotonic() < deadline
        threading.Event().wait(0.05)
    lines = [json.loads(line) for line in server.output.splitlines()]
    told = [line for line in lines if line.get("logger") == "kas.supervisor"]
    assert [line["msg"].split(" (")[0] for line in told] == [
        "--audit-log-path has no effect: without --audit-policy-file no request is recorded", f"worker {told[1]['msg'].split()[1]} died",
    ]  # fmt: skip
    assert all(line["level"] == "warning" and line["pid"] == server.pid and line["ts"] > 1e12 for line in told)
    done = serve("--data-dir", str(server.data_dir), "--secure-port", "auto", "--logging-format=json")
    refused = json.loads(done.stderr)
    assert done.returncode == 1 and refused["level"] == "error" and "is in use by another kas" in refused["msg"]


def test_the_ready_line_differs_for_first_and_later_starts(kas_server):
    server = kas_server()
    (line,) = (line for line in server.output.splitlines() if line.startswith("kas ready on"))
    assert " ms, the first start; kubeconfig: " in line
    assert server.stop() == 0
    server.start()
    assert "first start" not in [line for line in server.output.splitlines() if line.startswith("kas ready on")][-1]


def test_certificate_names(kas_server):
    from cryptography import x509

    server = kas_server("--tls-san", "api.example.com,192.0.2.7", "--service-cluster-ip-range", "10.9.0.0/16")
    cert = x509.load_pem_x509_certificate((server.data_dir / "pki" / "apiserver.crt").read_bytes())
    san = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {"localhost", "kubernetes", "kubernetes.default.svc", "api.example.com"} <= set(san.get_values_for_type(x509.DNSName))
    assert {"127.0.0.1", "192.0.2.7", "10.9.0.1"} <= {str(i) for i in san.get_values_for_type(x509.IPAddress)}


def test_sigterm_ends_a_server_with_open_watches(kas_server, connect):
    server = kas_server("--workers", "2")
    api = connect(server)
    watches = [
        api.session.get(server.url + "/api/v1/configmaps?watch=true", stream=True, timeout=60) for _ in range(3)
    ]
    assert all(w.status_code == 200 for w in watches)
    assert server.stop() == 0
    for w in watches:
        # The stream ends cleanly, so a client sees its end and resumes.
        assert b"".join(w.iter_content()) .count(b"\n") >= 1


def test_sigterm_waits_for_a_list_in_progress(kas_server, connect):
    server = kas_server("--workers", "1", "--shutdown-grace", "120s")
    api, path = connect(server), "/api/v1/namespaces/default/configmaps"
    for i in range(48):  # far more than the buffers between server and client hold
        assert api("POST", path, {"metadata": {"name": f"c{i}", "labels": {"big": "1"}}, "data": {"a": "x" * 900_000}})[0] == 201
    plain = {"Accept-Encoding": "identity"}
    with api.session.get(f"{server.url}{path}?labelSelector=big", headers=plain, stream=True, timeout=60) as answer:
        pieces = answer.iter_content(1 << 16)
        first = next(pieces)
        server.process.send_signal(signal.SIGTERM)
        wait_for(lambda: not _ready(server), "readyz to fail")
        threading.Event().wait(3)  # longer than a server that does not wait lives
        assert server.process.poll() is None
        body = first + b"".join(pieces)
    assert len(json.loads(body)["items"]) == 48
    assert server.process.wait(100) == 0


def test_a_server_ends_though_clients_do_not_read(kas_server):
    """The buffers of their watches are full and are not waited for, so the workers end by themselves and the store is closed."""
    server = kas_server("--unsafe-no-fsync")
    ask = f"GET /api/v1/configmaps?watch=true HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.token}\r\n\r\n".encode()
    context, maps = ssl.create_default_context(cafile=server.ca), f"{server.url}/api/v1/namespaces/default/configmaps"
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            plain = socket.create_connection(("127.0.0.1", server.port), 60)
            stack.enter_context(context.wrap_socket(plain, server_hostname="127.0.0.1")).sendall(ask)
        session = stack.enter_context(requests.Session())
        session.trust_env, session.verify, session.headers["Authorization"] = False, server.ca, f"Bearer {server.token}"
        for i in range(10):
            assert session.post(maps, json={"metadata": {"name": f"c{i}"}, "data": {"a": "x" * 1_000_000}}, timeout=60).status_code == 201
        assert server.stop() == 0
    assert "killed" not in server.output


def test_a_server_ends_though_a_client_does_not_read_its_list(kas_server, connect):
    server = kas_server("--unsafe-no-fsync", "--workers", "1", "--shutdown-grace", "8s")
    api, path = connect(server), "/api/v1/namespaces/default/configmaps"
    for i in range(32):  # far more than the buffers between server and client hold
        assert api("POST", path, {"metadata": {"name": f"c{i}"}, "data": {"a": "x" * 1_000_000}})[0] == 201
    ask = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.token}\r\n\r\n".encode()
    context = ssl.create_default_context(cafile=server.ca)
    with context.wrap_socket(socket.create_connection(("127.0.0.1", server.port), 60), server_hostname="127.0.0.1") as s:
        s.sendall(ask)
        assert s.recv(1) == b"H"
        assert server.stop() == 0
    assert "1 unfinished answers are cut, whose clients have read nothing for 2 s" in server.output


def test_idle_connections_end_without_an_error(kas_server):
    """A client either finds its connection closed while it has no request, or learns from the last answer that the connection ends, or its
    watch and the connection end together. No connection is left on which to send a request to a server that is about to end."""
    server = kas_server("--workers", "1")
    head = f"HTTP/1.1\r\nHost: kas\r\nAuthorization: Bearer {server.token}\r\n".encode()
    body = b'{"metadata":{"name":"slow"}}'
    path = b"/api/v1/namespaces/default/configmaps"
    with contextlib.ExitStack() as stack:
        idle, watch, slow = (stack.enter_context(_spoken(server)) for _ in range(3))
        idle.sendall(b"GET /version " + head + b"\r\n")
        assert _until(idle, b"}").startswith(b"HTTP/1.1 200")
        watch.sendall(b"GET /api/v1/namespaces?watch=1 " + head + b"\r\n")
        assert _until(watch, b"ADDED").startswith(b"HTTP/1.1 200")
        slow.sendall(b"POST %b %bContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (path, head, len(body), body[:9]))
        server.process.send_signal(signal.SIGTERM)
        wait_for(lambda: not _ready(server), "readyz to fail")
        slow.sendall(body[9:])
        answer = _until(slow, b"")
        assert answer.startswith(b"HTTP/1.1 201") and b"\r\nconnection: close\r\n" in answer
        _until(watch, b"0\r\n\r\n")
        with contextlib.suppress(OSError):  # a client that goes on gets an answer or a closed connection, never a refusal
            watch.sendall(b"GET /version " + head + b"\r\n")
            assert _until(watch, b"")[:12] in (b"", b"HTTP/1.1 200")
        assert idle.recv(1) == b""
    assert server.process.wait(60) == 0


def test_an_http2_connection_gets_goaway_and_its_watch_ends(kas_server):
    server = kas_server("--workers", "1")
    block = b"".join(
        b"\0%c%b%c%b" % (len(name), name, len(value), value)
        for name, value in (
            (b":method", b"GET"), (b":scheme", b"https"), (b":path", b"/api/v1/namespaces?watch=1"), (b":authority", b"kas"),
            (b"authorization", b"Bearer " + server.token.encode()),
        )
    )  # fmt: skip
    with _spoken(server, "h2") as s:
        s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0) + frame(HEADERS, END_STREAM | END_HEADERS, 1, block))
        frames = _frames(s)
        assert any(kind == DATA and b"ADDED" in payload for kind, _, payload in frames)
        server.process.send_signal(signal.SIGTERM)
        told = []
        for kind, flags, _ in frames:
            told += [kind] if kind == GOAWAY or (kind in (DATA, HEADERS) and flags & END_STREAM) else []
        assert (set(told), told.count(DATA)) == ({DATA, GOAWAY}, 1)
    assert server.process.wait(60) == 0


def _frames(s: ssl.SSLSocket) -> Iterator[tuple[int, int, bytes]]:
    """Yields kind, flags and payload of each frame until the connection ends; answers pings."""
    got = b""
    while piece := s.recv(65536):
        got += piece
        while len(got) >= 9 and len(got) >= 9 + (size := int.from_bytes(got[:3], "big")):
            kind, flags, payload, got = got[3], got[4], got[9 : 9 + size], got[9 + size :]
            if kind == PING and not flags & ACK:
                s.sendall(frame(PING, ACK, 0, payload))
            yield kind, flags, payload


def _spoken(server, protocol: str = "http/1.1") -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=server.ca)
    context.set_alpn_protocols([protocol])
    made = socket.create_connection(("127.0.0.1", server.port), 60)
    return context.wrap_socket(made, server_hostname="127.0.0.1")


def _until(s: ssl.SSLSocket, end: bytes) -> bytes:
    """Returns what arrives up to ``end`` and with it, or everything."""
    got = b""
    while not end or end not in got:
        piece = s.recv(65536)
        if not piece:
            assert not end, got
            return got
        got += piece
    return got


def test_a_server_stopped_at_once_after_its_first_start_has_all_files(kas_server):
    """The service account key takes longest to generate, and serving does not wait for it. Stopping does."""
    server = kas_server()
    server.stop()
    pki = server.data_dir / "pki"
    assert {"ca.crt", "apiserver.crt", "apiserver.key", "sa.key"} <= {f.name for f in pki.iterdir()}
    assert [f.name for f in pki.iterdir() if f.name.startswith("sa.key.")] == []


def test_a_second_signal_ends_the_server_at_once(kas_server):
    server = kas_server("--shutdown-delay-duration", "5m")
    server.process.send_signal(signal.SIGTERM)
    wait_for(lambda: not _ready(server), "readyz to fail")
    for _ in range(3):  # new connections, during the shutdown delay
        assert requests.get(server.url + "/version", verify=server.ca, timeout=60).status_code == 200
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(60) == 1


def test_sigterm_ends_the_server_while_workers_are_loaded(tmp_path: Path):
    """Even if the loading processes are suspended."""
    command = [sys.executable, "-m", "kas.cli", "serve", "--data-dir", str(tmp_path / "d"), "--secure-port", "auto", "--workers", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        wait_for(lambda: len(children.read_text().split()) >= 2, "the one that prepares and the one that loads")
        held = [int(pid) for pid in children.read_text().split()]
        for pid in held:
            with contextlib.suppress(ProcessLookupError):  # the preparing process may have ended by now
                os.kill(pid, signal.SIGSTOP)
        process.send_signal(signal.SIGTERM)
        try:
            assert process.wait(100) == 1
        finally:
            process.kill()
            for pid in held:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def test_descriptor_numbers_above_1024_work(tmp_path: Path, connect):
    """A program with many open files may start the server, or it has hundreds of workers with some files each."""
    many = (
        "import os, resource, sys; _, most = resource.getrlimit(resource.RLIMIT_NOFILE);"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (most, most));"  # 1024 for most users, who may raise it
        "[os.set_inheritable(os.open(os.devnull, 0), True) for _ in range(1100)]; os.execv(sys.argv[1], sys.argv[1:])"
    )
    with KasServer(tmp_path, workers=2, prefix=(sys.executable, "-c", many)) as server:
        assert connect(server)("GET", "/version")[0] == 200


def _ready(server) -> bool:
    try:
        return requests.get(server.url + "/readyz", verify=server.ca, timeout=60).status_code == 200
    except requests.RequestException:
        return False


def _gauges(numbers):
    """Returns the current gauges in a worker's metrics file, by name."""
    lines = map(json.loads, numbers.read_bytes().splitlines())
    return {name: rows for kind, name, _, rows in lines if kind == NOW}


def test_a_dead_worker_is_replaced(kas_server, connect):
    server = kas_server("--workers", "2")
    api = connect(server)
    assert api("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "kept"}, "data": {"a": "1"}})[0] == 201
    numbers = [server.data_dir / f"run/metrics-{index}.json" for index in (0, 1)]
    wait_for(lambda: all(path.exists() for path in numbers), "what they say of themselves")
    before = server.worker_pids()
    for pid in before:
        os.kill(pid, signal.SIGSTOP)
    told = [_gauges(path) for path in numbers]
    assert all("process_open_fds" in gauges for gauges in told)
    os.kill(before[0], signal.SIGKILL)
    wait_for(lambda: before[0] not in server.worker_pids(), "a new worker")
    gauges = [_gauges(path) for path in numbers]
    assert [now == then for now, then in zip(gauges, told, strict=True)].count(False) == 1, "those of the dead one are gone"
    os.kill(before[1], signal.SIGCONT)

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


def test_a_restart_keeps_data_token_and_ca(kas_server, connect):
    server = kas_server()
    api = connect(server)
    status, made = api("POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "c"}, "data": {"a": "1"}})
    assert status == 201
    token, ca = server.token, Path(server.ca).read_bytes()
    server.kill()
    server.start()
    assert (server.token, Path(server.ca).read_bytes()) == (token, ca)
    assert connect(server)("GET", "/api/v1/namespaces/default/configmaps/c") == (200, made)


def test_sighup_ends_no_worker(kas_server, connect):
    server = kas_server("--workers", "2")
    before = server.worker_pids()
    for _ in range(3):
        server.process.send_signal(signal.SIGHUP)
        threading.Event().wait(0.3)  # a worker that received it would have ended by now
    assert connect(server)("GET", "/version")[0] == 200
    assert server.worker_pids() == before and "starting it again" not in server.output
