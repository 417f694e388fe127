"""The store on a real etcd: writes arrive as intended, whoever made them, and whatever fails in between."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kas.registry.etcdvalues import custom
from kas.storage.places import Note as CopyNote
from kas.store import Compacted, Conflict, Full, Op, StoreError, TransformError, Unavailable, Unknown
from kas.store.etcd import etcd_pb2 as pb
from kas.store.etcd.client import (
    COMPACT,
    PUT,
    RANGE,
    REVOKE,
    STATUS,
    TXN,
    AsyncClient,
    Begun,
    Call,
    Client,
    Config,
    LeaseGone,
    prefix_end,
    translate,
)
from kas.store.etcd.compactor import Compactor
from kas.store.etcd.layout import Keys, Undecodable
from kas.store.etcd.leases import Leases
from kas.store.etcd.replica import Note
from kas.store.etcd.replicator import Lost, Replicator, ordered_progress
from kas.store.etcd.rpc.status import Code, RpcError
from kas.store.etcd.store import EtcdStore
from kas.store.lmdb import LMDBStore
from kas.store.transform import Transformers
from tests import prerequisites
from tests.contract.store_suite import draft, keys, seen
from tests.controllers.waiting import until
from tests.etcd import Cluster, Etcd

A, B = "/registry/pods/ns/a", "/registry/pods/ns/b"


class Plain:
    """Stores drafts as JSON; no kind is known."""

    first, whole = (), True

    def before(self, key):
        return ""

    def learn(self, key):
        """There is nothing to learn first."""

    unseen = learn

    def encode(self, key, draft):
        return draft.json + b"\n"

    def decode(self, key, value):
        try:
            return custom(value, ())
        except (ValueError, KeyError, TypeError) as e:
            raise Undecodable(str(e)) from e


class Server:
    """A replica and its replicator in this process, as in one kas server."""

    def __init__(self, etcd: Etcd | Cluster, path: Path, transformers: Transformers | None = None) -> None:
        self.client, self.transformers = Client(etcd.config), transformers
        self.replicator = Replicator(self.client, lambda store: Plain(), Keys(), path, self._open, transformers)
        self.path, self.etcd = path, etcd
        self.failed: list[BaseException] = []
        self.store = self.replicator.begin()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _open(self) -> EtcdStore:
        return EtcdStore(
            str(self.path), self.etcd.config, lambda store: Plain(), keys=Keys(), max_size=1 << 28,
            transformers=self.transformers, ask_progress=lambda: self.replicator.request_progress(), ordered_progress=lambda: False,
        )  # fmt: skip

    def _run(self) -> None:
        try:
            self.replicator.run()
        except BaseException as e:
            self.failed.append(e)

    def pause(self) -> None:
        """Stops everything but keeps the replica."""
        self.replicator.stop()
        self.thread.join(60)
        assert not self.thread.is_alive()
        self.store.close()

    def again(self) -> None:
        """Starts again, as a restarted process does."""
        self.replicator = Replicator(self.client, lambda store: Plain(), Keys(), self.path, self._open, self.transformers)
        self.store = self.replicator.begin()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def stop(self) -> None:
        self.pause()
        self.client.close()


@pytest.fixture(autouse=True)
def few_fences(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key is written to advance the revision on a slow machine, because tests count revisions; reads wait long enough."""
    monkeypatch.setattr("kas.store.etcd.store.NUDGE_S", 30.0)
    monkeypatch.setattr("kas.store.etcd.freshness.FRESH_S", 30.0)


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[Etcd]:
    with Etcd(tmp_path) as etcd:
        yield etcd


@pytest.fixture
def server(etcd: Etcd, tmp_path: Path) -> Iterator[Server]:
    server = Server(etcd, tmp_path / "replica")
    yield server
    server.stop()


def test_writes_have_the_revisions_of_etcd(server: Server) -> None:
    first = Op(A, draft(data="1"), 0)
    server.store.commit_now(first)
    assert first.revision == first.record.revision == server.store.get(A).revision == 2
    second = Op(A, draft(data="2"), first.revision)
    server.store.commit_now(second)
    assert (second.revision, second.previous.revision, second.record.create_revision, second.record.version) == (3, 2, 2, 2)
    gone = Op(A, None, second.revision)
    server.store.commit_now(gone)
    assert (gone.revision, gone.record, gone.previous.revision, server.store.get(A)) == (4, None, 3, None)
    assert seen(server.store.events("/registry/", 1, 10)[0]) == [(2, 1, A), (3, 2, A), (4, 3, A)]


@pytest.mark.parametrize("expected", [0, 1, 99])
def test_a_conflict_shows_the_stored_object(server: Server, expected: int) -> None:
    server.store.commit_now(Op(A, draft()))
    with pytest.raises(Conflict) as caught:
        server.store.commit_now(Op(A, draft(), expected))
    assert (caught.value.key, caught.value.current.revision) == (A, 2)
    with pytest.raises(Conflict) as caught:
        server.store.commit_now(Op(B, draft(), 7))
    assert caught.value.current is None
    for gone in (Op(B, None), Op(B, None, 0), Op(B, None, 5)):
        with pytest.raises(Conflict):
            server.store.commit_now(gone)
    assert seen(server.store.events("/registry/", 1, 10)[0]) == [(2, 1, A)]


