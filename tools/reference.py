"""Builds and serves the reference for comparisons: upstream's server of custom resources, from Debian's packages, next to kas.

    sudo python tools/reference.py build DIRECTORY [--mirror URL]
    .venv/bin/python tools/reference.py serve DIRECTORY [--etcd etcd] [-- FLAGS OF THE REFERENCE]

``build`` makes a Debian (sid) tree under DIRECTORY/debian with ``debootstrap``, installs Go and Kubernetes' libraries there
(``golang-k8s-apiextensions-apiserver-dev`` and what it needs, with upstream's tests) and builds ``DIRECTORY/apiextensions-apiserver``. It
takes some minutes and 3 GB. sid changes; ``--mirror http://snapshot.debian.org/archive/debian/DATE`` gives it as of a date. Version 0.36 of
the libraries is Kubernetes 1.36; the version that was found is printed.

``serve`` starts kas, an etcd and the reference. The reference uses this kas as the API server that authenticates and authorizes for it
and that has its namespaces, webhooks, policies and services. It prints as JSON what clients need: the URL and CA of each, the token that
both accept, and the process ids of the reference and its etcd (for ``bench/custom_side_by_side.py --pids``). Ctrl-C ends it and everything
it started.

The reference serves definitions and their objects only, with the parts that all of upstream's API servers share: flags, health checks,
metrics, audit, encryption, and admission by webhooks and policies. These packages do not contain kube-apiserver.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

MIRROR = "http://deb.debian.org/debian"
PACKAGES = ("golang-go", "gcc", "libc6-dev", "golang-k8s-apiextensions-apiserver-dev", "golang-k8s-apiserver-dev")
PROGRAM, IMPORT = "apiextensions-apiserver", "k8s.io/apiextensions-apiserver"
# Debian installs the sources of libraries as a GOPATH.
GO = {"GO111MODULE": "off", "GOPATH": "/usr/share/gocode", "CGO_ENABLED": "0", "GOCACHE": "/var/cache/go-build"}
START_S = 60.0


@contextlib.contextmanager
def tree(debian: Path, suite: str, mirror: str) -> Iterator[Callable[..., str]]:
    """Makes a Debian tree at ``debian``, unless it exists, and yields a function that runs a command in it and returns its output. Keyword
    arguments of that function are environment variables. Needs root and ``debootstrap``. Raises CalledProcessError when a step fails."""
    if not (debian / "usr/bin/apt-get").exists():
        debian.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["debootstrap", "--variant=minbase", "--include=ca-certificates", suite, str(debian), mirror], check=True)

    def within(*command: str, **environment: str) -> str:
        done = subprocess.run(
            ["chroot", str(debian), *command], check=True, stdout=subprocess.PIPE, text=True,
            env={"PATH": f"{os.defpath}:/usr/sbin:/sbin", "DEBIAN_FRONTEND": "noninteractive", **environment},
        )  # fmt: skip
        return done.stdout

    mounted = [debian / "proc", debian / "dev"]
    for place in mounted:
        subprocess.run(["mount", "--bind", f"/{place.name}", str(place)], check=True)
    try:
        yield within
    finally:
        for place in mounted:
            subprocess.run(["umount", str(place)], check=True)


def build(directory: Path, mirror: str) -> None:
    """Makes the tree, unless it exists, and the program. Raises CalledProcessError when a step fails."""
    with tree(directory / "debian", "sid", mirror) as within:
        within("apt-get", "-o", "Acquire::Check-Valid-Until=false", "update", "-q")
        within("apt-get", "install", "-y", "-q", "--no-install-recommends", *PACKAGES)
        print(within("dpkg-query", "-W", PACKAGES[-2]).strip(), flush=True)
        within("go", "build", "-o", f"/usr/local/bin/{PROGRAM}", IMPORT, **GO)
    shutil.copy2(directory / "debian/usr/local/bin" / PROGRAM, directory / PROGRAM)


def free_port() -> int:
    """Returns a port that is free at this moment."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@contextlib.contextmanager
def started(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a process until the end of the block. Its output goes to ``log``."""
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT) as process:
        try:
            yield process
        finally:
            process.terminate()


def wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Waits until ``url`` answers 200. Raises RuntimeError with the end of the log if the process ends first or after ``START_S``."""
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE  # its certificate was self-signed a moment ago
    until = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < until:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, context=trusting, timeout=5):
            return
        time.sleep(0.2)
    raise RuntimeError(f"{url} does not answer:\n{log.read_text()[-2000:]}")


def serve(directory: Path, etcd: str, flags: list[str]) -> None:
    """Runs all three until SIGINT or SIGTERM."""
    from kas.testing.server import KasServer

    program = directory / PROGRAM
    if not program.exists():
        raise SystemExit(f"reference: there is no {program}: build it first")
    with tempfile.TemporaryDirectory() as made, contextlib.ExitStack() as stack:
        here = Path(made)
        listen, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        port = free_port()
        kas = stack.enter_context(KasServer(here / "kas"))
        store = stack.enter_context(started([
            etcd, "--data-dir", str(here / "etcd"), "--listen-client-urls", listen, "--advertise-client-urls", listen,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}",
        ], here / "etcd.log"))  # fmt: skip
        core = [f"--{name}={kas.kubeconfig}" for name in ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")]
        log = here / "reference.log"
        reference = stack.enter_context(started([
            str(program), f"--etcd-servers={listen}", f"--secure-port={port}", "--bind-address=127.0.0.1", f"--cert-dir={here / 'certs'}",
            "--authentication-tolerate-lookup-failure", *core, *flags,
        ], log))  # fmt: skip
        wait_for(f"https://127.0.0.1:{port}/readyz", reference, log)
        said = {
            "kas": {"url": kas.url, "ca": str(kas.ca), "kubeconfig": str(kas.kubeconfig)},
            "reference": {"url": f"https://127.0.0.1:{port}", "ca": str(here / "certs/apiserver.crt"), "log": str(log)},
            "token": str(kas.data_dir / "admin.token"), "pids": f"{store.pid},{reference.pid}",
        }  # fmt: skip
        print(json.dumps(said, indent=1), flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()


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
    else:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        serve(args.directory.resolve(), args.etcd, given[cut + 1 :])


if __name__ == "__main__":
    main()
