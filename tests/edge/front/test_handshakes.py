"""The order of TLS handshakes, and the priority of established connections."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest

from kas.edge.front import handshakes, process, relay
from kas.edge.front.handshakes import Handshakes
from tests.edge.front.test_relay import run, scene, until


class Handshake:
    """A handshake that takes half of a time slice."""

    def __init__(self, client: str, seen: list[str], clock: list[float]) -> None:
        self.client, self._seen, self._clock = client, seen, clock

    def handshake(self) -> None:
        self._seen.append(self.client)
        self._clock[0] += handshakes.BUDGET_S / 2


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    now = [0.0]
    monkeypatch.setattr(handshakes, "monotonic", lambda: now[0])
    yield now


def test_clients_take_turns(clock: list[float]) -> None:
    async def test() -> None:
        seen: list[str] = []
        turns = Handshakes(asyncio.get_running_loop())
        for client in "aaaaaabbc":
            turns.ask(Handshake(client, seen, clock))
        await until(lambda: len(seen) == 9)
        assert "".join(seen) == "abcabaaaa"

    asyncio.run(test())


def test_handshakes_yield_the_loop(clock: list[float]) -> None:
    async def test() -> None:
        seen: list[str] = []
        turns, loop = Handshakes(asyncio.get_running_loop()), asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            loop.add_reader(ours, lambda: seen.append("relayed") or ours.recv(1))
            for _ in range(8):
                turns.ask(Handshake("a", seen, clock))
            theirs.send(b"x")
            await until(lambda: len(seen) == 9)
            loop.remove_reader(ours)
        assert seen.index("relayed") <= 4
        turns.ask(Handshake("b", seen, clock))  # also after all had their time slice
        await until(lambda: seen[-1] == "b")

    asyncio.run(test())


def test_accepting_is_bounded_by_the_time_slice(tmp_path, monkeypatch):
    """A thousand connections that wait in the kernel do not block the loop."""
    async def test():
        async with scene(tmp_path) as s:
            monkeypatch.setattr(process, "BUDGET_S", 0.0)
            s.front.loop.remove_reader(s.front._listening.fileno())
            held = [socket.create_connection(("127.0.0.1", s.port)) for _ in range(5)]
            s.front._accept()
            assert s.front._open == 0
            monkeypatch.setattr(process, "BUDGET_S", handshakes.BUDGET_S)
            s.front._accept_again()
            await until(lambda: s.front._open == 5)
            for one in held:
                one.close()

    run(test())


def test_of_too_many_handshakes_the_busiest_clients_are_dropped(tmp_path):
    async def test():
        async with scene(tmp_path, limits=process.Limits(handshakes=4)) as s:
            first = socket.create_connection(("127.0.0.1", s.port), source_address=("127.0.0.2", 0))
            await until(lambda: len(s.front._in_handshake.since) == 1)
            held = [first]
            for _ in range(12):
                held.append(socket.create_connection(("127.0.0.1", s.port)))
            await until(lambda: s.front._open == 4 and len(s.front._in_handshake.since) == 4)
            assert [one.client for one in s.front._in_handshake.since].count("127.0.0.2") == 1
            for one in held:
                one.close()
            await until(lambda: not s.front._in_handshake.since)
            assert not s.front._in_handshake._clients

    run(test())


def test_clients_that_disconnect_at_once_cost_no_tls(tmp_path, monkeypatch):
    async def test():
        async with scene(tmp_path) as s:
            monkeypatch.setattr(relay.SSL, "Connection", lambda *_: pytest.fail("made for nobody"))
            for end in (socket.SHUT_WR, None):
                with socket.create_connection(("127.0.0.1", s.port)) as one:
                    await until(lambda: s.front._open == 1)
                    if end is not None:
                        one.shutdown(end)
                        await until(lambda: s.front._open == 0)
                await until(lambda: s.front._open == 0)

    run(test())
