"""How a replica detects that the cluster was restored from a backup and has been written to since: it compares what it last saw of several
keys."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kas.replicator import Cluster, _begin
from kas.store import Full, Op, Unavailable, Unknown, open_store
from kas.store.etcd import replicator as following
from kas.store.etcd.client import Client
from kas.store.etcd.layout import Keys
from kas.store.etcd.replica import NOTE
from kas.store.etcd.replicaretry import ReplicaRetry
from kas.store.etcd.replicator import Lost
from kas.store.etcd.store import EtcdStore
from kas.store.lmdb import LMDBStore
from tests.contract.store_suite import draft
from tests.controllers.waiting import until
from tests.etcd import Etcd
from tests.store.test_etcd_store import A, B, Plain, Server, delete_of, outside, put_of

LEASE = "/registry/x/lease"


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    with Etcd(tmp_path) as etcd:
        yield etcd


@pytest.fixture
def server(etcd: Etcd, tmp_path: Path) -> Iterator[Server]:
    server = Server(etcd, tmp_path / "replica")
    yield server
    server.stop()


def written(server: Server, *ops: Op) -> None:
    def once() -> bool:
        try:
            server.store.commit_now(*ops, one_revision=True)
        except (Unavailable, Unknown):
            return False
        return True

    until(once)


def test_the_newest_puts_are_found_behind_a_revision_with_many_keys(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kas.store.etcd.store.NUDGE_S", 60.0)  # so that no other key is written, however slow the machine is
    many = [Op(f"/registry/x/{i:04}", draft(), 0) for i in range(120)]
    written(server, *many)
    for _ in range(3):
        outside(server.etcd, put_of(A, "1"))
    written(server, Op(B, draft(data="2"), 0))
    outside(server.etcd, put_of(LEASE, "3"))
    until(lambda: server.store.get(LEASE) is not None)
    have = server.store.revision
    found = {e.key: e.revision for e in server.replicator._newest_puts(have)}
    assert list(found.items())[:3] == [(LEASE, have), (B, have - 1), (A, have - 2)] and len(found) == following.WITNESSES


def test_a_restored_cluster_is_detected_though_the_last_revision_is_equal(server: Server, etcd: Etcd, tmp_path: Path) -> None:
    outside(etcd, put_of(LEASE, "0"))
    until(lambda: server.store.get(LEASE) is not None)
    etcd.kill()
    shutil.copytree(etcd.data, tmp_path / "backup")
    etcd.start()
    outside(etcd, put_of(A, "lost"), put_of(LEASE, "1"))
    until(lambda: b'"data":"1"' in server.store.get(LEASE).json)
    server.pause()
    etcd.kill()
    shutil.rmtree(etcd.data)
    shutil.copytree(tmp_path / "backup", etcd.data)
    etcd.start()
    outside(etcd, put_of(B, "else"), put_of(LEASE, "1"))  # the lease is renewed with the same value at the same revision
    server.again()
    assert server.store.get(A) is None and b'"data":"else"' in server.store.get(B).json


def test_an_abandoned_replica_is_not_used_again(tmp_path: Path) -> None:
    """When it is compared again, the restored cluster may have reached the replica's revision."""

    class Follower:
        def run(self) -> None:
            raise Lost("the cluster went back")

    class Known(Cluster):
        def __init__(self) -> None:
            self.replicator: Any = Follower()
            self._config, self._path, self._compact_s = Etcd(tmp_path).config, tmp_path, 0

    (tmp_path / NOTE).write_text("1 2 3 - /registry\n")
    assert Known().run() == 4
    assert not (tmp_path / NOTE).exists()


