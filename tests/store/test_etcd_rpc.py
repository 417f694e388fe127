"""The gRPC client for etcd: how it reacts to unusual, broken and hostile servers, and which error the caller gets."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from kas.replicator import _answers_in_order
from kas.store import StoreError, Unavailable, Unknown
from kas.store.etcd import etcd_pb2 as pb
from kas.store.etcd.client import PUT, RANGE, TXN, AsyncClient, Client, Config
from kas.store.etcd.rpc import PutIf, hpack, http2
from kas.store.etcd.rpc.blocking import Blocking, Following
from kas.store.etcd.rpc.http2 import CONTINUATION, DATA, GOAWAY, HEADERS, PING, PUSH_PROMISE, RST_STREAM, SETTINGS, WINDOW_UPDATE, frame
from kas.store.etcd.rpc.looped import Looped, dial
from kas.store.etcd.rpc.status import Code, RpcError
from tests.etcd import Etcd
from tests.pki import authority, issue

OK = pb.TxnResponse(header=pb.ResponseHeader(revision=7), succeeded=True).SerializeToString()
FIRST = b"\x88" + hpack.literal(b"content-type", b"application/grpc")  # :status 200
DONE = hpack.literal(b"grpc-status", b"0")


def packed(message: bytes) -> bytes:
    return b"\0" + struct.pack(">I", len(message)) + message


class Talk:
    """The server's side of one connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.file = sock.makefile("rb")
        preface = self.file.read(24)
        if len(preface) < 24:  # the client's time was up before its first bytes
            raise EOFError
        assert preface.startswith(b"PRI * HTTP/2.0")

    def send(self, *frames: bytes) -> None:
        self.sock.sendall(b"".join(frames))

    def frame(self) -> tuple[int, int, int, bytes]:
        """Returns kind, flags, stream and payload of the next frame. Raises EOFError."""
        head = self.file.read(9)
        if len(head) < 9:
            raise EOFError
        high, low, kind, flags, stream = struct.unpack(">HBBBI", head)
        return kind, flags, stream, self.file.read(high << 8 | low)

    def greet(self, **values: int) -> None:
        self.send(frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", getattr(http2, k), v) for k, v in values.items())))

    def request(self) -> tuple[int, bytes]:
        """Returns the next complete request."""
        message: dict[int, bytes] = {}
        while True:
            kind, flags, stream, payload = self.frame()
            if kind == DATA:
                message[stream] = message.get(stream, b"") + payload
                if flags & 1:
                    return stream, message[stream][5:]

    def answer(self, stream: int, message: bytes = OK) -> None:
        self.send(frame(HEADERS, 4, stream, FIRST), frame(DATA, 0, stream, packed(message)), frame(HEADERS, 5, stream, DONE))


Script = Callable[[Talk], None]


class Peer:
    """A server that runs a script for each connection; a context manager. ``failed`` has unexpected exceptions of scripts."""

    def __init__(self, script: Script) -> None:
        self._script, self.failed = script, []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._ended = False
        self.connections = 0

    def __enter__(self) -> Peer:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while not self._ended:
            try:
                sock = self._listener.accept()[0]
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        with sock:
            try:
                self._script(Talk(sock))
            except (EOFError, OSError):
                return
            except BaseException as e:
                self.failed.append(e)

    @property
    def config(self) -> Config:
        return Config((self.url,))


def in_thread(config: Config, call: Any, request: Any, within_s: float) -> Any:
    client = Client(config)
    try:
        return client.call(call, request, within_s)
    finally:
        client.close()


def on_loop(config: Config, call: Any, request: Any, within_s: float) -> Any:
    async def run() -> Any:
        client = AsyncClient(config)
        try:
            return await client.call(call, request, within_s)
        finally:
            await client.close()

    return asyncio.run(run())


def begun(config: Config, call: Any, request: Any, within_s: float) -> Any:
    """Makes a call the way writes do: at once if there is a connection, and without a task."""

    async def run() -> Any:
        client = AsyncClient(config)
        try:
            await client._reachable(time.monotonic() + within_s)
            over = asyncio.get_running_loop().create_future()
            assert client.begin(call, request, within_s, over.set_result)
            answer = client.ended(await over)
            return await client.call(call, request, within_s) if answer is None else answer
        finally:
            await client.close()

    return asyncio.run(run())


@pytest.fixture(params=[in_thread, on_loop, begun])
def ask(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return request.param


def script(*frames: Callable[[int], bytes] | bytes, keep: bool = True) -> Script:
    """A script: complete the handshake, wait for a request, send ``frames`` on its stream, and then either stay silent or close."""

    def run(talk: Talk) -> None:
        talk.greet()
        stream = talk.request()[0]
        talk.send(*(f if isinstance(f, bytes) else f(stream) for f in frames))
        while keep:
            talk.frame()

    return run


def header(payload: bytes, flags: int = 4, kind: int = HEADERS) -> Callable[[int], bytes]:
    return lambda stream: frame(kind, flags, stream, payload)


def starved(talk: Talk) -> None:
    talk.greet(INITIAL_WINDOW=0)
    while True:
        assert talk.frame()[0] != DATA


def refuses(talk: Talk) -> None:
    talk.greet()
    while True:
        talk.send(frame(RST_STREAM, 0, talk.request()[0], struct.pack(">I", 7)))


def silence(talk: Talk) -> None:
    while True:
        talk.frame()


def of_its_own(talk: Talk) -> None:
    talk.send(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 10)
    talk.request()


def flood(talk: Talk) -> None:
    talk.greet()
    stream = talk.request()[0]
    talk.send(frame(HEADERS, 0, stream, FIRST))
    while True:
        talk.send(frame(CONTINUATION, 0, stream, b""))


def pings(talk: Talk) -> None:
    """Sends pings without end, and does not read."""
    talk.greet()
    talk.request()
    while True:
        talk.send(frame(PING, 0, 0, b"12345678") * 1000)


def status(code: int, text: bytes = b"") -> Callable[[int], bytes]:
    return header(FIRST + hpack.literal(b"grpc-status", b"%d" % code) + hpack.literal(b"grpc-message", text), 5)


def declines(code: int, text: bytes) -> Script:
    """Answers each request with this status."""

    def run(talk: Talk) -> None:
        talk.greet()
        while True:
            talk.send(status(code, text)(talk.request()[0]))

    return run


# What the server does, and the error that a write gets. A call that may be repeated always fails with Unavailable, unless etcd refuses it.
ENDINGS = {
    "hangs up": (script(keep=False), Unknown),
    "half a frame": (script(lambda s: frame(HEADERS, 4, s, FIRST)[:12], keep=False), Unknown),
    "half an answer": (script(header(FIRST), lambda s: frame(DATA, 0, s, packed(OK)[:6]), keep=False), Unknown),
    "half a message": (script(header(FIRST), lambda s: frame(DATA, 0, s, packed(OK)[:6]), header(DONE, 5)), Unknown),
    "silence": (script(), Unknown),
    "leaves, and has not begun": (script(frame(GOAWAY, 0, 0, struct.pack(">II", 0, 0))), Unavailable),
    "leaves in the middle": (script(lambda s: frame(GOAWAY, 0, 0, struct.pack(">II", s, 0)), keep=False), Unknown),
    "resets": (script(lambda s: frame(RST_STREAM, 0, s, struct.pack(">I", 2))), Unknown),
    "resets without having begun": (refuses, Unavailable),
    "resets after headers": (script(header(FIRST), lambda s: frame(RST_STREAM, 0, s, struct.pack(">I", 7))), Unknown),
    "a table of headers": (script(header(b"\xc6")), Unknown),
    "headers that break off": (script(header(FIRST[:-3])), Unknown),
    "bad Huffman": (script(header(b"\x00\x84\xff\xff\xff\xff\x00")), Unknown),
    "huge headers": (script(lambda s: frame(HEADERS, 0, s, b"\0" * 16384) + frame(CONTINUATION, 0, s, b"\0" * 16384)), Unknown),
    "continuations without end": (flood, Unknown),
    "pings without end": (pings, Unknown),
    "headers cut by another frame": (script(header(FIRST, 0), frame(PING, 0, 0, b"12345678")), Unknown),
    "a frame that is too large": (script(lambda s: frame(DATA, 0, s, b"x" * 16385)), Unknown),
    "data first": (script(lambda s: frame(DATA, 0, s, packed(OK))), Unknown),
    "data of nobody's stream": (script(frame(DATA, 0, 99, packed(OK))), Unknown),
    "a push": (script(header(b"\0\0\0\2", kind=PUSH_PROMISE)), Unknown),
    "wrong padding": (script(header(b"\x7f" + FIRST, 4 | 8)), Unknown),
    "wrong settings": (script(frame(SETTINGS, 0, 0, b"12345")), Unknown),
    "a window wider by nothing": (script(frame(WINDOW_UPDATE, 0, 0, b"\0\0\0\0")), Unknown),
    "a window too wide": (script(frame(WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff")), Unknown),
    "a compressed message": (script(header(FIRST), lambda s: frame(DATA, 0, s, b"\1" + packed(OK)[1:])), Unknown),
    "a huge message": (script(header(FIRST), lambda s: frame(DATA, 0, s, b"\0\xff\xff\xff\xff" + OK)), Unknown),
    "two messages": (script(header(FIRST), lambda s: frame(DATA, 0, s, packed(OK) * 2), header(DONE, 5)), Unknown),
    "no message": (script(header(FIRST), header(DONE, 5)), Unknown),
    "a message that is none": (
        script(header(FIRST), lambda s: frame(DATA, 0, s, packed(b"\xff" * 40)), header(DONE, 5)), Unknown,
    ),
    "no trailers": (script(header(FIRST), lambda s: frame(DATA, 1, s, packed(OK))), Unknown),
    "no status": (script(header(FIRST), lambda s: frame(DATA, 0, s, packed(OK)), header(FIRST, 5)), Unknown),
    "something between, that refuses": (script(header(b"\x8c", 5)), Unknown),
    "a web page": (script(header(b"\x88" + hpack.literal(b"content-type", b"text/html"))), Unknown),
    "a new leader": (script(status(14, b"etcdserver: leader changed")), Unknown),
    "no leader": (declines(14, b"etcdserver: no leader"), Unavailable),
    "a learner": (declines(14, b"etcdserver: rpc not supported for learner"), Unavailable),
    "other roles meanwhile": (declines(3, b"etcdserver: revision of auth store is old"), Unavailable),
    "a refusal": (script(status(9, b"etcdserver: no%20space, %e2%82%ac")), StoreError),
    "a window of nothing": (starved, Unavailable),
    "another protocol": (of_its_own, Unavailable),
}


# Scripts that only the time limit ends.
ENDLESS = ("silence", "pings without end")


@pytest.mark.parametrize("name", ENDINGS)
def test_errors_say_whether_a_write_may_have_happened(ask: Callable[..., Any], name: str) -> None:
    run, error = ENDINGS[name]
    with Peer(run) as peer:
        for _ in range(5):
            with pytest.raises(StoreError) as caught:
                ask(peer.config, TXN, pb.TxnRequest(), 3.0 if name in ENDLESS else 0.5 if error is Unavailable else 60.0)
            # The deadline may pass in the middle of a retry, whose outcome is then unknown.
            if error is not Unavailable or type(caught.value) is error:
                break
        assert (type(caught.value), peer.failed) == (error, [])
        if name == "a refusal":
            assert str(caught.value) == "etcdserver: no space, €"
    with Peer(run) as peer:
        with pytest.raises(StoreError) as caught:
            ask(peer.config, RANGE, pb.RangeRequest(), 60.0 if error is StoreError else 0.5)
        assert type(caught.value) is (StoreError if error is StoreError else Unavailable)


def test_a_write_that_was_not_begun_goes_to_another_server(ask: Callable[..., Any]) -> None:
    def answers(talk: Talk) -> None:
        talk.greet()
        talk.answer(talk.request()[0])
        talk.frame()

    for name in ("leaves, and has not begun", "resets without having begun", "no leader", "a learner", "other roles meanwhile"):
        with Peer(ENDINGS[name][0]) as leaving, Peer(answers) as other:
            answer = ask(Config((leaving.url, other.url)), TXN, pb.TxnRequest(), 60.0)
            assert (answer.header.revision, leaving.connections, other.connections) == (7, 1, 1)


def test_a_write_goes_to_another_server_if_the_first_sends_no_settings(ask: Callable[..., Any]) -> None:
    def answers(talk: Talk) -> None:
        talk.greet()
        talk.answer(talk.request()[0])
        talk.frame()

    with Peer(silence) as silent, Peer(answers) as other:
        assert ask(Config((silent.url, other.url)), TXN, pb.TxnRequest(), 4.0).header.revision == 7


def test_an_unusual_but_valid_answer_is_read(ask: Callable[..., Any]) -> None:
    def run(talk: Talk) -> None:
        talk.greet()
        stream = talk.request()[0]
        talk.send(
            frame(HEADERS, 4, stream, b"\x08\x03100"),
            frame(99, 255, 12345, b"a frame of the future"),
            frame(SETTINGS, 0, 0, struct.pack(">HI", 99, 5)),
            frame(HEADERS, 8 | 32, stream, b"\x02" + b"\0\0\0\0\5" + b"\x20" + FIRST[:4] + b"\0\0"),
            frame(CONTINUATION, 0, stream, FIRST[4:9]),
            frame(CONTINUATION, 4, stream, FIRST[9:]),
        )
        for byte in packed(OK):
            talk.send(frame(DATA, 8, stream, b"\3" + bytes([byte]) + b"pad"), frame(PING, 0, 0, b"12345678"))
        # grpc-status as a literal with a Huffman-coded name, not indexed
        talk.send(frame(HEADERS, 5, stream, b"\x40" + hpack.literal(b"grpc-status", b"0")[1:]))
        acknowledged = 0
        while acknowledged < len(packed(OK)):
            kind, flags, _, payload = talk.frame()
            acknowledged += (kind, flags, payload) == (PING, 1, b"12345678")

    with Peer(run) as peer:
        assert ask(peer.config, TXN, pb.TxnRequest(), 60.0).header.revision == 7
        assert peer.failed == []


def test_a_large_request_goes_through_small_windows(ask: Callable[..., Any]) -> None:
    value = bytes(range(256)) * 600

    def run(talk: Talk) -> None:
        talk.greet(INITIAL_WINDOW=10)
        got, stream, ended = b"", 0, False
        while not ended:
            kind, flags, number, payload = talk.frame()
            if kind == DATA:
                got, stream, ended = got + payload, number, bool(flags & 1)
                more = struct.pack(">I", max(1, len(payload)))
                talk.send(frame(WINDOW_UPDATE, 0, 0, more), frame(WINDOW_UPDATE, 0, number, struct.pack(">I", 5000)))
        assert got == packed(pb.RangeRequest(key=value).SerializeToString())
        talk.answer(stream, b"")
        talk.frame()

    with Peer(run) as peer:
        ask(peer.config, RANGE, pb.RangeRequest(key=value), 20.0)
        assert peer.failed == []


def test_a_large_answer_comes_through_our_windows(ask: Callable[..., Any]) -> None:
    large = pb.RangeResponse(kvs=[pb.KeyValue(value=b"v" * (12 << 20))]).SerializeToString()

    def run(talk: Talk) -> None:
        talk.greet()
        stream = talk.request()[0]
        talk.send(frame(HEADERS, 4, stream, FIRST))
        room, left = http2.STREAM_WINDOW, packed(large)
        while left:
            n = min(room, 16384, len(left))
            talk.send(frame(DATA, 0, stream, left[:n]))
            left, room = left[n:], room - n
            while room < 16384 and left:
                kind, _, number, payload = talk.frame()
                if kind == WINDOW_UPDATE and number == stream:
                    room += struct.unpack(">I", payload)[0]
        talk.send(frame(HEADERS, 5, stream, DONE))
        talk.frame()

    with Peer(run) as peer:
        assert len(ask(peer.config, RANGE, pb.RangeRequest(), 30.0).kvs[0].value) == 12 << 20
        assert peer.failed == []


def test_open_calls_stay_within_the_servers_stream_limit() -> None:
    def run(talk: Talk) -> None:
        talk.greet(MOST_STREAMS=1)
        while True:
            stream = talk.request()[0]
            talk.answer(stream)

    async def check(config: Config) -> None:
        client = AsyncClient(config)
        answers = await asyncio.gather(*(client.call(TXN, pb.TxnRequest(), 60.0) for _ in range(20)))
        assert [a.header.revision for a in answers] == [7] * 20
        await client.close()

    with Peer(run) as peer:
        asyncio.run(check(peer.config))
        assert (peer.failed, peer.connections) == ([], 1)


def test_a_cancelled_call_resets_its_stream() -> None:
    requested, reset = threading.Event(), threading.Event()

    def run(talk: Talk) -> None:
        talk.greet()
        stream = talk.request()[0]
        requested.set()
        while talk.frame()[:3] != (RST_STREAM, 0, stream):
            pass
        reset.set()
        talk.answer(stream)  # too late
        talk.answer(talk.request()[0])
        talk.frame()

    async def check(config: Config) -> None:
        client = AsyncClient(config)
        call = asyncio.create_task(client.call(TXN, pb.TxnRequest(), 60.0))
        assert await asyncio.to_thread(requested.wait, 60)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert await asyncio.to_thread(reset.wait, 60)
        assert (await client.call(TXN, pb.TxnRequest(), 60.0)).header.revision == 7
        await client.close()

    with Peer(run) as peer:
        asyncio.run(check(peer.config))
        assert (peer.failed, peer.connections) == ([], 1)


def test_a_call_begun_while_the_connection_breaks_is_unsent() -> None:
    """Calls are sent at the end of the loop iteration, during which the connection may turn out to be broken."""
    complaints: list[dict[str, Any]] = []

    async def check(config: Config) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, complaint: complaints.append(complaint))
        connection = await dial("127.0.0.1", int(config.servers[0].rpartition(":")[2]), None, 60.0)
        sent = connection.begin(b"", b"", 10.0, lambda _: None)
        await asyncio.sleep(0)
        new = connection.begin(b"", b"", 10.0, lambda _: None)
        connection._transport.abort()
        await asyncio.sleep(0.01)
        assert sent.over and sent.error is not None and not sent.error.unsent
        assert new.over and new.error is not None and new.error.unsent
        assert not connection.usable

    with Peer(script()) as peer:
        for run in (asyncio.run, uvloop.run):
            run(check(peer.config))
    assert not complaints


def test_each_call_ends_at_its_own_deadline() -> None:
    async def check(config: Config) -> None:
        connection = await dial("127.0.0.1", int(config.servers[0].rpartition(":")[2]), None, 60.0)
        ended: dict[int, float] = {}
        three = asyncio.Event()

        def end(i: int) -> None:
            ended[i] = time.monotonic() - began
            if len(ended) == 3:
                three.set()

        given, began = (600.0, 0.2, 0.05, 0.1, 600.0), time.monotonic()
        streams = [connection.begin(b"", b"", s, lambda _, i=i: end(i)) for i, s in enumerate(given)]
        await three.wait()
        # Calls may end together if the loop was blocked meanwhile; none ends before its deadline.
        assert sorted(ended) == [1, 2, 3] and all(at > given[i] - 0.01 for i, at in ended.items())
        assert not streams[0].over and not streams[4].over
        assert {streams[i].error.code for i in ended} == {Code.DEADLINE_EXCEEDED}
        connection.close()

    with Peer(script()) as peer:
        for run in (asyncio.run, uvloop.run):
            run(check(peer.config))


def test_a_single_call_is_sent_at_once_and_several_together() -> None:
    class Written:
        def __init__(self) -> None:
            self.writes: list[bytes] = []

        def is_closing(self) -> bool:
            return False

        def write(self, data: bytes) -> None:
            self.writes.append(data)

        def get_write_buffer_size(self) -> int:
            return 0

    async def check() -> None:
        connection, transport = Looped(asyncio.get_running_loop()), Written()
        connection._transport = cast(asyncio.Transport, transport)
        connection.begin(b"", b"one", 10.0, lambda _: None)
        assert [b"one" in written for written in transport.writes] == [True]
        connection.begin(b"", b"two", 10.0, lambda _: None)
        connection.begin(b"", b"three", 10.0, lambda _: None)
        assert len(transport.writes) == 1
        await asyncio.sleep(0)
        assert len(transport.writes) == 2 and b"two" in transport.writes[1] and b"three" in transport.writes[1]
        connection._stop_timers()

    asyncio.run(check())


def test_a_connection_whose_pings_are_not_answered_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("looped", "blocking"):
        monkeypatch.setattr(f"kas.store.etcd.rpc.{module}.KEEPALIVE_S", 0.1)
        monkeypatch.setattr(f"kas.store.etcd.rpc.{module}.KEEPALIVE_TIMEOUT_S", 0.1)
    with Peer(script()) as peer:
        with pytest.raises(Unknown, match="keepalive"):
            on_loop(peer.config, TXN, pb.TxnRequest(), 60.0)
        client = Client(peer.config)
        with pytest.raises(RpcError, match="keepalive"):
            list(client.watch(pb.WatchRequest()))
        client.close()


def test_answers_to_pings_are_delayed_and_bounded() -> None:
    """etcd sends a ping for each call unless one of its pings is open. An immediate answer would wake it for each."""
    held = http2.Connection(hold_pings=True)
    held.feed(frame(SETTINGS, 0, 0) + frame(PING, 0, 0, b"12345678"))
    assert b"12345678" not in held.take()
    held.answer_pings()
    assert held.take() == frame(PING, 1, 0, b"12345678")
    held.feed(b"".join(frame(PING, 0, 0, b"%08d" % i) for i in range(100)))
    assert len(held.held) < 100 and len(held.take()) > 1000  # a flood is answered as it arrives
    answered: list[bytes] = []

    def run(talk: Talk) -> None:
        talk.greet()
        talk.send(frame(PING, 0, 0, b"12345678"))
        stream = 0
        while not answered or not stream:
            kind, flags, number, payload = talk.frame()
            if kind == PING and flags & 1:
                answered.append(payload)
            elif kind == DATA:
                stream = number
        talk.answer(stream)

    with Peer(run) as peer:
        assert on_loop(peer.config, TXN, pb.TxnRequest(), 60.0).header.revision == 7
        assert (peer.failed, answered) == ([], [b"12345678"])


def test_threads_share_connections() -> None:
    def run(talk: Talk) -> None:
        talk.greet()
        while True:
            talk.answer(talk.request()[0])

    with Peer(run) as peer:
        client = Client(peer.config)
        with ThreadPoolExecutor(4) as threads:
            answers = list(threads.map(lambda _: client.call(TXN, pb.TxnRequest()).header.revision, range(200)))
        client.close()
        assert answers == [7] * 200
        assert 1 <= peer.connections <= 4


def test_no_call_fails_when_an_idle_connection_has_ended(ask: Callable[..., Any]) -> None:
    def run(talk: Talk) -> None:
        talk.greet()
        talk.answer(talk.request()[0])  # and closes the connection

    with Peer(run) as peer:
        client = Client(peer.config)
        for _ in range(5):
            assert client.call(TXN, pb.TxnRequest()).header.revision == 7
            while any(c.idle() for c in client._idle[client._targets[0]]):
                pass
        client.close()
        assert peer.connections == 5


def test_a_stream_sends_receives_and_ends_when_cancelled() -> None:
    def run(talk: Talk) -> None:
        talk.greet()
        kind = -1
        while kind != DATA:
            kind, _, stream, payload = talk.frame()
        talk.send(frame(HEADERS, 4, stream, FIRST))
        while True:
            talk.send(frame(DATA, 0, stream, payload))  # echoes the message
            kind = -1
            while kind != DATA:
                kind, _, stream, payload = talk.frame()

    with Peer(run) as peer:
        host, port = peer.url[7:].split(":")
        following = Following(Blocking(host, int(port), None, 60.0), b"\x83", b"first")
        heard = []
        with pytest.raises(RpcError, match="cancelled"):
            for messages in following:
                heard += messages
                threading.Thread(target=following.cancel if len(heard) == 3 else lambda: following.send(b"more")).start()
        assert heard[:3] == [b"first", b"more", b"more"]
        following.cancel()  # has no effect any more
        following.send(b"nobody")


def test_header_blocks_are_decoded_as_in_rfc_7541() -> None:
    # RFC 7541, C.4.1 and C.6.1, without the dynamic table.
    assert hpack.huffman(bytes.fromhex("f1e3c2e5f23a6ba0ab90f4ff")) == b"www.example.com"
    block = bytes.fromhex("4882640258 85aec3771a4b 6196d07abe941054d444a8200595040b8166e082a62d1bff 6e919d29ad171863c78f0b97c8e9ae82ae43d3")
    assert hpack.Decoder().decode(block) == {
        b":status": b"302", b"cache-control": b"private", b"date": b"Mon, 21 Oct 2013 20:13:21 GMT", b"location": b"https://www.example.com",
    }  # fmt: skip
    for long in (b"x" * 126, b"x" * 127, b"x" * 128, b"x" * 10_000):
        assert hpack.Decoder().decode(hpack.literal(b"name", long)) == {b"name": long}
    for wrong in (b"\x80", b"\xbe", b"\xff\xff\xff\xff\xff\xff", b"\x3f\x01", b"\x00\x81\x00\x00", b"\x00\x01", b"\x00\x82\xff\xff\x00"):
        with pytest.raises(hpack.Malformed):
            hpack.Decoder().decode(wrong)


FRAMES = st.builds(
    lambda kind, flags, stream, payload: frame(kind, flags, stream, payload),
    st.integers(0, 10), st.sampled_from([0, 1, 4, 5, 8, 12, 32, 255]), st.sampled_from([0, 1, 3, 5, 2]),
    st.one_of(st.binary(max_size=40), st.sampled_from([FIRST, DONE, packed(OK), b"\0\0\0\7", b"\0\3\0\0\0\1"])),
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(st.one_of(FRAMES, FRAMES, st.binary(max_size=20)), max_size=12), st.integers(1, 60))
def test_arbitrary_frames_never_break_the_connection_state(frames: list[bytes], cut: int) -> None:
    connection = http2.Connection()
    streams = [connection.open(b"\x83", b"m", single=i < 2) for i in range(3)]
    data = frame(SETTINGS, 0, 0) + b"".join(frames)
    for at in range(0, len(data), cut):
        connection.feed(data[at : at + cut])
    connection.lost("over")
    for stream in streams:
        assert stream.over and (stream.error is not None or stream._headers is not None or not stream.messages)
        assert not stream.single or len(stream.messages) <= 1


def test_the_transaction_of_one_put_is_encoded_as_by_protobuf() -> None:
    """Lengths of one and more bytes, and fields that protobuf omits: an empty value and no lease, but not a revision of 0."""
    revisions, leases = (None, 0, 1, 127, 128, (1 << 63) - 1), (0, 1, 1 << 62)
    for key_bytes, value_bytes, revision, lease in itertools.product((1, 113, 127, 128, 20_000), (0, 1, 127, 16_384), revisions, leases):
        key, value, txn = b"k" * key_bytes, b"v" * value_bytes, pb.TxnRequest()
        if revision is not None:
            txn.compare.add(target=pb.Compare.MOD, key=key, mod_revision=revision)
        put = txn.success.add().request_put
        put.key, put.value, put.lease = key, value, lease
        found = txn.failure.add().request_range
        found.key, found.keys_only = key, True
        assert PutIf(key, value, revision, lease).SerializeToString() == txn.SerializeToString(deterministic=True)


def test_grpcio_is_not_needed() -> None:
    code = "import sys; sys.modules['grpc'] = None; import kas.replicator, kas.storage.etcdplace"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


class Secured(Etcd):
    """An etcd that requires client certificates."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.url = self.url.replace("http:", "https:")
        self.authority = ca = authority("etcd-ca")
        self.ca = ca.write(directory, "ca")[0]
        self.own = issue([("CN", "etcd")], ca, usages=("server", "client"), ips=("127.0.0.1",)).write(directory, "server")
        self.client = issue([("CN", "kas")], ca).write(directory, "client")

    @property
    def config(self) -> Config:
        return Config((self.url,), self.ca, *self.client)

    def spawn(self, *flags: str) -> None:
        cert, key = self.own
        super().spawn("--cert-file", cert, "--key-file", key, "--trusted-ca-file", self.ca, "--client-cert-auth", *flags)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with Secured(tmp_path_factory.mktemp("etcd")) as etcd:
        yield etcd


def test_calls_over_tls_with_a_client_certificate(ask: Callable[..., Any], secured: Secured) -> None:
    value = b"v" * 1_000_000
    ask(secured.config, PUT, pb.PutRequest(key=b"/tls", value=value), 60.0)
    assert ask(secured.config, RANGE, pb.RangeRequest(key=b"/tls"), 60.0).kvs[0].value == value


def test_streams_over_tls(secured: Secured) -> None:
    client = Client(secured.config)
    revisions = [client.call(PUT, pb.PutRequest(key=b"/w/%d" % i, value=b"v" * 500_000)).header.revision for i in range(4)]
    request = pb.WatchRequest(create_request=pb.WatchCreateRequest(key=b"/w/", range_end=b"/w0", start_revision=revisions[0]))
    seen: list[int] = []
    with contextlib.closing(client.watch(request)) as following:
        for messages in following:
            for answer in map(pb.WatchResponse.FromString, messages):
                seen += [event.kv.mod_revision for event in answer.events]
            if len(seen) == 4:
                client.call(PUT, pb.PutRequest(key=b"/w/4"))
            elif len(seen) > 4:
                break
    assert seen[:4] == revisions
    assert sum(len(piece.blob) for piece in client.snapshot()) > 500_000
    client.close()


def test_a_connection_without_verified_certificates_is_refused(ask: Callable[..., Any], secured: Secured, tmp_path: Path) -> None:
    stranger = authority("stranger")
    own = issue([("CN", "kas")], stranger).write(tmp_path, "client")
    over = issue([("CN", "kas")], secured.authority, begins_s=-7200, ends_s=-3600).write(tmp_path, "over")
    for config, why in (
        (replace(secured.config, certfile=over[0], keyfile=over[1]), "TLS: .*(certificate|expired)"),
        (replace(secured.config, certfile="", keyfile=""), "TLS: .*certificate"),
        (replace(secured.config, certfile=own[0], keyfile=own[1]), "TLS: .*(certificate|unknown ca)"),
        (replace(secured.config, cafile=stranger.write(tmp_path, "ca")[0]), "its certificate is not trusted: unable to get local issuer"),
        (replace(secured.config, servers=(secured.url.replace("127.0.0.1", "localhost"),)), "its certificate is not trusted: Hostname"),
        (replace(secured.config, servers=(secured.url.replace("https:", "http:"),)), "it may want https"),
        (replace(secured.config, servers=("http://127.0.0.1:1",)), "127.0.0.1:1: Connect"),
    ):
        messages: list[str] = []
        while not (messages and re.search(why, messages[-1])):  # a busy machine may not answer within the second
            assert len(messages) < 10, messages
            with pytest.raises(Unavailable) as raised:
                ask(config, PUT, pb.PutRequest(key=b"/never"), 1.0)
            messages.append(str(raised.value))
    assert not ask(secured.config, RANGE, pb.RangeRequest(key=b"/never"), 60.0).kvs


def test_an_expired_server_certificate_is_reported_until_it_is_replaced(ask: Callable[..., Any], tmp_path: Path) -> None:
    etcd = Secured(tmp_path)
    good, over = etcd.own, issue([("CN", "etcd")], etcd.authority, usages=("server",), ips=("127.0.0.1",), begins_s=-7200, ends_s=-3600)
    etcd.own = over.write(tmp_path, "over")
    etcd.spawn()
    try:
        messages: list[str] = []
        while "its certificate is not trusted: certificate has expired" not in messages:
            with pytest.raises(Unavailable) as raised:
                ask(etcd.config, PUT, pb.PutRequest(key=b"/never"), 1.0)
            messages.append(str(raised.value).rpartition("127.0.0.1")[2].partition(": ")[2])
            assert len(messages) < 100, messages  # the server starts meanwhile
    finally:
        etcd.kill()
    etcd.own = good
    with etcd:
        assert not ask(etcd.config, RANGE, pb.RangeRequest(key=b"/never"), 60.0).kvs


def test_certificate_files_are_checked_at_the_start_and_for_each_connection(secured: Secured, tmp_path: Path) -> None:
    bad = tmp_path / "bad.pem"
    bad.write_text("nothing")
    for config, named in (
        (replace(secured.config, cafile=str(bad)), str(bad)), (replace(secured.config, certfile=str(bad)), f"{bad}, "),
        (replace(secured.config, keyfile="/nowhere"), ", /nowhere: No such file"),
    ):  # fmt: skip
        for made in (Client, AsyncClient):
            with pytest.raises(StoreError, match=f"etcd's certificates: .*{re.escape(named)}"):
                made(config)
    cert = tmp_path / "client.crt"
    cert.write_bytes(Path(secured.client[0]).read_bytes())
    client = Client(replace(secured.config, certfile=str(cert)))
    cert.unlink()
    with pytest.raises(Unavailable, match="etcd's certificates"):
        client.call(RANGE, pb.RangeRequest(key=b"/"), 0.3)
    # A client created for a single call gets no answer, and no error.
    assert not client.has(7) and not _answers_in_order(client._config, client._servers[0])
    cert.write_bytes(Path(secured.client[0]).read_bytes())
    client.call(RANGE, pb.RangeRequest(key=b"/"))
    client.close()
