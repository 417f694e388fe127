"""The bound on kernel buffers of clients that do not read, with sockets of the test's own."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Iterator
from functools import partial

import pytest

from kas.edge import slowreaders
from kas.edge.slowreaders import Held, SlowReaders, held_by, reset
from kas.meta.origin import client_of
from tests.descriptors import opened

SIZE = 1 << 20


def held(number: int, client: str = "a", *, waits: int = SIZE, taken: int = 0, size: int = SIZE) -> Held[int]:
    return Held(number, client, waits, taken, size, number)


class Looks:
    """``SlowReaders`` with fake connections, a clock of its own and a budget of 4 MiB; ``ended`` has the numbers of those that it closed.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.there = 0.0, list[Held[int]]()
        self.ended: list[int] = []
        monkeypatch.setattr(slowreaders, "BUDGET", 4 * SIZE)
        monkeypatch.setattr(slowreaders, "monotonic", lambda: self.now)
        self.untaken = SlowReaders(lambda: self.there, lambda one: self.ended.append(one.number))

    def look(self, seconds: float = 1.0) -> list[int]:
        """Returns those that it closed at a check this many seconds later, and removes them."""
        self.now += seconds
        self.ended.clear()
        assert self.untaken.look() == len(self.ended)
        self.there = [one for one in self.there if one.number not in self.ended]
        return sorted(self.ended)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    return Looks(monkeypatch)


def test_within_the_budget_none_is_closed(looks: Looks) -> None:
    looks.there = [held(n) for n in range(4)]
    assert [looks.look() for _ in range(100)] == [[]] * 100


def test_beyond_the_budget_only_the_excess_is_closed(looks: Looks) -> None:
    looks.there = [held(n) for n in range(6)]
    ends = [looks.look() for _ in range(7)]
    assert ends[:3] == [[], [], []] and sum(map(len, ends)) == 2
    assert [looks.look() for _ in range(20)] == [[]] * 20


def test_the_more_is_held_the_sooner_they_are_closed(looks: Looks) -> None:
    looks.there = [held(n) for n in range(100)]
    assert looks.look() == []
    assert len(looks.look()) == 96


def test_the_client_that_holds_most_is_closed_first(looks: Looks) -> None:
    looks.there = [held(0, "slow"), held(1, "slow"), *(held(n, "many") for n in range(2, 8))]
    for _ in range(7):
        assert not {0, 1} & set(looks.look())
    assert len(looks.there) == 4


def test_a_reader_that_is_fast_enough_stays(looks: Looks) -> None:
    """Beside those that read nothing, or next to nothing."""
    looks.there = [held(0), *(held(n) for n in range(1, 8))]
    for second in range(1, 30):
        # A MiB within a minute is 17 kB a second.
        looks.there = [one._replace(taken=second * (20_000 if one.number == 0 else one.number)) for one in looks.there]
        assert 0 not in looks.look()
    assert [one.number == 0 for one in looks.there] == [True, False, False, False, False]


def test_of_one_clients_connections_the_slowest_is_closed_first(looks: Looks) -> None:
    looks.there = [held(n) for n in range(5)]
    for second in range(1, 8):
        looks.there = [one._replace(taken=second * one.number * 1000) for one in looks.there]
        looks.look()
    assert [one.number for one in looks.there] == [1, 2, 3, 4]


def test_a_connection_not_watched_long_enough_stays(looks: Looks) -> None:
    """Also if its number belonged to another one before."""
    looks.there = [held(n) for n in range(4)]
    for _ in range(6):
        looks.look()
    looks.there.append(held(9, size=3 * SIZE))
    assert 9 not in looks.look()


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [("2001:db8::1", "2001:db8::ffff:1", True), ("2001:db8::1", "2001:db8:0:1::1", False), ("::ffff:10.0.0.1", "10.0.0.1", True),
     ("fe80::1%lo", "fe80::2", True), ("10.0.0.1", "10.0.0.2", False)],
)  # fmt: skip
def test_which_addresses_are_one_client(one: str, other: str, same: bool) -> None:
    assert (client_of(one) == client_of(other)) is same


