"""A kas server as a child process, for tests of any kind. Uses only the standard library."""

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
# Signs of a server bug in its output: the panic_recovery filter's line, and messages of asyncio and the interpreter.
BUG = re.compile(r"apiserver panic'd on|exception was never retrieved|Fatal Python error")
FRONT = "kas-front"
BESIDE = (FRONT, "kas-replicator")  # child processes that serve no requests
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0


class KasServer:
    """A context manager that runs ``kas serve`` on a free port with its data under ``directory``. The server ends with this program.

    ``url``, ``port``, ``kubeconfig`` (path), ``token``, ``ca`` (path), ``pid`` are valid once started. ``output`` is what it has printed so
    far. ``prefix`` is a command that runs the rest of its command line, for example under limits.
    """

    # Flags that a test run passes to every server, unless a test sets them.
    more: Callable[[KasServer], Sequence[str]] = staticmethod(lambda server: ())

    def __init__(self, directory: Path, *flags: str, workers: int = 1, prefix: Sequence[str] = ()) -> None:
        self.directory, self.flags, self.workers, self.prefix = Path(directory), flags, workers, prefix
        self.data_dir = self.directory / "data"
        self.process: Any = None
        self._alive = -1  # the server ends when this end of the pipe is closed
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
        """Return when the server is ready. Raises RuntimeError with its output if it fails to start, and if it is already running."""
        if self._alive >= 0:
            if self.process.poll() is None:
                raise RuntimeError("the server is running: stop() or kill() it first")
            self._ended()
        self._ready.clear()
        self._announced = False
        given = " ".join(self.flags)
        flags = [*self.flags, *self.more(self)]
        if "--secure-port" not in given:
            # A restart keeps the port, so that clients reconnect to the server.
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
        except OSError:  # for example if the prefix does not exist
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
        """Bind the server's port here, too, without listening: while the server is down, no other ``bind(0)`` can then get it."""
        kept = socket.socket()
        for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
            kept.setsockopt(socket.SOL_SOCKET, option, 1)
        try:
            kept.bind(("127.0.0.1", self.port))
        except OSError:  # a server that the prefix runs as another user does not share its port
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
        self._ready.set()  # end of its output: the server has ended

    @property
    def output(self) -> str:
        """Everything the server has written so far."""
        return "".join(self._lines)

    def check(self) -> None:
        """Raise AssertionError with the server's output if it contains a bug: a panicked request, or a task that died."""
        if BUG.search(self.output):
            raise AssertionError(f"the server met a bug of its own:\n{self.output}")

    @property
    def pid(self) -> int:
        """The id of the started process. Raises RuntimeError before the start."""
        if self.process is None:
            raise RuntimeError("the server was not started")
        return self.process.pid

    def worker_pids(self) -> list[int]:
        """Return the processes that serve requests, once there are exactly as many as configured.

        A first start briefly has an additional child, which generates the keys that are not needed yet, and a worker that died is missing
        until it is replaced. Raises RuntimeError with the server's output if the number is not reached within `START_TIMEOUT_S`.
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
        """Return the process that terminates TLS; 0 if there is none."""
        return next((p for p in _children(self.pid) if _name(p) == FRONT), 0)

    @property
    def port(self) -> int:
        """The port that is served, whatever was requested. Raises RuntimeError before the start."""
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
        """Stop the server as an operator would (SIGTERM), killing it if it does not end in time; return its exit code."""
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
        """Kill the supervisor and its workers with SIGKILL."""
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
    """Return the name of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _children(pid: int) -> list[int]:
    """Return the direct children of a process."""
    try:
        return [int(p) for t in Path(f"/proc/{pid}/task").iterdir() for p in (t / "children").read_text().split()]
    except OSError:
        return []
