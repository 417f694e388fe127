"""Three servers on one etcd behind a TCP balancer that asks each for /readyz, and behind haproxy as ``docs/deploy`` configures it. One
after the other is stopped and started again, as in a rolling upgrade. No client that writes, reads or watches through the balancer sees an
error."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kas.testing.server import KasServer
from tests import ports, prerequisites
from tests.aggregator.certificates import Authority
from tests.controllers.waiting import until
from tests.etcd import Etcd

pytestmark = pytest.mark.long

DEPLOYED = Path(__file__).parents[2] / "docs" / "deploy" / "haproxy.cfg"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
CHECK_S = 0.1  # the balancer's interval; two checks fail within the shutdown delay of 3 s, on most busy machines as well
DELAYS_S = 3, 40
TOKEN = "secret"


class Balancer:
    """Distributes connections to ready servers in turn, and to another one if one cannot be reached; a context manager."""

    def __init__(self, ports: list[int], ca: str) -> None:
        self._context = ssl.create_default_context(cafile=ca)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = int(self._listener.getsockname()[1])
        self.ready = dict.fromkeys(ports, False)
        self._turns = itertools.count()
        self._ended = threading.Event()

    def __enter__(self) -> Balancer:
        for port in self.ready:
            threading.Thread(target=self._check, args=(port,), daemon=True).start()
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _check(self, port: int) -> None:
        while not self._ended.wait(CHECK_S):
            connection = http.client.HTTPSConnection("127.0.0.1", port, context=self._context, timeout=60)
            try:
                connection.request("GET", "/readyz", headers={"Authorization": f"Bearer {TOKEN}"})
                self.ready[port] = connection.getresponse().status == 200
            except (OSError, http.client.HTTPException):
                self.ready[port] = False
            finally:
                connection.close()

    def _accept(self) -> None:
        while not self._ended.is_set():
            try:
                near = self._listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        with near:
            up = [port for port, ready in self.ready.items() if ready]
            at = next(self._turns)
            for port in (up[(at + i) % len(up)] for i in range(len(up))):
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)) as far:
                    back = threading.Thread(target=_relay, args=(far, near), daemon=True)
                    back.start()
                    _relay(near, far)
                    back.join()
                    return


def _relay(a: socket.socket, b: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := a.recv(1 << 16):
            b.sendall(data)
    with contextlib.suppress(OSError):
        b.shutdown(socket.SHUT_WR)


class Haproxy:
    """haproxy with the file of ``docs/deploy`` except for its ports, and with checks as often as ``Balancer`` makes them."""

    def __init__(self, servers: list[int], ca: str) -> None:
        directory = Path(ca).parent
        self.port, self._servers, self._log = ports.reserve(), servers, directory / "haproxy.log"
        text = DEPLOYED.read_text().replace("bind :6443", f"bind 127.0.0.1:{self.port}")
        text = text.replace("inter 2s", f"inter {CHECK_S * 1000:.0f}ms")
        for number, port in enumerate(servers, 1):
            text = text.replace(f'"${{KAS_{number}}}":6443', f'"${{KAS_{number}}}":{port}')
        (directory / "haproxy.cfg").write_text(text)
        self._command = prerequisites.program("haproxy", "Debian's haproxy"), "-db", "-f", str(directory / "haproxy.cfg")
        self._environment = os.environ | {"KAS_CA": ca} | {f"KAS_{number}": "127.0.0.1" for number in range(1, len(servers) + 1)}

    def __enter__(self) -> Haproxy:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._command, env=self._environment, stdout=log, stderr=log)
        until(self._listens)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def _listens(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
            return True
        return False

    @property
    def ready(self) -> dict[int, bool]:
        """Whether a server is ready. A server of which nothing else is known counts as ready."""
        last = dict(re.findall(r"Server kas/kas-(\d) is (UP|DOWN)", self._log.read_text()))
        return {port: last.get(str(number), "UP") == "UP" for number, port in enumerate(self._servers, 1)}


class Caller:
    """One persistent connection, used until the server asks for another one. A request whose connection breaks before an answer is
    repeated on a new one, as Go's client does with requests that may be repeated. ``again`` counts these."""

    def __init__(self, port: int, ca: str) -> None:
        self._connection = http.client.HTTPSConnection("127.0.0.1", port, context=ssl.create_default_context(cafile=ca), timeout=60)
        self.again = 0

    def __call__(self, method: str, path: str, body: Any = None) -> int:
        sent = None if body is None else json.dumps(body)
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        while (status := self._once(method, path, sent, headers)) == 429:
            time.sleep(CHECK_S)  # "shutting down, try again": client-go does the same, and waits longer
        return status

    def _once(self, method: str, path: str, sent: str | None, headers: dict[str, str]) -> int:
        for attempt in (0, 1):
            try:
                self._connection.request(method, path, sent, headers)
                answer = self._connection.getresponse()
                answer.read()
                return answer.status
            except (OSError, http.client.HTTPException):
                self._connection.close()
                if attempt:
                    raise
                self.again += 1
        raise AssertionError("unreachable")

    def newest(self) -> int:
        """Returns the revision of a list."""
        self._connection.request("GET", CONFIG_MAPS, headers={"Authorization": f"Bearer {TOKEN}"})
        revision = int(json.loads(self._connection.getresponse().read())["metadata"]["resourceVersion"])
        self._connection.close()
        return revision

    def watch(self, after: int) -> Iterator[dict[str, Any]]:
        """Yields the events of one watch until it ends; none if it breaks before it was answered. The watcher then starts again."""
        headers = {"Authorization": f"Bearer {TOKEN}"}
        with contextlib.closing(self._connection):
            try:
                self._connection.request("GET", f"{CONFIG_MAPS}?watch=1&labelSelector=rolling&resourceVersion={after}", headers=headers)
                answer = self._connection.getresponse()
            except (OSError, http.client.HTTPException):
                self.again += 1
                return
            if answer.status == 429:  # as above
                time.sleep(CHECK_S)
                return
            assert answer.status == 200, answer.read()
            with contextlib.suppress(OSError, http.client.HTTPException):
                while line := answer.readline():
                    yield json.loads(line)


