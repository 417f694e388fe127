"""The store on a real etcd: what is written arrives as it was meant, whoever wrote it, and whatever fails in between."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kas.registry.etcdvalues import custom
from kas.store import Conflict, Op, Unavailable, Unknown
from kas.store.etcd import etcd_pb2 as pb
from kas.store.etcd.client import COMPACT, PUT, TXN, Client, prefix_end
from kas.store.etcd.compactor import Compactor
from kas.store.etcd.layout import Keys, Undecodable
from kas.store.etcd.replicator import Lost, Replicator, ordered_progress
from kas.store.etcd.store import EtcdStore
from tests.contract.store_suite import draft, keys, seen
from tests.etcd import Etcd

A, B = "/registry/pods/ns/a", "/registry/pods/ns/b"


class Plain:
    """Values that are the draft's JSON: no kind is known here."""

    first = ()

    def encode(self, key, draft):
        return draft.json + b"\n"

    def decode(self, key, value):
        try:
            return custom(value, ())
        except (ValueError, KeyError, TypeError) as e:
            raise Undecodable(str(e)) from e


class Server:
    """A replica with its replicator, as one kas server has it, in this process."""

    def __init__(self, etcd: Etcd, path: Path) -> None:
        self.client = Client(etcd.config)
        self.replicator = Replicator(self.client, lambda store: Plain(), Keys(), path, self._open)
        self.path, self.etcd = path, etcd
        self.failed: list[BaseException] = []
        self.store = self.replicator.begin()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _open(self) -> EtcdStore:
        return EtcdStore(
            str(self.path), self.etcd.config, lambda store: Plain(), keys=Keys(), max_size=1 << 28,
            ask_progress=lambda: self.replicator.request_progress(), ordered_progress=False,
        )  # fmt: skip

    def _run(self) -> None:
        try:
            self.replicator.run()
        except BaseException as e:
            self.failed.append(e)

    def stop(self) -> None:
        self.replicator.stop()
        self.thread.join(60)
        assert not self.thread.is_alive()
        self.store.close()
        self.client.close()


def eventually(condition, seconds: float = 60.0):
    until = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.01)
    return found


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
def test_a_lost_race_shows_what_is_there(server: Server, expected: int) -> None:
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
    assert server.store.revision == 2


def test_a_transaction_is_all_or_nothing_and_one_revision(server: Server) -> None:
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
            eventually(lambda one=one: one.store.revision >= 21)
            assert [e.revision for e in one.store.events("/registry/", 1, 100)[0]] == list(range(2, 22))
        assert [r.json for r in server.store.range("/registry/x/").records] == [r.json for r in other.store.range("/registry/x/").records]
    finally:
        other.stop()


def test_a_read_that_waits_is_as_new_as_any_acknowledged_write(server: Server, etcd: Etcd) -> None:
    outside = Client(etcd.config)

    async def check() -> None:
        server.store.start(asyncio.get_running_loop())
        for i in range(20):
            await asyncio.to_thread(outside.call, PUT, pb.PutRequest(key=A.encode(), value=draft(data=str(i)).json))
            await asyncio.gather(*(server.store.fresh() for _ in range(5)))
            assert b'"data":"%d",' % i in server.store.get(A).json

    asyncio.run(check())
    outside.close()


def test_many_writers_at_once(server: Server) -> None:
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


def test_a_stopped_etcd_is_told_and_survived(server: Server, etcd: Etcd) -> None:
    store = server.store
    store.commit_now(Op(A, draft(), 0))
    etcd.kill()
    assert store.get(A).revision == 2  # what is here can be read

    async def refused() -> None:
        store.start(asyncio.get_running_loop())
        with pytest.raises((Unavailable, Unknown)):
            await store.fresh()

    asyncio.run(refused())
    etcd.start()
    outside = Client(etcd.config)
    outside.call(PUT, pb.PutRequest(key=B.encode(), value=draft().json))
    eventually(lambda: store.get(B) is not None)
    assert seen(store.events("/registry/", 1, 10)[0]) == [(2, 1, A), (3, 1, B)]
    outside.close()


