"""The HTTP client for backends: a broken or hostile answer ends in an error, never in a hang or unbounded memory."""

from __future__ import annotations

import asyncio
import struct

import pytest

from kas.client.http import BackendError, Target, connect
from kas.endpoints.proxy import joined
from kas.endpoints.proxy_websocket import WebSocket, open_websocket


def talk(answer: bytes, use, request: bytes = b""):
    """Runs ``use(target)`` against a server that reads a request's head, writes ``answer`` and closes."""

    async def run():
        async def serve(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            async with asyncio.timeout(60):
                return await use(Target("http", "127.0.0.1", str(port), "/x"))

    return asyncio.run(run())


async def fetch(target: Target):
    connection = await connect(target)
    try:
        await connection.send("GET", target, [])
        await connection.head()
        return connection.status, connection.headers, [piece async for piece in connection.body()]
    finally:
        connection.close()


def test_answers_of_each_framing():
    assert talk(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcTOOMUCH", fetch)[2] == [b"abc"]
    status, headers, body = talk(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nab\r\n1\r\nc\r\n0\r\nT: v\r\n\r\n", fetch)
    assert (status, b"".join(body)) == (200, b"abc")
    assert headers == [(b"transfer-encoding", b"chunked")]
    assert b"".join(talk(b"HTTP/1.0 200 OK\r\n\r\nuntil the end", fetch)[2]) == b"until the end"
    both = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"
    assert talk(both, fetch)[1:] == ([(b"transfer-encoding", b"chunked")], [b"a"])
    assert talk(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", fetch)[::2] == (204, [])


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon here\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nSpace : x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n folded: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX(y): x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: a\nSet-Cookie: b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: a\x00b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        b"HTTP/1.1 200 OK\r\nContent-Length: +3\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 200_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nab\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nab\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffff\r\nab",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"0" * 200_000,
    ],
)
def test_broken_answers(answer):
    with pytest.raises(BackendError):
        talk(answer, fetch)


def test_headers_cannot_break_out():
    async def run():
        seen = asyncio.get_running_loop().create_future()

        async def serve(reader, writer):
            seen.set_result(await reader.readuntil(b"\r\n\r\n"))
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            target = Target("http", "127.0.0.1", str(port), "/a b\r\nEvil: 2", "q=\r\nEvil: 3")
            connection = await connect(target)
            await connection.send("GET", target, [(b"a", b"x\r\nEvil: 1"), (b"good", b"1")])
            head = await asyncio.wait_for(seen, 60)
            connection.close()
            return head

    head = asyncio.run(run())
    assert b"Evil" not in [line.split(b":")[0] for line in head.split(b"\r\n")]
    assert b"good: 1" in head


def test_errors_have_the_text_of_gos():
    with pytest.raises(BackendError, match=r"dial tcp 127\.0\.0\.1:1: connect: connection refused"):
        asyncio.run(connect(Target("http", "127.0.0.1", "1")))
    with pytest.raises(BackendError, match=r"lookup nowhere\.invalid: no such host"):
        asyncio.run(connect(Target("http", "nowhere.invalid", "1")))


@pytest.mark.parametrize(
    "frames",
    [
        b"\x82\xff" + b"\x00" * 12,  # masked
        b"\xc2\x01a",  # a reserved bit
        b"\x82\x7f" + struct.pack("!Q", 1 << 40),  # too long
        b"\x89\x7e" + struct.pack("!H", 200) + b"x" * 200,  # a long ping
        b"\x80\x01a",  # a continuation without a beginning
        b"\x02\x01a\x82\x01b",  # a new message within another
        b"\x82",
    ],
)
def test_broken_frames(frames):
    async def use(target):
        connection = await connect(target)
        await connection.send("GET", target, [])
        await connection.head()
        return await WebSocket(connection).receive()

    with pytest.raises(BackendError):
        talk(b"HTTP/1.1 101 X\r\n\r\n" + frames, use)


def test_fragments_make_one_message():
    async def use(target):
        connection = await connect(target)
        await connection.send("GET", target, [])
        await connection.head()
        ws = WebSocket(connection)
        return [await ws.receive(), await ws.receive(), await ws.receive(), ws.code]

    frames = b"\x02\x01a\x89\x01p\x80\x01b" + b"\x81\x01t" + b"\x88\x02" + struct.pack("!H", 1001)
    assert talk(b"HTTP/1.1 101 X\r\n\r\n" + frames, use) == [b"ab", "t", None, 1001]


def test_a_handshake_without_the_accept_key_is_refused():
    async def use(target):
        return await open_websocket(target, [], [])

    with pytest.raises(BackendError, match="bad handshake"):
        talk(b"HTTP/1.1 101 X\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: guess\r\n\r\n", use)


@pytest.mark.parametrize(
    ("base", "path", "expected"),
    [("", "", ""), ("", "/", "/"), ("", "/a/../../b/", "/b/"), ("/c", "//d", "/c/d"), ("", "/..", "/"), ("", "/a//b", "/a/b")],
)
def test_paths_stay_below_their_base(base, path, expected):
    assert joined(base, path) == expected
