"""A call that is made repeatedly on one connection: which server it goes to, and what counts as its answer."""

from __future__ import annotations

import asyncio
import time

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from kas.store import Unavailable
from kas.store.etcd import etcd_pb2 as pb
from kas.store.etcd.client import RANGE, AsyncClient, Config
from kas.store.etcd.rpc import Question, Stream
from kas.store.etcd.rpc.http2 import DATA, HEADERS, RST_STREAM, frame
from kas.store.etcd.rpc.status import Code, RpcError
from kas.store.etcd.sharedcall import SharedCall
from tests import ports
from tests.store.test_etcd_rpc import FIRST, Peer, Script, Talk

REQUEST = pb.RangeRequest(key=b"/registry/", limit=1, keys_only=True)


def at(revision: int, headers: list[bytes] | None = None) -> Script:
    """A server at a revision; ``headers`` collects those of the calls."""
    found = pb.RangeResponse(header=pb.ResponseHeader(revision=revision)).SerializeToString()

    def run(talk: Talk) -> None:
        talk.greet()
        while True:
            kind, flags, stream, payload = talk.frame()
            if kind == HEADERS and headers is not None:
                headers.append(payload)
            if kind == DATA and flags & 1:
                talk.answer(stream, found)

    return run


async def reached(client: AsyncClient, turn: int) -> None:
    client._turn = turn
    await client._reachable(time.monotonic() + 10.0)


async def told(question: SharedCall) -> int:
    over: asyncio.Future[Stream] = asyncio.get_running_loop().create_future()
    assert question.ask(over.set_result)
    return question.revision(await over)


def test_the_clients_current_server_is_asked() -> None:
    async def check(config: Config) -> None:
        client = AsyncClient(config)
        question = SharedCall(client, RANGE, REQUEST, 60.0)
        over: list[Stream] = []
        assert not question.ask(over.append)  # not connected yet
        assert (await question.anew(10.0)).header.revision == 7
        assert [await told(question) for _ in range(3)] == [7, 7, 7]
        await reached(client, 1)
        assert [await told(question) for _ in range(2)] == [9, 9]
        connection = question._connection
        assert connection is not None
        connection._http2.leaving = "the server is leaving"
        assert not question.ask(over.append) and not over
        await client.close()

    with Peer(at(7)) as one, Peer(at(9)) as other:
        asyncio.run(check(Config((one.url, other.url))))
        assert one.failed == other.failed == []


def test_the_current_login_token_is_sent() -> None:
    headers: list[bytes] = []

    async def check(config: Config) -> None:
        client = AsyncClient(config)
        await reached(client, 0)
        question = SharedCall(client, RANGE, REQUEST, 60.0)
        for token in (b"first", b"first", b"second"):
            if client._metadata is None or (b"token", token) not in client._metadata:
                client._metadata = ((b"token", token),)
            await told(question)
        client._metadata = None  # logged out
        assert not question.ask(headers.append)
        await client.close()

    with Peer(at(7, headers)) as peer:
        asyncio.run(check(peer.config))
        assert [b"first" in one for one in headers] == [True, True, False] and b"second" in headers[2]


def test_a_failed_call_has_no_revision_and_moves_to_another_server() -> None:
    def resets(talk: Talk) -> None:
        talk.greet()
        talk.send(frame(RST_STREAM, 0, talk.request()[0], b"\0\0\0\2"))
        talk.send(frame(HEADERS, 5, talk.request()[0], FIRST))
        talk.frame()

    async def check(config: Config) -> None:
        client = AsyncClient(config)
        question = SharedCall(client, RANGE, REQUEST, 60.0)
        for _ in range(2):
            await reached(client, 0)
            over: asyncio.Future[Stream] = asyncio.get_running_loop().create_future()
            assert question.ask(over.set_result)
            stream = await over
            assert question.revision(stream) == -1
            with pytest.raises(Unavailable):
                question.ended(stream)
            assert client._turn == 1
        await client.close()

    with Peer(resets) as peer:
        asyncio.run(check(Config((peer.url, f"http://127.0.0.1:{ports.reserve()}"))))
        assert peer.failed == []


def over(*messages: bytes, error: RpcError | None = None) -> Stream:
    stream = Stream(b"", b"", True, True, None)
    stream.messages, stream.error = list(messages), error
    return stream


def test_an_incomplete_answer_has_no_revision() -> None:
    question = Question(None, b"", 1.0)
    answer = pb.RangeResponse(header=pb.ResponseHeader(cluster_id=1, revision=300, raft_term=2), count=5)
    whole = answer.SerializeToString()
    assert question.revision(over(whole)) == 300
    assert question.revision(over(pb.RangeResponse(count=1).SerializeToString())) == 0
    assert question.revision(over(whole, error=RpcError(Code.UNAVAILABLE, "no leader", from_server=True))) == -1
    assert question.revision(over()) == question.revision(over(whole, whole)) == -1
    header = answer.header.ByteSize() + 2
    assert {question.revision(over(whole[:n])) for n in range(1, header)} == {-1}


@given(st.binary(max_size=40))
def test_the_revision_is_decoded_as_by_protobuf(message: bytes) -> None:
    told = Question(None, b"", 1.0).revision(over(message))
    try:
        read = pb.RangeResponse.FromString(message).header.revision
    except DecodeError:
        return
    assert told < 0 or told == read