def test_a_write_whose_answer_is_lost_is_not_told_as_undone(server: Server, etcd: Etcd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kas.store.etcd.store.WRITE_TIMEOUT_S", 2.0)
    server.store.commit_now(Op(A, draft(), 0))
    etcd.signal(signal.SIGSTOP)
    try:
        with pytest.raises(Unknown):
            server.store.commit_now(Op(B, draft(), 0))
    finally:
        etcd.signal(signal.SIGCONT)
    try:
        server.store.commit_now(Op(B, draft(), 0))
    except Conflict as e:  # it had happened all the same
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
    eventually(lambda: again.store.get(B) is not None)
    # The history before it was closed is there still.
    assert seen(again.store.events("/registry/", 1, 10)[0]) == [(2, 1, A), (3, 1, B)]
    server.store, server.replicator, server.thread = again.store, again.replicator, again.thread


def test_a_replica_is_thrown_away_when_history_is_missing(server: Server, etcd: Etcd) -> None:
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


def test_a_cluster_that_went_back_is_noticed(server: Server, etcd: Etcd) -> None:
    import shutil

    for i in range(5):
        server.store.commit_now(Op(f"/registry/x/{i}", draft(), 0))
    etcd.kill()
    shutil.rmtree(etcd.data)
    etcd.start()
    eventually(lambda: server.failed)
    assert isinstance(server.failed[0], Lost)


def test_values_nobody_understands_are_left_out(server: Server, etcd: Etcd) -> None:
    outside = Client(etcd.config)
    outside.call(PUT, pb.PutRequest(key=A.encode(), value=draft().json))
    outside.call(PUT, pb.PutRequest(key=B.encode(), value=b"{"))
    outside.call(PUT, pb.PutRequest(key=b"/registry/\xff", value=b"{"))
    outside.call(PUT, pb.PutRequest(key=A.encode(), value=b"garbage"))
    outside.call(PUT, pb.PutRequest(key=b"/registry/z", value=draft().json))
    everything = pb.DeleteRangeRequest(key=b"/registry/", range_end=prefix_end(b"/registry/"))
    outside.call(TXN, pb.TxnRequest(success=[pb.RequestOp(request_delete_range=everything)]))
    outside.close()
    eventually(lambda: server.store.revision >= 7)
    assert seen(server.store.events("/registry/", 1, 10)[0]) == [(2, 1, A), (5, 3, A), (6, 1, "/registry/z"), (7, 3, "/registry/z")]


def test_leases_end_keys(server: Server) -> None:
    async def write() -> None:
        server.store.start(asyncio.get_running_loop())
        done = await asyncio.gather(*(server.store.commit(Op(f"/registry/events/{i}", draft(lease_s=1), 0)) for i in range(5)))
        assert len(done) == 5

    asyncio.run(write())
    eventually(lambda: not server.store.range("/registry/events/").records)


def test_servers_take_turns_in_compacting(etcd: Etcd) -> None:
    client = Client(etcd.config)
    one, two = Compactor(client, 0), Compactor(client, 0)
    assert one.turn() == 0  # the first looks only
    first = one.revision
    assert two.turn() == 0  # sees that it was another's turn
    assert two.version == 1
    client.call(PUT, pb.PutRequest(key=b"x"))
    assert one.turn() == first
    assert two.turn() == 0 and two.version == 2
    assert two.turn() > first
    assert one.turn() == 0
    client.close()


@pytest.mark.parametrize(
    ("version", "ordered"),
    [("3.4.23", False), ("3.4.31", True), ("3.5.12", False), ("3.5.13", True), ("3.6.0", True), ("3.3.99", False), ("x", False)],
)
def test_progress_is_trusted_from_the_versions_that_order_it(version: str, ordered: bool) -> None:
    assert ordered_progress(version) is ordered