def test_a_transaction_is_atomic_and_has_one_revision(server: Server) -> None:
    store = server.store
    store.commit_now(Op(A, draft()))
    with pytest.raises(Conflict) as caught:
        store.commit_now(Op(B, draft(), 0), Op(A, None, 2, check=True), Op("/registry/c/1", None, 1, check=True))
    assert (caught.value.key, caught.value.current) == ("/registry/c/1", None)
    ops = [Op(B, draft(), 0), Op(A, None, 2), Op("/registry/c/1", None, 0, check=True)]
    store.commit_now(*ops)
    assert [op.revision for op in ops] == [3, 3, 0]
    assert keys(store.range("/registry/")) == [B]


def test_two_servers_see_one_anothers_writes(server: Server, etcd: Etcd, tmp_path: Path) -> None:
    other = Server(etcd, tmp_path / "other")
    try:
        for i in range(20):
            (server, other)[i % 2].store.commit_now(Op(f"/registry/x/{i}", draft(), 0))
        for one in (server, other):
            until(lambda one=one: one.store.revision >= 21)
            assert [e.revision for e in one.store.events("/registry/", 1, 100)[0]] == list(range(2, 22))
        assert [r.json for r in server.store.range("/registry/x/").records] == [r.json for r in other.store.range("/registry/x/").records]
    finally:
        other.stop()


def test_a_fresh_read_sees_every_acknowledged_write(server: Server, etcd: Etcd) -> None:
    outside = Client(etcd.config)

    async def check() -> None:
        server.store.start(asyncio.get_running_loop())
        for i in range(20):
            await asyncio.to_thread(outside.call, PUT, pb.PutRequest(key=A.encode(), value=draft(data=str(i)).json))
            await asyncio.gather(*(server.store.fresh() for _ in range(5)))
            assert b'"data":"%d",' % i in server.store.get(A).json

    asyncio.run(check())
    outside.close()


def test_fresh_reads_of_an_idle_cluster_write_nothing(server: Server, etcd: Etcd) -> None:
    async def check() -> None:
        server.store.start(asyncio.get_running_loop())
        await asyncio.to_thread(server.store.commit_now, Op(A, draft(), 0))
        for _ in range(5):
            await server.store.fresh()
        assert server.client.call(RANGE, pb.RangeRequest(key=b"x")).header.revision == 2
        # A write outside the prefix causes no event here.
        await asyncio.to_thread(server.client.call, PUT, pb.PutRequest(key=b"/elsewhere"))
        await server.store.fresh()
        assert server.store.revision >= 3

    asyncio.run(check())