def test_nothing_is_checked_while_the_machine_holds_little(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []
    one = SlowReaders(lambda: looked.append(1) or (), pytest.fail)
    monkeypatch.setattr(slowreaders, "_of_machine", lambda: slowreaders.BUDGET - 1)
    asyncio.run(one.due())
    assert not looked
    monkeypatch.setattr(slowreaders, "_of_machine", lambda: slowreaders.BUDGET)
    asyncio.run(one.due())
    assert looked


def test_the_kernels_buffer_memory_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    before = slowreaders._of_machine()
    assert before > 0
    with contextlib.ExitStack() as stack:
        for _ in range(16):
            stack.enter_context(full()[1])
        assert slowreaders._of_machine() > before
    monkeypatch.setattr(slowreaders, "open", Missing, raising=False)
    assert slowreaders._of_machine() > 1 << 60


class Missing:
    def __init__(self, *_: object) -> None:
        raise FileNotFoundError


@contextlib.contextmanager
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Returns both ends of a connection, the server's first; the client's receive buffer is small."""
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(listening.getsockname())
        with listening.accept()[0] as accepted:
            accepted.setblocking(False)
            yield accepted, client


def taken_of(s: socket.socket) -> int:
    """Returns the bytes that the other side of a connection has received."""
    return next(one.taken for one in held_by(frozenset((s.getsockname()[1],))) if one.what == s.fileno())


def fill(s: socket.socket) -> None:
    with contextlib.suppress(BlockingIOError):
        while True:
            s.send(bytes(1 << 16))


def full() -> tuple[int, contextlib.AbstractContextManager[object]]:
    stack = contextlib.ExitStack()
    accepted, _ = stack.enter_context(pair())
    fill(accepted)
    return accepted.getsockname()[1], stack


def test_held_bytes_and_the_effect_of_a_reset() -> None:
    with pair() as (accepted, client), pair() as (elsewhere, _), pair() as (empty, _):
        for s in (accepted, elsewhere):
            fill(s)
        ports = frozenset(s.getsockname()[1] for s in (accepted, empty))
        before = opened()
        (one,) = held_by(ports)
        assert opened() <= before
        assert one.what == accepted.fileno() and one.client == "127.0.0.1" and one.size > one.waits > 1 << 18
        reset(one._replace(number=one.number + 1))  # the descriptor belongs to another file
        assert [held.number for held in held_by(ports)] == [one.number]  # the client's host may have received more
        reset(one)
        assert list(held_by(ports)) == []
        with pytest.raises(ConnectionResetError):
            while client.recv(1 << 16):
                pass
        with pytest.raises(ConnectionResetError):
            accepted.recv(1)
        reset(one)  # it has ended
        assert opened() <= before


def test_a_slow_reader_keeps_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside twenty that do not read; what those hold is within the budget in the end."""
    now = [0.0]
    monkeypatch.setattr(slowreaders, "monotonic", lambda: now[0])
    monkeypatch.setattr(slowreaders, "BUDGET", 8 << 20)
    with contextlib.ExitStack() as stack:
        pairs = [stack.enter_context(pair()) for _ in range(21)]
        slow = pairs[0]
        for accepted, _ in pairs:
            fill(accepted)
        ports = frozenset(accepted.getsockname()[1] for accepted, _ in pairs)
        looks = SlowReaders(partial(held_by, ports), reset)
        assert sum(one.size for one in held_by(ports)) > 2 * slowreaders.BUDGET
        slow[1].setblocking(False)
        ended = 0
        while sum(one.size for one in held_by(ports)) > slowreaders.BUDGET + (4 << 20):
            assert now[0] < 10
            now[0] += slowreaders.LOOK_EVERY_S
            before = taken_of(slow[0])
            until = time.monotonic() + 60
            while taken_of(slow[0]) - before < 1 << 17:  # as the kernel reports it
                assert time.monotonic() < until
                with contextlib.suppress(BlockingIOError):
                    slow[1].recv(1 << 15)
            fill(slow[0])  # more data always wait, so it holds as much as any of them
            ended += looks.look()
        assert ended and slow[0].fileno() in {one.what for one in held_by(ports)}
