"""A client that GETs one ConfigMap all the while, and what the server says of its loop meanwhile."""

from __future__ import annotations

import contextlib
import http.client
import json
import math
import os
import re
import socket
import ssl
import statistics
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

from kas.testing.server import KasServer

COLLECTION = "/api/v1/namespaces/kube-system/configmaps"
PATH = f"{COLLECTION}/bystander"
# Quiet is the last second in which nobody attacked the server, in windows: the first bystander serves all of them, a later one the last
# anew when that is so old, or when it was not served as in them.
WINDOW_S, WINDOWS, OLD_S = 0.25, 4, 5.0
# p99 may be three times the quiet one, and as long as so many quiet GETs take, because what is validated beside the loop shares the
# interpreter's lock with it: each turn of the other side is a millisecond, or one call into compiled code (docs/threat-model.md).
P99_RATIO, P99_GETS = 3.0, 150
# Nothing may hold the loop for longer than it takes the worker, of its own time, to answer so many quiet GETs.
HELD_GETS = 1500
AT_MOST = 5  # times that an attack is tried
# After so many GETs beside an attack it waits after each for as long as that one took: it is there to see what an attack does, and not to
# have half of the machine. What stands still now and then is met by more of its GETs so.
AT_ONCE = 300
T = TypeVar("T")
_BUCKET = re.compile(r'^apiserver_event_loop_held_seconds_bucket\{le="([^"]+)"\} (\S+)$', re.M)
_ECHO = """
import socket, sys
s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1], flush=True)
c = s.accept()[0]
while data := c.recv(64):
    c.sendall(data)
"""


