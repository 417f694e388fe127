"""WebSockets whose messages do not end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kas.edge import messagelimit
from kas.edge.messagelimit import AROUND, LAST_LOOKS, SLACK, MessageLimit, Messages
from kas.edge.slowreaders import has_gone

MIB = 1 << 20


def test_messages_passed_on_are_not_counted():
    m = Messages()
    assert m.unfinished(500) == 500  # the handshake
    m.add(MIB)
    assert m.unfinished(500 + MIB + 1000) == 0
    assert m.unfinished(500 + 3 * MIB) == 2 * MIB - 1000
    m.add(0)
    assert m.unfinished(500 + 9 * MIB) == 8 * MIB - 1000 - AROUND - AROUND // 16 - SLACK


def test_the_longest_messages_are_ended_until_the_bound_holds(connections):
    one = MessageLimit(most=3 * MIB)
    clients = [server.getpeername()[:2] for _, server in connections]
    for client, size in zip(clients, (100, MIB, 2 * MIB + MIB // 2), strict=True):
        messages = one.open[client] = Messages()
        messages.done = -size  # as if that had arrived
    assert one.look() == 1
    assert connections[2][0].recv(10) == b""
    del one.open[clients[2]]  # as its conversation does at its end
    connections[0][1].sendall(b"still there")
    assert connections[0][0].recv(100) == b"still there" and one.look() == 0


def looked(one: MessageLimit) -> int:
    """Checks, as a worker does every second."""

    async def look() -> int:
        due = one.due()
        assert due is not None
        return await due

    return asyncio.run(look())


class Relayed:
    """A connection of the TLS front with this many received bytes."""

    certificates = None

    def __init__(self, came: int) -> None:
        self.came, self.gone = came, False

    def leave(self) -> None:
        raise AssertionError

    def count(self, told: Callable[[int, bool], None]) -> None:
        told(self.came, self.gone)


@pytest.mark.parametrize("reset", [False, True])
def test_a_disconnected_client_is_ended_where_nothing_is_passed_on(connections, reset):
    """While a backend does not read the last message, the client's disconnect is not received."""
    one, ended = MessageLimit(), list[str]()
    relay = Relayed(1000)
    one.open[connections[0][1].getpeername()[:2]] = taken = Messages(end=lambda: ended.append("taken"))
    one.open[connections[1][1].getpeername()[:2]] = not_taken = Messages(end=lambda: ended.append("not taken"))
    one.open[connections[2][1].getpeername()[:2]] = Messages(end=lambda: ended.append("still there"))
    one.open["/relay", 0] = Messages(relay, lambda: ended.append("behind a front"))
    for client, _ in connections[:2]:
        client.sendall(b"the last message, which is not read")
    looked(one)  # which finds their descriptors
    if reset:
        connections[1][0].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    for client, server in connections[:2]:
        client.close()
        while not has_gone(server):
            time.sleep(0.01)
    for _ in range(LAST_LOOKS):
        taken.add(1)
        looked(one)
    assert not ended
    taken.add(1)
    looked(one)
    assert ended == ["not taken"]
    relay.gone = True
    one.open = {client: m for client, m in one.open.items() if m is not not_taken}
    for _ in range(LAST_LOOKS):
        taken.add(1)
        looked(one)
    assert ended == ["not taken"]
    looked(one)
    assert ended == ["not taken", "behind a front"]


def test_a_client_that_cannot_be_checked_is_not_ended(connections, monkeypatch: pytest.MonkeyPatch):
    """A watching client sends nothing for hours: at the limit of descriptors, or with an address in another form, its connection is not
    found."""
    one, ended = MessageLimit(), list[str]()
    found = one.open[connections[0][1].getpeername()[:2]] = Messages(end=lambda: ended.append("found"))
    never = one.open["192.0.2.1", 1] = Messages(end=lambda: ended.append("never"))
    looked(one)

    def none_left(fd: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(messagelimit.os, "dup", none_left)
        for _ in range(LAST_LOOKS + 2):
            looked(one)
    assert found.fd >= 0 > never.fd
    del one.open["192.0.2.1", 1]
    found.fd = file = os.open(os.devnull, os.O_RDONLY)  # to which the number belongs by now
    try:
        before = os.listdir("/proc/self/fd")
        for _ in range(LAST_LOOKS + 2):
            one.look()
        assert os.listdir("/proc/self/fd") == before and not ended and found.gone == never.gone == 0
    finally:
        os.close(file)


def test_bytes_that_wait_in_the_front_count(tmp_path: Path):
    one, most = MessageLimit(most=3 * MIB), 2 * MIB + MIB // 2
    with socket.socket(socket.AF_UNIX) as listening, contextlib.ExitStack() as stack:
        listening.bind(str(tmp_path / "worker"))
        listening.listen()
        ends = []
        for i, came in enumerate((MIB, most)):
            s = stack.enter_context(socket.socket(socket.AF_UNIX))
            s.bind(str(tmp_path / f"relay{i}"))
            s.connect(str(tmp_path / "worker"))
            ends.append((s, stack.enter_context(listening.accept()[0])))
            one.open[str(tmp_path / f"relay{i}"), 0] = Messages(Relayed(came))

        assert looked(one) == 1
        assert ends[1][0].recv(10) == b""
        ends[0][1].sendall(b"still there")
        assert ends[0][0].recv(100) == b"still there"
    assert MessageLimit().due() is None


def test_a_disconnected_client_is_not_counted(connections):
    one = MessageLimit(most=0)
    client = connections[0][1].getpeername()[:2]
    one.open[client] = Messages()
    connections[0][1].close()
    assert one.look() == 0 and messagelimit._client_of(10_000_000) == ()


@pytest.fixture
def connections() -> Iterator[list[tuple[socket.socket, socket.socket]]]:
    """Returns pairs of a client's end and the server's."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        made = [(socket.create_connection(listening.getsockname()), listening.accept()[0]) for _ in range(3)]
        yield made
        for pair in made:
            for s in pair:
                s.close()
