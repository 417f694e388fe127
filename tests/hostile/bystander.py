"""A client that repeatedly GETs one ConfigMap, and measures how long the server's event loops are blocked meanwhile."""

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
# "Quiet" is measured in windows: the last second in which nothing attacked the server. The first bystander of a server measures all
# windows, a later one only the last
# one, again if it is old or if the server was slower than in it.
WINDOW_S, WINDOWS, OLD_S = 0.25, 4, 5.0
# The p99 may be three times the quiet p99, or as long as this many quiet GETs, because validation off the event loop shares the
# interpreter's lock with it: each time the lock is taken, it is kept for a millisecond or for one call into compiled code
# (docs/threat-model.md).
P99_RATIO, P99_GETS = 3.0, 150
# Nothing may block the loop for longer than the processor time in which the worker answers this many quiet GETs.
HELD_GETS = 1500
AT_MOST = 5  # how often an attack is tried
# After this many GETs during an attack, it pauses after each for as long as that one took. It measures the attack, and should
# not use half of the machine. Longer delays are met by more GETs in this way.
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
    """A process that answers at once: its delay is what the machine, and this process, add to every answer."""

    def __init__(self) -> None:
        self._process = subprocess.Popen([sys.executable, "-c", _ECHO], stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self._socket = socket.create_connection(("127.0.0.1", int(self._process.stdout.readline())), 60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self) -> float:
        """Returns the seconds until the answer."""
        start = time.monotonic()
        self._socket.sendall(b"x")
        self._socket.recv(64)
        return time.monotonic() - start

    def close(self) -> None:
        """Stops the process."""
        self._socket.close()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process.wait(60)


class Queued:
    """Measures how long this thread and a server's loops were ready to run but did not, because the machine's processors ran other
    programs, which no server can prevent. A thread that holds the interpreter's lock makes them wait, too: the one that waited longest
    counts. Zero where the system has no ``schedstat`` (Linux)."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._looked_after = {os.getpid(): threading.get_native_id(), **{pid: pid for pid in pids}}
        self._files: dict[tuple[int, int], int] = {}

    def look(self) -> dict[tuple[int, int], int]:
        """Returns the nanoseconds of each thread of these processes so far."""
        found = {}
        for pid in self._looked_after:
            with contextlib.suppress(OSError):
                for tid in map(int, os.listdir(f"/proc/{pid}/task")):
                    with contextlib.suppress(OSError, IndexError):  # a thread that has just ended
                        if (file := self._files.get((pid, tid), -1)) < 0:
                            file = self._files[pid, tid] = os.open(f"/proc/{pid}/task/{tid}/schedstat", os.O_RDONLY)
                        found[pid, tid] = int(os.pread(file, 100, 0).split()[1])
        return found

    def since(self, before: dict[tuple[int, int], int]) -> float:
        """Returns the seconds since then: of this process, and of the server's thread that waited longest."""
        kept = {pid: [0, 0] for pid in self._looked_after}  # the measured thread, and the longest of the others
        for (pid, tid), now in self.look().items():
            other = tid != self._looked_after[pid]
            kept[pid][other] = max(kept[pid][other], now - before.get((pid, tid), now))
        own, *servers = (sum(both) * 1e-9 for both in kept.values())
        return own + max(servers, default=0.0)

    def close(self) -> None:
        """Closes the files."""
        for file in self._files.values():
            os.close(file)


def processor_seconds(pids: Iterable[int]) -> float:
    """Returns the processor time in seconds that these processes have used, by their own clocks (``clock_getcpuclockid``). ``/proc``
    counts in ticks of 10 ms, which may miss a process that runs for a millisecond now and then."""
    return sum(time.clock_gettime(~pid << 3 | 2) for pid in pids)


class Times(NamedTuple):
    """Durations of requests (the disturbed ones without the time in which other programs had the processors), and of the echo beside each.
    """

    gets: list[float]
    echoes: list[float]


class Quiet(NamedTuple):
    """A window: the durations of requests, the workers' processor time for them in seconds, and when it ended."""

    times: Times
    worker_s: float
    ended: float


_quiet: dict[int, deque[Quiet]] = {}  # of the server's process


class Bystander:
    """``beside(attack)`` asserts that this client was served during an attack as it is without one. Or used as a context manager around an
    attack, after which ``why`` says how the attack affected it."""

    def __init__(self, server: KasServer, echo: Echo) -> None:
        self._server, self._echo = server, echo
        self.errors: list[str] = []
        self._make()
        self._windows = _quiet.setdefault(server.worker_pids()[0], deque(maxlen=WINDOWS))
        self.look_at_quiet(OLD_S)
        self.disturbed = Times([], [])

    def look_at_quiet(self, old_s: float = 0.0) -> None:
        """Measures the quiet state, unless the newest window is recent."""
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
        self._began.wait(60)  # an attack may end before a thread has started
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if kind is None:
            self._now = self._holds()  # cleaning up after an attack does not count

    def beside(self, attack: Callable[[], T]) -> T:
        """Returns the result of ``attack()``. If this client was slow, the attack is repeated, because another program may have slowed it
        down; an attack that is effective is so every time. Asserts that one attempt was harmless."""
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
        """Sends requests until ``seconds`` have passed or, for 0, until it is stopped; returns their durations. Time in which other
        programs had the processors is subtracted from disturbed requests only: the quiet ones are what they are compared with."""
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
        """Returns how often the loop was blocked, by duration in the worker's own time."""
        connection = self._connect()
        try:
            return {float(le): float(n) for le, n in _BUCKET.findall(self._get(connection, "/metrics").decode())}
        finally:
            connection.close()

    def why(self) -> str:
        """Returns how the attack affected this client: "" if the disturbed requests were as fast as the quiet ones, up to the delay that
        the machine added to every answer. Asserts that there were no errors. To be called after the context."""
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
        """Asserts that ``why`` is empty."""
        why = self.why()
        assert not why, why


def _p99(times: list[float]) -> float:
    return sorted(times)[len(times) * 99 // 100]
