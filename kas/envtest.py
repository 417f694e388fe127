"""kas in the place of the programs that controller-runtime's envtest starts.

``kas envtest DIR`` fills a directory for ``KUBEBUILDER_ASSETS``. envtest runs ``etcd`` first and waits for its
/health, then ``kube-apiserver`` with etcd's URL, and waits for /healthz (controller-runtime,
``pkg/internal/testing``). Here ``kube-apiserver`` is ``kas serve`` on LMDB. ``etcd`` stores nothing: it owns the
data directory and tells the API server where that is, so that a control plane that is stopped and started again
keeps its data. If the ``etcd`` program is a real etcd, kas stores its objects there.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import socket
import socketserver
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import FrameType
from typing import Any

from kas import __version__
from kas.config import flagset

PROGRAMS = ("kube-apiserver", "etcd")
PLACE = "/kas"  # the path at which etcd's stand-in tells where the data is
ASK_S = 5.0
USAGE = """usage: kas envtest DIR

Fills DIR with kube-apiserver and etcd, which are kas, and a link to kubectl if there is one:

  export KUBEBUILDER_ASSETS=DIR

makes tests that use controller-runtime's envtest start kas. It serves with one worker and no controllers, as
kube-apiserver does; a test that wants them adds the flag: Configure().Append("controllers", "*").
"""
# envtest chooses its flags by what it finds in the help text.
ETCD_USAGE = """usage: etcd --listen-client-urls URL --data-dir DIR

Stands in for etcd in tests: answers for its health, and keeps a place for what kas stores.

  --listen-client-urls URL
  --data-dir DIR
  --unsafe-no-fsync
    kas answers writes before they are on disk.

Other flags of etcd are accepted and have no effect.
"""


class Foreign(Exception):
    """A file that must not be overwritten."""


def main(args: Sequence[str], serve: Callable[[Sequence[str]], int]) -> int:
    """Runs ``kas envtest DIR``, and what the programs written there run: ``kas envtest --run PROGRAM FLAGS``.
    ``serve`` is ``kas serve``. Returns the exit code."""
    if args and args[0] in ("-h", "--help"):
        print(USAGE, end="")
        return 0
    if args[:2] == ["--run", "etcd"]:
        return etcd(args[2:])
    if args[:2] == ["--run", "kube-apiserver"]:
        return serve(serve_flags(args[2:]))
    if len(args) != 1 or args[0].startswith("-") or not args[0]:  # an unset variable must not be taken for the current directory
        print("kas: envtest takes one directory; see kas envtest --help", file=sys.stderr)
        return 2
    directory = Path(args[0]).expanduser().absolute()
    try:
        write_programs(directory)
    except OSError as e:
        print(f"kas: {e.filename}: {'Not a directory' if isinstance(e, FileExistsError) else e.strerror}", file=sys.stderr)
        return 1
    except Foreign as e:
        print(f"kas: {e} is somebody else's: name another directory", file=sys.stderr)
        return 1
    print(f"export KUBEBUILDER_ASSETS={shlex.quote(str(directory))}")
    return 0


def write_programs(directory: Path) -> None:
    """Writes ``PROGRAMS`` into the directory, for this interpreter and this installation of kas. Raises OSError, and
    Foreign for a file there that this function has not written, such as one that setup-envtest downloaded."""
    directory.mkdir(parents=True, exist_ok=True)
    ends = {directory / name: f' -P -m kas envtest --run {name} "$@"\n' for name in PROGRAMS}
    for path, end in ends.items():
        if path.is_symlink() or (path.exists() and not path.read_bytes().endswith(end.encode())):
            raise Foreign(path)
    for path, end in ends.items():
        path.write_text(f"#!/bin/sh\nexec {shlex.quote(sys.executable)}{end}")
        path.chmod(0o755)
    kubectl, link = shutil.which("kubectl"), directory / "kubectl"
    if kubectl and not link.exists():
        link.unlink(missing_ok=True)  # a broken link
        link.symlink_to(Path(kubectl).resolve())


def serve_flags(args: Sequence[str]) -> list[str]:
    """Flags for ``kas serve`` that do what envtest expects of kube-apiserver. What the given flags leave open is chosen for tests."""
    given = flagset.parse(args).values
    more = {"workers": "1", "controllers": "none"}
    if "storage-backend" not in given and not {"help", "version"} & given.keys():
        place = _place(given.get("etcd-servers") or ())
        if place is None:
            certificates = given.get("cert-dir")  # envtest's own directory, which it removes afterwards
            more["storage-backend"] = "etcd3"
            more["data-dir"] = str(Path(certificates) / "kas") if certificates else tempfile.mkdtemp(prefix="kas-envtest-")
        else:
            more |= {"storage-backend": "lmdb", "data-dir": place["dataDir"], "unsafe-no-fsync": str(not place["fsync"]).lower()}
    return [*(f"--{name}={value}" for name, value in more.items() if name not in given), *args]


def _place(servers: Sequence[str]) -> dict[str, Any] | None:
    """The answer of etcd's stand-in; None if a real etcd is to be used."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for url in servers:
        try:
            with opener.open(url.rstrip("/") + PLACE, timeout=ASK_S) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError:
            return None  # etcd has no such path
        except (OSError, ValueError):
            continue
    return None


