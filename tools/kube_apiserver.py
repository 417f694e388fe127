"""Builds and serves an older kube-apiserver to measure kas against: 1.20.2, from the source package of Debian 12.

    sudo python tools/kube_apiserver.py build DIRECTORY [--mirror URL]
    .venv/bin/python tools/kube_apiserver.py serve DIRECTORY [--etcd etcd] [-- FLAGS OF KUBE-APISERVER]

``build`` makes a Debian 12 tree under DIRECTORY/bookworm with ``debootstrap``, installs Go there and builds the source package
``kubernetes`` by the package's own rules, to ``DIRECTORY/kube-apiserver``. It took a quarter of an hour on two busy
processors.

``serve`` starts an etcd and kube-apiserver on it, configured as in ``docs/performance.md``: RBAC, one administrator with a token, no limit
of requests in flight, no API Priority and Fairness. Store and certificates go below DIRECTORY/data, which must not exist. It prints the
arguments for ``bench/end_to_end.py``. Ctrl-C ends it and both processes. For comparable figures, pin both processes to the processor that
the bench gives kas: ``taskset -a -p -c 0 PID``.
"""

from __future__ import annotations

import argparse
import secrets
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.reference import MIRROR, free_port, started, tree, wait_for

PROGRAM = "kube-apiserver"
PACKAGES = ("golang-go", "dpkg-dev", "make", "rsync", "jq")
UNLIMITED = ("--max-requests-inflight=0", "--max-mutating-requests-inflight=0", "--enable-priority-and-fairness=false")
# Debian's rules do this for the programs that they package.
BUILD = """
set -e
cd /srv
[ -d kubernetes-1* ] || apt-get source -q kubernetes
cd kubernetes-1*/
mkdir -p .go/src/k8s.io
[ -L .go/src/k8s.io/kubernetes ] || ln -s ../../.. .go/src/k8s.io/kubernetes
GOPATH="$PWD/.go" make WHAT=cmd/kube-apiserver
cp _output/bin/kube-apiserver /usr/local/bin/
"""


def build(directory: Path, mirror: str) -> None:
    """Makes the tree, unless it exists, and the program. Needs root and ``debootstrap``. Raises CalledProcessError when a step fails."""
    with tree(directory / "bookworm", "bookworm", mirror) as within:
        sources = directory / "bookworm/etc/apt/sources.list.d/sources.list"
        sources.write_text(f"deb-src {mirror} bookworm main\n")
        within("apt-get", "update", "-q")
        within("apt-get", "install", "-y", "-q", "--no-install-recommends", *PACKAGES)
        within("sh", "-c", BUILD, CGO_ENABLED="0", HOME="/srv", GOCACHE="/var/cache/go-build")
    shutil.copy2(directory / "bookworm/usr/local/bin" / PROGRAM, directory / PROGRAM)


def flags(data: Path, port: int, etcd_url: str) -> list[str]:
    """Returns kube-apiserver's flags and writes the files they name to ``data``: a service-account key and an administrator's token."""
    key = data / "sa.key"
    subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
    token = secrets.token_hex(16)
    (data / "tokens.csv").write_text(f"{token},bench,1,system:masters\n")
    (data / "token").write_text(token)
    return [
        f"--etcd-servers={etcd_url}", f"--secure-port={port}", "--bind-address=127.0.0.1", f"--cert-dir={data / 'pki'}",
        f"--token-auth-file={data / 'tokens.csv'}", "--authorization-mode=RBAC", "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}", *UNLIMITED,
    ]  # fmt: skip


def serve(directory: Path, etcd: str, more: list[str]) -> None:
    """Runs etcd and kube-apiserver until SIGINT or SIGTERM."""
    program, data = directory / PROGRAM, directory / "data"
    if not program.exists():
        raise SystemExit(f"kube_apiserver: there is no {program}: build it first")
    data.mkdir()
    port, client, peer = free_port(), free_port(), free_port()
    etcd_url, peer_url = f"http://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
    command = [
        etcd, f"--data-dir={data / 'etcd'}", f"--listen-client-urls={etcd_url}", f"--advertise-client-urls={etcd_url}",
        f"--listen-peer-urls={peer_url}", f"--initial-advertise-peer-urls={peer_url}", f"--initial-cluster=default={peer_url}",
    ]  # fmt: skip
    with ExitStack() as stack:
        store = stack.enter_context(started(command, data / "etcd.log"))
        wait_for(f"{etcd_url}/health", store, data / "etcd.log")
        server = stack.enter_context(started([str(program), *flags(data, port, etcd_url), *more], data / "kube-apiserver.log"))
        wait_for(f"https://127.0.0.1:{port}/readyz", server, data / "kube-apiserver.log")
        ca = data / "pki/apiserver.crt"  # self-signed
        print(f"--url https://127.0.0.1:{port} --token {data / 'token'} --ca {ca} --pids {server.pid},{store.pid}", flush=True)
        while server.poll() is None and store.poll() is None:
            time.sleep(0.5)


def main() -> None:
    given = sys.argv[1:]
    cut = given.index("--") if "--" in given else len(given)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("build", "serve"))
    parser.add_argument("directory", type=Path)
    parser.add_argument("--mirror", default=MIRROR, help="of Debian, for build")
    parser.add_argument("--etcd", default="etcd", help="the program, for serve")
    args = parser.parse_args(given[:cut])
    if args.what == "build":
        build(args.directory.resolve(), args.mirror)
        return
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        serve(args.directory.resolve(), args.etcd, given[cut + 1 :])
    except KeyboardInterrupt:
        return


if __name__ == "__main__":
    main()
