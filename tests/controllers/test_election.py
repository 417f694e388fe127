"""Leader election among several servers: one leader at a time, whatever the store does, with a fake clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kas import kinds
from kas.controllers import election
from kas.controllers.election import LEASE_DURATION_S, RENEW_DEADLINE_S, LeaderElection
from kas.meta import clock
from kas.observe.hooks import Hooks
from kas.registry.registries import Registries
from kas.store import Unavailable, open_store
from kas.types.scheme import BUILTIN


class Loop(asyncio.SelectorEventLoop):
    """A loop whose time advances at once when there is nothing else to do."""

    now = 0.0

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        if not self._ready and self._scheduled:  # type: ignore[attr-defined]
            self.now = max(self.now, self._scheduled[0].when())  # type: ignore[attr-defined]
        super()._run_once()  # type: ignore[misc]


class Controller:
    """Records when it runs, and on which server."""

    name = "controller"

    def __init__(self, server: str, spans: list[tuple[str, float, float]]) -> None:
        self.server, self.spans = server, spans

    async def run(self) -> None:
        began = time.monotonic()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.spans.append((self.server, began, time.monotonic()))


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., Awaitable[None]]], None]:
    """Runs ``story(make, spans)``: ``make(name)`` creates another server of the cluster, ``spans`` are the times when controllers ran."""
    spans: list[tuple[str, float, float]] = []
    loop = Loop()
    monkeypatch.setattr(election.time, "monotonic", loop.time)

    def play(story: Callable[..., Awaitable[None]]) -> None:
        async def run() -> None:
            kinds.install()
            store = open_store(str(tmp_path), sync=False)
            registries = Registries(store, clock.now)
            registries.add_stored(BUILTIN.resources, BUILTIN.resource, 3600, {})
            # The store's thread does not use this loop's time.
            store.commit = lambda op: _done(store, op)  # type: ignore[assignment]
            made = lambda name: LeaderElection(registries, lambda: [Controller(name, spans)], Hooks((), {}, tmp_path / "hooks"))  # noqa: E731
            try:
                await story(made, spans)
            finally:
                store.close()

        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(run())
        finally:
            asyncio.set_event_loop(None)
            loop.close()

    return play


def _done(store: Any, op: Any) -> asyncio.Future[Any]:
    future = asyncio.get_running_loop().create_future()
    try:
        store.commit_now(op)
        future.set_result(op)
    except Exception as e:
        future.set_exception(e)
    return future


async def end(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def test_one_leads_and_hands_over_at_its_end(play):
    async def story(make: Any, spans: list[Any]) -> None:
        first, second = asyncio.create_task(make("one").run()), asyncio.create_task(make("two").run())
        await asyncio.sleep(100)
        await end(first)
        assert [server for server, _, _ in spans] == ["one"] and spans[0][2] - spans[0][1] >= 99
        await asyncio.sleep(10)
        await end(second)
        assert [server for server, _, _ in spans] == ["one", "two"] and spans[1][1] >= spans[0][2]

    play(story)


@pytest.mark.parametrize("hangs_at", [0.0, 3.0, 7.0, 9.9, 11.9])
@pytest.mark.parametrize("hangs", [True, False])
def test_a_leader_that_cannot_renew_stops_before_its_lease_expires(play, hangs, hangs_at):
    async def story(make: Any, spans: list[Any]) -> None:
        leader, other = make("one"), make("two")
        renewed, whole, since = [0.0], leader._try, time.monotonic()

        async def stuck() -> bool:
            if time.monotonic() - since < 20:
                renewed[0] = time.monotonic()
                return bool(await whole())
            if not hangs or time.monotonic() - since < 20 + hangs_at:  # refused at first, then without an answer
                raise Unavailable("no server can be reached")
            await asyncio.get_running_loop().create_future()
            raise AssertionError

        leader._try = leader._release = stuck
        first = asyncio.create_task(leader.run())
        await asyncio.sleep(1)
        second = asyncio.create_task(other.run())
        await asyncio.sleep(60)
        await end(first, second)
        (_, _, ended), (_, began, _) = spans
        assert ended <= renewed[0] + RENEW_DEADLINE_S and renewed[0] + LEASE_DURATION_S <= began

    play(story)
