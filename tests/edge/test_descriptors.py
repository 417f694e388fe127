"""The listeners' descriptor gate and the closing of silent connections, with sockets of the test's own."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import select
import socket
import time
from collections.abc import Iterator

import pytest

from kas.edge import descriptors, unusedconnections
from kas.edge.asgi import App
from kas.edge.descriptors import DescriptorGate, defer_accept, limit_buffers, sent, unsent
from kas.edge.front.tls import listen
from kas.edge.listener import Listener
from kas.edge.unusedconnections import UnusedConnections
from kas.request.http import Response, Write
from tests.descriptors import opened
from tests.filters.serving import head

MANY = 1 << 20


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as s:
        s.settimeout(60)
        yield s


def dial(listening: socket.socket) -> socket.socket:
    return socket.create_connection(listening.getsockname(), 60)


def test_the_gate_closes_and_opens(listening: socket.socket) -> None:
    gate = DescriptorGate([listening], MANY, pytest.fail)
    gate.look()
    dial(listening).close()
    gate._most = 1  # more connections always wait
    gate.look()
    assert gate.shut
    late = socket.socket()
    late.settimeout(0.5)
    with late, pytest.raises(TimeoutError):
        late.connect(listening.getsockname())
    gate._most = MANY
    gate.look()
    assert not gate.shut
    dial(listening).close()


def test_a_closed_gate_accepts_nothing_and_reports_nothing(listening: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(descriptors, "monotonic", lambda: now[0])
    gate = DescriptorGate([listening], MANY, pytest.fail)
    with dial(listening), socket.socket() as late:  # the first one waits, and is not accepted
        gate.close()
        for _ in range(40):
            now[0] += 1.0
            gate.check_sometimes()
        late.settimeout(0.5)
        with pytest.raises(TimeoutError):
            late.connect(listening.getsockname())


def test_descriptors_are_counted_rarely_while_many_are_free(listening: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    real = DescriptorGate.look
    monkeypatch.setattr(DescriptorGate, "look", lambda gate: (looks.append(1), real(gate)))
    gate = DescriptorGate([listening], MANY, pytest.fail)
    for _ in range(2 * descriptors.SELDOM):
        gate.check_sometimes()
    assert 1 <= len(looks) <= 3
    gate._most = descriptors.COMING  # new connections might exceed the limit
    gate.look()
    looks.clear()
    gate.check_sometimes()
    gate.check_sometimes()
    assert len(looks) == 2


def test_a_listener_that_does_not_accept_is_reported_once(listening: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    now, ends = [0.0], []
    monkeypatch.setattr(descriptors, "monotonic", lambda: now[0])
    gate = DescriptorGate([listening], MANY, lambda: ends.append(1))
    with dial(listening):
        gate.look()
        now[0] = 2.0
        gate.look()
        assert not ends
        now[0] = 4.0
        gate.look()
        now[0] = 9.0
        gate.look()
        assert ends == [1]


def test_a_listener_that_accepts_while_some_always_wait_is_not_reported(listening: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when they arrive faster than a busy machine accepts them."""
    now, ends = [0.0], []
    monkeypatch.setattr(descriptors, "monotonic", lambda: now[0])
    gate = DescriptorGate([listening], MANY, lambda: ends.append(1))
    with dial(listening), dial(listening), dial(listening):
        for at in (0.0, 2.0):
            now[0] = at
            gate.look()
        with listening.accept()[0]:
            now[0] = 4.0
            gate.look()
            assert not ends
            with socket.create_server(("127.0.0.1", 0)) as other, dial(other), other.accept()[0]:
                for at in (6.0, 8.0):
                    now[0] = at
                    gate.look()
                # Connections that others accept, or that existed before, do not count.
                with dial(other), other.accept()[0]:
                    now[0] = 10.0
                    gate.look()
    assert ends == [1]


def test_no_descriptor_left_to_check_with(listening: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    now, ends = [0.0], []
    monkeypatch.setattr(descriptors, "monotonic", lambda: now[0])
    gate = DescriptorGate([listening], MANY, lambda: ends.append(1))

    def none(*_: object) -> list[str]:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(descriptors.os, "listdir", none)
    with dial(listening):
        for at in (0.0, 2.0, 4.0):
            now[0] = at
            gate.look()
    assert ends == [1]


def test_a_listener_that_finally_accepts_is_not_reported(listening: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(descriptors, "monotonic", lambda: now[0])
    gate = DescriptorGate([listening], MANY, pytest.fail)
    for at in (0.0, 2.0):
        with dial(listening):
            now[0] = at
            gate.look()
            listening.accept()[0].close()
            now[0] = at + 1
            gate.look()
    now[0] = 9.0
    gate.look()


def test_a_connection_is_accepted_once_it_sends_data(listening: socket.socket) -> None:
    defer_accept(listening)
    with dial(listening) as quiet, dial(listening) as loud:
        loud.sendall(b"x")
        accepted, peer = listening.accept()
        with accepted:
            assert peer == loud.getsockname() and peer != quiet.getsockname()


def test_the_receive_buffer_is_small(listening: socket.socket) -> None:
    limit_buffers(listening)
    with dial(listening) as client, listening.accept()[0] as accepted:
        # Linux reports twice the requested size, which includes its own data.
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) <= 2 * descriptors.RECEIVED_BYTES
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
        client.setblocking(False)
        taken = 0
        with contextlib.suppress(BlockingIOError):
            while taken < 64 << 20:
                taken += client.send(bytes(65536))
        assert taken < 1 << 20


def test_the_send_buffer_is_bounded(listening: socket.socket) -> None:
    """However large it has grown, which it does when the client reads much."""
    limit_buffers(listening)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        client.connect(listening.getsockname())
        with listening.accept()[0] as accepted:
            accepted.setblocking(False)
            came = 0
            while came < 16 << 20:
                with contextlib.suppress(BlockingIOError):
                    accepted.send(bytes(1 << 20))
                came += len(client.recv(1 << 20))
            taken = 0
            for _ in range(3):
                with contextlib.suppress(BlockingIOError):
                    while True:
                        taken += accepted.send(bytes(1 << 16))
                time.sleep(0.05)
            assert taken < 3 * descriptors.UNSENT_BYTES // 2


def test_a_client_that_does_not_read_is_closed(listening: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptors, "UNTAKEN_MS", 200)
    limit_buffers(listening)
    with dial(listening), listening.accept()[0] as accepted:
        accepted.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                accepted.send(bytes(65536))
        poll = select.poll()
        poll.register(accepted, select.POLLERR)
        assert poll.poll(60_000)
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ETIMEDOUT


def test_the_front_has_the_same_listener_options() -> None:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        listen(s, 1)
        assert s.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == descriptors.UNTAKEN_MS
        assert s.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) <= 2 * descriptors.RECEIVED_BYTES
        assert s.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT) == descriptors.UNSENT_BYTES