class Load:
    """Writers and a watcher that use the balancer until ``end``."""

    def __init__(self, port: int, ca: str) -> None:
        self._port, self._ca, self._ended = port, ca, threading.Event()
        self.statuses: Counter[tuple[str, int]] = Counter()
        self.failed: list[BaseException] = []
        self.made: list[str] = []
        self.seen: list[str] = []
        self.again, self._began = 0, Caller(port, ca).newest()  # the replicas of servers that started later do not reach back further
        self._threads = [threading.Thread(target=self._guarded, args=(self._write, i)) for i in range(3)]
        self._watcher = threading.Thread(target=self._guarded, args=(self._watch, 0), daemon=True)
        for thread in (*self._threads, self._watcher):
            thread.start()

    def _guarded(self, run: Any, number: int) -> None:
        try:
            run(number)
        except BaseException as e:
            self.failed.append(e)

    def _write(self, number: int) -> None:
        call = Caller(self._port, self._ca)
        for i in itertools.count():
            if self._ended.is_set():
                self.again += call.again
                return
            name = f"r{number}-{i}"
            meta = {"name": name, "labels": {"rolling": "yes"}}
            before = call.again
            status = call("POST", CONFIG_MAPS, {"metadata": meta})
            if status == 409 and call.again > before:
                status = 201  # the first attempt was executed, and its answer was lost with the connection
            self.statuses["POST", status] += 1
            self.made.append(name)
            self.statuses["GET", call("GET", f"{CONFIG_MAPS}/{name}")] += 1
            self.statuses["PUT", call("PUT", f"{CONFIG_MAPS}/{name}", {"metadata": meta, "data": {"i": str(i)}})] += 1

    def _watch(self, _: int) -> None:
        after, broken = self._began, 0
        while True:
            call = Caller(self._port, self._ca)
            for event in call.watch(after):
                meta = event["object"]["metadata"]
                assert event["type"] in ("ADDED", "MODIFIED") and int(meta["resourceVersion"]) > after, event
                after = int(meta["resourceVersion"])
                if meta["name"] == "last":
                    return
                if event["type"] == "ADDED":
                    self.seen.append(meta["name"])
            broken = broken + 1 if call.again else 0
            assert broken < 3, "watches cannot be begun"

    def end(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(120)
        assert Caller(self._port, self._ca)("POST", CONFIG_MAPS, {"metadata": {"name": "last", "labels": {"rolling": "yes"}}}) == 201
        self._watcher.join(60)


@contextlib.contextmanager
def serving(directory: Path, delay_s: float) -> Iterator[tuple[list[KasServer], str]]:
    """Three servers with a shutdown delay, and the CA of their certificates."""
    authority = Authority(directory, "serving")
    certificate, key = authority.issue("server", ["127.0.0.1", "localhost"])
    tokens = directory / "tokens"
    tokens.write_text(f'{TOKEN},admin,uid,"system:masters"\n')
    with contextlib.ExitStack() as stack:
        etcd = stack.enter_context(Etcd(directory))
        flags = (
            "--storage-backend=etcd3", f"--etcd-servers={etcd.url}", "--advertise-address=127.0.0.1", f"--tls-cert-file={certificate}",
            f"--tls-private-key-file={key}", f"--token-auth-file={tokens}", f"--shutdown-delay-duration={delay_s:g}s",
        )  # fmt: skip
        all_ = [stack.enter_context(KasServer(directory / f"kas{i}", *flags)) for i in range(3)]
        yield all_, str(authority.file)
        with ThreadPoolExecutor(len(all_)) as pool:  # each waits for its delay
            assert list(pool.map(KasServer.stop, all_)) == [0] * len(all_)


def ended(server: KasServer, between: Balancer | Haproxy) -> float:
    """Stops a server; returns after how many seconds the balancer knew of it."""
    began, port = time.monotonic(), server.port
    server.process.send_signal(signal.SIGTERM)
    until(lambda: not between.ready[port])
    known = time.monotonic() - began
    assert server.process.wait(120) == 0
    assert server.stop() == 0
    return known


def rolled(directory: Path, delay_s: float, between: type[Balancer | Haproxy]) -> tuple[Load, float]:
    """Returns the errors that clients saw while each server was stopped and started again, and the longest time until the balancer knew of
    a stop."""
    known = 0.0
    with serving(directory, delay_s) as (all_, ca), between([server.port for server in all_], ca) as balancer:
        until(lambda: all(balancer.ready.values()))
        load = Load(balancer.port, ca)
        try:
            for server in all_:
                count = load.statuses.total()
                until(lambda count=count: load.failed or load.statuses.total() > count + 30)
                port = server.port
                known = max(known, ended(server, balancer))
                server.start()
                assert server.port == port
                until(lambda port=port: balancer.ready[port])
        finally:
            load.end()
    return load, known


@pytest.mark.timeout(900)
@pytest.mark.parametrize("between", [Balancer, Haproxy])
def test_a_rolling_restart_behind_a_balancer_causes_no_error(tmp_path: Path, between: type[Balancer | Haproxy]) -> None:
    """If the balancer did not get a processor until the server was gone, the test is repeated with a longer delay: that is not the
    server's fault."""
    for delay_s in DELAYS_S:
        directory = tmp_path / f"{delay_s}"
        directory.mkdir()
        load, known = rolled(directory, delay_s, between)
        if not load.failed or known < delay_s:
            break
    assert load.failed == []
    assert set(load.statuses) == {("POST", 201), ("GET", 200), ("PUT", 200)}, load.statuses
    assert len(load.seen) == len(set(load.seen)) and set(load.seen) == set(load.made)
