"""Writers are killed with SIGKILL in the middle of commits, while a reader in another process follows.

One check per promise: durable (an acknowledged write exists), atomic (no transaction exists in part, no record is torn), monotonic
(revisions never go back), ordered, unique and reliable (the follower's events have consecutive revisions, and those of a transaction with
one revision come together), resumable (a watch from any revision of the history gives the same sequence), and the state is the sum of the
events. ``KAS_KILL_CYCLES`` sets the number of cycles.
"""

from __future__ import annotations

import json
import os
import random
import selectors
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import pytest

from kas.store import Compacted, open_store
from kas.store.lmdb import LMDBStore

WRITER = Path(__file__).with_name("store_writer.py")
CYCLES = int(os.environ.get("KAS_KILL_CYCLES", "200"))


class Nursery:
    """The program that forks and kills writers; collects what they acknowledged."""

    def __init__(self) -> None:
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        self.process = subprocess.Popen([sys.executable, str(WRITER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
        self.acks: list[tuple[int, str, str]] = []
        self.rest = b""
        self.answers: list[str] = []
        self.selector = selectors.DefaultSelector()
        os.set_blocking(self.process.stdout.fileno(), False)
        self.selector.register(self.process.stdout, selectors.EVENT_READ)

    def read(self, timeout_s: float) -> bool:
        if not self.selector.select(timeout_s):
            return False
        data = self.process.stdout.read(1 << 20)
        assert data, "the nursery ended"
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            word, *values = line.decode().split()
            if word == "ack":
                self.acks.append((int(values[0]), values[1], values[2]))
            else:
                self.answers.append(values[0])
        return True

    def ask(self, text: str) -> str:
        self.process.stdin.write(text.encode() + b"\n")
        self.process.stdin.flush()
        deadline = time.monotonic() + 60
        while not self.answers:
            assert time.monotonic() < deadline, f"no answer to {text!r}"
            self.read(0.5)
        return self.answers.pop()

    def wait_for_acks(self, count: int, patience_s: float) -> None:
        deadline = time.monotonic() + patience_s
        while len(self.acks) < count and time.monotonic() < deadline:
            self.read(0.05)

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()


class Follower:
    """Everything the reader has seen, and the checks of it."""

    def __init__(self) -> None:
        self.history: dict[int, list[Any]] = {}  # the events of each revision
        self.revision = 0
        self.state: dict[str, int] = {}

    def take(self, watcher: Any) -> None:
        while watcher.ready:
            events = watcher.take(5)
            assert not events or events[0].revision > self.revision, "a take ended inside a revision"
            for event in events:
                self.add(event)

    def add(self, event: Any) -> None:
        if event.revision != self.revision:
            assert event.revision == self.revision + 1, f"revision {event.revision} follows {self.revision}"
            self.history[event.revision] = []
        before = self.state.get(event.key)
        assert (event.previous.revision if event.previous else None) == before, f"{event} does not continue {before}"
        if event.record is None:
            del self.state[event.key]
        else:
            check(event.record)
            assert event.record.revision == event.revision
            self.state[event.key] = event.revision
        self.history[event.revision].append(told(event))
        self.revision = event.revision


def told(event: Any) -> tuple[int, str, str]:
    return event.op, event.key, event.record.labels["mark"] if event.record else "-"


def check(record: Any) -> None:
    """No record is torn: its parts contain the same mark."""
    obj = json.loads(record.json)
    assert obj["metadata"]["resourceVersion"] == str(record.revision)
    assert zlib.crc32(obj["data"].encode()) == obj["metadata"]["crc"]
    assert obj["data"].split(" ")[0] == record.labels["mark"] == record.fields["metadata.name"]


def check_groups(history: dict[int, Any], after: int) -> int:
    """Each transaction is complete, in consecutive revisions. Returns the revision up to which that was checked: the follower may have
    seen part of a transaction (its writes have revisions of their own), but the rest must come."""
    revision = after + 1
    while revision + 2 in history:
        _, key, mark = history[revision][0]
        if key.startswith("/registry/group/"):
            group = [event[1:] for i in range(3) for event in history[revision + i]]
            assert group == [(f"/registry/group/{i}", mark) for i in range(3)], "a group is there in part"
            revision += 2
        elif key.startswith("/registry/one/"):
            group = [event[1:] for event in history[revision]]
            assert group == [(f"/registry/one/{i}", mark) for i in range(3)], "a revision is there in part"
        else:
            assert len(history[revision]) == 1
        revision += 1
    return revision - 1


def check_resume(store: LMDBStore, follower: Follower, after: int) -> None:
    try:
        watcher = store.watch("/registry/", after, lambda: None)
        got = []
        while watcher.ready:
            got += watcher.take(3)
        watcher.close()
    except Compacted as e:
        assert after < e.compacted, "refused although the history reaches back"
        return
    wanted = [(r, event) for r in range(after + 1, follower.revision + 1) for event in follower.history[r]]
    mine = [(e.revision, told(e)) for e in got if e.revision <= follower.revision]
    assert mine == wanted, f"a watch resumed from {after} tells another history"


@pytest.mark.kill
def test_killed_writers_break_no_promise(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    rng = random.Random(7)
    nursery = Nursery()
    store = open_store(path, max_size=1 << 30, sync=False)
    follower = Follower()
    checked = 0
    watcher = store.watch("/registry/", 0, lambda: None)
    running: list[str] = []
    try:
        for cycle in range(CYCLES):
            while len(running) < 2:
                running.append(nursery.ask(f"start {path} {cycle % 2} {rng.randrange(1 << 30)}"))
            nursery.wait_for_acks(len(nursery.acks) + rng.randrange(1, 60), 10)
            nursery.ask(f"kill {running.pop(rng.randrange(2))}")
            while nursery.read(0):
                pass
            acks, nursery.acks = nursery.acks, []
            before = store.revision
            # The writers share nothing with this process but the file, and died without closing it.
            store.refresh()
            assert store.revision >= before
            store.hub.catch_up()
            follower.take(watcher)
            for revision, key, mark in acks:
                events = follower.history.get(revision, [])
                assert (key, mark) in [event[1:] for event in events], f"acknowledged {key} at {revision} is lost: {events}"
            checked = check_groups(follower.history, checked)
            check_resume(store, follower, rng.randrange(max(0, follower.revision - 900), follower.revision + 1))
            # Compaction runs beside the writers; never beyond what the follower has seen.
            store.compact(max(0, follower.revision - 400), 300)
            if cycle % 10 == 9:
                result = store.range("/registry/", revision=follower.revision)
                assert {r.key: r.revision for r in result.records} == follower.state, "the state is not the sum of the events"
                for record in result.records:
                    check(record)
            if cycle % 40 == 39:
                watcher.close()
                store.close()
                store = open_store(path, max_size=1 << 30, sync=False)
                assert store.revision >= follower.revision, "revisions went back"
                watcher = store.watch("/registry/", follower.revision, lambda: None)
        for pid in running:
            nursery.ask(f"kill {pid}")
        running.clear()
        store.refresh()
        store.hub.catch_up()
        follower.take(watcher)
        checked = check_groups(follower.history, checked)
        tail = [follower.history[r][0][1] for r in range(checked + 1, follower.revision + 1)]
        assert "/registry/group/0" not in tail, "the last group is there in part"
        assert store.statistics()["readers"] < 64
    finally:
        for pid in running:
            nursery.ask(f"kill {pid}")
        nursery.close()
        store.close()
