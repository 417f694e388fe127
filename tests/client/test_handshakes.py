"""Peers with unusually many certificates: verifying them does not delay others."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from collections import Counter
from types import SimpleNamespace

import pytest
import uvloop

from kas.client import handshakes
from kas.client.exchange import exchange
from kas.client.http import BackendError, Target, connect, insecure_tls, request_head
from kas.meta.tls import trust_authorities
from kas.meta.waiting import TIME_SLICE_S, Throttle
from tests import pki

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
LINKS = 20  # some 450 bytes each
CA = pki.authority("ca")


def chain(links: int) -> pki.Issued:
    """Returns a server's certificate below this many CAs, which are sent with it."""
    shown: list[pki.Issued] = []
    for i in range(links):
        shown.insert(0, pki.authority(f"link {i}", (shown or [CA])[0]))
    return pki.issue([("CN", "server")], (shown or [CA])[0], usages=("server",), dns=["localhost"], chain=shown)


def hand_over(accepted: socket.socket, context: ssl.SSLContext, piece: int, answer: bytes, steps: list[bool]) -> None:
    """The server's part, which sends this many bytes when the previous ones have led to another step."""
    back, there = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(back, there, server_side=True)
    known = answered = False
    while not answered:
        back.write(accepted.recv(65536))
        with contextlib.suppress(ssl.SSLWantReadError):
            if not known:
                tls.do_handshake()
            known = True
            tls.read(65536)
            tls.write(answer)
            answered = True
        while said := there.read(piece):
            before, until = len(steps), time.monotonic() + 60
            accepted.sendall(said)
            while not known and len(steps) == before and time.monotonic() < until:
                time.sleep(0.001)
    accepted.shutdown(socket.SHUT_WR)
    accepted.recv(65536)