def test_the_order_of_progress_notifications_is_checked_again_for_each_server(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that did not answer at the start, or that was replaced since, must not make readers write keys for ever."""
    store, answers = server.store, [False, True]
    monkeypatch.setattr(store, "_in_order", lambda: answers.pop(0))

    async def check() -> None:
        store.start(asyncio.get_running_loop())
        await store.probe()
        assert len(answers) == 2, "not with every probe"
        monkeypatch.setattr("kas.store.etcd.store.ORDER_S", 0.0)
        seen = []
        for _ in range(2):
            await store.probe()
            seen.append(store._ordered)
        assert seen == [False, True]

    asyncio.run(check())


def test_many_writers_at_once(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kas.store.etcd.store.WRITE_TIMEOUT_S", 60.0)  # shared by all writers, on any machine

    async def write() -> None:
        store = server.store
        store.start(asyncio.get_running_loop())
        done: list[Op] = await asyncio.gather(*(store.commit(Op(f"/registry/x/{i}", draft(), 0)) for i in range(200)))
        assert len({op.revision for op in done}) == 200
        assert all(op.record.revision == op.revision for op in done)
        lost = await asyncio.gather(*(store.commit(Op(A, draft(data=str(i)), 0)) for i in range(50)), return_exceptions=True)
        assert sum(isinstance(r, Op) for r in lost) == 1
        assert sum(isinstance(r, Conflict) and r.current is not None for r in lost) == 49

    asyncio.run(write())


def test_a_stopped_etcd_fails_writes_and_not_cached_reads(server: Server, etcd: Etcd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kas.store.etcd.freshness.FRESH_S", 1.0)
    store = server.store
    store.commit_now(Op(A, draft(), 0))
    etcd.kill()
    assert store.get(A).revision == 2  # what the replica holds can be read

    async def refused() -> None:
        store.start(asyncio.get_running_loop())
        with pytest.raises((Unavailable, Unknown)):
            await store.fresh()

    asyncio.run(refused())
    etcd.start()
    outside = Client(etcd.config)
    outside.call(PUT, pb.PutRequest(key=B.encode(), value=draft().json))
    until(lambda: store.get(B) is not None)
    assert seen(store.events("/registry/", 1, 10)[0]) == [(2, 1, A), (3, 1, B)]
    outside.close()


def test_a_write_without_an_answer_has_an_unknown_outcome(server: Server, etcd: Etcd, monkeypatch: pytest.MonkeyPatch) -> None:
    server.store.commit_now(Op(A, draft(), 0))
    etcd.signal(signal.SIGSTOP)
    try:
        with monkeypatch.context() as soon, pytest.raises(Unknown):
            soon.setattr("kas.store.etcd.store.WRITE_TIMEOUT_S", 2.0)
            server.store.commit_now(Op(B, draft(), 0))
    finally:
        etcd.signal(signal.SIGCONT)
    try:
        server.store.commit_now(Op(B, draft(), 0))
    except Conflict as e:  # it was executed nevertheless
        assert e.current is not None
    assert server.store.get(B) is not None


def test_the_replica_is_used_again(server: Server, etcd: Etcd, tmp_path: Path) -> None:
    server.store.commit_now(Op(A, draft(), 0))
    server.replicator.stop()
    server.thread.join(60)
    server.store.close()
    outside = Client(etcd.config)
    outside.call(PUT, pb.PutRequest(key=B.encode(), value=draft().json))
    outside.close()
    again = Server(etcd, server.path)
    until(lambda: again.store.get(B) is not None)
    # The history from before the restart is still there.
    assert seen(again.store.events("/registry/", 1, 10)[0]) == [(2, 1, A), (3, 1, B)]
    server.store, server.replicator, server.thread = again.store, again.replicator, again.thread


def test_a_replica_is_replaced_when_history_is_missing(server: Server, etcd: Etcd) -> None:
    server.store.commit_now(Op(A, draft(), 0))
    server.replicator.stop()
    server.thread.join(60)
    server.store.close()
    outside = Client(etcd.config)
    for i in range(5):
        outside.call(PUT, pb.PutRequest(key=B.encode(), value=draft(data=str(i)).json))
    outside.call(TXN, pb.TxnRequest(success=[pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=A.encode()))]))
    outside.call(COMPACT, pb.CompactionRequest(revision=8))
    outside.close()
    again = Server(etcd, server.path)
    assert (again.store.get(A), again.store.get(B).revision, again.store.compacted_revision) == (None, 7, 8)
    assert (again.store.get(B).create_revision, again.store.get(B).version) == (3, 5)
    server.store, server.replicator, server.thread = again.store, again.replicator, again.thread


def test_a_cluster_with_an_older_revision_is_detected(server: Server, etcd: Etcd) -> None:
    for i in range(5):
        server.store.commit_now(Op(f"/registry/x/{i}", draft(), 0))
    etcd.kill()
    shutil.rmtree(etcd.data)
    etcd.start()
    until(lambda: server.failed)
    assert isinstance(server.failed[0], Lost)


def test_unreadable_values_are_skipped(server: Server, etcd: Etcd) -> None:
    outside = Client(etcd.config)
    outside.call(PUT, pb.PutRequest(key=A.encode(), value=draft().json))
    outside.call(PUT, pb.PutRequest(key=B.encode(), value=b"{"))
    outside.call(PUT, pb.PutRequest(key=b"/registry/\xff", value=b"{"))
    outside.call(PUT, pb.PutRequest(key=A.encode(), value=b"garbage"))
    outside.call(PUT, pb.PutRequest(key=b"/registry/z", value=draft().json))
    everything = pb.DeleteRangeRequest(key=b"/registry/", range_end=prefix_end(b"/registry/"))
    outside.call(TXN, pb.TxnRequest(success=[pb.RequestOp(request_delete_range=everything)]))
    outside.close()
    until(lambda: server.store.revision >= 7)
    assert seen(server.store.events("/registry/", 1, 10)[0]) == [(2, 1, A), (5, 3, A), (6, 1, "/registry/z"), (7, 3, "/registry/z")]


def test_an_unreadable_value_is_an_error_for_its_readers_until_repaired_or_deleted(server: Server, etcd: Etcd) -> None:
    garbage = PUT, pb.PutRequest(key=A.encode(), value=b"{")
    unread = "/registry/x/" + "n" * 4080  # a note with this key would be too long
    server.store.commit_now(Op(A, draft(), 0))
    outside(etcd, garbage, put_of(B), (PUT, pb.PutRequest(key=unread.encode(), value=b"{")))
    until(lambda: server.store.revision >= 5)

    def reads() -> None:
        with pytest.raises(TransformError, match="unexpected end of data") as e:
            server.store.get(A)
        assert (e.value.key, e.value.revision, e.value.listed) == (A, 3, False)
        assert keys(server.store.range("/registry/")) == [B]
        assert server.store.get(unread) is None

    reads()
    server.pause()
    server.again()
    reads()
    server.pause()
    shutil.rmtree(server.path)
    server.again()  # as etcd holds it now, not as it arrived
    reads()
    with pytest.raises(TransformError):
        server.store.commit_now(Op(A, draft(), 0))
    outside(etcd, put_of(A))
    until(lambda: server.store.revision >= 6)
    assert server.store.get(A).revision == 6
    outside(etcd, garbage)
    until(lambda: server.store.revision >= 7)
    with pytest.raises(TransformError):
        server.store.commit_now(Op(A, None, 3))
    server.store.commit_now(Op(A, None, 7))
    assert server.store.get(A) is None
    assert etcd.value(A) is None
    assert server.store.range("/unreadable/").records == []


def test_reads_at_a_revision_bypass_the_replica(server: Server, etcd: Etcd, monkeypatch: pytest.MonkeyPatch) -> None:
    server.store.commit_now(Op(A, draft(), 0))
    server.pause()  # no replicator
    store = server._open()
    outside(etcd, put_of(B), (PUT, pb.PutRequest(key=b"/registry/pods/ns/c", value=b"{")), delete_of(A))
    for revision, there in ((0, [B]), (2, [A]), (3, [A, B])):
        found = store.at_revision("/registry/pods/", False, revision)
        assert (keys(found.range("/registry/pods/")), found.revision) == (there, revision or 5)
        found.close()
    found = store.at_revision(B, True, 0)
    assert (found.get(B).revision, found.get(A)) == (3, None)
    found.close()
    with pytest.raises(TransformError, match="unexpected end of data"):
        store.at_revision("/registry/pods/ns/c", True, 0)
    outside(etcd, (COMPACT, pb.CompactionRequest(revision=4)))
    with pytest.raises(Compacted):
        store.at_revision("/registry/pods/", False, 3)
    monkeypatch.setattr("kas.store.etcd.atrevision.MOST_BYTES", 10)
    with pytest.raises(Unavailable, match="too much"):
        store.at_revision("/registry/pods/", False, 0)
    assert not list(server.path.glob("beside-*"))
    store.close()
    server.again()


def test_leases_end_keys(server: Server) -> None:
    async def write() -> None:
        server.store.start(asyncio.get_running_loop())
        done = await asyncio.gather(*(server.store.commit(Op(f"/registry/events/{i}", draft(lease_s=1), 0)) for i in range(5)))
        assert len(done) == 5

    asyncio.run(write())
    until(lambda: not server.store.range("/registry/events/").records)


def test_servers_take_turns_in_compacting(etcd: Etcd) -> None:
    client = Client(etcd.config)
    one, two = Compactor(client, 0), Compactor(client, 0)
    assert one.turn() == 0  # the first one only records the revision
    first = one.revision
    assert two.turn() == 0  # sees that another server compacted
    assert two.version == 1
    client.call(PUT, pb.PutRequest(key=b"x"))
    assert one.turn() == first
    assert two.turn() == 0 and two.version == 2
    assert two.turn() > first
    assert one.turn() == 0
    client.close()


@pytest.mark.parametrize(
    ("version", "ordered"),
    [("3.4.23", False), ("3.4.31", True), ("3.5.12", False), ("3.5.13", True), ("3.6.0", True), ("3.3.99", False), ("x", False),
     ("3.5.13-rc.1", False), ("3.5.14-rc.1", True), ("3.6.0-alpha.0", True), ("3.5.21+vendor", True), ("3.4.31.1", False), ("4.0.0", True)],
)
def test_progress_is_trusted_from_the_versions_that_order_it(version: str, ordered: bool) -> None:
    assert ordered_progress(version) is ordered


# -- cases that a review found


def outside(etcd: Etcd, *requests: tuple[Call, Any]) -> None:
    """Another client writes."""
    client = Client(etcd.config)
    try:
        for call, request in requests:
            client.call(call, request)
    finally:
        client.close()


def put_of(key: str, data: str = "x") -> tuple[Call, Any]:
    return PUT, pb.PutRequest(key=key.encode(), value=draft(data=data).json)


def delete_of(key: str) -> tuple[Call, Any]:
    return TXN, pb.TxnRequest(success=[pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=key.encode()))])


def test_a_delete_at_the_compacted_revision_is_not_lost(server: Server, etcd: Etcd) -> None:
    # Before 3.4.33 and 3.5.15, a watch that starts at that revision is neither cancelled nor notified of the delete.
    server.store.commit_now(Op(A, draft(), 0))
    server.pause()
    outside(etcd, delete_of(A), put_of(B), (COMPACT, pb.CompactionRequest(revision=3, physical=True)))
    server.again()
    assert server.store.revision == 4
    assert (server.store.get(A), server.store.get(B).revision) == (None, 4)


@pytest.mark.parametrize("alike", [False, True])
def test_a_restored_cluster_with_a_newer_revision_is_detected(server: Server, etcd: Etcd, tmp_path: Path, alike: bool) -> None:
    server.store.commit_now(Op(A, draft(data="1"), 0))
    etcd.kill()
    shutil.copytree(etcd.data, tmp_path / "backup")
    etcd.start()
    until(lambda: _written(server, Op(B if alike else A, draft(data="2"))))
    server.pause()
    etcd.kill()
    shutil.rmtree(etcd.data)
    shutil.copytree(tmp_path / "backup", etcd.data)
    etcd.start()
    # The same key is written at the same revision, as with renewed leases; only its value differs.
    outside(etcd, put_of(B, "3"), *(put_of("/registry/x/1", str(i)) for i in range(5)))
    server.again()
    assert (b'"data":"1"' in server.store.get(A).json, b'"data":"3"' in server.store.get(B).json) == (True, True)


def _written(server: Server, op: Op) -> bool:
    try:
        server.store.commit_now(op)
    except (Unavailable, Unknown):
        return False
    return True


def test_fragmented_watch_responses_are_applied_as_whole_revisions(server: Server, etcd: Etcd) -> None:
    server.pause()
    large = "y" * 700_000
    several = [pb.RequestOp(request_put=put_of(f"/registry/x/{i}", large[:400_000])[1]) for i in range(3)]
    outside(etcd, *(put_of(f"/registry/z/{i}", large) for i in range(6)), (TXN, pb.TxnRequest(success=several)), delete_of("/registry/z/0"))
    applied: list[list[int]] = []
    apply_many = LMDBStore.apply_many

    def counted(store: LMDBStore, revisions: list) -> None:
        applied.append([len(ops) for _, ops in revisions])
        apply_many(store, revisions)

    server.store = None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LMDBStore, "apply_many", counted)
        server.again()
        until(lambda: server.store.revision >= 9)
    assert [n for revisions in applied for n in revisions] == [1] * 6 + [3, 1]
    assert len(applied) > 1  # only the incomplete revision is kept
    assert [r.version for r in server.store.range("/registry/x/").records] == [1, 1, 1]


def test_keys_that_the_replica_cannot_hold_are_skipped(server: Server, etcd: Etcd) -> None:
    long = "/registry/x/" + "n" * 5000
    outside(etcd, put_of(long), delete_of(long), put_of(A))
    until(lambda: server.store.get(A) is not None)
    assert seen(server.store.events("/registry/", 1, 10)[0]) == [(4, 1, A)]


def test_a_replica_from_another_boot_is_not_trusted(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.store.commit_now(Op(A, draft(), 0))
    server.pause()
    monkeypatch.setattr("kas.store.etcd.replicator.boot_id", lambda: "another")
    server.again()
    assert (server.store.compacted_revision, server.store.get(A).revision) == (2, 2)


def test_a_damaged_replica_is_rebuilt(server: Server) -> None:
    server.store.commit_now(Op(A, draft(), 0))
    server.pause()
    (server.path / "data.mdb").write_bytes(b"")
    server.again()
    assert (server.store.compacted_revision, server.store.get(A).revision) == (2, 2)


def test_keys_of_other_programs_delay_no_answer(server: Server, etcd: Etcd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kas.store.etcd.store.NUDGE_S", 0.1)
    store = server.store
    store.commit_now(Op(A, draft(), 0))
    outside(etcd, put_of("/other"))
    with pytest.raises(Conflict) as caught:
        store.commit_now(Op(A, draft(), 0))
    assert caught.value.current.revision == 2

    async def check() -> None:
        store.start(asyncio.get_running_loop())
        await asyncio.to_thread(outside, etcd, put_of("/other"))
        with pytest.raises(Conflict):
            await store.commit(Op(B, None))

    asyncio.run(check())


def test_an_expired_lease_is_replaced(server: Server, etcd: Etcd) -> None:
    async def check() -> None:
        store = server.store
        store.start(asyncio.get_running_loop())
        await store.commit(Op(A, draft(lease_s=3600), 0))
        lease = (await store._calls()[1].lease(3600),)
        await asyncio.to_thread(outside, etcd, (REVOKE, pb.LeaseRevokeRequest(ID=lease[0])))
        await store.commit(Op(B, draft(lease_s=3600), 0))
        assert store.get(B) is not None

    asyncio.run(check())
    until(lambda: server.store.get(A) is None)


def test_no_key_expires_early() -> None:
    granted: list[int] = []

    class Clock:
        now = 0.0

    class Slow:
        async def call(self, call, request):
            Clock.now += 5.0  # etcd counts from a moment in between
            granted.append(request.TTL)
            return pb.LeaseGrantResponse(ID=len(granted), TTL=request.TTL)

    async def check() -> None:
        leases = Leases(Slow(), reuse_s=60, keys=3, now=lambda: Clock.now)
        assert [await leases.lease(15) for _ in range(2)] == [1, 2]  # too short for a shared lease, which has whole seconds
        assert [await leases.lease(3600) for _ in range(4)] == [3, 3, 3, 4]
        Clock.now += 56.0
        assert await leases.lease(3600) == 5
        assert granted == [15, 15, 3660, 3660, 3660]

    asyncio.run(check())


def test_all_waiters_for_a_lease_fail_together() -> None:
    """If each asked in turn, each for as long as etcd hangs, the last one would wait for hours."""
    asked = 0

    class Hangs:
        async def call(self, call, request):
            nonlocal asked
            asked += 1
            await asyncio.sleep(0)
            if asked == 1:
                raise Unavailable("etcdserver: request timed out")
            return pb.LeaseGrantResponse(ID=asked)

    async def check() -> None:
        leases = Leases(Hangs())
        failed = await asyncio.gather(*(leases.lease(3600) for _ in range(100)), return_exceptions=True)
        assert asked == 1 and all(isinstance(e, Unavailable) for e in failed)
        assert await asyncio.gather(*(leases.lease(3600) for _ in range(100))) == [2] * 100
        leaving = asyncio.create_task(leases.lease(15))
        staying = asyncio.create_task(leases.lease(15))
        await asyncio.sleep(0)
        leaving.cancel()
        assert await staying == asked

    asyncio.run(check())


def test_a_stale_member_is_not_trusted(server: Server) -> None:
    server.store.commit_now(Op(A, draft(), 0))
    server.replicator.stop()  # so that the replicator does not notice it
    server.thread.join(60)
    server.store.apply(50, [])

    async def check() -> None:
        server.store.start(asyncio.get_running_loop())
        with pytest.raises(Unavailable, match="gone back"):
            await server.store.fresh()
        with pytest.raises(Unknown, match="gone back"):
            await server.store.commit(Op(B, draft(), 0))
        with pytest.raises(Unavailable, match="gone back"):
            await server.store.commit(Op(A, draft(), 7))

    asyncio.run(check())


def in_time(ask: Callable[[float], Any]) -> Any:
    """Runs ``ask(seconds)`` with a few seconds, and with more if that is too short on this machine: each server gets a share of them."""
    with contextlib.suppress(Unavailable):
        return ask(4.0)
    return ask(60.0)


def test_a_hanging_server_takes_only_a_share_of_the_time(etcd: Etcd) -> None:
    with socket.socket() as hung:
        hung.bind(("127.0.0.1", 0))
        hung.listen()  # connections are accepted and never answered
        config, what = Config((f"http://127.0.0.1:{hung.getsockname()[1]}", etcd.url)), pb.RangeRequest(key=b"/")

        def at_once(seconds: float) -> int:
            client = Client(config)
            try:
                return client.call(RANGE, what, seconds).header.revision
            finally:
                client.close()

        async def later(seconds: float) -> int:
            client = AsyncClient(config)
            try:
                return (await client.call(RANGE, what, seconds)).header.revision
            finally:
                await client.close()

        assert in_time(at_once) == 1
        assert in_time(lambda seconds: asyncio.run(later(seconds))) == 1


@pytest.mark.parametrize(
    ("failed", "error"),
    [
        (RpcError(Code.INTERNAL, "the server ended the stream with error 2"), Unknown),
        (RpcError(Code.ABORTED, "", from_server=True), Unknown),
        (RpcError(Code.UNAVAILABLE, "the server closed the connection"), Unknown),
        (RpcError(Code.UNAVAILABLE, "etcdserver: leader changed", from_server=True), Unknown),
        (RpcError(Code.UNAVAILABLE, "etcdserver: no leader"), Unknown),  # the error may come from a proxy
        (RpcError(Code.UNAVAILABLE, "etcdserver: no leader", from_server=True), Unavailable),
        (RpcError(Code.UNAVAILABLE, "etcdserver: request timed out, possibly due to previous leader failure", from_server=True), Unknown),
        (RpcError(Code.RESOURCE_EXHAUSTED, "a message of 3000000000 bytes"), Unknown),  # the error comes from etcd
        (RpcError(Code.PERMISSION_DENIED, "an answer without a status; HTTP 403"), Unknown),
        (RpcError(Code.UNAVAILABLE, "failed to connect", unsent=True), Unavailable),
        (RpcError(Code.DEADLINE_EXCEEDED, "context deadline exceeded", unsent=True), Unavailable),
        (RpcError(Code.NOT_FOUND, "etcdserver: requested lease not found", from_server=True), LeaseGone),
        (RpcError(Code.INVALID_ARGUMENT, "etcdserver: request is too large", from_server=True), StoreError),
        (RpcError(Code.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded", from_server=True), Full),
        (RpcError(Code.RESOURCE_EXHAUSTED, "etcdserver: too many requests", from_server=True), Unavailable),
    ],
)
def test_errors_say_whether_a_write_may_have_happened(failed: RpcError, error: type) -> None:
    with pytest.raises(StoreError) as caught:
        translate(failed, TXN)
    assert type(caught.value) is error


@pytest.mark.parametrize(
    ("prefix", "key"),
    [
        ("/registry", "/registry/pods/ns/a"), ("registry/", "/registry/pods/ns/a"), ("/", "/pods/ns/a"), ("", "/pods/ns/a"),
        (".", "/pods/ns/a"),
        ("//a//b/", "/a/b/pods/ns/a"), ("/a/../b/./c", "/b/c/pods/ns/a"), ("../a", "/a/pods/ns/a"), ("/é", "/é/pods/ns/a"),
    ],
)  # fmt: skip
def test_a_prefix_is_normalized_as_by_kube_apiserver(prefix: str, key: str) -> None:
    keys = Keys(prefix)
    assert keys.to_etcd("/registry/pods/ns/a") == key.encode() and key.encode().startswith(keys.root)
    assert keys.from_etcd(key.encode()) == "/registry/pods/ns/a"


def test_a_watch_moves_from_a_hanging_server_to_another(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        server = Server(cluster, tmp_path / "replica")
        try:
            server.store.commit_now(Op(A, draft(), 0))
            followed = next(m for m in cluster.members if m.url == server.replicator.followed)
            followed.signal(signal.SIGSTOP)
            try:
                others = [m for m in cluster.members if m is not followed]
                until(lambda: _put_through(others, "/registry/x/1"))
                until(lambda: server.store.get("/registry/x/1") is not None, 30.0)
            finally:
                followed.signal(signal.SIGCONT)
        finally:
            server.stop()


def _put_through(members: list[Etcd], key: str) -> bool:
    for member in members:
        try:
            outside(member, put_of(key))
        except StoreError:
            continue
        return True
    return False


def test_a_user_with_a_password(etcd: Etcd) -> None:
    etcdctl = prerequisites.program("etcdctl", "Debian's etcd-client")
    for command in ("user add root:secret", "user grant-role root root", "auth enable"):
        env = {**os.environ, "ETCDCTL_API": "3"}
        subprocess.run([etcdctl, "--endpoints", etcd.url, *command.split()], check=True, capture_output=True, env=env)
    known = replace(etcd.config, username="root", password="secret")
    assert "secret" not in repr(known)
    for config, allowed in ((known, True), (replace(known, password="wrong"), False), (etcd.config, False)):
        client = Client(config)
        if allowed:
            client.call(PUT, pb.PutRequest(key=b"/a"))
            client._metadata = ((b"hasleader", b"true"), (b"token", b"forgotten.1"))  # as after a restart of etcd
            client.call(PUT, pb.PutRequest(key=b"/a"))
        else:
            with pytest.raises(StoreError):
                client.call(PUT, pb.PutRequest(key=b"/a"))
        client.close()

    async def check() -> None:
        client = AsyncClient(known)
        forgotten = client._metadata = ((b"hasleader", b"true"), (b"token", b"forgotten.1"))
        assert (await client.call(PUT, pb.PutRequest(key=b"/a"))).header.revision == 4
        client._metadata = forgotten
        logins = 0
        authenticate = client._authenticate

        async def counted():
            nonlocal logins
            logins += 1
            return await authenticate()

        client._authenticate = counted  # type: ignore[method-assign]
        await asyncio.gather(*(client.call(PUT, pb.PutRequest(key=b"/a")) for _ in range(20)))
        assert logins == 1
        told: list[Begun] = []
        late = asyncio.Event()
        token, client._metadata = client._metadata, forgotten
        assert client.begin(RANGE, pb.RangeRequest(key=b"/a"), 10.0, lambda begun: (told.append(begun), late.set()))
        client._metadata = token  # another call has logged in meanwhile
        await late.wait()
        assert client.ended(told[0]) is None and client._metadata is token
        await client.close()

    asyncio.run(check())


def test_a_full_cluster_is_reported_and_can_be_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    etcd = Etcd(tmp_path)
    try:
        etcd.start("--quota-backend-bytes=2000000")
        server = Server(etcd, tmp_path / "replica")

        async def check() -> None:
            store = server.store
            store.start(asyncio.get_running_loop())
            await store.probe()
            assert store.full() == ""
            await store.commit(Op(A, draft(), 0))
            with pytest.raises(Full):
                for i in range(400):  # etcd checks its size when it writes a batch
                    await store.commit(Op(f"/registry/x/{i}", draft(data="y" * 100_000), 0))
            await store.probe()
            assert (store.full(), store.unreachable(2.0)) == ("database space exceeded", "")
            await store.probe()
            # and is reported once
            assert [r.getMessage()[:16] for r in caplog.records if "NOSPACE" in r.getMessage()] == ["etcd is full: it"]
            await store.fresh()  # where no key can be written, etcd is only read
            version = tuple(map(int, etcd.version().split(".")))
            if version < (3, 4, 20) or (3, 5) <= version < (3, 5, 7):  # transactions are refused then, whatever they contain
                return
            await store.commit(Op(A, None))
            assert store.get(A) is None

        try:
            asyncio.run(check())
        finally:
            server.stop()
    finally:
        etcd.kill()


def test_health_checks_propose_nothing_to_etcd(etcd: Etcd, tmp_path: Path) -> None:
    """Each worker checks once a second. Every proposal is synced to disk by every member before the next write."""
    server, client = Server(etcd, tmp_path / "replica"), Client(etcd.config)

    def index() -> int:
        return client.call(STATUS, pb.StatusRequest()).raftIndex

    async def quiet() -> bool:
        before = index()
        await server.store.probe()
        return index() == before

    async def check() -> None:
        server.store.start(asyncio.get_running_loop())
        # etcd itself makes a few proposals when it has just started
        assert any([await quiet() for _ in range(10)])

    try:
        asyncio.run(check())
    finally:
        client.close()
        server.stop()


def _takes_the_place_of(etcd: Etcd, directory: Path) -> Etcd:
    """Starts another cluster at the same address."""
    other = Etcd(directory)
    etcd.kill()
    other.url = etcd.url
    return other.start()


def test_nothing_is_written_to_another_cluster_at_the_same_address(
    server: Server, etcd: Etcd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.store.commit_now(Op(A, draft(), 0))
    server.pause()
    server.again()
    server.replicator.stop()  # so that the replicator does not notice it
    server.thread.join(60)
    other = _takes_the_place_of(etcd, tmp_path / "other")
    monkeypatch.setattr("kas.store.etcd.freshness.FRESH_S", 0.5)

    def within(seconds: float) -> AbstractContextManager[Any]:
        monkeypatch.setattr("kas.store.etcd.store.WRITE_TIMEOUT_S", seconds)
        return pytest.raises(Unavailable)

    def at_once(seconds: float) -> str:
        with within(seconds) as told:
            server.store.commit_now(Op(B, draft(), 0))
        return str(told.value)

    async def later(seconds: float) -> str:
        with within(seconds) as told:
            await asyncio.wait_for(server.store.commit(Op(B, draft(), 0)), 60)
        return str(told.value)

    async def check() -> None:
        server.store.start(asyncio.get_running_loop())
        assert foreign in await later(3.0) or foreign in await later(30.0)  # longer only on a busy machine
        with pytest.raises(Unavailable):
            await server.store.fresh()

    foreign = "is a server of another cluster"
    try:
        assert foreign in at_once(3.0) or foreign in at_once(30.0)
        asyncio.run(check())
        assert other.keys("/") == []
    finally:
        other.kill()


@pytest.mark.parametrize("ahead", [0, 1])
def test_a_server_of_another_cluster_is_skipped(tmp_path: Path, ahead: int) -> None:
    """``ahead``: how many servers are skipped when a watch ends."""
    with Etcd(tmp_path / "a") as etcd, Etcd(tmp_path / "b") as stray:
        both = SimpleNamespace(config=replace(etcd.config, servers=(stray.url, etcd.url)))
        server = Server(etcd, tmp_path / "replica")
        try:
            server.store.commit_now(Op(A, draft(), 0))
            server.pause()
            server.etcd, server.client = both, Client(both.config)  # type: ignore[assignment]
            server.again()
            assert server.store.get(A) is not None
            server.store.commit_now(Op(B, draft(), 0))
            until(lambda: server.replicator.followed == etcd.url)
            stream = until(lambda: server.replicator._stream)
            for _ in range(ahead):
                server.client.next_server()
            server.replicator.request_progress()
            stream.cancel()  # the replicator starts with the next server, which is the foreign one or the one after it
            server.store.commit_now(Op(B + "c", draft(), 0))
            assert server.failed == [] and stray.keys("/") == []
        finally:
            server.stop()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, ""),
        ({"raft_term": 2}, ""),
        ({"format": 3}, "it has form 3, and this version of kas reads and writes form"),
        ({"cluster_id": 0xAB}, "it is of the cluster ab, and this one is 1"),
        ({"prefix": ""}, "it is of the keys below /, and not /registry"),
        ({"boot": "-"}, "the machine was started anew since"),
        ({"raft_term": 4}, "the cluster went back: its raft term was 4, and is 3"),
    ],
)
def test_the_reason_for_rebuilding_a_replica_is_logged(change: dict[str, Any], why: str) -> None:
    now = Note(1, "/registry", 3, "boot")
    found = now.misfit(replace(now, **change))
    assert found.startswith(why) and bool(found) == bool(why)


def test_an_incomplete_copy_is_not_served(etcd: Etcd, tmp_path: Path) -> None:
    """As an interrupted ``kas storage copy`` leaves it. A complete copy is served, also with another program's marker key."""
    client = Client(etcd.config)
    try:
        for note in (CopyNote("x", 7, complete=True).to_json(), b"no note"):
            client.call(PUT, pb.PutRequest(key=b"kas_copy/registry", value=note))
            Server(etcd, tmp_path / "replica").stop()
        client.call(PUT, pb.PutRequest(key=b"kas_copy/registry", value=CopyNote("x", 7, "/registry/a").to_json()))
        with pytest.raises(StoreError, match=r"a copy to /registry was interrupted: .* or delete the key kas_copy/registry"):
            Server(etcd, tmp_path / "replica")
    finally:
        client.close()


def test_starting_before_etcd_logs_the_wait_and_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog) -> None:
    monkeypatch.setattr("kas.store.etcd.replicator.SOON_S", 0.01)
    client = Client(Config(("http://127.0.0.1:1",)))
    replicator = Replicator(client, lambda store: Plain(), Keys(), tmp_path / "replica", LMDBStore, patience_s=0.01)
    with pytest.raises(Unavailable, match=r"failed to connect to 127[.]0[.]0[.]1:1: Connection refused"):
        replicator.begin()
    (said,) = (r.getMessage() for r in caplog.records)
    assert said.startswith("waiting for etcd, for up to 10ms: etcdserver: failed to connect to 127.0.0.1:1: ")