def test_a_replica_that_does_not_follow_is_reported_until_it_does(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """``lost`` fails readiness while this server cannot serve anything new. Waiters that timed out are removed."""
    store, apply, ready = server.store, server.replicator._apply, threading.Event()

    def never(events: list[Any]) -> None:
        ready.wait(60)
        apply(events)

    async def story() -> None:
        store.start(asyncio.get_running_loop())
        await store.commit(Op(A, draft(), 0))
        assert store.lost() == ""
        for name, seconds in (("CATCH_UP_S", 0.2), ("LAGS_S", 0.1), ("NUDGE_S", 0.02)):
            monkeypatch.setattr(f"kas.store.etcd.store.{name}", seconds)
        monkeypatch.setattr(server.replicator, "_apply", never)
        had = store.revision
        with pytest.raises(Unknown, match="committed, but the replica does not follow"):
            await store.commit(Op(B, draft(), 0))
        assert store.lost().startswith(f"the replica is at revision {had} and does not follow etcd to ")
        assert store.shared.missed > had  # so that workers whose clients did not wait for a new revision report it, too
        if store._nudging is not None:
            await store._nudging
        assert store._waiting == []
        ready.set()
        async with asyncio.timeout(60):
            while store.lost():
                await store.probe()
                await asyncio.sleep(0.02)

    asyncio.run(story())


def test_a_revision_that_another_worker_missed_is_reported_here_too(server: Server) -> None:
    """Readiness may be asked of any worker, and all must give the same answer."""
    store = server.store
    assert store.lost() == ""
    store.shared.missed = (had := store.revision) + 1
    assert store.lost() == f"the replica is at revision {had} and does not follow etcd to {had + 1}"
    outside(server.etcd, put_of(A, "1"))
    until(lambda: store.lost() == "")


def test_a_replica_that_was_full_is_filled_anew_at_the_next_start(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects that were deleted in etcd meanwhile would free no space in it: their deletion comes after the event that did not fit."""
    replica, full = server.replicator.replica, threading.Event()
    apply = replica.apply_many

    def refuses(revisions: Any) -> None:
        if not full.is_set():
            full.set()
            raise Full("writing: MDB_MAP_FULL: Environment mapsize limit reached")
        apply(revisions)

    monkeypatch.setattr(replica, "apply_many", refuses)
    outside(server.etcd, put_of(A, "1"))
    until(lambda: server.store.get(A) is not None)  # there was space again
    assert full.is_set() and not (server.path / NOTE).exists()
    server.pause()
    server.again()
    assert server.store.get(A) is not None and (server.path / NOTE).exists() and server.failed == []


def test_a_full_replica_is_replaced_when_a_new_one_would_fit(etcd: Etcd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kas.store.etcd.replicaretry.FIRST_S", 0.0)
    looked = threading.Semaphore(0)

    class Small(Server):
        def _open(self) -> EtcdStore:
            return EtcdStore(
                str(self.path), self.etcd.config, lambda store: Plain(), keys=Keys(), max_size=8 << 20,
                ask_progress=lambda: self.replicator.request_progress(), ordered_progress=lambda: False,
            )  # fmt: skip

    look = following.Replicator._look_for_room

    def seen(replicator: following.Replicator) -> None:
        look(replicator)
        looked.release()

    monkeypatch.setattr(following.Replicator, "_look_for_room", seen)
    server = Small(etcd, tmp_path / "small")
    try:
        outside(etcd, *(put_of(f"/registry/pods/ns/{i}", "x" * 1_000_000) for i in range(12)))
        for _ in range(2):
            assert looked.acquire(timeout=60), "it has room"
        assert server.thread.is_alive() and not server.failed, "a new one had none either"
        assert not list((tmp_path / "small").glob("beside-*"))
        outside(etcd, *(delete_of(f"/registry/pods/ns/{i}") for i in range(10)))
        server.thread.join(60)
        assert [type(e) for e in server.failed] == [Lost]
        server.store.close()
        server.failed.clear()
        server.again()
        assert [r.key for r in server.store.range("/registry/").records] == [f"/registry/pods/ns/{i}" for i in (10, 11)]
    finally:
        server.stop()


def test_filling_a_replica_continues_when_etcd_is_back(
    etcd: Etcd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """As when etcd did not answer at the start."""
    monkeypatch.setattr("kas.replicator.AGAIN_S", 0.0)
    client, path, opened = Client(etcd.config), tmp_path / "r", list[LMDBStore]()

    def open_replica() -> LMDBStore:
        opened.append(open_store(str(path)))
        return opened[-1]

    outside(etcd, put_of(A, "1"))
    load, left = following.Replicator._load, [Unavailable("etcdserver: no leader")] * 2

    def sometimes(replicator: following.Replicator, replica: LMDBStore) -> None:
        load(replicator, replica)
        if left:
            raise left.pop()

    monkeypatch.setattr(following.Replicator, "_load", sometimes)
    try:
        assert _begin(following.Replicator(client, lambda store: Plain(), Keys(), path, open_replica, patience_s=60.0), False).get(A)
        assert not left and [store._closed for store in opened] == [True, True, False]
        opened[-1].close()
        (path / NOTE).unlink()
        left.append(Unavailable("etcdserver: no leader"))
        with pytest.raises(Unavailable):
            _begin(following.Replicator(client, lambda store: Plain(), Keys(), path, open_replica, patience_s=0.0), False)
    finally:
        client.close()


def test_retries_with_a_new_replica_back_off_until_the_disk_has_more_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, free = 100.0, 50
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=free))
    trials = ReplicaRetry(tmp_path, lambda: now)

    def next_one() -> int:
        nonlocal now
        began = now
        while not trials.due(800):
            now += 1.0
        trials.failed()
        return int(now - began)

    assert [next_one() for _ in range(8)] == [30, 60, 120, 240, 480, 900, 900, 900]
    free += 99  # less than an eighth of the replica's size
    assert next_one() == 900
    free += 100
    assert [next_one(), next_one()] == [30, 900]
    trials.over()
    assert [next_one() for _ in range(3)] == [30, 60, 120]


def test_progress_is_trusted_by_the_version_of_the_watched_member(etcd: Etcd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another member, of another version, may answer between the first call and the watch."""
    client = Client(replace(etcd.config, servers=(etcd.url, etcd.url.replace("127.0.0.1", "localhost"))))
    asked: list[str] = []

    def in_order(client: Client) -> bool:
        asked.append(client.asked)
        return True

    monkeypatch.setattr(following, "tells_progress_in_order", in_order)
    replicator = following.Replicator(client, lambda store: Plain(), Keys(), tmp_path / "r", lambda: open_store(str(tmp_path / "r")))
    monkeypatch.setattr(replicator, "_decode_first", client.next_server)
    replicator.begin()
    thread = threading.Thread(target=replicator.run)
    thread.start()
    try:
        until(lambda: replicator._stream is not None)
        assert asked[-1] == replicator.followed
    finally:
        replicator.stop()
        thread.join()
        replicator.replica.close()
        client.close()
