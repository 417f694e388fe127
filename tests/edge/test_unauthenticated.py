"""Unauthenticated requests get a small part of the event loop while others are served."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kas.edge import unauthenticated
from kas.edge.dispatch import QUEUED_PER_ITERATION, Dispatcher
from kas.edge.unauthenticated import CONNECTIONS, LATELY_S, MANY, RESTS, UnauthenticatedShare
from tests.edge.test_dispatch import Arrived, Loop

TAKES = 0.0001


class Nobodys(Arrived):
    """An unauthenticated request, which takes a while."""

    def __init__(self, name: str, port: int, token: str = "bad") -> None:
        super().__init__(name, token, port=port, takes=TAKES)


class Never:
    """A stub for a client that never lags behind."""

    given, over = 0, None

    def far(self, more: int = 0) -> bool:
        return False


class Counting(Loop):
    """Dispatchers that count unauthenticated requests. Time passes by what is begun, and by ``rest``."""

    def __init__(self) -> None:
        super().__init__()
        self.nobodys, self.known = 0, False
        self.rests: list[float] = []
        self.dispatcher = Dispatcher(
            self, clock=lambda: self.now, give_way=self.give_way, knows=lambda credential: self.known or b"quiet" in credential,
            unauthenticated=lambda: self.nobodys,
        )  # type: ignore[arg-type]  # fmt: skip
        real = asyncio.get_running_loop()
        self.call_soon, self.call_soon_threadsafe = real.call_soon, real.call_soon_threadsafe
        self.dispatcher._write_lag = Never()  # type: ignore[assignment]

    def call_later(self, after: float, rested: Any) -> object:
        self.rests.append(after)
        return self

    def rest(self) -> None:
        self.now += self.rests.pop()
        self.dispatcher._rested()

    def begin(self, request: Any, scope: dict[str, Any] | None) -> asyncio.Future[None] | None:
        self.nobodys += isinstance(request, Nobodys)
        return super().begin(request, scope)

    async def settled(self) -> None:
        """Waits until nothing is to be begun before a pause."""
        before = -1
        while before != len(self.begun):
            before = len(self.begun)
            for _ in range(5):
                await asyncio.sleep(0)

    async def until_many(self) -> None:
        """Sends as many requests as are needed before connections are told apart."""
        self.arrive(*(Nobodys(f"{i}", i) for i in range(100, 101 + MANY)))
        await self.settled()
        self.arrive(Arrived("first", "quiet"))
        await self.settled()
        assert len(self.begun) == 2 + MANY
        self.begun.clear()


def test_unauthenticated_requests_get_a_small_part_while_others_are_served() -> None:
    """By connection in turn, whatever credentials they make up; requests of known clients are begun at once."""

    async def go() -> None:
        loop = Counting()
        await loop.until_many()
        loop.arrive(*(Nobodys(f"a{i}", 1, f"t{i}") for i in range(4)), *(Nobodys(f"b{i}", 2) for i in range(2 * QUEUED_PER_ITERATION)))
        await loop.settled()
        first = ["a0", "b0", "a1", "b1", "a2", "b2", "a3", "b3"]
        assert loop.begun[: len(first)] == first and len(loop.begun) < len(first) + QUEUED_PER_ITERATION
        for i in range(3):
            loop.arrive(Arrived(f"q{i}", "quiet"))
            assert await loop.turn() == [f"q{i}"]
        (rest,) = loop.rests  # one timer, whatever arrives meanwhile
        assert 0 < rest <= RESTS * QUEUED_PER_ITERATION * TAKES + TAKES
        before = len(loop.begun)
        loop.rest()
        assert len(loop.begun) == before + QUEUED_PER_ITERATION and loop.rests == [pytest.approx(RESTS * QUEUED_PER_ITERATION * TAKES)]
        while loop.rests:
            loop.rest()
        assert loop.begun[-1] == f"b{2 * QUEUED_PER_ITERATION - 1}" and not loop.rests and not loop.dispatcher._heads_bytes

    asyncio.run(go())


def test_unauthenticated_requests_do_not_pause_without_others() -> None:
    """When no other request was served for a while."""

    async def go() -> None:
        loop = Counting()
        await loop.until_many()
        loop.now += LATELY_S
        flood = [Nobodys(f"{i}", 1) for i in range(5 * QUEUED_PER_ITERATION)]
        loop.arrive(*flood)
        await loop.settled()
        while loop.rests:
            assert not loop.rests[0]
            loop.rest()
        assert loop.begun == [x.name for x in flood]

    asyncio.run(go())


def test_a_few_unauthenticated_requests_are_not_limited() -> None:
    async def go() -> None:
        loop = Counting()
        for _ in range(10):
            before = len(loop.begun)
            loop.arrive(*(Nobodys(f"{i}", 1) for i in range(MANY // 2)), Arrived("q", "quiet"))
            await loop.settled()
            assert len(loop.begun) - before == MANY // 2 + 1 and not loop.rests
            loop.now += LATELY_S

    asyncio.run(go())


def test_waiting_requests_begin_when_the_others_have_ended() -> None:
    """Also if it is long since there were many."""

    async def go() -> None:
        loop = Counting()
        await loop.until_many()
        loop.arrive(*(Nobodys(f"{i}", 1) for i in range(2 * QUEUED_PER_ITERATION)))
        await loop.settled()
        assert 0 < len(loop.begun) < 2 * QUEUED_PER_ITERATION
        loop.now += 10 * LATELY_S
        loop.rest()
        assert len(loop.begun) == 2 * QUEUED_PER_ITERATION

    asyncio.run(go())


def test_a_connection_that_authenticates_is_not_limited_any_more() -> None:
    now, count = 0.0, 0
    them = UnauthenticatedShare(lambda: count, lambda: now)
    before, count = count, 1
    them.began(7, before)
    assert them.knows(7) and not them.knows(8)
    now += LATELY_S
    assert not them.knows(7)


def test_the_memory_of_connections_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    now, count = 0.0, 0
    them = UnauthenticatedShare(lambda: count, lambda: now)
    monkeypatch.setattr(unauthenticated, "CONNECTIONS", 100)
    assert CONNECTIONS >= 100
    for connection in range(1000):
        before, count = count, count + 1
        them.began(connection, before)
    assert len(them._lately) == 100 and them.knows(999) and not them.knows(0)
    now += LATELY_S
    before, count = count, count + 1
    them.began(1, before)
    assert len(them._lately) == 1
