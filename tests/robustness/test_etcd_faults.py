"""Several servers on an etcd cluster of three while members and servers are killed, suspended, cut off and slowed down, and the servers'
clocks jump (``test_clock_jumps.py`` tests these in detail).

No acknowledged write is lost, no read without a revision is older than what was acknowledged before it, and watches keep their promises
over every server. KAS_ROBUSTNESS_SECONDS (6) is how long the test writes, KAS_ROBUSTNESS_SEED chooses the faults.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import requests

from kas.store import StoreError
from kas.store.etcd import etcd_pb2 as pb
from kas.store.etcd.client import COMPACT, RANGE
from kas.store.etcd.client import Client as EtcdClient
from kas.testing.server import KasServer
from tests import processes
from tests.conftest import Client
from tests.etcd import Cluster, Etcd
from tests.robustness.links import Link, Linked, ways
from tests.robustness.shims import Clock
from tests.robustness.test_watch_promises import KEYS, PATH, SECONDS, Recorder
from tests.robustness.watch_model import Write

SEED = int(os.environ.get("KAS_ROBUSTNESS_SEED", "1"))
STARTS = 5
NOT_DONE = (404, 409, 429, 503)  # the server says that the write has not happened


@dataclass
class Register:
    """What is known of a key with one writer: the value acknowledged last (None: deleted), and those that may have been written since."""

    value: str | None = None
    revision: int = 0
    maybe: list[str | None] = field(default_factory=list)

    def acknowledged(self, value: str | None, revision: int = 0) -> None:
        # A create with an unknown outcome may still happen after a delete; otherwise the existing object prevents it.
        self.maybe = [v for v in self.maybe if v is not None] if value is None else []
        self.value, self.revision = value, max(revision, self.revision)

    def allows(self, value: str | None) -> bool:
        return value == self.value or value in self.maybe


class Several(Recorder):
    """Writers and watchers of several servers; each request goes to any of them."""

    def __init__(self, servers: list[KasServer]) -> None:
        self._rnd = random.Random(SEED)
        super().__init__(servers[0], lambda _: Client(self._asked()))
        self.servers = servers
        self.pauses: list[tuple[float, float]] = []  # the longest pauses between two acknowledged puts: seconds, and when they ended
        self._acknowledged = time.monotonic()
        self.registers: dict[str, Register] = {}
        self.stale: list[str] = []
        self.reads = self.unknown = self.refused = 0

    def _asked(self) -> KasServer:
        return self._rnd.choice(self.servers)

    def _write(self, i: int) -> None:
        rnd, n, own = random.Random(1000 * SEED + i), 0, [Client(server) for server in self.servers]
        while not self.stop_writing.is_set():
            n += 1
            key, value = f"p{i}-{rnd.randrange(KEYS)}", f"{i}.{n}"
            register = self.registers.setdefault(key, Register())
            wanted = None if rnd.random() < 0.25 else value
            try:
                self._attempt(rnd.choice(own), key, wanted, register)
                self._read(rnd.choice(own), key, register)
            except requests.RequestException:
                register.maybe.append(wanted)
                self.unknown += 1
                time.sleep(0.05)

    def _attempt(self, client: Client, key: str, value: str | None, register: Register) -> None:
        if value is None:
            status, _ = client("DELETE", f"{PATH}/{key}")
            if status == 200:
                return register.acknowledged(None)
        else:
            body = {"metadata": {"name": key, "labels": {"promise": "1"}}, "data": {"v": value}}
            status, answer = client("PUT", f"{PATH}/{key}", body)
            if status == 404:
                status, answer = client("POST", PATH, body)
            if status in (200, 201):
                revision = int(answer["metadata"]["resourceVersion"])
                register.acknowledged(value, revision)
                with self._lock:
                    self.writes.append(Write(revision, key, value))
                    now = time.monotonic()
                    self.pauses = sorted([*self.pauses, (now - self._acknowledged, now)])[-5:]
                    self._acknowledged = now
                return None
        if status in NOT_DONE:
            self.refused += 1
        else:
            assert status in (500, 504), status
            self.unknown += 1
            register.maybe.append(value)
        return None

    def _read(self, client: Client, key: str, register: Register) -> None:
        status, found = client("GET", f"{PATH}/{key}")
        if status not in (200, 404):
            assert status in (429, 500, 503, 504), (status, found)
            return
        self.reads += 1
        value = found["data"]["v"] if status == 200 else None
        if not register.allows(value) or (value is not None and int(found["metadata"]["resourceVersion"]) < register.revision):
            self.stale.append(f"{key}: {value} after {register}")

    def finish(self) -> None:
        super().finish()
        assert not self.stale, self.stale[:5]
        _, listed = self._list()
        lost = {key: (listed.get(key), r) for key, r in self.registers.items() if not r.allows(listed.get(key))}
        assert not lost, lost
        for server in self.servers:
            assert "panic'd" not in server.output
        events = sum(len(s.events) for c in self.clients for s in c.sessions)
        bookmarks = events - sum(len(c.changes()) for c in self.clients)
        print(
            f"{len(self.writes)} puts, {self.reads} reads, {events} events, {bookmarks} of them bookmarks; "
            f"{self.unknown} unknown outcomes, {self.refused} refusals, {self.expired} watches expired"
        )


def children(server: KasServer, name: str) -> list[int]:
    """Returns children of a server: its "kas-replicator", or its workers ("python", whatever the interpreter is called)."""
    return [pid for pid, comm in processes.children(server.pid).items() if (comm == "kas-replicator") is (name == "kas-replicator")]


class Faults:
    """Faults of a cluster and its servers; ``heal`` undoes the last one."""

    def __init__(self, cluster: Cluster, servers: list[KasServer], clocks: list[Clock]) -> None:
        """``clocks`` are those of the servers."""
        self.cluster, self.servers, self.clocks, self.rnd = cluster, servers, clocks, random.Random(SEED)
        self._heal: list[Callable[[], object]] = []
        self.done: list[str] = []
        self.at: list[float] = []  # when each of ``done`` began
        self.failed: list[KasServer] = []  # servers that did not start again

    def heal(self) -> None:
        while self._heal:
            self._heal.pop()()

    def one(self, name: str) -> None:
        self.heal()
        self.done.append(name)
        self.at.append(time.monotonic())
        with contextlib.suppress(RuntimeError, StoreError, LookupError, ProcessLookupError):  # without a leader there is no target
            getattr(self, name)()

    def _kill(self, member: Etcd) -> None:
        member.kill()
        self._heal.append(lambda: member.spawn(*self.cluster.flags))

    def kill_leader(self) -> None:
        self._kill(self.cluster.leader())

    def kill_member(self) -> None:
        self._kill(self.rnd.choice(self.cluster.members))

    def _stop(self, member: Etcd) -> None:
        member.signal(signal.SIGSTOP)
        self._heal.append(lambda: member.signal(signal.SIGCONT))

    def stop_leader(self) -> None:
        self._stop(self.cluster.leader())

    def stop_member(self) -> None:
        self._stop(self.rnd.choice(self.cluster.members))

    def kill_replicator(self) -> None:
        os.kill(children(self.rnd.choice(self.servers), "kas-replicator")[0], signal.SIGKILL)

    def stop_replicator(self) -> None:
        pid = children(self.rnd.choice(self.servers), "kas-replicator")[0]
        os.kill(pid, signal.SIGSTOP)
        self._heal.append(lambda: self._go_on(pid))

    @staticmethod
    def _go_on(pid: int) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has been replaced
            os.kill(pid, signal.SIGCONT)

    def kill_worker(self) -> None:
        os.kill(self.rnd.choice(children(self.rnd.choice(self.servers), "python")), signal.SIGKILL)

    def kill_server(self) -> None:
        server = self.rnd.choice(self.servers)
        server.kill()
        self.cluster.answers()  # a server does not start without a store
        for attempt in range(STARTS):
            try:
                server.start()
                break
            except RuntimeError:  # within its minute, on a busy machine
                if attempt == STARTS - 1:
                    self.failed.append(server)

    def _isolate(self, member: Etcd) -> None:
        """Cuts a member off from the others in both directions."""
        raise NotImplementedError

    def isolate_leader(self) -> None:
        self._isolate(self.cluster.leader())

    def isolate_member(self) -> None:
        self._isolate(self.rnd.choice(self.cluster.members))

    def slow_leader(self) -> None:
        """The leader runs a tenth of the time, as on a disk or a core that other programs use up."""
        member, done = self.cluster.leader(), threading.Event()

        def hold() -> None:
            while not done.wait(0.02):
                member.signal(signal.SIGSTOP)
                done.wait(0.18)
                member.signal(signal.SIGCONT)

        thread = threading.Thread(target=hold)
        thread.start()

        def end() -> None:
            done.set()
            thread.join()

        self._heal.append(end)

    def jump_clock(self) -> None:
        """Changes a server's time of day until the next jump."""
        self.rnd.choice(self.clocks).jump(self.rnd.choice([-7200, -60, 0, 60, 7200]))

    def compact(self) -> None:
        client = EtcdClient(self.cluster.config)
        try:
            newest = client.call(RANGE, pb.RangeRequest(key=b"/"), 2.0).header.revision
            client.call(COMPACT, pb.CompactionRequest(revision=newest), 2.0)
        finally:
            client.close()


