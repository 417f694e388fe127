"""A kas server as a child process, for tests of any kind. Uses nothing but the standard library."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

# The ready line in both log formats.
READY = re.compile(r'kas ready on (\S+?)[,\s]|"msg": "ready", "addresses": \["([^"]+)"')
# What a bug of the server's leaves in its output: filters.panic_recovery's line, and asyncio's and the interpreter's own.
BUG = re.compile(r"apiserver panic'd on|exception was never retrieved|Fatal Python error")
FRONT = "kas-front"
BESIDE = (FRONT, "kas-replicator")  # children that answer no requests
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0


class KasServer:
    """Starts ``kas serve`` on a free port with its data under ``directory``; a context manager. It ends with this program.

    ``url``, ``port``, ``kubeconfig`` (path), ``token``, ``ca`` (path), ``pid`` are valid once started. ``output`` is what it printed so
    far. ``prefix`` is a command that runs the rest of its line: under limits, say.
    """

    # Flags that a run of tests gives to every server that does not say otherwise.
    more: Callable[[KasServer], Sequence[str]] = staticmethod(lambda server: ())

    def __init__(self, directory: Path, *flags: str, workers: int = 1, prefix: Sequence[str] = ()) -> None:
        self.directory, self.flags, self.workers, self.prefix = Path(directory), flags, workers, prefix
        self.data_dir = self.directory / "data"
        self.process: Any = None
        self._alive = -1  # the server ends when nobody has this end of the pipe
        self.url = ""
        self._lines: list[str] = []
        self._ready = threading.Event()
        self._announced = False
        self._reader: threading.Thread | None = None
        self._kept: socket.socket | None = None

    def __enter__(self) -> KasServer:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.stop()
        if kind is None:
            self.check()

    def start(self) -> KasServer:
        """Returns when the server is ready; raises RuntimeError with its output when it does not get there, and for one that runs."""
        if self._alive >= 0:
            if self.process.poll() is None:
                raise RuntimeError("the server is running: stop() or kill() it first")
            self._ended()
        self._ready.clear()
        self._announced = False
        given = " ".join(self.flags)
        flags = [*self.flags, *self.more(self)]
        if "--secure-port" not in given:
            # A restart keeps the port, so that clients find the server again.
            flags += ["--secure-port", self.url.rpartition(":")[2] if self.url else "auto"]
        if "--workers" not in given:
            flags += ["--workers", str(self.workers)]
        alive, held = os.pipe()
        child = [sys.executable, "-m", "kas.testing.child", str(alive)]
        try:
            self.process = subprocess.Popen(
                [*self.prefix, *child, "serve", "--data-dir", str(self.data_dir), *flags], stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}, pass_fds=(alive,),
            )  # fmt: skip
        except OSError:  # a prefix that is not there, say
            os.close(held)
            raise
        finally:
            os.close(alive)
        self._alive = held
        self._reader = threading.Thread(target=self._read, args=(self.process,), daemon=True)
        self._reader.start()
        if not self._ready.wait(START_TIMEOUT_S) or not self._announced:
            self.kill()
            raise RuntimeError(f"kas did not start:\n{self.output}")
        if self._kept is None and not re.search("--(bind-address|secure-port)", given):
            self._keep_port()
        return self

    def _keep_port(self) -> None:
        """Binds the server's port here, too: while it is down ``bind(0)`` of somebody else could be given it. Nobody listens there then."""
        kept = socket.socket()
        for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
            kept.setsockopt(socket.SOL_SOCKET, option, 1)
        try:
            kept.bind(("127.0.0.1", self.port))
        except OSError:  # a server of another user's, by its prefix, shares its port with nobody
            kept.close()
        else:
            self._kept = kept
            weakref.finalize(self, kept.close)

    def _read(self, process: subprocess.Popen) -> None:
        assert process.stdout is not None  # opened as a pipe
        for line in process.stdout:
            self._lines.append(line)
            found = READY.search(line)
            if found:
                self.url = found.group(1) or found.group(2)
                self._announced = True
                self._ready.set()
        self._ready.set()  # the end of its output: it is over

    @property
    def output(self) -> str:
        """Everything the server has written so far."""
        return "".join(self._lines)

    def check(self) -> None:
        """Raises AssertionError with the server's output when it has met a bug of its own: a request that panicked, a task that died."""
        if BUG.search(self.output):
            raise AssertionError(f"the server met a bug of its own:\n{self.output}")

    @property
    def pid(self) -> int:
        """The id of the process that was started. RuntimeError before that."""
        if self.process is None:
            raise RuntimeError("the server was not started")
        return self.process.pid

    def worker_pids(self) -> list[int]:
        """The processes that answer requests, once there are exactly as many as were asked for.

        A first start has one child more for a moment, which makes the keys nobody waits for, and a worker that died is one too few until
        it is replaced. Raises RuntimeError with the server's output when it does not come to that within `START_TIMEOUT_S`.
        """
        given = re.search(r"--workers[ =](\d+)", " ".join(self.flags))
        wanted = int(given.group(1)) if given else self.workers
        until = time.monotonic() + START_TIMEOUT_S
        while len(found := [p for p in _children(self.pid) if _name(p) not in BESIDE]) != wanted:
            if time.monotonic() >= until:
                raise RuntimeError(f"{len(found)} processes and not {wanted}:\n{self.output}")
            time.sleep(0.02)
        return found

    def front_pid(self) -> int:
        """The process that ends TLS; 0 when there is none."""
        return next((p for p in _children(self.pid) if _name(p) == FRONT), 0)

    @property
    def port(self) -> int:
        """The port that is served, whatever was asked for. RuntimeError before the server was started."""
        if not self.url:
            raise RuntimeError("the server was not started")
        return int(self.url.rpartition(":")[2])

    @property
    def kubeconfig(self) -> str:
        """The path of the administrator's kubeconfig."""
        return str(self.data_dir / "admin.kubeconfig")

    @property
    def token(self) -> str:
        """The administrator's bearer token."""
        return (self.data_dir / "admin.token").read_text().strip()

    @property
    def ca(self) -> str:
        """The path of the certificate of the authority that signed the server's."""
        return str(self.data_dir / "pki" / "ca.crt")

    def stop(self) -> int:
        """Ends the server as an operator would (SIGTERM); returns its exit code. Kills what does not end in time."""
        if self.process is None:
            return 0
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill()
        return self._ended()

    def kill(self) -> None:
        """kill -9 of the supervisor and its workers."""
        if self.process is None:
            return
        for pid in [*_children(self.process.pid), self.process.pid]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._ended()

    def _ended(self) -> int:
        code = self.process.wait()
        if self._alive >= 0:
            os.close(self._alive)
            self._alive = -1
        if self._reader is not None:
            self._reader.join(5)
        self.process.stdout.close()
        return code


def _name(pid: int) -> str:
    """What a process calls itself; empty for one that has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _children(pid: int) -> list[int]:
    """Direct children of a process."""
    try:
        return [int(p) for t in Path(f"/proc/{pid}/task").iterdir() for p in (t / "children").read_text().split()]
    except OSError:
        return []