@contextlib.contextmanager
def serving(tmp_path, shown: pki.Issued, answers: bool, answer: bytes = ANSWER, piece: int = 0, steps: list[bool] | None = None):
    """Returns the port of a server that sends the chain, and answers once or closes in the middle of the handshake; ``piece`` limits the
    bytes sent at once, see ``hand_over``."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*shown.write(tmp_path, "server"))
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        accepted, _ = listening.accept()
        with contextlib.suppress(OSError), accepted:
            if piece:
                assert steps is not None
                hand_over(accepted, context, piece, answer, steps)
            elif answers:
                with context.wrap_socket(accepted, server_side=True) as s:
                    s.recv(65536)
                    s.sendall(answer)
            else:
                back, there = ssl.MemoryBIO(), ssl.MemoryBIO()
                back.write(accepted.recv(65536))
                with contextlib.suppress(ssl.SSLWantReadError):
                    context.wrap_bio(back, there, server_side=True).do_handshake()
                accepted.sendall(there.read()[:-1])

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield listening.getsockname()[1]
    thread.join(60)
    listening.close()


async def post(target: Target) -> bytes:
    connection = await exchange(target)
    try:
        return await connection.post(request_head("POST", target, []), b"{}", 1000)
    finally:
        connection.close()


async def get(target: Target) -> bytes:
    connection = await connect(target)
    try:
        await connection.send("GET", target, [])
        await connection.head()
        return await connection.read(1000)
    finally:
        connection.close()


@pytest.fixture
def steps(monkeypatch) -> list[bool]:
    """Returns for each step of a handshake whether it ran on the loop."""
    made = []
    for module in ("kas.client.handshakes", "kas.client.exchange"):
        monkeypatch.setattr(f"{module}.handshake_step", lambda tls: made.append(threading.current_thread() is threading.main_thread())
                            or original_step(tls))  # fmt: skip
    return made


original_step = handshakes.handshake_step


def ask(how, port: int, tls: ssl.SSLContext, loop=uvloop.new_event_loop) -> bytes:
    target = Target("https", "127.0.0.1", str(port), "/", tls=tls, tls_name="localhost")
    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(asyncio.wait_for(how(target), 60))


def believing(authority: pki.Issued) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trust_authorities(context, authority.pem)
    return context


@pytest.mark.parametrize("how", [post, get])
@pytest.mark.parametrize("loop", [uvloop.new_event_loop, asyncio.new_event_loop])
@pytest.mark.parametrize("links", [0, LINKS])
def test_a_long_step_runs_off_the_loop(tmp_path, steps, how, loop, links):
    with serving(tmp_path, chain(links), True) as port:
        assert ask(how, port, believing(CA), loop) == b"ok"
    assert steps[0] and False not in steps[1:] if not links else False in steps


@pytest.mark.parametrize("how", [post, get])
@pytest.mark.parametrize("loop", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_the_length_of_a_step_counts_all_received_bytes(tmp_path, steps, how, loop):
    """A chain that arrives in short parts is verified with the last of them, which used to run on the loop."""
    with serving(tmp_path, chain(LINKS), True, piece=2000, steps=steps) as port:
        assert ask(how, port, believing(CA), loop) == b"ok"
    assert len(steps) > 4 and not steps[-1]


@pytest.mark.parametrize("how", [post, get])
def test_certificates_are_parsed_off_the_loop_even_unverified(tmp_path, steps, how):
    with serving(tmp_path, chain(LINKS), True) as port:
        assert ask(how, port, insecure_tls()) == b"ok"
    assert False in steps


@pytest.mark.parametrize("how", [post, get])
def test_a_failed_long_step_reports_its_reason(tmp_path, steps, how):
    with serving(tmp_path, chain(LINKS), True) as port, pytest.raises(BackendError, match="certificate signed by unknown authority"):
        ask(how, port, believing(pki.authority("other")))
    assert False in steps


@pytest.mark.parametrize("how", [post, get])
def test_a_close_during_a_long_step(tmp_path, steps, how):
    with serving(tmp_path, chain(LINKS), False) as port, pytest.raises((BackendError, OSError)):
        ask(how, port, believing(CA))
    assert False in steps


@pytest.mark.parametrize("how", [post, get])
def test_a_cancellation_during_a_long_step(tmp_path, monkeypatch, how):
    begun, goes_on = threading.Event(), threading.Event()

    def handshake_step(tls):
        if tls.pending() == 0 and threading.current_thread() is not threading.main_thread():
            begun.set()
            goes_on.wait(60)
        return original_step(tls)

    for module in ("kas.client.handshakes", "kas.client.exchange"):
        monkeypatch.setattr(f"{module}.handshake_step", handshake_step)

    async def given_up(target: Target) -> bytes:
        asking = asyncio.create_task(how(target))
        await asyncio.to_thread(begun.wait, 60)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        goes_on.set()
        while left := asyncio.all_tasks() - {asyncio.current_task()}:
            if all("wait_for" in repr(t.get_coro()) or "given_up" in repr(t.get_coro()) for t in left):
                break
            await asyncio.wait(left, timeout=0.01)
        return b""

    with serving(tmp_path, chain(LINKS), True) as port:
        assert ask(given_up, port, believing(CA)) == b""


@pytest.mark.parametrize("how", [exchange, connect])
@pytest.mark.parametrize("loop", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_many_simultaneous_handshakes_take_turns(tmp_path, monkeypatch, how, loop):
    """A step takes a third of a millisecond, and here as long as an iteration has for all of them."""
    now, turn, many = 0.0, 0, 20
    taken = Counter[int]()

    def handshake_step(tls):
        nonlocal now
        now += TIME_SLICE_S
        taken[turn] += 1
        return original_step(tls)

    def tick() -> None:
        nonlocal turn
        turn += 1
        asyncio.get_running_loop().call_soon(tick)

    def hello(listening: socket.socket) -> tuple[socket.socket, bytes]:
        accepted = listening.accept()[0]
        back, there = ssl.MemoryBIO(), ssl.MemoryBIO()
        back.write(accepted.recv(65536))
        with contextlib.suppress(ssl.SSLWantReadError):
            context.wrap_bio(back, there, server_side=True).do_handshake()
        return accepted, there.read()

    for module in ("kas.client.handshakes", "kas.client.exchange"):
        monkeypatch.setattr(f"{module}.handshake_step", handshake_step)
    monkeypatch.setattr(handshakes, "_loop_throttle", SimpleNamespace(throttle=Throttle(lambda: now)))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*chain(0).write(tmp_path, "server"))

    async def run() -> None:
        asking = [asyncio.create_task(how(target)) for _ in range(many)]
        answers = [await asyncio.to_thread(hello, listening) for _ in range(many)]
        taken.clear()
        tick()
        for accepted, said in answers:
            accepted.sendall(said)
        for connection in await asyncio.wait_for(asyncio.gather(*asking), 60):
            connection.close()
        for accepted, _ in answers:
            accepted.close()

    with socket.create_server(("127.0.0.1", 0), backlog=many) as listening, asyncio.Runner(loop_factory=loop) as runner:
        target = Target("https", "127.0.0.1", str(listening.getsockname()[1]), "/", tls=believing(CA), tls_name="localhost")
        runner.run(run())
    assert taken.total() == many and max(taken.values()) <= 2  # the end of one iteration and the beginning of the next count as one


@pytest.mark.parametrize("loop", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_a_loop_iteration_reads_little_of_a_fast_sender(tmp_path, monkeypatch, loop):
    """A peer that renews its keys all the time fills the kernel's buffer with that: 4 MB are 150,000 renewals, seconds of an iteration."""
    turn, taken = 0, {}
    before = handshakes.SSLProtocol.buffer_updated

    def buffer_updated(self, size: int) -> None:
        taken[turn] = taken.get(turn, 0) + size
        before(self, size)

    monkeypatch.setattr(handshakes.SSLProtocol, "buffer_updated", buffer_updated)

    async def slowly(target: Target) -> bytes:
        def tell() -> None:
            nonlocal turn
            turn += 1
            asyncio.get_running_loop().call_soon(tell)

        tell()
        connection = await connect(target)
        try:
            await connection.send("GET", target, [])
            await connection.head()
            got = 0
            async for piece in connection.body():
                got += len(piece)
            return b"%d" % got
        finally:
            connection.close()

    size = 2 << 20
    with serving(tmp_path, chain(0), True, b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size) as port:
        assert ask(slowly, port, believing(CA), loop) == b"%d" % size
    assert max(taken.values()) <= handshakes.Secured.max_size


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_little_is_buffered_for_a_peer_that_does_not_read(tmp_path, loop) -> None:
    """80 port-forwards to a pod that read nothing made a worker 80 MiB larger."""
    piece = 16 << 10
    end = threading.Event()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pki.issue([("CN", "server")], CA, usages=("server",), dns=["localhost"]).write(tmp_path, "server"))
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        accepted, _ = listening.accept()
        with contextlib.suppress(OSError), context.wrap_socket(accepted, server_side=True):
            end.wait(60)

    async def held() -> int:
        connection = await connect(Target("https", "localhost", str(listening.getsockname()[1]), tls=insecure_tls()))
        writer = connection.writer
        waits = None
        while waits is None or waits.done():
            writer.write(b"x" * piece)
            waits = asyncio.ensure_future(writer.drain())
            await asyncio.sleep(0)
        size = writer.transport.get_write_buffer_size()
        waits.cancel()
        connection.close()
        return size

    thread = threading.Thread(target=serve)
    thread.start()
    with asyncio.Runner(loop_factory=loop) as runner:
        size = runner.run(held())
    end.set()
    thread.join()
    listening.close()
    assert 0 < size <= handshakes.UNSENT_BYTES + 2 * piece