class LinkFaults(Faults):
    """Servers and members that are connected by TCP proxies."""

    def __init__(self, cluster: Linked, servers: list[KasServer], clocks: list[Clock], ways: list[list[Link]]) -> None:
        """``ways[i]`` are the links of ``servers[i]`` to the members."""
        super().__init__(cluster, servers, clocks)
        self._join, self._cut, self.ways = cluster.join, cluster.isolate, ways

    def _isolate(self, member: Etcd) -> None:
        self._heal.append(self._join)
        self._cut(member)

    def _links(self) -> list[Link]:
        links = self.rnd.choice(self.ways)
        self._heal.extend(link.heal for link in links)
        return links

    def stall_server(self) -> None:
        """Nothing that the server sends reaches etcd, and it gets no error."""
        for link in self._links():
            link.stall()

    def cut_server(self) -> None:
        for link in self._links():
            link.cut()

    def garble_server(self) -> None:
        """The server receives noise."""
        for link in self._links():
            link.garble(lambda said: os.urandom(len(said)))

    def slow_server(self) -> None:
        for link in self._links():
            link.slow(20_000)


ALL = [
    "kill_leader", "stall_server", "isolate_leader", "stop_leader", "kill_replicator", "kill_member", "compact", "stop_member",
    "kill_worker", "stop_replicator", "kill_server", "isolate_member", "cut_server", "slow_server", "slow_leader",
    "garble_server", "jump_clock",
]  # fmt: skip


