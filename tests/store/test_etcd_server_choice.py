"""Which of several etcd servers is asked: not another one if all would decide the same, and none that is down while another is up."""

from __future__ import annotations

import asyncio
import itertools
import socket
from types import SimpleNamespace

import pytest

from kas.store import Damaged
from kas.store.etcd import client as etcd_client
from kas.store.etcd import etcd_pb2 as pb
from kas.store.etcd.client import RANGE, TXN, AsyncClient, Client, Config
from kas.store.etcd.rpc import hpack
from kas.store.etcd.rpc.blocking import Blocking
from kas.store.etcd.rpc.http2 import HEADERS, frame
from kas.store.etcd.rpc.status import Code
from tests import ports
from tests.store.test_etcd_rpc import FIRST, Peer, Talk

CORRUPT = (
    FIRST + hpack.literal(b"grpc-status", b"%d" % Code.DATA_LOSS.value) + hpack.literal(b"grpc-message", b"etcdserver: corrupt cluster")
)
FOUND = pb.RangeResponse(header=pb.ResponseHeader(revision=7)).SerializeToString()


def refuses_writes(talk: Talk) -> None:
    """Answers reads, and refuses writes because of an alarm."""
    talk.greet()
    while True:
        stream, message = talk.request()
        if pb.RangeRequest.FromString(message).key:
            talk.answer(stream, FOUND)
        else:
            talk.send(frame(HEADERS, 5, stream, CORRUPT))


def test_a_decision_of_the_cluster_is_not_retried_elsewhere() -> None:
    with Peer(refuses_writes) as peer:
        config = Config((peer.url, f"http://127.0.0.1:{ports.reserve()}"))
        client = Client(config)
        with pytest.raises(Damaged):
            client.call(TXN, pb.TxnRequest())
        assert client.asked == peer.url
        client.close()

        async def go() -> None:
            client = AsyncClient(config)
            with pytest.raises(Damaged):
                await client.call(TXN, pb.TxnRequest())
            over = asyncio.get_running_loop().create_future()
            assert client.begin(TXN, pb.TxnRequest(), 10.0, over.set_result)
            with pytest.raises(Damaged):
                client.ended(await over)
            assert client._turn == 0
            await client.close()

        asyncio.run(go())
        assert peer.failed == []


def test_a_server_that_is_down_is_not_waited_for_while_another_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    for pause in ("BACKOFF_S", "BACKOFF_MAX_S"):
        monkeypatch.setattr(etcd_client, pause, 3600.0)

    async def go(config: Config) -> None:
        client = AsyncClient(config)
        for turn in (0, 0, 1):
            client._turn = turn
            async with asyncio.timeout(60):
                answer = await client.call(RANGE, pb.RangeRequest(key=b"/"), 3600.0)
            assert answer.header.revision == 7 and client._turn == 1
        await client.close()

    with Peer(refuses_writes) as peer:
        asyncio.run(go(Config((f"http://127.0.0.1:{ports.reserve()}", peer.url))))
        assert peer.failed == []


def test_connecting_fails_when_its_time_has_already_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread may be suspended between two looks at the clock for longer than the whole limit."""
    clock = itertools.count()
    monkeypatch.setattr("kas.store.etcd.rpc.blocking.time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(OSError):
        Blocking("127.0.0.1", silent.getsockname()[1], None, 0.5)
