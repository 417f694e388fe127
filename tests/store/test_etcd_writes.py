"""Writes to etcd that are in progress, and a watch with invalid messages."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kas.store import Busy, Conflict, Full, Op, Unavailable, Unknown
from kas.store.etcd import client as etcd_client
from kas.store.etcd import etcd_pb2 as pb
from kas.store.etcd.client import GRANT, RANGE, TXN, AsyncClient, Begun, Call, Config
from kas.store.etcd.rpc.http2 import Stream
from kas.store.etcd.rpc.looped import Looped
from kas.store.etcd.rpc.status import Code, RpcError
from kas.store.etcd.store import LEAST_S, Write
from tests.contract.store_suite import draft
from tests.controllers.waiting import until
from tests.etcd import Etcd
from tests.store.test_etcd_store import A, B, Server, outside, put_of


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Etcd(tmp_path) as etcd:
        server = Server(etcd, tmp_path / "replica")
        yield server
        server.stop()


def test_a_write_in_progress_ends_with_its_call(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes have no task of their own. A write that certainly was not begun is repeated, a write whose call broke off has an unknown
    outcome, and a write whose replica does not follow says so, whatever its writer does meanwhile."""
    fate: list[RpcError] = []

    def begin(self: AsyncClient, call: Call, request: Any, within_s: float, on_end: Any) -> bool:
        stream = Stream(b"", b"", True, True, None)
        stream.error = fate[-1]
        asyncio.get_running_loop().call_soon(on_end, Begun(call, 0, stream, ()))
        return True

    async def write() -> None:
        store = server.store
        store.start(asyncio.get_running_loop())
        with monkeypatch.context() as m:
            m.setattr(AsyncClient, "begin", begin)
            fate.append(RpcError(Code.UNAVAILABLE, "the server is leaving", unsent=True))
            assert (await store.commit(Op(A, draft(), 0))).record.revision == 2
            fate.append(RpcError(Code.UNAVAILABLE, "the connection broke off"))
            with pytest.raises(Unknown):
                await store.commit(Op(B, draft(), 0))
            fate.append(RpcError(Code.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded", from_server=True))
            with pytest.raises(Full):
                await store.commit(Op(B, draft(), 0))
        left = store.commit(Op(B, draft(), 0))
        await asyncio.sleep(0)
        left.cancel()  # the write is committed
        await asyncio.to_thread(until, lambda: store.get(B) is not None)
        await asyncio.to_thread(until, lambda: not store._writes)  # the replica may have it before etcd's answer arrives
        server.replicator.stop()
        server.thread.join(60)
        with monkeypatch.context() as m:
            m.setattr("kas.store.etcd.store.CATCH_UP_S", 0.1)
            m.setattr("kas.store.etcd.store.NUDGE_S", 0.05)
            with pytest.raises(Unknown, match="committed, but the replica does not follow"):
                await store.commit(Op("/registry/x/c", draft(), 0))
            with pytest.raises(Unavailable):  # it conflicts, and the replica does not have the other write
                await store.commit(Op("/registry/x/c", draft(), 0))
        assert not store._writes

    asyncio.run(write())


def test_all_attempts_of_a_write_share_one_deadline(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second attempt gets what is left of it; it used to get as long again."""
    given: list[float] = []
    real = AsyncClient.call

    def begin(self: AsyncClient, call: Call, request: Any, within_s: float, on_end: Any) -> bool:
        stream = Stream(b"", b"", True, True, None)
        stream.error = RpcError(Code.DEADLINE_EXCEEDED, "context deadline exceeded", unsent=True)
        asyncio.get_running_loop().call_later(0.3, on_end, Begun(call, 0, stream, ()))
        return True

    async def call(self: AsyncClient, call: Call, request: Any, within_s: float = 10.0) -> Any:
        if call is TXN:
            given.append(within_s)
        return await real(self, call, request, 60.0)  # checks the time limit that is passed, not how long this machine takes

    async def write() -> None:
        store = server.store
        store.start(asyncio.get_running_loop())
        monkeypatch.setattr(AsyncClient, "begin", begin)
        monkeypatch.setattr(AsyncClient, "call", call)
        assert (await store.commit(Op(A, draft(), 0))).record.revision == 2
        monkeypatch.setattr("kas.store.etcd.store.WRITE_TIMEOUT_S", 0.2)
        await store.commit(Op(B, draft(), 0))

    asyncio.run(write())
    assert given[0] <= 9.7 and given[1] == LEAST_S


def test_writers_to_a_stopped_etcd_end_and_unsent_writes_never_happen(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than fits into a connection that nobody reads: some writes were sent and may happen, the others were not. Their number is
    bounded."""
    keys = [f"/registry/x/{i:03}" for i in range(200)]

    async def write() -> list[Any]:
        store = server.store
        store.start(asyncio.get_running_loop())
        await store.commit(Op(A, draft(), 0))
        server.etcd.signal(signal.SIGSTOP)
        with monkeypatch.context() as m:
            m.setattr("kas.store.etcd.store.WRITE_TIMEOUT_S", 0.5)
            m.setattr("kas.store.etcd.store.MOST_WRITES", len(keys))
            writes = [store.commit(Op(key, draft(data="x" * 2000), 0)) for key in keys]
            with pytest.raises(Busy):
                store.commit(Op(B, draft(), 0))
            return await asyncio.gather(*writes, return_exceptions=True)

    ended = asyncio.run(write())
    server.etcd.signal(signal.SIGCONT)
    assert {type(e) for e in ended} == {Unknown, Unavailable} and not server.store._writes
    server.store.commit_now(Op(B, draft(), 0))  # whatever was in progress before has arrived
    assert server.store.get(B) is not None
    made = {record.key for record in server.store.range("/registry/x/").records}
    assert made <= {key for key, e in zip(keys, ended, strict=True) if type(e) is Unknown}


def test_a_refused_writes_objects_are_freed_with_its_answer(server: Server) -> None:
    """They may be large, and the garbage collector of cycles runs only after 50,000 further objects."""

    def gone() -> bool:
        return not any(type(one) is Write and one._store is server.store for one in gc.get_objects())

    async def write() -> None:
        store = server.store
        store.start(asyncio.get_running_loop())
        await store.commit(Op(A, draft(), 0))
        gc.collect()
        gc.disable()
        try:
            for op in (Op(A, draft(), 0), Op(A, draft(), 12345), Op(B, None)):
                with pytest.raises(Conflict):
                    await store.commit(op)
            await asyncio.to_thread(until, gone)
            server.replicator.stop()
            server.thread.join(60)
            server.etcd.kill()
            with pytest.raises((Unknown, Unavailable)):
                await store.commit(Op(B, draft(), 0))
            await asyncio.to_thread(until, gone)
        finally:
            gc.enable()

    asyncio.run(write())


def test_a_watch_with_invalid_messages_is_closed(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    class Nonsense:
        """A stream of invalid messages."""

        send = cancel = close = staticmethod(lambda *_: None)

        def __iter__(self) -> Iterator[list[bytes]]:
            yield [b"\xff" * 20]

    said, really = [], server.client.watch
    monkeypatch.setattr(server.client, "watch", lambda request: said.append(1) or Nonsense() if len(said) < 2 else really(request))
    until(lambda: server.replicator._stream).cancel()
    until(lambda: len(said) == 2)
    outside(server.etcd, put_of("/registry/x/1"))
    until(lambda: server.store.get("/registry/x/1") is not None, 30.0)
    assert server.failed == []


def test_a_busy_replicator_does_not_take_the_server_for_silent(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Applying a revision of many keys takes time, and what the server sends meanwhile is read only afterwards."""
    replicator, cancelled = server.replicator, []
    stream = until(lambda: replicator._stream)
    cancel = stream.cancel
    monkeypatch.setattr(stream, "cancel", lambda: cancelled.append(1) or cancel())
    apply, began, ready = replicator._apply, threading.Event(), threading.Event()

    def slowly(events) -> None:
        if events:
            began.set()
            assert ready.wait(60)
        apply(events)

    monkeypatch.setattr(replicator, "_apply", slowly)
    outside(server.etcd, put_of("/registry/x/1"))
    assert began.wait(60)
    long_ago = time.monotonic() - 1000.0
    replicator._asked_at = long_ago
    replicator._look()
    assert cancelled == []
    ready.set()
    until(lambda: server.store.get("/registry/x/1") is not None, 30.0)
    until(lambda: not replicator._hearing)
    assert replicator._asked_at != long_ago

    def left() -> bool:
        replicator._asked_at = long_ago  # unless something arrives at that moment
        replicator._look()
        return bool(cancelled)

    until(left)


def test_a_write_that_every_server_refuses_fails_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unlike a read, it does not wait until its deadline, and asks no server twice."""
    dialled: list[int] = []

    async def refused(host: str, port: int, tls: Any, within_s: float) -> Looped:
        dialled.append(port)
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(etcd_client, "dial", refused)
    monkeypatch.setattr(etcd_client, "BACKOFF_S", 3600.0)
    monkeypatch.setattr(etcd_client, "BACKOFF_MAX_S", 3600.0)

    async def write() -> None:
        client = AsyncClient(Config(("http://127.0.0.1:1", "http://127.0.0.1:2")))
        for call, request in ((TXN, pb.TxnRequest()), (TXN, pb.TxnRequest()), (GRANT, pb.LeaseGrantRequest(TTL=9))):
            with pytest.raises(Unavailable, match=r"no server can be reached: 127.0.0.1:1: Connection refused"):
                await client.call(call, request, 3600.0)
        assert dialled == [1, 2]
        with pytest.raises(Unavailable):
            await client.call(RANGE, pb.RangeRequest(), 0.2)
        await client.close()

    asyncio.run(write())