def promises_hold(servers: list[KasServer], faults: Faults, every: list[str]) -> None:
    """Writes, reads and watches while one fault of ``every`` after the other happens."""
    recorder = Several(servers)
    recorder.start()
    # A short run has only a few faults, which KAS_ROBUSTNESS_SEED changes; a long one has all of them, many times.
    names = every[:3] if SEED == 1 else random.Random(SEED).sample(every, 3)
    until, turn = time.monotonic() + SECONDS, 0
    try:
        while time.monotonic() < until:
            time.sleep(min(3.0, SECONDS / 3))
            faults.one(names[turn] if turn < len(names) else faults.rnd.choice(every))
            turn += 1
        time.sleep(1.0)
        faults.heal()
        faults.cluster.answers()
        assert not faults.failed, "a server did not start again"
        recorder.finish()
        for seconds, ended in recorder.pauses:
            during = [name for name, at in zip(faults.done, faults.at, strict=True) if ended - seconds - 4 < at < ended]
            print(f"{seconds:.1f} s without an acknowledged put: {during}")
    finally:
        print(len(faults.done), faults.done, *(server.output[-4000:] for server in servers), sep="\n")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Linked]:
    with Linked(tmp_path) as cluster:
        yield cluster


def test_promises_hold_during_faults(cluster: Linked, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        servers, clocks, between = [], [], []
        for i in range(2 if SECONDS < 60 else 3):
            links, urls = ways(cluster, stack)
            flags = ("--storage-backend=etcd3", f"--etcd-servers={','.join(urls)}", "--advertise-address=127.0.0.1")
            clocks.append(Clock(tmp_path / f"clock{i}"))
            servers.append(stack.enter_context(KasServer(tmp_path / f"kas{i}", *flags, prefix=clocks[-1].prefix)))
            between.append(links)
        promises_hold(servers, LinkFaults(cluster, servers, clocks, between), ALL)