@pytest.mark.parametrize("most", ["SILENT_S", "UNASKED_S"])  # the second whatever is sent: pings are not requests
def test_silent_connections_end_and_others_do_not(listening: socket.socket, monkeypatch: pytest.MonkeyPatch, most: str) -> None:
    port = listening.getsockname()[1]
    ends = UnusedConnections(frozenset((port,)))
    with dial(listening) as quiet, dial(listening) as asked, socket.create_server(("127.0.0.1", 0)) as other, dial(other) as elsewhere:
        kept = [listening.accept()[0], listening.accept()[0], other.accept()[0]]
        assert ends.look() == 0  # not silent for long enough yet
        monkeypatch.setattr(unusedconnections, most, -1)
        ends.spoke.update((asked.getsockname()[1], 1))
        before = opened()
        assert ends.look() == 1
        assert opened() <= before
        assert ends.spoke == {asked.getsockname()[1]}
        assert quiet.recv(1) == b""
        for s in (asked, elsewhere):
            s.setblocking(False)
            with pytest.raises(BlockingIOError):
                s.recv(1)
        for s in kept:
            s.close()


def test_a_closed_listening_sockets_bytes_are_not_waited_for():
    """The kernel reports bytes for a listening socket that was shut down, though there are none."""
    with socket.create_server(("127.0.0.1", 0)) as s:
        s.shutdown(socket.SHUT_RD)
        assert s.fileno() not in unsent()


def test_data_given_to_a_socket_are_waited_for():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        assert ours.fileno() not in unsent()
        given = ours.send(b"x" * (1 << 20))
        assert unsent() >= {ours.fileno()} == unsent([ours.fileno(), theirs.fileno()])

        async def run() -> bool:
            waiting = asyncio.create_task(sent())
            await asyncio.sleep(0.2)
            early = waiting.done()
            while (left := given - taken[0]) > 0:
                taken[0] += len(theirs.recv(left))
            await asyncio.wait_for(waiting, 30)
            return early

        taken = [0]
        assert asyncio.run(run()) is False


@pytest.mark.parametrize("family", ["tcp", "unix"])
def test_a_client_that_does_not_read_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, family: str) -> None:
    monkeypatch.setattr(descriptors, "TAKES_S", 0.2)
    with contextlib.ExitStack() as stack:
        if family == "tcp":
            server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            theirs = stack.enter_context(socket.create_connection(server.getsockname()))
            ours = stack.enter_context(server.accept()[0])
        else:
            ours, theirs = map(stack.enter_context, socket.socketpair())
        ours.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                ours.send(b"x" * (1 << 20))
        assert ours.fileno() in unsent()
        asyncio.run(asyncio.wait_for(sent(), 60))
        assert ours.fileno() in unsent()

        async def slowly() -> None:
            """A client that reads slowly is waited for."""
            waiting, taken = asyncio.create_task(sent()), 0
            while ours.fileno() in unsent():
                assert not waiting.done()
                taken += len(theirs.recv(1 << 18))
                await asyncio.sleep(0.01)
            await asyncio.wait_for(waiting, 60)
            assert taken

        monkeypatch.setattr(descriptors, "TAKES_S", 30.0)
        asyncio.run(slowly())


def test_a_connection_with_a_request_may_be_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the HTTP server: a stream without events is not ended over HTTP/1.1; a connection that never sent a request is."""
    monkeypatch.setattr(unusedconnections, "SILENT_S", 0.05)
    asyncio.run(quiet())


async def quiet() -> None:
    async def nothing(write: Write) -> None:
        await write(b"begun")
        await asyncio.Event().wait()

    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    port = bound.getsockname()[1]
    looks = UnusedConnections(frozenset((port,)))
    listener = Listener(App(lambda req: Response(200, [], stream=nothing), spoke=looks.spoke.add), fd=bound.detach())
    listener.start(1)
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        _, never = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head("GET", "/"))
        assert b"begun" in await reader.readuntil(b"begun")
        ended = 0
        for _ in range(200):
            await asyncio.sleep(0.05)
            ended += await asyncio.to_thread(looks.look)
            if ended:
                break
        assert ended == 1 and looks.look() == 0
        never.close()
        writer.close()
    finally:
        listener.stop()
        await listener.stopped
