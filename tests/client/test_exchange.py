"""Requests and answers on one connection, with TLS and without, however the bytes are cut."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter

import pytest
import uvloop

from kas.client.chunks import LINES, Chunks
from kas.client.exchange import Exchange, exchange
from kas.client.http import MAX_HEAD, BackendError, Target, connect, insecure_tls, request_head, verified_tls
from tests.endpoints.fakekubelet import make_certificate

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: a/b\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return make_certificate(tmp_path_factory.mktemp("cert"), "127.0.0.1")


class Peer:
    """Answers each request with the parts of ``said`` in order; an empty one closes. ``bodies`` has those of the requests."""

    def __init__(self, *said: bytes) -> None:
        self.said, self.bodies, self.connections = said, list[bytes](), 0
        self.writers: list[asyncio.StreamWriter] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length"))
                self.bodies.append(await reader.readexactly(length))
                for piece in self.said:
                    if not piece:
                        writer.close()
                        return
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
        except (asyncio.IncompleteReadError, OSError):
            writer.close()


def talk(peer, pair, *bodies, limit=1 << 20, tls=True, loop=uvloop.new_event_loop, ca=None):
    """Returns the answers to requests with these bodies on one connection, and whether it can be used again."""

    async def run():
        context = None
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*pair)
        server = await asyncio.start_server(peer, "127.0.0.1", 0, ssl=context)
        client = (verified_tls(ca) if ca else insecure_tls()) if tls else None
        target = Target("https" if tls else "http", "127.0.0.1", str(server.sockets[0].getsockname()[1]), "/x", tls=client)
        connection = None
        try:
            connection = await exchange(target)
            head = request_head("POST", target, [])
            found = [await connection.post(head, body, limit) for body in bodies]
            return found, connection.persistent and connection.quiet
        finally:
            if connection is not None:
                connection.close()
            for writer in peer.writers:
                writer.close()
            server.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(asyncio.wait_for(run(), 60))


WAYS = [
    pytest.param(tls, loop, id=f"{name}-{'tls' if tls else 'plain'}")
    for tls in (True, False) for name, loop in (("uvloop", uvloop.new_event_loop), ("asyncio", asyncio.new_event_loop))
]  # fmt: skip


@pytest.mark.parametrize(("tls", "loop"), WAYS)
@pytest.mark.parametrize("said", [
    [HEAD + b"Content-Length: 5\r\n\r\nhello"], [b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD, b"Content-Length: 5\r\n", b"\r\nhel", b"lo"],
    [CHUNKED, b"2;x=y\r", b"\nhe\r\n", b"3\r\nl", b"lo\r", b"\n0\r\nTrailer: x\r\n", b"\r\n"],
])  # fmt: skip
def test_an_answer_is_complete_however_it_is_cut(pair, said, tls, loop):
    peer = Peer(*said)
    large = b"x" * 3_000_000
    found, again = talk(peer, pair, b"one", large, b"", tls=tls, loop=loop)
    assert found == [b"hello"] * 3 and again and peer.bodies == [b"one", large, b""] and peer.connections == 1


class Turns(Peer):
    """Answers each request with the next of ``said``."""

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        for piece in self.said:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(piece)
            await writer.drain()


FIVE = HEAD + b"Content-Length: 5\r\n\r\n"


@pytest.mark.parametrize("tls", [True, False])
def test_repeated_and_changed_heads(pair, tls):
    nothing = b"HTTP/1.1 204 No Content\r\n\r\n"
    said = [
        FIVE + b"first", FIVE + b"again", HEAD + b"Content-Length: 0\r\n\r\n", HEAD + b"Content-Length: 0\r\n\r\n", FIVE + b"third",
        nothing, nothing, CHUNKED + b"2\r\nhe\r\n0\r\n\r\n", CHUNKED + b"2\r\nho\r\n0\r\n\r\n", FIVE + b"12345", FIVE + b"67890",
        b"HTTP/1.1 100 Continue\r\nContent-Length: 5\r\n\r\n" + FIVE + b"after", FIVE + b"more!",
    ]  # fmt: skip
    found, again = talk(Turns(*said), pair, *[b""] * len(said), tls=tls)
    assert found == [b"first", b"again", b"", b"", b"third", b"", b"", b"he", b"ho", b"12345", b"67890", b"after", b"more!"] and again


def test_an_open_connection_keeps_no_answer():
    async def run():
        peer = Turns(HEAD + b"Content-Length: 100000\r\n\r\n" + b"x" * 100_000, FIVE + b"first", FIVE + b"again")
        server = await asyncio.start_server(peer, "127.0.0.1", 0)
        target = Target("http", "127.0.0.1", str(server.sockets[0].getsockname()[1]), "/x")
        connection = await exchange(target)
        try:
            for length in (100_000, 5, 5):
                assert len(await connection.post(request_head("POST", target, []), b"", 1 << 20)) == length
                kept = [value for value in vars(connection).values() if isinstance(value, (bytes, bytearray))]
                assert kept and not any(kept)
        finally:
            connection.close()
            for writer in peer.writers:
                writer.close()
            server.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(run(), 60))


def test_the_size_limit_holds_with_a_repeated_head(pair):
    found, again = talk(Turns(FIVE + b"first", FIVE + b"again"), pair, b"", b"", limit=5)
    assert found == [b"first", b"again"] and again
    found, again = talk(Turns(FIVE + b"first"), pair, b"", limit=4)
    assert found == [b"firs"] and not again


def test_a_repeated_head_with_data_after_the_answer(pair):
    found, again = talk(Turns(FIVE + b"first", FIVE + b"again, and more"), pair, b"", b"")
    assert found == [b"first", b"again"] and not again


@pytest.mark.parametrize(("tls", "loop"), WAYS)
@pytest.mark.parametrize("framing", [b"Content-Length: 2000000\r\n\r\n", b"\r\n"])
def test_an_answer_is_complete_though_its_sender_closes(pair, framing, tls, loop):
    found, again = talk(Peer(HEAD + framing + b"x" * 2_000_000, b""), pair, b"", limit=3_000_000, tls=tls, loop=loop)
    assert found == [b"x" * 2_000_000]
    assert not again or framing != b"\r\n"


@pytest.mark.parametrize(("said", "says"), [
    ([b""], "EOF"), ([HEAD, b""], "EOF"), ([HEAD + b"Content-Length: 9\r\n\r\nx", b""], "unexpected EOF"),
    ([CHUNKED + b"5\r\nab", b""], "unexpected EOF"), ([CHUNKED + b"-5\r\nab"], "invalid byte in chunk length"),
    ([CHUNKED + b"zz\r\n"], "invalid byte in chunk length"), ([b"SSH-2.0\r\n\r\n"], "malformed HTTP response"),
    ([b"HTTP/1.1 200 OK\r\nno header\r\n\r\n"], "malformed MIME header line"), ([HEAD + b"x: " + b"y" * MAX_HEAD], "exceeded the limit"),
    ([HEAD + b"Content-Length: " + b"9" * 19 + b"\r\n\r\nx", b""], "bad Content-Length"),
    ([CHUNKED + b"1" * (MAX_HEAD + 1)], "unexpected EOF"), ([CHUNKED + b"2\r\nabc\r\n0\r\n\r\n"], "malformed chunked encoding"),
    *(([CHUNKED + size + b"\r\n" + b"a" * 16 + b"\r\n0\r\n\r\n"], "invalid byte") for size in (b"0x10", b"1_0", b"+10", b"1 0", b"")),
    ([b"HTTP/1.1 100 Continue\r\n\r\n" * 6], "too many 1xx"), ([CHUNKED + (b"1;" + b"x" * 4000 + b"\r\na\r\n") * 5], "too much non-data"),
])  # fmt: skip
@pytest.mark.parametrize("tls", [True, False])
def test_invalid_answers(pair, said, says, tls):
    with pytest.raises(BackendError, match=says):
        talk(Peer(*said), pair, b"", tls=tls)


@pytest.mark.parametrize("framing", [b"Content-Length: 9000\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n2328\r\n", b"\r\n"])
def test_the_size_limit_of_answers(pair, framing):
    assert talk(Peer(HEAD + framing + b"x" * 9000), pair, b"", limit=7) == ([b"x" * 7], False)


def test_unrequested_data_close_the_connection(pair):
    with pytest.raises(BackendError, match="write: connection lost"):
        talk(Peer(HEAD + b"Content-Length: 1\r\n\r\nx" + HEAD), pair, b"", b"")


def test_no_request_is_sent_to_an_untrusted_peer(pair, tmp_path):
    peer, other = Peer(HEAD + b"Content-Length: 1\r\n\r\nx"), make_certificate(tmp_path, "127.0.0.1")
    with pytest.raises(BackendError, match="certificate signed by unknown authority"):
        talk(peer, pair, b"", ca=other[0])
    assert not peer.bodies
    assert talk(peer, pair, b"", ca=pair[0]) == ([b"x"], True)


class Deaf(asyncio.Transport):
    """A transport that drops what is written."""

    def write(self, data):
        pass

    def is_closing(self):
        return False

    def pause_reading(self):
        pass

    resume_reading = pause_reading


def test_a_second_answer_is_not_read_as_trailers():
    async def run():
        connection = Exchange(None, None)
        connection.connection_made(Deaf())
        asked = asyncio.ensure_future(connection.post(b"", b"", 99))
        await asyncio.sleep(0)
        connection.data_received(CHUNKED + b"1\r\nx\r\n0\r\n\r\n")
        connection._transport = None
        connection.data_received(b"HTTP/1.1 200 OK\r\n\r\n")  # whose lines would pass as trailers
        assert await asked == b"x" and not connection.quiet

    asyncio.run(run())


def test_one_connection_per_loop_iteration_takes_many_chunks(monkeypatch):
    """Each of them used to take 2,000 steps in every iteration, however many there were."""
    taken, iteration, take = Counter[int](), 0, Chunks.take

    def counted(self, got, body, *more):
        before, result = len(body), take(self, got, body, *more)
        taken[iteration] += len(body) - before
        return result

    monkeypatch.setattr(Chunks, "take", counted)

    async def run():
        nonlocal iteration
        connections, answers = [Exchange(None, None) for _ in range(50)], []
        for connection in connections:
            connection.connection_made(Deaf())
            answers.append(asyncio.ensure_future(connection.post(b"", b"", 1 << 20)))
        await asyncio.sleep(0)
        for iteration, connection in enumerate(connections):
            connection.data_received(CHUNKED + b"1\r\nx\r\n" * 3000 + b"0\r\n\r\n")
            assert taken[iteration] <= 100  # all may receive data in the same iteration
        while not all(answer.done() for answer in answers):
            iteration += 1
            await asyncio.sleep(0)
        assert [len(answer.result()) for answer in answers] == [3000] * 50

    asyncio.run(run())
    assert max(taken.values()) <= LINES


@pytest.mark.parametrize(("tls", "loop"), WAYS)
def test_a_peer_that_does_not_read_is_disconnected(pair, tls, loop, monkeypatch):
    monkeypatch.setattr("kas.client.http.CUT_S", 0.01)
    held: list[asyncio.StreamWriter] = []

    async def silent(reader, writer):
        writer.transport.pause_reading()
        held.append(writer)

    async def until(there):
        while not there():  # noqa: ASYNC110
            await asyncio.sleep(0.001)

    async def run():
        context = None
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*pair)
        server = await asyncio.start_server(silent, "127.0.0.1", 0, ssl=context)
        port = str(server.sockets[0].getsockname()[1])
        target = Target("https" if tls else "http", "127.0.0.1", port, "/x", tls=insecure_tls() if tls else None)
        connection = await exchange(target)
        asked = asyncio.ensure_future(connection.post(request_head("POST", target, []), b"x" * (16 << 20), 1))
        await until(lambda: held and connection._transport.get_write_buffer_size())
        asked.cancel()
        connection.close()
        await until(lambda: connection._transport is None)
        if not tls:  # asyncio's own TLS does so by itself
            streams = await connect(target)
            sent = asyncio.ensure_future(streams.send("POST", target, [], b"x" * (16 << 20)))
            await until(lambda: len(held) == 2 and streams.writer.transport.get_write_buffer_size())
            streams.close()
            await asyncio.wait([sent])  # it is notified when the connection is gone
        for writer in held:
            writer.transport.abort()
        server.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(asyncio.wait_for(run(), 60))