class Echo:
    """A process that answers at once: how long that takes is what the machine, and this process, add to every answer."""

    def __init__(self) -> None:
        self._process = subprocess.Popen([sys.executable, "-c", _ECHO], stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self._socket = socket.create_connection(("127.0.0.1", int(self._process.stdout.readline())), 60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self) -> float:
        """Seconds until the answer is there."""
        start = time.monotonic()
        self._socket.sendall(b"x")
        self._socket.recv(64)
        return time.monotonic() - start

    def close(self) -> None:
        """Ends the process."""
        self._socket.close()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process.wait(60)


class Queued:
    """How long this thread and a server's loops were ready to run and did not, because the machine's processors ran others: what no
    server can help. So does a thread that holds the interpreter's lock, for which they wait then: the one that was kept longest counts.
    Nothing where the system does not tell (Linux's ``schedstat``)."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._looked_after = {os.getpid(): threading.get_native_id(), **{pid: pid for pid in pids}}
        self._files: dict[tuple[int, int], int] = {}

    def look(self) -> dict[tuple[int, int], int]:
        """Nanoseconds of each thread of these processes so far."""
        found = {}
        for pid in self._looked_after:
            with contextlib.suppress(OSError):
                for tid in map(int, os.listdir(f"/proc/{pid}/task")):
                    with contextlib.suppress(OSError, IndexError):  # one that has just ended
                        if (file := self._files.get((pid, tid), -1)) < 0:
                            file = self._files[pid, tid] = os.open(f"/proc/{pid}/task/{tid}/schedstat", os.O_RDONLY)
                        found[pid, tid] = int(os.pread(file, 100, 0).split()[1])
        return found

    def since(self, before: dict[tuple[int, int], int]) -> float:
        """Seconds since then: of this process, and of the server's that was kept longest."""
        kept = {pid: [0, 0] for pid in self._looked_after}  # the thread that is looked after, and the longest of the others
        for (pid, tid), now in self.look().items():
            other = tid != self._looked_after[pid]
            kept[pid][other] = max(kept[pid][other], now - before.get((pid, tid), now))
        own, *servers = (sum(both) * 1e-9 for both in kept.values())
        return own + max(servers, default=0.0)

    def close(self) -> None:
        """Gives the files back."""
        for file in self._files.values():
            os.close(file)


def processor_seconds(pids: Iterable[int]) -> float:
    """Seconds of processor time that these processes have used, by the clocks of their own (``clock_getcpuclockid``): the kernel's ticks of
    10 ms, in which ``/proc`` tells it, may all fall on others where a process gets a millisecond now and then."""
    return sum(time.clock_gettime(~pid << 3 | 2) for pid in pids)


class Times(NamedTuple):
    """What requests took, the disturbed ones without the time in which the processors ran others, and what the echo took beside each."""

    gets: list[float]
    echoes: list[float]


class Quiet(NamedTuple):
    """A window: what requests took, how many seconds of processor time the workers did for them, and when it ended."""

    times: Times
    worker_s: float
    ended: float


_quiet: dict[int, deque[Quiet]] = {}  # by the server's process


class Bystander:
    """``beside(attack)`` asserts that this client was served during an attack as it is when all is quiet. Or a context manager, outside of
    which it is quiet, and after which ``why`` says what others did to it."""

    def __init__(self, server: KasServer, echo: Echo) -> None:
        self._server, self._echo = server, echo
        self.errors: list[str] = []
        self._make()
        self._windows = _quiet.setdefault(server.worker_pids()[0], deque(maxlen=WINDOWS))
        self.look_at_quiet(OLD_S)
        self.disturbed = Times([], [])

    def look_at_quiet(self, old_s: float = 0.0) -> None:
        """What it is like when nobody attacks, of which the newest window is at most so old."""
        windows = self._windows
        if not windows or time.monotonic() - windows[-1].ended > old_s:
            for _ in range(1 if windows else WINDOWS):
                began = self._processor()
                windows.append(Quiet(self._serve_for(WINDOW_S), self._processor() - began, time.monotonic()))
        self.quiet = Times([t for w in windows for t in w.times.gets], [t for w in windows for t in w.times.echoes])
        self.get_s = sum(w.worker_s for w in windows) / len(self.quiet.gets)  # of the server's own time

    def __enter__(self) -> Bystander:
        self._stop, self._began = threading.Event(), threading.Event()
        self._held = self._holds()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self._began.wait(60)  # an attack may be over before a thread has begun
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if kind is None:
            self._now = self._holds()  # what is cleaned up after an attack is not its doing

    def beside(self, attack: Callable[[], T]) -> T:
        """What ``attack()`` gave. Tried again when this client was not served meanwhile, as somebody else may have had the machine: what an
        attack does by itself it does again. Asserts that one of them left it its answers."""
        for tries in range(AT_MOST):
            if tries:
                self.look_at_quiet()
            with self:
                given = attack()
            if not self.why():
                break
        self.check()
        return given

    def _processor(self) -> float:
        return processor_seconds(self._server.worker_pids())

    def _make(self) -> None:
        connection = self._connect()
        body = json.dumps({"metadata": {"name": "bystander"}, "data": {"a": "1"}})
        headers = {"Authorization": f"Bearer {self._server.token}", "Content-Type": "application/json"}
        connection.request("POST", COLLECTION, body, headers)
        answer = connection.getresponse()
        assert answer.status in (201, 409), answer.read()
        connection.close()

    def _run(self) -> None:
        try:
            self.disturbed = self._serve_for(0.0)
        finally:
            self._began.set()

    def _connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection("127.0.0.1", self._server.port, timeout=60, context=self._context())

    def _context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self._server.ca)

    def _serve_for(self, seconds: float) -> Times:
        """What each request took, until ``seconds`` have passed or, for 0, until it is told to stop. What others had of the processors is
        taken off then: the quiet ones are what the disturbed ones are held against, and stay as they were."""
        connection, took = self._connect(), Times([], [])
        queued, began = Queued(self._server.worker_pids()), time.monotonic()
        while not took.gets or (not self._stop.is_set() if not seconds else time.monotonic() - began < seconds):
            waited, start = queued.look(), time.monotonic()
            try:
                self._get(connection, PATH)
            except (OSError, http.client.HTTPException, AssertionError) as e:
                self.errors.append(f"{type(e).__name__}: {e}")
                connection.close()
                connection = self._connect()
            spent = time.monotonic() - start
            took.gets.append(spent if seconds else max(0.0, spent - queued.since(waited)))
            took.echoes.append(self._echo.ask())
            if not seconds:
                self._began.set()
                if len(took.gets) > AT_ONCE:
                    self._stop.wait(spent)
        queued.close()
        connection.close()
        return took

    def _get(self, connection: http.client.HTTPSConnection, path: str) -> bytes:
        connection.request("GET", path, headers={"Authorization": f"Bearer {self._server.token}"})
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == 200, f"{answer.status} {body[:200]!r}"
        return body

    def _holds(self) -> dict[float, float]:
        """How often the loop was held for at most so long, of the worker's own time."""
        connection = self._connect()
        try:
            return {float(le): float(n) for le, n in _BUCKET.findall(self._get(connection, "/metrics").decode())}
        finally:
            connection.close()

    def why(self) -> str:
        """What others did to it: "" when the disturbed one was served like the quiet one, up to what the machine added to every answer
        meanwhile. Errors are asserted. After the context."""
        assert not self.errors, self.errors[:3]
        assert self.disturbed.gets, "no request was answered"
        noise = max(1.0, _p99(self.disturbed.echoes) / _p99(self.quiet.echoes))
        now, most = self._now, HELD_GETS * self.get_s * noise
        bound = min((le for le in now if le >= most), default=math.inf)
        if now[math.inf] - now[bound] > self._held[math.inf] - self._held[bound]:
            return f"the loop was held for more than {bound} s; a quiet GET takes {self.get_s * 1000:.2f} ms of the worker"
        quiet, disturbed = _p99(self.quiet.gets), _p99(self.disturbed.gets)
        allowed = noise * (P99_RATIO * quiet + P99_GETS * statistics.median(self.quiet.gets))
        if disturbed <= allowed:
            return ""
        shown = [f"{x * 1000:.1f} ms" for x in (disturbed, allowed, quiet)]
        return "p99 {}, allowed {}; quiet {}".format(*shown) + f", the machine slower by {noise:.1f}"

    def check(self) -> None:
        """Asserts that there is no ``why``."""
        why = self.why()
        assert not why, why


def _p99(times: list[float]) -> float:
    return sorted(times)[len(times) * 99 // 100]