class _Health(BaseHTTPRequestHandler):
    """Answers health checks as etcd does."""

    timeout = ASK_S
    answers: dict[str, dict[str, Any]]

    def do_GET(self) -> None:
        found = self.answers.get(urllib.parse.urlsplit(self.path).path)
        body = json.dumps(found).encode() if found is not None else b"404 page not found\n"
        self.send_response(200 if found is not None else 404)
        self.send_header("Content-Type", "application/json" if found is not None else "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass  # envtest's health checks would be the only lines


class _Server(socketserver.ThreadingTCPServer):
    """Not an HTTPServer, which first looks up the host's name; that may take seconds."""

    allow_reuse_address = True
    daemon_threads = True


def etcd(args: Sequence[str]) -> int:
    """etcd's stand-in: serves until SIGTERM. Returns the exit code."""
    given = _flags(args)
    if {"help", "h"} & given.keys():
        print(ETCD_USAGE, end="")
        return 0
    if "version" in given:
        print(f"etcd: a stand-in, of kas {__version__}")
        return 0
    url = urllib.parse.urlsplit(given.get("listen-client-urls", "http://127.0.0.1:2379").partition(",")[0])
    if url.scheme != "http" or not url.hostname:
        print(f"etcd: kas stands in for it with http only, not {url.geturl()!r}", file=sys.stderr)
        return 2
    data = Path(given.get("data-dir", "default.etcd")).absolute()
    place = {"dataDir": str(data / "kas"), "fsync": given.get("unsafe-no-fsync", "false") not in ("", "true")}
    answers = {"/health": {"health": "true", "reason": ""}, PLACE: place}
    _Server.address_family = socket.AF_INET6 if ":" in url.hostname else socket.AF_INET
    what = f"--data-dir: {data}"
    try:
        data.mkdir(parents=True, exist_ok=True, mode=0o700)
        what = f"--listen-client-urls: {url.geturl()}"
        listener = _Server((url.hostname, url.port or 2379), type("Health", (_Health,), {"answers": answers}))
    except OSError as e:
        print(f"etcd: {what}: {e.strerror}", file=sys.stderr)
        return 1
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    with listener:
        listener.serve_forever()
    return 0


def _flags(args: Sequence[str]) -> dict[str, str]:
    """Parses ``--name=value``, ``--name value`` and ``--name`` into a dict; the last one counts."""
    out: dict[str, str] = {}
    name = ""
    for arg in args:
        if arg.startswith("-"):
            name, _, value = arg.lstrip("-").partition("=")
            out[name] = value
        elif name:
            out[name], name = arg, ""
    return out


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(0)  # nothing is kept here
