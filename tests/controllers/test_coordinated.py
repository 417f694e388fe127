"""Which candidate gets a Lease, with a fake clock."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kas.config.features import DEFAULT
from kas.controllers import client, coordinated
from kas.controllers.coordinated import (
    AGAIN_S,
    GROUP,
    MICRO_TIME,
    CandidateCollector,
    CoordinatedElection,
    Disagreement,
    best_of,
    strategy_of,
)
from kas.controllers.coordinated import Candidate as C
from kas.meta import waiting
from kas.meta.offload import POOL
from kas.meta.waiting import TimeSlice
from kas.registry.registries import Registries
from tests.controllers.stored import stored
from tests.filters.serving import until

KEY = ("default", "app")
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


class World:
    """A store, an election in it, and the time."""

    def __init__(self, registries: Registries) -> None:
        self.now = START
        self.election = CoordinatedElection(registries, lambda: self.now)
        self.client = self.election.client

    async def offer(
        self, name: str, binary: str = "1.36.0", emulation: str = "1.36.0", strategy: str = "OldestEmulationVersion", lease: str = "app"
    ) -> None:
        spec = {
            "leaseName": lease, "binaryVersion": binary, "emulationVersion": emulation, "strategy": strategy,
            "renewTime": self.now.strftime(MICRO_TIME),
        }  # fmt: skip
        obj = {"kind": "LeaseCandidate", "apiVersion": f"{GROUP}/v1beta1", "metadata": {"name": name, "namespace": "default"}, "spec": spec}
        assert await self.client.create(GROUP, "leasecandidates", obj) is not None

    async def change(self, registry: Any, name: str, **fields: Any) -> None:
        def change(obj: dict[str, Any]) -> bool:
            obj["spec"].update(fields)
            return True

        assert await self.client.update(registry, "default", name, change) is not None

    async def answer(self, *names: str) -> None:
        for name in names:
            await self.change(self.election.candidates, name, renewTime=self.now.strftime(MICRO_TIME))

    async def renew(self) -> None:
        await self.change(self.election.leases, "app", renewTime=self.now.strftime(MICRO_TIME))

    def later(self, seconds: float) -> None:
        self.now += datetime.timedelta(seconds=seconds)

    def pinged(self) -> list[str]:
        found = map(C.of, self.client.list(GROUP, "leasecandidates", "default"))
        return [c.name for c in found if c.owes_an_answer]

    @property
    def lease(self) -> dict[str, Any]:
        found = self.client.get(GROUP, "leases", *KEY)
        return found["spec"] if found is not None else {}

    async def step(self) -> float | None:
        self.election._filling.listed(())
        return await self.election.step(KEY)


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Callable[[World], Awaitable[None]]], None]:
    def play(story: Callable[[World], Awaitable[None]]) -> None:
        async def run() -> None:
            async with stored(tmp_path) as registries:
                await story(World(registries))

        with DEFAULT.overridden(CoordinatedLeaderElection=True):
            asyncio.run(run())

    return play


def test_the_oldest_emulation_version_leads_and_others_give_way(play):
    async def story(w: World) -> None:
        assert await w.step() is None and w.lease == {}  # there is no candidate
        await w.offer("new")
        assert await w.step() == AGAIN_S
        assert w.lease == {
            "holderIdentity": "new", "leaseDurationSeconds": 5, "renewTime": "2026-01-01T00:00:00.000000Z",
            "strategy": "OldestEmulationVersion",
        }  # fmt: skip
        w.later(3)
        await w.renew()
        await w.offer("old", emulation="1.35.0")
        await w.step()
        assert w.lease["holderIdentity"] == "new" and w.lease["preferredHolder"] == "old"
        # The holder, asked to give way, releases the Lease.
        await w.change(w.election.leases, "app", holderIdentity="")
        await w.step()
        assert w.lease["holderIdentity"] == "old" and "preferredHolder" not in w.lease

    play(story)


def test_candidates_not_heard_of_are_pinged_first(play):
    async def story(w: World) -> None:
        await w.offer("a")
        await w.offer("b", emulation="1.35.0")
        w.later(60)
        assert await w.step() == AGAIN_S and w.pinged() == ["a", "b"] and w.lease == {}
        w.later(1)
        await w.answer("a")
        assert await w.step() == AGAIN_S and w.lease == {}  # the other one may still answer
        w.later(4.5)
        await w.answer("a")
        await w.step()
        assert w.lease["holderIdentity"] == "a" and w.pinged() == ["b"]
        # A late candidate is preferred once it has answered.
        await w.answer("b")
        await w.step()
        assert w.lease["preferredHolder"] == "b"

    play(story)


def test_a_holder_that_ended_is_replaced_by_one_that_answers(play):
    async def story(w: World) -> None:
        await w.offer("a", emulation="1.35.0")
        await w.offer("b")
        await w.step()
        assert w.lease["holderIdentity"] == "a"
        w.later(6)
        await w.step()
        assert w.pinged() == ["a", "b"]
        w.later(5.5)
        await w.answer("b")
        await w.step()
        assert w.lease["holderIdentity"] == "b" and w.lease["renewTime"] == w.now.strftime(MICRO_TIME)
        w.later(20)
        await w.step()
        w.later(6)
        assert await w.step() is None  # no candidate answers; the next sign of one restarts the election

    play(story)


def test_candidates_are_pinged_regularly_and_silent_ones_removed(play):
    async def story(w: World) -> None:
        await w.offer("a")
        await w.step()
        w.later(16 * 60)
        await w.renew()
        await w.step()
        assert w.pinged() == ["a"]
        collector = CandidateCollector(w.client.registries)
        await collector.collect(w.now)
        assert len(w.client.list(GROUP, "leasecandidates")) == 1
        w.later(15 * 60)
        assert await w.step() is None
        await collector.collect(w.now)
        assert w.client.list(GROUP, "leasecandidates") == []

    play(story)


def test_other_strategies_are_left_to_their_owners(play):
    async def story(w: World) -> None:
        await w.offer("a", strategy="example.com/mine")
        await w.step()
        assert w.lease["strategy"] == "example.com/mine" and "holderIdentity" not in w.lease

    play(story)


def test_events_start_elections(play):
    async def story(w: World) -> None:
        task = asyncio.create_task(w.election.run())
        try:
            await w.offer("a")
            await until(lambda: w.lease.get("holderIdentity") == "a")
            await w.change(w.election.leases, "app", holderIdentity="")
            await until(lambda: w.lease.get("holderIdentity") == "a")
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    play(story)


def candidate(name: str, binary: str, emulation: str = "", strategy: str = "s", created: str = "1") -> C:
    spec = {"binaryVersion": binary, "emulationVersion": emulation, "strategy": strategy}
    return C.of({"metadata": {"name": name, "creationTimestamp": created}, "spec": spec})


def test_the_order_of_candidates():
    assert best_of([candidate("a", "1.36.0", "1.35.0"), candidate("b", "1.35.0", "1.35.0")]) == "b"
    assert best_of([candidate("a", "1.9.0", "1.9.0", created="2"), candidate("b", "1.9.0", "1.9.0")]) == "b"
    assert best_of([candidate("a", "1.10.0", "1.10.0"), candidate("b", "1.9.0", "1.9.0")]) == "b"
    assert best_of([candidate("a", "1.9.0", "1.9.0"), candidate("b", "1.9.0", "1.9.0-alpha.1")]) == "b"
    assert best_of([candidate("a", "x", "1.9.0"), candidate("b", "1.9.0")]) == ""


def test_the_newest_binary_chooses_the_strategy():
    assert strategy_of([candidate("a", "1.35.0", strategy="x"), candidate("b", "1.36.0", strategy="y")]) == "y"
    with pytest.raises(Disagreement, match="candidates a, b of one version want x and y"):
        strategy_of([candidate("a", "1.36.0", strategy="x"), candidate("b", "1.36.0", strategy="y")])


def test_candidates_for_other_leases_are_ignored(play):
    async def story(world: World) -> None:
        for i in range(6):
            await world.offer(f"c{i}", lease="app" if i < 2 else f"other{i}")
        election = world.election
        election._filling.listed(())
        read, real = list[str](), world.client.get

        def get(group: str, resource: str, namespace: str, name: str) -> Any:
            read.append(name)
            return real(group, resource, namespace, name)

        world.client.get = get  # type: ignore[method-assign]
        election.client.list = None  # type: ignore[method-assign, assignment]
        await election.step(KEY)
        assert set(read) == {"c0", "c1", "app"}
        election.queue.clear()
        root = election.leases.root
        leases: list[Any] = [SimpleNamespace(key=f"{root}default/{name}", record=None) for name in ("node-1", "other3")]
        election._leases_changed(leases)
        gone: Any = SimpleNamespace(key=f"{election.candidates.root}default/c4", record=None)
        election._candidates_changed([gone])
        assert list(election.queue._order) == [("default", "other3"), ("default", "other4")]
        assert ("default", "other4") not in election._offers and len(election._known) == 5

    play(story)


def test_reading_candidates_yields_the_loop(play, monkeypatch):
    """Users who may create candidates may create thousands for one Lease."""
    paused = []

    class Over(TimeSlice):
        over = True

        async def pause(self) -> None:
            paused.append(1)

    monkeypatch.setattr(coordinated, "TimeSlice", Over)

    async def story(w: World) -> None:
        for name in "abc":
            await w.offer(name)
        assert await w.step() == AGAIN_S and len(paused) == 2 * 3 and w.lease["holderIdentity"] == "a"

    play(story)


def test_a_lease_with_many_candidates_pauses_after_each_pass(play, monkeypatch):
    """Each created or renewed candidate caused a pass over all: with 10,000 of them, one after the other without end."""
    now, looks = [0.0], []
    monkeypatch.setattr(coordinated, "monotonic", lambda: now[0])

    async def story(w: World) -> None:
        await w.offer("a")
        w.election._filling.listed(())

        async def step(key: Any) -> float:
            looks.append(now[0])
            now[0] += 0.5
            return AGAIN_S

        w.election.step = step  # type: ignore[method-assign]
        assert await w.election._paced(KEY) == AGAIN_S
        now[0] += 0.5
        assert await w.election._paced(KEY) == 1.5  # of four times its duration
        now[0] += 1.5
        assert await w.election._paced(KEY) == AGAIN_S and looks == [0.0, 2.5]
        gone: Any = SimpleNamespace(key=f"{w.election.candidates.root}default/a", record=None)
        w.election._candidates_changed([gone])
        assert not w.election._rested

    play(story)


def test_comparing_many_candidates_yields_the_loop(play, monkeypatch):
    monkeypatch.setattr(coordinated, "MANY", 3)
    monkeypatch.setattr(waiting, "TIME_SLICE_S", 0.0)
    monkeypatch.setattr(client, "PAGE", 1)
    aside, run, turns = [], POOL.run, 0

    def noted(work: Any, *args: Any) -> Any:
        aside.append(work.__name__)
        return run(work, *args)

    monkeypatch.setattr(POOL, "run", noted)

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def story(w: World) -> None:
        for i in range(5):
            await w.offer(f"c{i}")
        beside = asyncio.create_task(others())
        w.election._filling.begin()
        w.election._filling.listed(())
        await w.election._filling.fill()
        assert turns >= 5 and len(w.election._known) == 5
        assert await w.election.step(KEY) == AGAIN_S and aside == ["_needed", "_outcome"]
        before = turns
        await CandidateCollector(w.client.registries).collect(w.now)
        beside.cancel()
        assert turns >= before + 5

    play(story)
