"""Connections through SOCKS5 proxies: the requests, and errors of a proxy that refuses, closes or is not SOCKS5."""

from __future__ import annotations

import asyncio

import pytest
import uvloop

from kas.client.http import BackendError
from kas.client.socks import SocksProxy

LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]
OPEN, LOGIN = b"\x05\x00", b"\x05\x02"
GOOD = b"\x05\x00\x00\x01\x7f\x00\x00\x01\x00\x50"


class Talk(asyncio.Protocol):
    """Data sent on the connection once it is open."""

    def __init__(self):
        self.got, self.lost = bytearray(), asyncio.get_running_loop().create_future()

    def connection_made(self, transport):
        transport.write(b"hello")

    def data_received(self, data):
        self.got += data

    def connection_lost(self, exc):
        self.lost.set_result(None)


async def through(said, host="backend.example.com", port=443, login=None, split=False):
    """Returns (what a proxy received that answers each message with the next of ``said``, what came through)."""
    heard, ended = [], asyncio.get_running_loop().create_future()

    async def serve(reader, writer):
        for answer in said:
            heard.append(await reader.read(1000))
            for part in [answer[i : i + 1] for i in range(len(answer))] if split else [answer]:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0)
        if said and said[-1] == GOOD:
            heard.append(await reader.readexactly(5))
            writer.write(b"and back")
        writer.close()
        ended.set_result(None)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        proxy = SocksProxy(server.sockets[0].getsockname(), login)
        async with asyncio.timeout(60):
            transport, talk = await proxy.connect(Talk, host, port)
            await talk.lost
            await ended
        transport.close()
        return heard, bytes(talk.got)
    finally:
        server.close()


def run(loop, *args, **more):
    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(through(*args, **more))


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("split", [False, True])
def test_a_connection_is_opened(loop, split):
    heard, got = run(loop, [OPEN, GOOD], split=split)
    assert heard == [b"\x05\x01\x00", b"\x05\x01\x00\x03\x13backend.example.com\x01\xbb", b"hello"] and got == b"and back"


@pytest.mark.parametrize("loop", LOOPS)
def test_authentication(loop):
    heard, got = run(loop, [LOGIN, b"\x01\x00", GOOD], login=(b"me", b"pass"))
    assert heard[:2] == [b"\x05\x02\x00\x02", b"\x01\x02me\x04pass"] and got == b"and back"


@pytest.mark.parametrize(
    ("host", "as_said"), [("127.0.0.1", b"\x01\x7f\x00\x00\x01"), ("::1", b"\x04" + bytes(15) + b"\x01"), ("a", b"\x03\x01a")]
)
def test_addresses_are_sent_as_such(host, as_said):
    assert run(LOOPS[0], [OPEN, GOOD], host=host, port=80)[0][1] == b"\x05\x01\x00" + as_said + b"\x00\x50"


@pytest.mark.parametrize("kind", [b"\x04" + bytes(16), b"\x03\x02ab"])
def test_every_form_of_the_bound_address_is_accepted(kind):
    answer = b"\x05\x00\x00" + kind + b"\x00\x50"
    with pytest.raises(BackendError, match="bytes of buffered data"):
        run(LOOPS[0], [OPEN, answer + b"x"])


@pytest.mark.parametrize(
    ("said", "login", "why"),
    [
        ([b"\x04\x00"], None, "unexpected protocol version 4"),
        ([b"\x05\xff"], None, "no acceptable authentication methods"),
        ([LOGIN], None, "unsupported authentication method 2"),
        ([LOGIN, b"\x02\x00"], (b"u", b"p"), "invalid username/password version"),
        ([LOGIN, b"\x01\x01"], (b"u", b"p"), "username/password authentication failed"),
        ([OPEN, b"\x05\x04\x00\x01" + bytes(6)], None, "unknown error host unreachable"),
        ([OPEN, b"\x05\x63\x00\x01" + bytes(6)], None, "unknown error unknown code: 99"),
        ([OPEN, b"\x04\x00\x00\x01" + bytes(6)], None, "unexpected protocol version 4"),
        ([OPEN, b"\x05\x00\x01\x01" + bytes(6)], None, "non-zero reserved field"),
        ([OPEN, b"\x05\x00\x00\x09" + bytes(6)], None, "unknown address type 9"),
        ([OPEN, GOOD[:7]], None, "unexpected EOF"),
        ([b"HTTP/1.1 400 Bad Request\r\n\r\n"], None, "unexpected protocol version 72"),
    ],
)
@pytest.mark.parametrize("loop", LOOPS)
def test_errors_of_the_proxy(loop, said, login, why):
    with pytest.raises(BackendError, match=rf"^socks connect tcp 127\.0\.0\.1:\d+->backend\.example\.com:443: {why}$"):
        run(loop, said, login=login)


@pytest.mark.parametrize(("host", "why"), [("a" * 256, "FQDN too long"), ("a b", "invalid character in host name")])
def test_impossible_requests(host, why):
    with pytest.raises(BackendError, match=why):
        run(LOOPS[0], [OPEN, GOOD], host=host)


def test_a_missing_proxy():
    async def ask():
        await SocksProxy(("127.0.0.1", 1)).connect(Talk, "a", 80)

    with pytest.raises(BackendError, match=r"dial tcp 127\.0\.0\.1:1: .*connection refused"):
        asyncio.run(ask())
