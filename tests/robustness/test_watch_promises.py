"""The six promises of a watch, recorded from many clients while writers write, workers and servers die and history is compacted.

KAS_ROBUSTNESS_SECONDS (6) is how long each scenario writes, KAS_ROBUSTNESS_WATCHERS (6) the number of watchers, KAS_ROBUSTNESS_WRITERS (3)
that of writers. Everything that they receive is recorded and checked.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
import requests
import uvloop

from kas.supervisor import RESPAWN_LIMIT, RESPAWN_WINDOW_S
from kas.testing.server import KasServer
from tests.robustness import watch_model as model
from tests.robustness.watch_model import ADDED, BOOKMARK, DELETED, MODIFIED, Client, Event, Session, Write
from tests.robustness.watchers import Watcher, until

SECONDS = float(os.environ.get("KAS_ROBUSTNESS_SECONDS", "6"))
PATH = "/api/v1/namespaces/default/configmaps"
SELECTOR = "labelSelector=promise"
WATCHED = f"{PATH}?{SELECTOR}"
WRITERS, WATCHERS = int(os.environ.get("KAS_ROBUSTNESS_WRITERS", "3")), int(os.environ.get("KAS_ROBUSTNESS_WATCHERS", "6"))
KEYS = 5
LEAST = 21  # acknowledged puts without which a run proves nothing
OFTEN = 6  # this many watchers reconnect every few seconds, the others rarely: a connection costs more than its events


class Recorder:
    """Writers and watchers of one server, which may die and come back in between."""

    def __init__(self, server, connect) -> None:
        self.server, self.connect = server, connect
        self.writes: list[Write] = []
        self.clients: list[Client] = []
        self.current: dict[int, Client] = {}  # of each watcher
        self.expired = 0
        self.stop_writing, self.stop_watching = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        for i in range(WRITERS):
            self._go(self._write, i)
        self._go(self._watch_all)

    def _go(self, work: Callable[..., None], *args: int) -> None:
        t = threading.Thread(target=work, args=args, daemon=True)
        t.start()
        self._threads.append(t)

    def _write(self, i: int) -> None:
        """Each writer has its own keys, so it knows the result of each of its writes."""
        rnd, client, n = random.Random(i), self.connect(self.server), 0
        while not self.stop_writing.is_set():
            n += 1
            key, value = f"p{i}-{rnd.randrange(KEYS)}", f"{i}.{n}"
            body = {"metadata": {"name": key, "labels": {"promise": "1"}}, "data": {"v": value}}
            try:
                if rnd.random() < 0.25:
                    status, answer = client("DELETE", f"{PATH}/{key}")
                    if status == 200:
                        continue  # the answer of a delete does not contain the revision
                else:
                    status, answer = client("PUT", f"{PATH}/{key}", body)
                    if status == 404:
                        status, answer = client("POST", PATH, body)
                    if status in (200, 201):
                        with self._lock:
                            self.writes.append(Write(int(answer["metadata"]["resourceVersion"]), key, value))
            except requests.RequestException:
                time.sleep(0.05)
                client = self.connect(self.server)

    def _list(self) -> tuple[int, dict[str, str]]:
        while True:
            try:
                status, body = self.connect(self.server)("GET", WATCHED)
                if status == 200:
                    return int(body["metadata"]["resourceVersion"]), {x["metadata"]["name"]: x["data"]["v"] for x in body["items"]}
            except requests.RequestException:
                time.sleep(0.1)

    def _watch_all(self) -> None:
        async def run() -> None:
            await until(self.stop_watching.is_set, [asyncio.ensure_future(self._watch(i)) for i in range(WATCHERS)])

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run())

    def _asked(self) -> KasServer:
        """Returns the server of the next watch."""
        return self.server

    async def _watch(self, i: int) -> None:
        rnd, watcher = random.Random(100 + i), Watcher()
        try:
            while True:
                at, state = await asyncio.to_thread(self._list)
                client = self.current[i] = Client(state, [Session(at)])
                self.clients.append(client)
                while await watcher.session(self._asked(), WATCHED, client.sessions[-1], rnd.randrange(3, 6 if i < OFTEN else 16)):
                    client.sessions.append(Session(client.reached()))
                self.expired += 1
        finally:
            watcher.close()

    def finish(self) -> None:
        """Stops the writers, lets every watcher reach the end, and checks all of them."""
        within = time.monotonic() + 120
        while len(self.writes) < LEAST and time.monotonic() < within:  # on a busy machine little was written between the faults
            time.sleep(0.1)
        self.stop_writing.set()
        for t in self._threads[:WRITERS]:
            t.join(60)
        end, listed = self._list()
        within = time.monotonic() + 120
        # A bookmark before each session's end brings every client to the list's revision, whatever happens.
        watching = self._threads[WRITERS]
        while time.monotonic() < within and watching.is_alive() and not all(c.reached() >= end for c in list(self.current.values())):
            time.sleep(0.1)
        self.stop_watching.set()
        watching.join(60)
        assert len(self.writes) >= LEAST
        self.writes.sort(key=lambda w: w.revision)
        assert len({w.revision for w in self.writes}) == len(self.writes), "two acknowledged writes have one revision"
        last = list(self.current.values())
        assert len(last) == WATCHERS and all(c.reached() >= end for c in last), "a watcher never got to the end"
        for client in self.clients:
            model.check(client, self.writes, listed if any(client is c for c in last) else None)
        assert "panic'd" not in self.server.output


def run(server, connect, disturb: Callable[[], None] | None, every_s: float = 2.0) -> Recorder:
    recorder = Recorder(server, connect)
    recorder.start()
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        time.sleep(min(every_s, SECONDS / 3))
        if disturb is not None:
            disturb()
    recorder.finish()
    return recorder


def test_promises_hold_without_faults(kas_server, connect):
    """Two workers, nothing dies: watchers of one see what the other writes."""
    r = run(kas_server("--workers", "2", "--unsafe-no-fsync"), connect, None)
    assert not r.expired


def test_promises_hold_when_workers_are_killed(kas_server, connect):
    server = kas_server("--workers", "2", "--unsafe-no-fsync")

    def disturb() -> None:
        os.kill(server.worker_pids()[0], signal.SIGKILL)  # the older one, so that both have their turn

    # No more often than the supervisor tolerates for each of the two.
    run(server, connect, disturb, every_s=1.1 * RESPAWN_WINDOW_S / (2 * RESPAWN_LIMIT))


def test_promises_hold_over_restarts_and_kills(kas_server, connect):
    server = kas_server("--workers", "2", "--unsafe-no-fsync")
    turn = [0]

    def disturb() -> None:
        turn[0] += 1
        if turn[0] % 2:
            server.kill()
        else:
            server.stop()
        server.start()

    run(server, connect, disturb)


def test_promises_hold_under_compaction(kas_server, connect):
    """A short history: a client learns that its revision has expired, or misses nothing."""
    run(kas_server("--workers", "2", "--unsafe-no-fsync", "--history-window", "2s"), connect, None)


# --- the checks themselves

WRITES = [Write(11, "a", "1"), Write(12, "b", "2"), Write(13, "a", "3"), Write(15, "b", "4")]
GOOD = [
    Session(10, [Event(ADDED, 11, "a", "1"), Event(ADDED, 12, "b", "2"), Event(BOOKMARK, 12)]),
    Session(12, [Event(MODIFIED, 13, "a", "3"), Event(DELETED, 14, "a"), Event(MODIFIED, 15, "b", "4"), Event(BOOKMARK, 16)]),
]


def falsified(change: Callable[[list[list[Event]]], object], after: int = 12) -> Client:
    events = [list(s.events) for s in GOOD]
    change(events)
    return Client({}, [Session(10, events[0]), Session(after, events[1])])


def test_a_correct_history_passes():
    model.check(Client({}, GOOD), WRITES, {"b": "4"})


@pytest.mark.parametrize(
    ("error", "client"),
    [
        (model.BrokenOrdered, falsified(lambda e: e[1].insert(0, e[1].pop(2)))),
        (model.BrokenUnique, falsified(lambda e: e[1].insert(1, e[1][0]))),
        (model.BrokenAtomic, falsified(lambda e: e[1].__setitem__(0, replace(e[1][0], value="other")))),
        (model.BrokenAtomic, falsified(lambda e: e[1].__setitem__(0, replace(e[1][0], key="b")))),
        (model.BrokenReliable, falsified(lambda e: e[0].pop(1))),
        (model.BrokenReliable, falsified(lambda e: e[1].pop(2))),
        (model.BrokenResumable, falsified(lambda e: e[1].pop(0))),
        (model.BrokenResumable, falsified(lambda e: None, after=13)),
        (model.BrokenBookmarkable, falsified(lambda e: e[1].insert(0, e[1].pop()))),
        (model.BrokenBookmarkable, falsified(lambda e: e[1].append(Event(BOOKMARK, 14)))),
        (model.BrokenDigest, falsified(lambda e: e[1].pop(1))),
    ],
)
def test_a_falsified_history_is_detected(error, client):
    with pytest.raises(error):
        model.check(client, WRITES, {"b": "4"})
